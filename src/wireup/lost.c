/* SPDX-License-Identifier: Apache-2.0 */
/* The check of lost and leaving ranks in a commit. */
#include "wireup/lost.h"

#include "boot/member_net.h"
#include "core/ctx.h"
#include "core/members.h"
#include "wireup/returns_say.h"

static bool is_leaving(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts, int rank)
{
    bool leaves = adverts[rank].will.leaves;

    for (int r = 0; r < ctx->job.boot.size && adverts[rank].absent; r++)
        leaves = leaves || (!adverts[r].absent && stepaf_returns_says_leaving(&adverts[r], rank));
    return leaves;
}

/* Return the first member that is absent and has not left; -1: none. */
static int first_lost(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (stepaf_members_lacks(ctx, r) && !is_leaving(ctx, adverts, r))
            return r;
    return -1;
}

/* Return the first rank that leaves; -1: none. */
static int first_leaving(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (ctx->job.members.is[r] && is_leaving(ctx, adverts, r))
            return r;
    return -1;
}

/* Return the first present rank that does not continue without lost ranks; -1: none. */
static int first_unwilling(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (!adverts[r].absent && !adverts[r].will.leaves && !adverts[r].will.leaves_lost)
            return r;
    return -1;
}

static bool has_role(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts, int role)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (!adverts[r].absent && !adverts[r].will.leaves && adverts[r].role == role)
            return true;
    return false;
}

static stepaf_status_t refuse_without(const struct stepaf_ctx *ctx,
                                      const struct stepaf_advert *adverts, int lost)
{
    struct stepaf_who who = stepaf_who_is(ctx, lost);
    int unwilling = first_unwilling(ctx, adverts);

    if (unwilling < 0)
        return STEPAF_OK;
    return stepaf_error_set_peer(
        STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT, who,
        STEPAF_WHO_FORMAT " is lost (%.100s), and world rank %d does not go on without it: commit "
                          "with STEPAF_COMMIT_LEAVE_LOST on all ranks, or set STEPAF_LOST=leave",
        STEPAF_WHO_ARGS(who), stepaf_members_why(ctx, lost), unwilling);
}

stepaf_status_t stepaf_lost_check(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    int lost = first_lost(ctx, adverts), leaving = first_leaving(ctx, adverts);
    stepaf_status_t status = lost >= 0 ? refuse_without(ctx, adverts, lost) : STEPAF_OK;

    if (status || (lost < 0 && leaving < 0) ||
        (has_role(ctx, adverts, STEPAF_ATTENTION) && has_role(ctx, adverts, STEPAF_FFN)))
        return status;
    struct stepaf_who who = stepaf_who_is(ctx, lost >= 0 ? lost : leaving);
    if (lost < 0)
        return stepaf_error_set_peer(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT, who,
                                     STEPAF_WHO_FORMAT
                                     " cannot leave: no other rank of its role would be left",
                                     STEPAF_WHO_ARGS(who));
    return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT, who,
                                 STEPAF_WHO_FORMAT
                                 " is lost (%.100s), and no other rank of its role is left",
                                 STEPAF_WHO_ARGS(who), stepaf_members_why(ctx, lost));
}

void stepaf_lost_take_out(struct stepaf_ctx *ctx, struct stepaf_advert *adverts)
{
    for (int r = 0; r < ctx->job.boot.size; r++) {
        if (!ctx->job.members.is[r] || ctx->job.members.returned[r] || !is_leaving(ctx, adverts, r))
            continue;
        stepaf_member_net_set_left(ctx->job.members.net, r);
        ctx->job.members.present[r] = 0;
        adverts[r].was_member = true;
        adverts[r].absent = true;
    }
}
