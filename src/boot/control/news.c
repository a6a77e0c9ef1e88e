/* SPDX-License-Identifier: Apache-2.0 */
/* News that must reach all ranks: each rank tells the ranks that it is connected to, and a rank
 * that receives the news for the first time does the same. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "boot/control/control.h"

void stepaf_control_note_lost(struct stepaf_control *control, int rank)
{
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_LOST, .number = (uint32_t)rank};

    if (rank == control->place.rank || control->fates[rank])
        return;
    control->fates[rank] |= STEPAF_CONTROL_IS_LOST;
    for (int to = 0; to < control->place.size; to++)
        if (control->links[to])
            stepaf_control_send(control->links[to], &frame, NULL);
}

/* A failure on the wire. */
struct report {
    int32_t status;
    char text[STEPAF_CONTROL_TEXT_MAX];
};

void stepaf_control_tell_failure(struct stepaf_control_link *link, int channel)
{
    const struct stepaf_control_failure *failure = &link->control->failures[channel];
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_FAIL,
                                         .number = (uint32_t)channel,
                                         .detail = (uint32_t)failure->rank,
                                         .bytes = sizeof(struct report)};
    struct report report = {.status = failure->status};

    memcpy(report.text, failure->text, sizeof report.text);
    stepaf_control_send(link, &frame, &report);
}

void stepaf_control_note_failure(struct stepaf_control *control, int channel,
                                 stepaf_status_t status, int rank, const char *text)
{
    struct stepaf_control_failure *failure = &control->failures[channel];

    if (failure->status != STEPAF_OK)
        return;
    *failure = (struct stepaf_control_failure){.status = status, .rank = rank};
    snprintf(failure->text, sizeof failure->text, "%s", text);
    for (int to = 0; to < control->place.size; to++)
        if (control->links[to])
            stepaf_control_tell_failure(control->links[to], channel);
}

stepaf_status_t stepaf_control_raise(const struct stepaf_control *control, int channel)
{
    const struct stepaf_control_failure *failure = &control->failures[channel];
    stepaf_phase_t phase =
        channel == STEPAF_CONTROL_EXCHANGE ? STEPAF_PHASE_NONE : STEPAF_PHASE_BARRIER;

    if (failure->status == STEPAF_OK)
        return STEPAF_OK;
    return stepaf_error_set_peer(failure->status, phase, (struct stepaf_who){-1, -1, failure->rank},
                                 "%s", failure->text);
}
