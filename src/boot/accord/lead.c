/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part: the first of those that are there. */
#include <stdlib.h>

#include "boot/accord/common.h"
#include "boot/accord/lead.h"

void stepaf_accord_lead_drop(struct stepaf_accord *accord)
{
    struct stepaf_accord_lead *lead = &accord->lead;

    for (int r = 0; lead->blobs && r < accord->size; r++)
        stepaf_accord_drop(&lead->blobs[r]);
    stepaf_accord_drop(&lead->best_value);
    lead->leads = lead->proposes = false;
    lead->best = 0;
}

void stepaf_accord_conclude(struct stepaf_accord *accord)
{
    stepaf_accord_lead_drop(accord);
    stepaf_accord_drop(&accord->own);
    stepaf_accord_drop(&accord->before);
    accord->state = STEPAF_ACCORD_DONE;
}

/* All have promised: the value of the latest leader before, if there may have been a decision, else what
 * those who are here have said. */
static bool choose_value(struct stepaf_accord *accord)
{
    struct stepaf_accord_lead *lead = &accord->lead;
    size_t bytes;

    if (lead->best) {
        stepaf_accord_drop(&accord->value);
        accord->value = lead->best_value;
        lead->best_value = (struct stepaf_accord_blob){0};
        return true;
    }
    for (int r = 0; r < accord->size; r++)
        if (!stepaf_accord_is_there(accord, r))
            stepaf_accord_drop(&lead->blobs[r]);
    uint8_t *value = stepaf_accord_value_make(lead->blobs, accord->size, &bytes);
    if (!value) {
        accord->is_starved = true;
        accord->state = STEPAF_ACCORD_FAILED;
        return false;
    }
    stepaf_accord_drop(&accord->value);
    accord->value = (struct stepaf_accord_blob){value, bytes};
    return true;
}

void stepaf_accord_lead_on(struct stepaf_accord *accord)
{
    struct stepaf_accord_lead *lead = &accord->lead;
    uint32_t ballot = (uint32_t)accord->rank + 1;

    while (accord->state == STEPAF_ACCORD_OPEN && lead->leads &&
           stepaf_accord_awaited(accord) < 0) {
        if (lead->proposes) {
            struct stepaf_accord_message decided =
                stepaf_accord_begin(accord, STEPAF_ACCORD_DECIDED, ballot);
            stepaf_accord_say_all(accord, &decided);
            stepaf_accord_conclude(accord);
            return;
        }
        if (!choose_value(accord))
            return;
        lead->proposes = true;
        accord->accepted = ballot;
        for (int r = 0; r < accord->size; r++)
            lead->has_answered[r] = r == accord->rank;
        struct stepaf_accord_message accept =
            stepaf_accord_begin(accord, STEPAF_ACCORD_ACCEPT, ballot);
        accept.value = accord->value.data;
        accept.value_bytes = accord->value.bytes;
        stepaf_accord_say_all(accord, &accept);
    }
}

static void note_best(struct stepaf_accord *accord, uint32_t ballot, const void *value,
                      size_t bytes)
{
    if (ballot <= accord->lead.best)
        return;
    if (stepaf_accord_keep(accord, &accord->lead.best_value, value, bytes))
        accord->lead.best = ballot;
}

void stepaf_accord_lead_begin(struct stepaf_accord *accord)
{
    struct stepaf_accord_lead *lead = &accord->lead;
    uint32_t ballot = (uint32_t)accord->rank + 1;
    struct stepaf_accord_message prepare =
        stepaf_accord_begin(accord, STEPAF_ACCORD_PREPARE, ballot);

    if (accord->promised > ballot) /* to one who has given this rank up: that one will say so */
        return;
    accord->promised = ballot;
    lead->leads = true;
    for (int r = 0; r < accord->size; r++)
        lead->has_answered[r] = r == accord->rank;
    if (!stepaf_accord_keep(accord, &lead->blobs[accord->rank], accord->own.data,
                            accord->own.bytes))
        return;
    if (accord->accepted)
        note_best(accord, accord->accepted, accord->value.data, accord->value.bytes);
    stepaf_accord_say_all(accord, &prepare);
    stepaf_accord_lead_on(accord);
}

void stepaf_accord_lead_promise(struct stepaf_accord *accord, int from,
                                const struct stepaf_accord_message *message)
{
    struct stepaf_accord_lead *lead = &accord->lead;

    if (!lead->leads || lead->proposes || lead->has_answered[from])
        return;
    if (!stepaf_accord_keep(accord, &lead->blobs[from], message->own, message->own_bytes))
        return;
    if (message->accepted && message->value)
        note_best(accord, message->accepted, message->value, message->value_bytes);
    lead->has_answered[from] = true;
    stepaf_accord_lead_on(accord);
}
