/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of delay is, and whether a verdict on it is right. */
#include <stdio.h>

#include "verdict_ask.h"

static const char *const names[VD_KINDS] = {"start", "there",   "queue",      "work",     "back",
                                            "wait",  "starved", "rail-there", "rail-back"};
static const stepaf_verdict_phase_t phases[VD_KINDS] = {
    STEPAF_VERDICT_START,    STEPAF_VERDICT_THERE, STEPAF_VERDICT_FFN_QUEUE,
    STEPAF_VERDICT_FFN_WORK, STEPAF_VERDICT_BACK,  STEPAF_VERDICT_WAIT,
    STEPAF_VERDICT_STARVED,  STEPAF_VERDICT_THERE, STEPAF_VERDICT_BACK};

const char *vd_kind_name(int kind)
{
    return names[kind];
}

bool vd_is_of_network(int kind)
{
    return kind == VD_THERE || kind == VD_BACK || kind == VD_RAIL_THERE || kind == VD_RAIL_BACK;
}

bool vd_is_of_rail(int kind)
{
    return kind == VD_RAIL_THERE || kind == VD_RAIL_BACK;
}

bool vd_is_by_netem(int kind)
{
    return vd_netem_is_open() && vd_is_of_network(kind);
}

static bool is_at_peer(int kind)
{
    return vd_is_of_network(kind) || kind == VD_QUEUE || kind == VD_WORK;
}

void vd_describe(const struct vd_attention *self, const char *what, const struct vd_delay *delay,
                 const stepaf_verdict_t *verdict)
{
    char text[512] = "";
    size_t at = 0;

    for (int k = 0; k < VD_KINDS; k++)
        if (delay->ns[k])
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s %lld us", names[k],
                                   (long long)delay->ns[k] / 1000);
    at += (size_t)snprintf(text + at, sizeof(text) - at, " at FFN %d, rail %d:", delay->ffn,
                           delay->rail);
    if (verdict)
        at += (size_t)snprintf(
            text + at, sizeof(text) - at, " %s, peer %d, rail %d, %lld us instead of %lld;",
            stepaf_verdict_phase_name((stepaf_verdict_phase_t)verdict->phase), verdict->peer,
            verdict->rail, (long long)verdict->took_ns / 1000, (long long)verdict->usual_ns / 1000);
    for (int i = 0; verdict && i < STEPAF_VERDICT_LAST; i++)
        if (verdict->over_ns[i])
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s %lld",
                                   stepaf_verdict_phase_name((stepaf_verdict_phase_t)i),
                                   (long long)verdict->over_ns[i] / 1000);
    if (!verdict)
        snprintf(text + at, sizeof(text) - at, " no verdict, took %lld us, and %lld lately",
                 (long long)self->took_ns / 1000, (long long)self->median_ns / 1000);
    printf("  attention %d, %s:%s\n", self->job->index, what, text);
}

/* Whether the verdict is what the delay was. */
bool vd_is_right(const struct vd_delay *delay, const stepaf_verdict_t *verdict)
{
    int most = 0;

    for (int k = 1; k < VD_KINDS; k++)
        if (delay->ns[k] > delay->ns[most])
            most = k;
    for (int k = 0; k < VD_KINDS; k++)
        if (delay->ns[k] && verdict->over_ns[phases[k]] < delay->ns[k] / 2)
            return false;
    return verdict->phase == phases[most] &&
           verdict->peer == (is_at_peer(most) ? delay->ffn : -1) &&
           verdict->rail == (vd_is_of_rail(most) ? delay->rail : -1);
}

/* Whether who is accused has seen it himself: an FFN rank, or the kernel of this one. */
bool vd_admits(const struct vd_attention *self, const stepaf_verdict_t *verdict)
{
    int64_t over = verdict->over_ns[verdict->phase];

    if (verdict->peer < 0)
        return verdict->phase == STEPAF_VERDICT_STARVED && self->starved_ns >= over / 2;
    const struct vd_truth *truth =
        &vd_shared->truths[verdict->peer][self->job->index][verdict->sequence % VD_TRUTHS];
    if (truth->sequence != verdict->sequence + 1)
        return false;
    return (verdict->phase == STEPAF_VERDICT_FFN_QUEUE && truth->away_ns >= over / 2) ||
           (verdict->phase == STEPAF_VERDICT_FFN_WORK &&
            truth->work_ns - self->work_ns >= over / 2);
}
