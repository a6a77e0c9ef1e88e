/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"

enum { STEPS = 200 };

void calls_open(struct vside *a, struct vside *b, const char *settings)
{
    static char all[256];

    snprintf(all, sizeof(all), "%s VERBS_CONNECT=cm", settings);
    vside_settings = all;
    vside_initiates = false;
    vside_open(b, 1);
    vside_initiates = true;
    vside_open(a, 1);
    vside_initiates = false;
}

void calls_meet(struct vside *a, struct vside *b)
{
    vside_join(a, b);
}

void calls_drive(struct vside *a, struct vside *b)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + 1000000000;

    for (int i = 0; i < STEPS; i++) {
        (void)stepaf_verbs_cm_step((struct stepaf_verbs *)a->transport, deadline_ns, 0);
        (void)stepaf_verbs_cm_step((struct stepaf_verbs *)b->transport, deadline_ns, 0);
    }
}

stepaf_status_t calls_join(struct vside *side, char reason[STEPAF_REASON_MAX])
{
    uint32_t peer = UINT32_MAX;

    reason[0] = '\0';
    stepaf_status_t status =
        stepaf_verbs_ops.finish_connects(side->transport, stepaf_monotonic_ns(), 0, &peer, reason);
    if (status && peer) /* it is the only one */
        snprintf(reason, STEPAF_REASON_MAX, "the wrong peer: %u", peer);
    return status;
}

enum stepaf_verbs_call_state calls_state(const struct vside *side, unsigned path)
{
    return (enum stepaf_verbs_call_state)vside_link(side, 0)->calls[path].state;
}

uint32_t calls_qpn(const struct vside *side, unsigned path)
{
    return vside_link(side, 0)->paths[path].qp->qp_num;
}
