/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part of the machine; stepaf_consensus_leader says who leads. */
#include <stdlib.h>

#include "boot/consensus/common.h"
#include "boot/consensus/lead.h"

void stepaf_consensus_lead_drop(struct stepaf_consensus *consensus)
{
    struct stepaf_consensus_lead *lead = &consensus->lead;

    for (int r = 0; lead->blobs && r < consensus->size; r++)
        stepaf_consensus_drop(&lead->blobs[r]);
    stepaf_consensus_drop(&lead->best_value);
    lead->leads = lead->proposes = false;
    lead->best = 0;
}

/* Send OUT to lost members that have no words in the decision, in case they live: a rank that was
 * lost after it had sent its words waits for an answer. */
static void dismiss_absent(struct stepaf_consensus *consensus)
{
    const struct stepaf_consensus_blob *value = &consensus->value;
    struct stepaf_consensus_blob *words = calloc((size_t)consensus->size, sizeof *words);
    struct stepaf_consensus_message out =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_OUT, 0);

    bool is_read =
        words && stepaf_consensus_value_read(value->data, value->bytes, words, consensus->size);
    for (int r = 0; is_read && r < consensus->size; r++)
        if (consensus->is_member[r] && !words[r].data && stepaf_consensus_has_lost(consensus, r))
            consensus->send(consensus->arg, r, &out);
    free(words);
}

void stepaf_consensus_conclude(struct stepaf_consensus *consensus)
{
    dismiss_absent(consensus);
    stepaf_consensus_lead_drop(consensus);
    stepaf_consensus_drop(&consensus->own);
    stepaf_consensus_drop(&consensus->before);
    consensus->state = STEPAF_CONSENSUS_DONE;
}

/* Choose the value once all have promised: the value of the latest earlier leader, if there may
 * have been a decision; otherwise the words of the members that are not lost. */
static bool choose_value(struct stepaf_consensus *consensus)
{
    struct stepaf_consensus_lead *lead = &consensus->lead;
    size_t bytes;

    if (lead->best) {
        stepaf_consensus_drop(&consensus->value);
        consensus->value = lead->best_value;
        lead->best_value = (struct stepaf_consensus_blob){0};
        return true;
    }
    for (int r = 0; r < consensus->size; r++)
        if (!stepaf_consensus_is_there(consensus, r))
            stepaf_consensus_drop(&lead->blobs[r]);
    uint8_t *value = stepaf_consensus_value_make(lead->blobs, consensus->size, &bytes);
    if (!value) {
        stepaf_consensus_starve(consensus);
        return false;
    }
    if (consensus->value_max && bytes > consensus->value_max) {
        free(value);
        consensus->is_too_large = true;
        stepaf_consensus_resign(consensus);
        return false;
    }
    stepaf_consensus_drop(&consensus->value);
    consensus->value = (struct stepaf_consensus_blob){value, bytes};
    return true;
}

/* Begin the leader's current question. */
static struct stepaf_consensus_message begin_question(const struct stepaf_consensus *consensus)
{
    bool proposes = consensus->lead.proposes;
    struct stepaf_consensus_message question = stepaf_consensus_begin(
        consensus, proposes ? STEPAF_CONSENSUS_ACCEPT : STEPAF_CONSENSUS_PREPARE,
        stepaf_consensus_ballot(consensus, consensus->rank));

    if (proposes) {
        question.value = consensus->value.data;
        question.value_bytes = consensus->value.bytes;
    }
    return question;
}

void stepaf_consensus_lead_again(struct stepaf_consensus *consensus, int to)
{
    struct stepaf_consensus_message question = begin_question(consensus);

    if (consensus->lead.leads && stepaf_consensus_is_there(consensus, to) &&
        !consensus->lead.has_answered[to])
        consensus->send(consensus->arg, to, &question);
}

void stepaf_consensus_lead_on(struct stepaf_consensus *consensus)
{
    struct stepaf_consensus_lead *lead = &consensus->lead;
    uint32_t ballot = stepaf_consensus_ballot(consensus, consensus->rank);

    while (consensus->state == STEPAF_CONSENSUS_OPEN && lead->leads &&
           stepaf_consensus_awaited(consensus) < 0) {
        if (lead->proposes) {
            struct stepaf_consensus_message decided =
                stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_DECIDED, ballot);
            stepaf_consensus_say_all(consensus, &decided);
            stepaf_consensus_conclude(consensus);
            return;
        }
        if (!choose_value(consensus))
            return;
        lead->proposes = true;
        consensus->accepted = ballot;
        for (int r = 0; r < consensus->size; r++)
            lead->has_answered[r] = r == consensus->rank;
        struct stepaf_consensus_message accept = begin_question(consensus);
        stepaf_consensus_say_all(consensus, &accept);
    }
}

static void note_best(struct stepaf_consensus *consensus, uint32_t ballot, const void *value,
                      size_t bytes)
{
    if (ballot <= consensus->lead.best)
        return;
    if (stepaf_consensus_keep(consensus, &consensus->lead.best_value, value, bytes))
        consensus->lead.best = ballot;
}

void stepaf_consensus_lead_begin(struct stepaf_consensus *consensus)
{
    struct stepaf_consensus_lead *lead = &consensus->lead;
    uint32_t ballot = stepaf_consensus_ballot(consensus, consensus->rank);

    /* The rank that was promised to has declared this rank lost, and will say so. */
    if (consensus->promised > ballot)
        return;
    consensus->promised = ballot;
    lead->leads = true;
    for (int r = 0; r < consensus->size; r++)
        lead->has_answered[r] = r == consensus->rank;
    if (!stepaf_consensus_keep(consensus, &lead->blobs[consensus->rank], consensus->own.data,
                               consensus->own.bytes))
        return;
    if (consensus->accepted)
        note_best(consensus, consensus->accepted, consensus->value.data, consensus->value.bytes);
    struct stepaf_consensus_message prepare = begin_question(consensus);
    stepaf_consensus_say_all(consensus, &prepare);
    stepaf_consensus_lead_on(consensus);
}

void stepaf_consensus_lead_promise(struct stepaf_consensus *consensus, int from,
                                   const struct stepaf_consensus_message *message)
{
    struct stepaf_consensus_lead *lead = &consensus->lead;

    if (!lead->leads || lead->proposes || lead->has_answered[from])
        return;
    if (!stepaf_consensus_keep(consensus, &lead->blobs[from], message->own, message->own_bytes))
        return;
    if (message->accepted && message->value)
        note_best(consensus, message->accepted, message->value, message->value_bytes);
    lead->has_answered[from] = true;
    stepaf_consensus_lead_on(consensus);
}
