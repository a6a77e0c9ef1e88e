/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in the public interface: making, starting, destroying, and one-shot operations. */
#include <time.h>

#include "api/handles.h"
#include "api/params.h"
#include "core/late.h"
#include "core/plan.h"
#include "core/plan_announce.h"
#include "core/plan_end.h"
#include "core/plan_ready.h"
#include "core/progress.h"
#include "core/start.h"
#include "core/start_check.h"
#include "gpu/stream_some.h"

enum { COMMIT_PAUSE_NS = 50000 /* between checks whether another thread's commit is over */ };

static stepaf_status_t check_role(const struct stepaf_ctx *ctx)
{
    if (!stepaf_is_attention(ctx))
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE,
                                "only attention ranks push and pull");
    return STEPAF_OK;
}

/* Make a plan and, if peers know everything that it names, announce it. A one-shot plan accepts any
 * size that its keys accept, since each call brings its own sizes. */
static stepaf_status_t make(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                            const stepaf_tensor_t *pull, int n_pull, uint32_t flags, bool one_shot,
                            struct stepaf_plan_obj **plan_p)
{
    struct stepaf_plan_obj *plan;

    if (one_shot && ctx->cache.n >= STEPAF_MAX_CACHED)
        stepaf_plans_uncache_oldest(ctx);
    stepaf_status_t status = stepaf_plan_make(ctx, push, n_push, pull, n_pull, flags, &plan);
    if (status)
        return status;
    if (one_shot && (status = stepaf_plan_cache(plan))) {
        stepaf_plan_free(plan);
        return status;
    }
    for (int i = 0; one_shot && i < n_push; i++)
        plan->push[i].bytes = plan->push[i].key->max_bytes;
    if (stepaf_plan_ready(plan))
        status = stepaf_plan_announce(plan);
    else
        ctx->commit.changed = true;
    if (status) {
        stepaf_plan_free(plan);
        return status;
    }
    *plan_p = plan;
    return STEPAF_OK;
}

/* Make a plan that the caller keeps. */
static stepaf_status_t create(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                              const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                              stepaf_plan_h *plan_p)
{
    struct stepaf_plan_obj *plan;
    stepaf_status_t status = STEPAF_OK;

    if (flags & STEPAF_PLAN_PROXY)
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "unknown flags");
    else if (!plan_p)
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "plan_p is NULL");
    if (!status)
        status = make(ctx, push, n_push, pull, n_pull, flags, false, &plan);
    if (!status)
        *plan_p = stepaf_plan_handle(plan);
    return status;
}

stepaf_status_t stepaf_plan_create(stepaf_context_h handle, const stepaf_tensor_t *push, int n_push,
                                   const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                                   stepaf_plan_h *plan_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = check_role(ctx);
    if (!status)
        status = create(ctx, push, n_push, pull, n_pull, flags, plan_p);
    stepaf_leave(ctx);
    return status;
}

static stepaf_status_t check_ffn(const struct stepaf_ctx *ctx, const uint64_t *keys, int n_keys,
                                 uint32_t flags)
{
    if (stepaf_is_attention(ctx))
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE,
                                "attention ranks create plans with stepaf_plan_create");
    if (!(flags & STEPAF_PLAN_STREAM))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "plans of FFN ranks require STEPAF_PLAN_STREAM");
    if (n_keys < 0 || n_keys > STEPAF_MAX_TENSORS || (n_keys && !keys))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "n_keys is %d, which is not 0 to %d, or keys is NULL", n_keys,
                                STEPAF_MAX_TENSORS);
    return STEPAF_OK;
}

