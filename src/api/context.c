/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "api/handles.h"
#include "base/time.h"
#include "boot/boot_auto.h"
#include "boot/boot_join.h"
#include "boot/boot_tcp.h"
#include "core/progress.h"
#include "core/thread.h"
#include "core/wait.h"
#include "gpu/feature.h"
#include "wireup/commit.h"
#include "wireup/init.h"

/* A job of processes that no launcher knows of, as the libraries with a bootstrap do it. */
static stepaf_status_t init_alone(int choice, const struct stepaf_env *env,
                                  const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    stepaf_boot_t boot;
    stepaf_status_t status = choice == STEPAF_ENV_BOOT_local ? stepaf_boot_join(env, &boot)
                                                             : stepaf_boot_tcp(env, &boot);

    if (status != STEPAF_OK)
        return status;
    status = stepaf_init(&boot, params, ctx_p);
    if (status != STEPAF_OK)
        boot.close(boot.self);
    return status;
}

static stepaf_status_t init_chosen(const struct stepaf_env *env, const stepaf_params_t *params,
                                   stepaf_context_h *ctx_p)
{
    int choice = stepaf_boot_choose(env);
    stepaf_boot_init_t init;

    if (choice < 0)
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "nothing has launched this process: start it by mpirun, "
                                "srun --mpi=pmix, torchrun or stepaf-run, set STEPAF_LOCAL_SIZE "
                                "and STEPAF_LOCAL_RANK or STEPAF_MEET, STEPAF_SIZE and "
                                "STEPAF_RANK, or give stepaf_init a bootstrap");
    if (choice == STEPAF_ENV_BOOT_local || choice == STEPAF_ENV_BOOT_tcp)
        return init_alone(choice, env, params, ctx_p);
    stepaf_status_t status = stepaf_boot_load(choice, &init);
    return status ? status : init(params, ctx_p);
}

/* The launcher's bootstrap calls stepaf_init again, with itself. */
static stepaf_status_t init_auto(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    struct stepaf_env env;
    stepaf_status_t status = stepaf_env_load_boot(&env);

    if (status)
        return status;
    status = init_chosen(&env, params, ctx_p);
    stepaf_env_free(&env);
    return status;
}

stepaf_status_t stepaf_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p)
{
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_ctx *ctx;

    if (!boot)
        return init_auto(params, ctx_p);
    int slot = stepaf_handle_reserve();
    if (slot < 0)
        status = stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_INIT,
                                  "this process has %d contexts already", STEPAF_HANDLE_CONTEXTS);
    /* Tells the others of a failure, too. */
    status = stepaf_ctx_init(boot, params, &stepaf_gpu_feature, status, ctx_p ? &ctx : NULL);
    if (!status) {
        stepaf_handle_add(ctx, slot);
        *ctx_p = stepaf_ctx_handle(ctx);
    } else if (slot >= 0) {
        stepaf_handle_unreserve(slot);
    }
    return status;
}

void stepaf_finalize(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx || ctx->job.ranks[ctx->job.boot.rank].pid != (uint32_t)getpid())
        return;
    stepaf_handle_remove(ctx);
    stepaf_ctx_free(ctx);
}

stepaf_role_t stepaf_role(stepaf_context_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? ctx->role : STEPAF_ROLE_AUTO;
}

int stepaf_rank(stepaf_context_h handle, stepaf_group_t group)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx && (unsigned)group <= STEPAF_GROUP_FFN ? ctx->job.rank[group] : -1;
}

int stepaf_size(stepaf_context_h handle, stepaf_group_t group)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx && (unsigned)group <= STEPAF_GROUP_FFN ? ctx->job.group_size[group] : -1;
}

int stepaf_world_rank(stepaf_context_h handle, stepaf_group_t group, int rank)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx || (unsigned)group > STEPAF_GROUP_FFN || rank < 0 ||
        rank >= ctx->job.group_size[group])
        return -1;
    return ctx->job.groups[group][rank];
}

int stepaf_n_peers(stepaf_context_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? (int)ctx->n_peers : -1;
}

int stepaf_peer_rank(stepaf_context_h handle, int index)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx && index >= 0 && (uint32_t)index < ctx->n_peers ? ctx->peers[index].who.rank : -1;
}

int stepaf_peer_index(stepaf_context_h handle, int rank)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? stepaf_find_peer(ctx, rank) : -1;
}

stepaf_status_t stepaf_commit(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);
    stepaf_status_t status;

    if (!ctx)
        return stepaf_handle_bad("context");
    stepaf_lock_enter(&ctx->lock);
    if (ctx->state != STEPAF_CTX_OPEN) {
        bool broken = ctx->state == STEPAF_CTX_BROKEN;
        stepaf_leave(ctx);
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                broken ? "an earlier commit failed halfway"
                                       : "another thread is in a commit");
    }
    if (ctx->inbox.dispatching && !stepaf_core_is_dispatching(ctx)) {
        stepaf_leave(ctx);
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                "called by the batch handler, whose batch is not released");
    }
    ctx->state = STEPAF_CTX_COMMITTING;
    stepaf_leave(ctx);
    stepaf_core_thread_stop(ctx);
    stepaf_lock_enter(&ctx->lock);
    status = stepaf_error_in(stepaf_core_commit(ctx), STEPAF_PHASE_COMMIT);
    if (ctx->state == STEPAF_CTX_COMMITTING)
        ctx->state = STEPAF_CTX_OPEN;
    bool has_links = ctx->epoch > 0;
    stepaf_leave(ctx);
    if (has_links) {
        stepaf_status_t thread = stepaf_core_thread_start(ctx);
        status = status ? status : thread;
    }
    return status;
}

uint32_t stepaf_epoch(stepaf_context_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? atomic_load_explicit(&ctx->commit.n_done, memory_order_relaxed) : 0;
}

stepaf_status_t stepaf_barrier(stepaf_context_h handle, stepaf_group_t group, int64_t timeout_us)
{
    struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx)
        return stepaf_handle_bad("context");
    if ((unsigned)group > STEPAF_GROUP_FFN)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER, "unknown group");
    if (ctx->job.rank[group] < 0)
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_BARRIER,
                                "this rank is not a member of the group");
    int64_t began_ns = stepaf_monotonic_ns();
    timeout_us = stepaf_timeout_us(ctx, timeout_us);
    stepaf_lock_enter(&ctx->lock);
    stepaf_core_flush(ctx, timeout_us);
    stepaf_leave(ctx);
    int64_t left_us = timeout_us - (stepaf_monotonic_ns() - began_ns) / 1000;
    stepaf_status_t status =
        ctx->job.boot.barrier(ctx->job.boot.self, group, ctx->job.groups[group],
                              ctx->job.group_size[group], left_us > 0 ? left_us : 0);
    return stepaf_error_in(status, STEPAF_PHASE_BARRIER);
}

stepaf_status_t stepaf_progress(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    (void)stepaf_core_progress(ctx);
    bool handle_batches = ctx->inbox.handler != NULL;
    stepaf_leave(ctx);
    if (handle_batches)
        stepaf_core_dispatch(ctx);
    return STEPAF_OK;
}
