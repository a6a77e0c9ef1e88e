/* SPDX-License-Identifier: Apache-2.0 */
/* Ending a plan, which requires that nothing of it is in flight; and ending the cached plans of
 * stepaf_push_pull, which no caller ends. */
#include "core/plan_end.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/plan.h"
#include "core/plan_announce.h"
#include "core/region.h"
#include "core/table.h"

stepaf_status_t stepaf_plan_idle(const struct stepaf_plan_obj *plan)
{
    if (plan->stream && plan->ctx->feature->plan_busy(plan))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "an operation of the plan is in flight");
    if (plan->n_waiting)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "a start of the plan waits for a slot");
    for (int s = 0; s < plan->depth; s++)
        if (stepaf_op_busy(&plan->ops[s]) || plan->ops[s].n_waiting)
            return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                    "operation %u of the plan is in flight", plan->ops[s].seq);
    const struct stepaf_peer *holder = stepaf_plan_holder(plan);
    if (holder)
        return stepaf_error_set_peer(STEPAF_ERR_STATE, STEPAF_PHASE_NONE, holder->who,
                                     STEPAF_WHO_FORMAT " has not released a batch of the plan",
                                     STEPAF_WHO_ARGS(holder->who));
    return STEPAF_OK;
}

stepaf_status_t stepaf_plan_end(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx *ctx = plan->ctx;
    stepaf_status_t status = stepaf_plan_idle(plan);

    if (!status && plan->stream)
        status = ctx->feature->plan_end(plan);
    if (!status && plan->usable && plan->usable == ctx->epoch)
        stepaf_plan_announce_end(plan, ctx->n_peers);
    if (!status && plan->stream)
        ctx->commit.changed = true;
    if (!status)
        stepaf_plan_free(plan);
    return status;
}

/* ---- one-shot plans ---- */

/* Return how many tensors of the plan are in the region. */
static unsigned uses(const struct stepaf_plan_obj *plan, const struct stepaf_region *region)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < plan->n_push; i++)
        n += plan->push[i].region == region;
    for (uint32_t i = 0; i < plan->ctx->n_peers * plan->n_pull; i++)
        n += plan->pull[i].region == region;
    return n;
}

/* Return whether the plan is unused: nothing is in flight, and all requests have been waited
 * for. */
static bool is_spent(const struct stepaf_plan_obj *plan)
{
    for (int s = 0; s < plan->depth; s++)
        if (!plan->ops[s].retired)
            return false;
    return !stepaf_plan_idle(plan);
}

void stepaf_plans_uncache(struct stepaf_ctx *ctx, const struct stepaf_region *region)
{
    stepaf_error_t error = *stepaf_last_error(); /* a plan that is not idle is no failure */
    unsigned n = 0;

    for (uint32_t i = 0; i < ctx->cache.n; i++) {
        const struct stepaf_plan_obj *plan = ctx->cache.plans[i];
        if (uses(plan, region) && is_spent(plan))
            n += uses(plan, region);
    }
    bool all = n == region->uses;
    /* the last plan takes the place of an ended one */
    for (uint32_t i = ctx->cache.n; all && i > 0; i--)
        if (uses(ctx->cache.plans[i - 1], region))
            (void)stepaf_plan_end(ctx->cache.plans[i - 1]);
    (void)stepaf_error_raise(&error);
}

void stepaf_plans_uncache_oldest(struct stepaf_ctx *ctx)
{
    stepaf_error_t error = *stepaf_last_error();
    struct stepaf_plan_obj *oldest = NULL;

    for (uint32_t i = 0; i < ctx->cache.n; i++) {
        struct stepaf_plan_obj *plan = ctx->cache.plans[i];
        if ((!oldest || plan->cached.used < oldest->cached.used) && is_spent(plan))
            oldest = plan;
    }
    if (oldest)
        (void)stepaf_plan_end(oldest);
    (void)stepaf_error_raise(&error);
}
