/* SPDX-License-Identifier: Apache-2.0 */
/* The barrier of any group. In each round each rank tells the one d places on, and waits for the
 * one d places back; d doubles. After the last round, news of each rank has arrived at all. */
#include "base/error.h"
#include "boot/control/control.h"

static bool take_token(struct stepaf_control_link *link, int channel, int round)
{
    if (!link || !link->channels[channel].tokens[round])
        return false;
    link->channels[channel].tokens[round]--;
    return true;
}

static bool swap_tokens(struct stepaf_control *control, int channel, const int *ranks, int n,
                        int place, int round, int64_t deadline_ns)
{
    struct stepaf_control_frame frame = {
        .type = STEPAF_CONTROL_TOKEN, .number = (uint32_t)channel, .detail = (uint32_t)round};
    int on = ranks[(place + (1 << round)) % n], back = ranks[(place - (1 << round) + n) % n];
    struct stepaf_control_link *to = stepaf_control_reach(control, on, channel, deadline_ns);
    struct stepaf_control_try attempt = {.again_ns = 0};

    if (to)
        stepaf_control_send(to, &frame, NULL);
    while (to) {
        if (take_token(control->links[back], channel, round))
            return true;
        /* Others may be lost: a rank that waits for one of them tells all, and a rank that has come
         * through may end while its last token is still being passed on. */
        if (!stepaf_control_goes_on(control, channel, &back, 1, back) ||
            !stepaf_control_move_on(control, back, channel, &attempt, deadline_ns))
            break;
    }
    stepaf_control_give_up(control, channel, to ? back : on, round);
    return false;
}

stepaf_status_t stepaf_control_barrier(struct stepaf_control *control, int channel,
                                       const int *ranks, int n, int64_t deadline_ns)
{
    int place = 0;

    while (place < n && ranks[place] != control->place.rank)
        place++;
    if (place == n)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER,
                                "tcp bootstrap: rank %d is not in the group", control->place.rank);
    for (int round = 0; 1 << round < n; round++)
        if (!swap_tokens(control, channel, ranks, n, place, round, deadline_ns))
            break;
    control->waiting[channel].is_on = false;
    return stepaf_control_raise(control, channel);
}