stepaf_status_t stepaf_plan_create_ffn(stepaf_context_h handle, const uint64_t *keys, int n_keys,
                                       const stepaf_tensor_t *answers, int n_answers,
                                       uint32_t flags, stepaf_plan_h *plan_p)
{
    stepaf_tensor_t push[STEPAF_MAX_TENSORS];
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = check_ffn(ctx, keys, n_keys, flags);
    for (int i = 0; !status && i < n_keys; i++)
        push[i] = (stepaf_tensor_t){.key = keys[i]};
    if (!status)
        status = create(ctx, push, n_keys, answers, n_answers, flags, plan_p);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_plan_destroy(stepaf_plan_h handle)
{
    struct stepaf_plan_obj *plan;
    stepaf_status_t status = stepaf_enter_plan(handle, &plan);

    if (status)
        return status;
    struct stepaf_ctx *ctx = plan->ctx;
    stepaf_core_progress(ctx); /* a release may have arrived already */
    status = stepaf_plan_end(plan);
    stepaf_leave(ctx);
    return status;
}

unsigned stepaf_plan_depth(stepaf_plan_h handle)
{
    struct stepaf_plan_obj *plan;

    if (stepaf_enter_plan(handle, &plan))
        return 0;
    unsigned depth = plan->depth;
    stepaf_leave(plan->ctx);
    return depth;
}

stepaf_status_t stepaf_plan_set_answers(stepaf_plan_h handle, int n_answers, int64_t patience_us)
{
    struct stepaf_plan_obj *plan;
    stepaf_status_t status = stepaf_enter_plan(handle, &plan);

    if (status)
        return status;
    struct stepaf_ctx *ctx = plan->ctx;
    status = check_role(ctx);
    if (!status)
        status = stepaf_start_check_answers(plan, n_answers, patience_us);
    if (!status && plan->stream)
        status = stepaf_some_set(plan->stream, (uint32_t)n_answers, patience_us);
    else if (!status)
        stepaf_plan_need(plan, (uint32_t)n_answers, patience_us);
    stepaf_leave(ctx);
    return status;
}

/* Leave the context and pause if another thread is in a commit of it and has told the peers that
 * nothing more will follow. Return true then: the caller must enter again. */
static bool gives_way(struct stepaf_ctx *ctx)
{
    if (__builtin_expect(!ctx->commit.has_entered || !ctx->lock.used, 1))
        return false;
    stepaf_leave(ctx);
    nanosleep(&(struct timespec){0, COMMIT_PAUSE_NS}, NULL);
    return true;
}

stepaf_status_t stepaf_start_with(stepaf_plan_h handle, const stepaf_start_params_t *params,
                                  stepaf_request_h *request_p)
{
    stepaf_start_params_t named;
    struct stepaf_plan_obj *plan;
    stepaf_status_t status;

    do
        status = stepaf_enter_plan(handle, &plan);
    while (!status && gives_way(plan->ctx));
    if (status)
        return status;
    struct stepaf_ctx *ctx = plan->ctx;
    if (params)
        status = stepaf_params_of_start(params, &named);
    if (!status)
        status = stepaf_plan_start(plan, params ? &named : NULL, request_p);
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_start(stepaf_plan_h handle, stepaf_request_h *request_p)
{
    struct stepaf_plan_obj *plan = stepaf_peek_plan(handle);

    return __builtin_expect(plan != NULL, 1) ? stepaf_plan_start(plan, NULL, request_p)
                                             : stepaf_start_with(handle, NULL, request_p);
}

/* Return whether a cached plan is for these keys and destinations. */
static bool is_for(const struct stepaf_plan_obj *plan, const stepaf_tensor_t *push, int n_push,
                   const stepaf_tensor_t *pull, int n_pull)
{
    if (plan->n_push != n_push || (int)(plan->n_pull * plan->ctx->n_peers) != n_pull)
        return false;
    for (int i = 0; i < n_push; i++)
        if (plan->push[i].key->id != push[i].key)
            return false;
    for (int i = 0; i < n_pull; i++)
        if (plan->pull[i].key->id != pull[i].key || plan->pull[i].data != pull[i].data ||
            plan->pull[i].bytes != pull[i].bytes)
            return false;
    return true;
}

static struct stepaf_plan_obj *find_cached(struct stepaf_ctx *ctx, const stepaf_tensor_t *push,
                                           int n_push, const stepaf_tensor_t *pull, int n_pull)
{
    for (uint32_t i = 0; i < ctx->cache.n; i++) {
        uint32_t at = (ctx->cache.at + i) % ctx->cache.n;
        struct stepaf_plan_obj *plan = ctx->cache.plans[at];
        if (is_for(plan, push, n_push, pull, n_pull)) {
            /* callers cycle through their plans: the following plan is likely next */
            ctx->cache.at = at + 1;
            return plan;
        }
    }
    return NULL;
}

stepaf_status_t stepaf_push_pull(stepaf_context_h handle, const stepaf_tensor_t *push, int n_push,
                                 const stepaf_tensor_t *pull, int n_pull,
                                 stepaf_request_h *request_p)
{
    struct stepaf_plan_obj *plan = NULL;
    struct stepaf_ctx *ctx;
    stepaf_status_t status;

    do
        status = stepaf_enter_context(handle, &ctx);
    while (!status && gives_way(ctx));
    if (status)
        return status;
    status = check_role(ctx);
    if (!status && n_push >= 0 && n_pull >= 0 && (push || !n_push) && (pull || !n_pull))
        plan = find_cached(ctx, push, n_push, pull, n_pull);
    if (!status && !plan)
        status = make(ctx, push, n_push, pull, n_pull, 0, true, &plan);
    stepaf_start_params_t params = {.push = push, .n_push = n_push};
    if (!status)
        plan->cached.used = ++ctx->cache.uses;
    if (!status)
        status = stepaf_plan_start(plan, n_push ? &params : NULL, request_p);
    stepaf_leave(ctx);
    return status;
}
