/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that can reject a start, run where something is not as usual. */
#include "core/start_check.h"
#include "core/ctx.h"
#include "core/late.h"
#include "core/plan_ready.h"
#include "core/progress.h"
#include "core/region.h"
#include "core/send.h"
#include "core/start.h"
#include "core/wait.h"

stepaf_status_t stepaf_start_check_answers(const struct stepaf_plan_obj *plan, int n_answers,
                                           int64_t patience_us)
{
    if (n_answers < 0 || (uint32_t)n_answers > plan->ctx->n_peers)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "n_answers is %d, which is not 0 to %u", n_answers,
                                plan->ctx->n_peers);
    if (patience_us < 0)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "patience_us is %lld, which is negative", (long long)patience_us);
    return STEPAF_OK;
}

/* Check what the caller changes against the plan. */
static stepaf_status_t check_overrides(struct stepaf_plan_obj *plan,
                                       const stepaf_start_params_t *params)
{
    int expected = plan->scatter ? (int)plan->ctx->n_peers * plan->n_push : plan->n_push;

    if (params->flags & ~(uint32_t)(STEPAF_START_WAIT | STEPAF_START_SKIP_LOST))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START, "unknown flags");
    if (params->n_answers || params->patience_us) {
        stepaf_status_t status =
            stepaf_start_check_answers(plan, params->n_answers, params->patience_us);
        if (status)
            return status;
    }
    if (!params->push)
        return STEPAF_OK;
    if (params->n_push != expected)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "%d push tensors given, %d expected", params->n_push, expected);
    for (int i = 0; i < expected; i++) {
        const stepaf_tensor_t *tensor = &params->push[i];
        const struct stepaf_push *planned = &plan->push[i % plan->n_push];
        if (tensor->key != planned->key->id)
            return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                    "push tensor %d does not have the key of the plan", i);
        if (tensor->bytes > planned->bytes)
            return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_START,
                                    "push tensor %d: %zu bytes, but %u are planned", i,
                                    tensor->bytes, planned->bytes);
        if (!tensor->bytes)
            continue;
        const struct stepaf_region *region =
            stepaf_region_find_linked(plan->ctx, tensor->data, tensor->bytes);
        if (!region)
            return stepaf_region_refuse(plan->ctx, tensor->data, tensor->bytes, STEPAF_PHASE_START,
                                        "push tensor", i);
        plan->on_gpu = plan->on_gpu || region->mem.kind == STEPAF_MEM_CUDA;
    }
    return STEPAF_OK;
}

bool stepaf_start_skips(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                        uint32_t p)
{
    if (plan->proxied.left_out)
        return plan->proxied.left_out[p];
    if (!plan->scatter || !params->push)
        return false;
    for (uint32_t i = 0; i < plan->n_push; i++)
        if (params->push[p * plan->n_push + i].bytes)
            return false;
    return true;
}

/* Return whether the operation is for peer @a p, lost or not. */
static bool start_is_for(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                         uint32_t p)
{
    return !stepaf_start_skips(plan, params, p) &&
           !(plan->ctx->peers[p].lost && params->flags & STEPAF_START_SKIP_LOST);
}

uint32_t stepaf_start_needs(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params)
{
    uint32_t n = params->n_answers ? (uint32_t)params->n_answers : plan->partial.n_answers,
             n_asked = 0;

    if (!n || n == plan->ctx->n_peers)
        return UINT32_MAX;
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        n_asked += start_is_for(plan, params, p);
    return n < n_asked ? n : n_asked;
}

/* Return whether enough peers can be asked without the lost ones. */
static bool is_enough_alive(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        n += start_is_for(plan, params, p) && !plan->ctx->peers[p].lost;
    return n >= stepaf_start_needs(plan, params);
}

/* Return whether the plan's next slot can be used: it is free, or enough peers have released it for
 * an operation that does not need all. The slot cannot be used while bytes are being copied into a
 * GPU's memory, or out of it to a late peer: the bounce buffers have one place per slot. */
static bool can_use_slot(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params)
{
    struct stepaf_op *op = plan->next;
    uint32_t n_needed = stepaf_start_needs(plan, params), n = 0, n_out = 0;

    stepaf_op_expire(op);
    bool is_free = stepaf_plan_slot_free(plan);
    if (is_free && !plan->partial.n_owed)
        return true;
    if (!is_free && (!op->n_held || n_needed == UINT32_MAX ||
                     atomic_load_explicit(&op->status, memory_order_relaxed) == STEPAF_INPROGRESS))
        return false;
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        const struct stepaf_op_peer *op_peer = &op->op_peers[p];
        if (op_peer->held ? plan->on_gpu && stepaf_post_in_flight(&op_peer->post)
                          : stepaf_op_peer_is_open(op_peer))
            return false;
        if (!start_is_for(plan, params, p))
            continue;
        if (stepaf_late_is_out(plan, p))
            n_out++;
        else if (!plan->ctx->peers[p].lost)
            n++;
    }
    return n_needed == UINT32_MAX ? !n_out : n >= n_needed;
}

