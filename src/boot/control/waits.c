/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank all wait for. A rank that does not come keeps the ranks waiting that need its data,
 * and these keep others waiting: in this exchange, or in the next, which some have already begun.
 * Therefore a rank that has waited for long says for which rank, a rank that receives that and
 * waits as well does the same, and each passes on what it receives from the rank that it waits for.
 * The rank at the end of such a chain is one that says nothing. */
#include "base/time.h"
#include "boot/control/control.h"

enum {
    SAY_NS = 500000000, /* before the deadline, and again after as long */
    FRESH = 4           /* what a rank has said counts for so many times as long */
};

int64_t stepaf_control_waits_from(int64_t deadline_ns)
{
    return deadline_ns - SAY_NS;
}

int stepaf_control_last_of(const struct stepaf_control *control, int channel, int rank)
{
    const struct stepaf_control_link *link = control->links[rank];

    if (!link ||
        stepaf_monotonic_ns() - link->channels[channel].said_ns > FRESH * (int64_t)SAY_NS ||
        link->channels[channel].waits_for == control->place.rank)
        return rank;
    return link->channels[channel].waits_for;
}

void stepaf_control_say_waits(struct stepaf_control *control, int channel)
{
    struct stepaf_control_waiting *waiting = &control->waiting[channel];
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_WAITS, .number = (uint32_t)channel};
    int64_t now_ns = stepaf_monotonic_ns();

    if (!waiting->is_on)
        return;
    int last = stepaf_control_last_of(control, channel, waiting->rank);
    if (last == waiting->said && now_ns - waiting->said_ns < SAY_NS)
        return;
    waiting->said = last;
    waiting->said_ns = now_ns;
    frame.detail = (uint32_t)last;
    for (int to = 0; to < control->place.size; to++)
        if (control->links[to])
            stepaf_control_send(control->links[to], &frame, NULL);
}

bool stepaf_control_hear_waits(struct stepaf_control_link *link, uint32_t channel, uint32_t rank)
{
    if (channel >= STEPAF_CONTROL_CHANNELS || rank >= (uint32_t)link->control->place.size)
        return false;
    link->channels[channel].waits_for = (int)rank;
    link->channels[channel].said_ns = stepaf_monotonic_ns();
    stepaf_control_say_waits(link->control, (int)channel);
    return true;
}
