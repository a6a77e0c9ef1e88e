/* SPDX-License-Identifier: Apache-2.0 */
#include "wireup/lost.h"

#include "core/ctx.h"
#include "core/members.h"

static struct stepaf_who name_rank(const struct stepaf_ctx *ctx, int world_rank)
{
    const struct stepaf_rank *its = &ctx->job.ranks[world_rank];

    return (struct stepaf_who){its->role, (int)its->rank, world_rank};
}

/* The first that is there, and has not been told to go on; -1: none. */
static int first_unwilling(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (!adverts[r].absent && !adverts[r].leaves_lost)
            return r;
    return -1;
}

static bool has_role(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts, int role)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (!adverts[r].absent && adverts[r].role == role)
            return true;
    return false;
}

stepaf_status_t stepaf_lost_check(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    int lost = stepaf_members_first_lacking(ctx), unwilling = first_unwilling(ctx, adverts);

    if (lost < 0)
        return STEPAF_OK;
    struct stepaf_who who = name_rank(ctx, lost);
    if (unwilling >= 0)
        return stepaf_error_set_peer(
            STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT, who,
            STEPAF_WHO_FORMAT
            " is lost (%.100s), and world rank %d does not go on without it: have all ranks commit "
            "with STEPAF_COMMIT_LEAVE_LOST, or set STEPAF_LOST=leave",
            STEPAF_WHO_ARGS(who), stepaf_members_why(ctx, lost), unwilling);
    if (!has_role(ctx, adverts, STEPAF_ATTENTION) || !has_role(ctx, adverts, STEPAF_FFN))
        return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT, who,
                                     STEPAF_WHO_FORMAT
                                     " is lost (%.100s), and no other rank of its role is left",
                                     STEPAF_WHO_ARGS(who), stepaf_members_why(ctx, lost));
    return STEPAF_OK;
}