/* Check that a peer is left. An operation without any peer is rejected, unless the caller itself
 * skips them all. What the host does for a stream plan is part of an operation that has started. */
static stepaf_status_t check_any_left(const struct stepaf_plan_obj *plan,
                                      const stepaf_start_params_t *params)
{
    if (plan->ctx->n_alive || plan->proxied.left_out)
        return STEPAF_OK;
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &plan->ctx->peers[p];
        if (!stepaf_start_skips(plan, params, p))
            return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_START, peer->who,
                                         "no FFN rank is left: " STEPAF_WHO_FORMAT ": %s",
                                         STEPAF_WHO_ARGS(peer->who), peer->reason);
    }
    return STEPAF_OK;
}

static stepaf_status_t check_peers(const struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    if (ctx->n_alive == ctx->n_peers)
        return STEPAF_OK;
    if ((params->flags & STEPAF_START_SKIP_LOST) || is_enough_alive(plan, params))
        return check_any_left(plan, params);
    /* Ranks that the epoch continues without are not missed. */
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        if (peer->lost && !peer->is_out && !stepaf_start_skips(plan, params, p))
            return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_START, peer->who,
                                         STEPAF_WHO_FORMAT " is lost: %s",
                                         STEPAF_WHO_ARGS(peer->who), peer->reason);
    }
    return check_any_left(plan, params);
}

/* Wait until the plan's next slot is free, and no other thread is in a commit. */
static stepaf_status_t wait_for_slot(struct stepaf_plan_obj *plan,
                                     const stepaf_start_params_t *params)
{
    int64_t timeout_us = params->timeout_us;
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_ctx *ctx = plan->ctx;
    bool more = true;

    plan->n_waiting++; /* keeps the plan alive while the lock is free */
    while (more && (ctx->commit.has_entered || !can_use_slot(plan, params))) {
        unsigned n = timeout_us ? stepaf_core_progress_waiting(ctx) : stepaf_core_progress(ctx);
        more = n ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                 : stepaf_waiter_idle(ctx, &waiter, timeout_us);
    }
    plan->n_waiting--;
    if (!ctx->commit.has_entered && can_use_slot(plan, params))
        return STEPAF_OK;
    const struct stepaf_peer *holder = stepaf_late_first(plan->next);
    if (!holder)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RELEASE,
                                "plan %u: slot %u did not become free in time", plan->index,
                                plan->next->slot);
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RELEASE, holder->who,
                                 "plan %u: " STEPAF_WHO_FORMAT " did not release slot %u in time",
                                 plan->index, STEPAF_WHO_ARGS(holder->who), plan->next->slot);
}

/* Check the start against the plan and the context. */
static stepaf_status_t check(struct stepaf_plan_obj *plan, const stepaf_start_params_t *params)
{
    struct stepaf_ctx *ctx = plan->ctx;

    if (ctx->state == STEPAF_CTX_BROKEN || ctx->state == STEPAF_CTX_LEFT)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                "%s: the context can only be finalized",
                                ctx->state == STEPAF_CTX_LEFT ? "this rank has left the job"
                                                              : "a commit failed halfway");
    if (plan->usable != ctx->epoch || !ctx->epoch)
        return plan->stream ? stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                               "plan %u is started on streams only", plan->index)
                            : stepaf_plan_refuse_unready(plan);
    stepaf_status_t status = check_overrides(plan, params);
    return status ? status : check_peers(plan, params);
}

static const stepaf_error_t would_block = {
    .status = STEPAF_ERR_WOULD_BLOCK,
    .phase = STEPAF_PHASE_START,
    .peer_role = -1,
    .peer_rank = -1,
    .peer_world_rank = -1,
    .text = "the plan's next slot is not free: its last operation is in flight, or an FFN rank has "
            "not released its batch",
};

stepaf_status_t stepaf_start_check(struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params)
{
    struct stepaf_ctx *ctx = plan->ctx;
    stepaf_status_t status = check(plan, params);

    if (status || (stepaf_plan_slot_free(plan) && !plan->partial.n_owed))
        return status;
    stepaf_core_progress(ctx);
    if (params->flags & STEPAF_START_WAIT)
        status = wait_for_slot(plan, params);
    if (status)
        return status;
    if (can_use_slot(plan, params)) /* anything may have happened during the wait */
        return check(plan, params);
    ctx->counters.would_block++;
    return stepaf_error_fixed(&would_block);
}
