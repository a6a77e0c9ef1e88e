/* SPDX-License-Identifier: Apache-2.0 */
/* Loss of a link, or of one path of a link. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "transport/verbs/failover.h"

void stepaf_verbs_fence(struct stepaf_link *base)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)base;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (link->is_bare)
        return;
    if (link->failover)
        stepaf_verbs_failover_end(link);
    /* The device releases the tensors, and reports that for each work request. */
    for (unsigned i = 0; i < link->n_paths; i++) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        int error = verbs->provider->modify_qp(path->qp, &attr, IBV_QP_STATE);
        if (error)
            stepaf_log_warn("verbs: %s: queue pair 0x%x of a lost peer does not close: %s",
                            path->rail->name, path->qp->qp_num, strerror(error));
    }
}

void stepaf_verbs_lost(struct stepaf_verbs_link *link, const char *format, ...)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_upcalls *up = verbs->base.up;
    char reason[STEPAF_REASON_MAX];
    va_list arguments;

    if (link->base.dead || link->proof == STEPAF_VERBS_REFUTED)
        return;
    if (link->proof == STEPAF_VERBS_ASKED) { /* another transport may work */
        link->proof = STEPAF_VERBS_REFUTED;
        return;
    }
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    if (verbs->closing)
        link->base.dead = true; /* the core takes in nothing any more */
    else
        up->lost(up, &link->base, reason);
    stepaf_verbs_fence(&link->base);
}

void stepaf_verbs_path_lost(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                            const char *format, ...)
{
    char reason[STEPAF_REASON_MAX];
    va_list arguments;

    if (link->base.dead || path->closed)
        return;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    const char *trouble = path->rail->trouble;
    if (!stepaf_verbs_failover_close(link, path->rail_index, reason))
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: %s%s%s", path->rail->name, path->qp->qp_num,
                          reason, trouble ? "; before that: " : "", trouble ? trouble : "");
}
