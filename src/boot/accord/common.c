/* SPDX-License-Identifier: Apache-2.0 */
/* What both parts of the machine need: who is there, what is kept, what is said. */
#include <stdlib.h>
#include <string.h>

#include "boot/accord/common.h"

void stepaf_accord_drop(struct stepaf_accord_blob *blob)
{
    free(blob->data);
    *blob = (struct stepaf_accord_blob){0};
}

/* Keep a copy in place of what was there. */
bool stepaf_accord_keep(struct stepaf_accord *accord, struct stepaf_accord_blob *blob,
                        const void *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);

    stepaf_accord_drop(blob);
    if (!copy) {
        accord->is_starved = true;
        accord->state = STEPAF_ACCORD_FAILED;
        return false;
    }
    if (bytes)
        memcpy(copy, data, bytes);
    *blob = (struct stepaf_accord_blob){copy, bytes};
    return true;
}

/* Each counts two, the first three: so no two halves are both more than half. */
bool stepaf_accord_is_majority(const struct stepaf_accord *accord)
{
    int all = 0, there = 0, first = 1;

    for (int r = 0; r < accord->size; r++) {
        if (!accord->is_member[r])
            continue;
        all += 2 + first;
        there += accord->lost[r] ? 0 : 2 + first;
        first = 0;
    }
    return 2 * there > all;
}

int stepaf_accord_leader(const struct stepaf_accord *accord)
{
    int rank = 0;

    while (rank < accord->size && !stepaf_accord_is_there(accord, rank))
        rank++;
    return rank;
}

int stepaf_accord_awaited(const struct stepaf_accord *accord)
{
    if (accord->state != STEPAF_ACCORD_OPEN)
        return -1;
    if (!accord->lead.leads)
        return stepaf_accord_leader(accord);
    for (int r = 0; r < accord->size; r++)
        if (stepaf_accord_is_there(accord, r) && !accord->lead.has_answered[r])
            return r;
    return -1;
}

struct stepaf_accord_message stepaf_accord_begin(const struct stepaf_accord *accord,
                                                 enum stepaf_accord_kind kind, uint32_t ballot)
{
    return (struct stepaf_accord_message){
        .kind = kind, .number = accord->number, .ballot = ballot, .lost = accord->lost};
}

void stepaf_accord_say_all(struct stepaf_accord *accord,
                           const struct stepaf_accord_message *message)
{
    for (int r = 0; r < accord->size; r++)
        if (r != accord->rank && stepaf_accord_is_there(accord, r))
            accord->send(accord->arg, r, message);
}

/* The decision for one who has not accepted it. */
void stepaf_accord_tell(struct stepaf_accord *accord, int to, uint32_t number)
{
    const struct stepaf_accord_blob *value =
        number == accord->number ? &accord->value : &accord->before;
    struct stepaf_accord_message message = stepaf_accord_begin(accord, STEPAF_ACCORD_DECIDED, 0);

    message.number = number;
    message.value = value->data;
    message.value_bytes = value->bytes;
    if (message.value && to >= 0)
        accord->send(accord->arg, to, &message);
    else if (message.value)
        stepaf_accord_say_all(accord, &message);
}
