/* SPDX-License-Identifier: Apache-2.0 */
#include "lost.h"

#include <stdio.h>

enum { NAME_MAX_BYTES = 48 };

/* "rank 3 (FFN 1)" */
static const char *name_rank(stepaf_context_h ctx, int world, char *name)
{
    static const struct {
        stepaf_group_t group;
        const char *word;
    } groups[] = {{STEPAF_GROUP_ATTENTION, "attention"}, {STEPAF_GROUP_FFN, "FFN"}};
    for (int g = 0; g < 2; g++) {
        for (int i = 0; i < stepaf_size(ctx, groups[g].group); i++) {
            if (stepaf_world_rank(ctx, groups[g].group, i) != world)
                continue;
            snprintf(name, NAME_MAX_BYTES, "rank %d (%s %d)", world, groups[g].word, i);
            return name;
        }
    }
    snprintf(name, NAME_MAX_BYTES, "rank %d", world);
    return name;
}

int trouble_lost(stepaf_context_h ctx, int world, struct trouble *trouble_p)
{
    char name[NAME_MAX_BYTES];
    trouble_p->lost = world;
    return reason_failed(&trouble_p->reason, "%s was lost while decoding",
                         name_rank(ctx, world, name));
}

int trouble_silent(stepaf_context_h ctx, int world, int64_t timeout_us, struct trouble *trouble_p)
{
    char name[NAME_MAX_BYTES];
    trouble_p->lost = world;
    return reason_failed(&trouble_p->reason, "%s has been silent for %g s",
                         name_rank(ctx, world, name), (double)timeout_us * 1e-6);
}

int trouble_malformed(stepaf_context_h ctx, int world, const char *what, struct trouble *trouble_p)
{
    char name[NAME_MAX_BYTES];
    trouble_p->lost = -1;
    return reason_failed(&trouble_p->reason, "%s has sent a malformed %s",
                         name_rank(ctx, world, name), what);
}

int trouble_status(stepaf_context_h ctx, stepaf_status_t status, const char *what,
                   int64_t timeout_us, struct trouble *trouble_p)
{
    const stepaf_error_t *error = stepaf_last_error();
    int world = error->status == status ? error->peer_world_rank : -1;
    if (status == STEPAF_ERR_PEER_LOST && world >= 0)
        return trouble_lost(ctx, world, trouble_p);
    if (status == STEPAF_ERR_TIMEOUT && world >= 0)
        return trouble_silent(ctx, world, timeout_us, trouble_p);
    trouble_p->lost = -1;
    return reason_failed(&trouble_p->reason, "%s: %s", what,
                         error->status == status ? error->text : stepaf_status_text(status));
}
