/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that both parts of the machine use: who is there, what is kept, what is sent. */
#include <stdlib.h>
#include <string.h>

#include "boot/consensus/common.h"

void stepaf_consensus_drop(struct stepaf_consensus_blob *blob)
{
    free(blob->data);
    *blob = (struct stepaf_consensus_blob){0};
}

void stepaf_consensus_starve(struct stepaf_consensus *consensus)
{
    consensus->is_starved = true;
    consensus->state = STEPAF_CONSENSUS_FAILED;
}

void stepaf_consensus_resign(struct stepaf_consensus *consensus)
{
    struct stepaf_consensus_message resign =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_RESIGN, 0);

    consensus->state = STEPAF_CONSENSUS_FAILED;
    stepaf_consensus_say_all(consensus, &resign);
}

/* Keep a copy in place of the old contents. */
bool stepaf_consensus_keep(struct stepaf_consensus *consensus, struct stepaf_consensus_blob *blob,
                           const void *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);

    stepaf_consensus_drop(blob);
    if (!copy) {
        stepaf_consensus_starve(consensus);
        return false;
    }
    if (bytes)
        memcpy(copy, data, bytes);
    *blob = (struct stepaf_consensus_blob){copy, bytes};
    return true;
}

/* Each member counts two, the first three: so no two halves are both more than half. */
bool stepaf_consensus_is_majority(const struct stepaf_consensus *consensus)
{
    int all = 0, there = 0, first = 1;

    for (int r = 0; r < consensus->size; r++) {
        if (!consensus->is_member[r])
            continue;
        all += 2 + first;
        there += stepaf_consensus_has_lost(consensus, r) ? 0 : 2 + first;
        first = 0;
    }
    return 2 * there > all;
}

int stepaf_consensus_leader(const struct stepaf_consensus *consensus)
{
    int leader = consensus->size;

    for (int r = consensus->size - 1; r >= 0; r--)
        if (stepaf_consensus_is_there(consensus, r) &&
            (leader == consensus->size || !consensus->is_new[r] || consensus->is_new[leader]))
            leader = r;
    return leader;
}

int stepaf_consensus_awaited(const struct stepaf_consensus *consensus)
{
    if (consensus->state != STEPAF_CONSENSUS_OPEN)
        return -1;
    if (!consensus->lead.leads)
        return stepaf_consensus_leader(consensus);
    for (int r = 0; r < consensus->size; r++)
        if (stepaf_consensus_is_silent(consensus, r))
            return r;
    return -1;
}

bool stepaf_consensus_is_silent(const struct stepaf_consensus *consensus, int rank)
{
    return consensus->state == STEPAF_CONSENSUS_OPEN && consensus->lead.leads &&
           stepaf_consensus_is_there(consensus, rank) && !consensus->lead.has_answered[rank];
}

struct stepaf_consensus_message stepaf_consensus_begin(const struct stepaf_consensus *consensus,
                                                       enum stepaf_consensus_kind kind,
                                                       uint32_t ballot)
{
    return (struct stepaf_consensus_message){.kind = kind,
                                             .number = consensus->number,
                                             .ballot = ballot,
                                             .life = consensus->lives[consensus->rank],
                                             .gone = consensus->gone};
}

void stepaf_consensus_say_all(struct stepaf_consensus *consensus,
                              const struct stepaf_consensus_message *message)
{
    for (int r = 0; r < consensus->size; r++)
        if (r != consensus->rank && stepaf_consensus_is_there(consensus, r))
            consensus->send(consensus->arg, r, message);
}

/* Send the decision to a rank that has not accepted it. */
void stepaf_consensus_tell(struct stepaf_consensus *consensus, int to, uint32_t number)
{
    const struct stepaf_consensus_blob *value =
        number == consensus->number ? &consensus->value : &consensus->before;
    struct stepaf_consensus_message message =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_DECIDED, 0);

    message.number = number;
    message.value = value->data;
    message.value_bytes = value->bytes;
    if (message.value && to >= 0)
        consensus->send(consensus->arg, to, &message);
    else if (message.value)
        stepaf_consensus_say_all(consensus, &message);
}
