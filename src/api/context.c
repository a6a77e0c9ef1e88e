/* SPDX-License-Identifier: Apache-2.0 */
/* A context in the public interface: bootstrap, init, commit, finalize. */
#include <unistd.h>

#include "api/handles.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/time.h"
#include "boot/boot_advance.h"
#include "boot/boot_auto.h"
#include "boot/boot_join.h"
#include "boot/boot_return.h"
#include "boot/boot_tcp.h"
#include "core/members.h"
#include "core/thread.h"
#include "core/trace_file.h"
#include "gpu/feature.h"
#include "wireup/commit.h"
#include "wireup/init.h"

enum { CLOSING_LOOK_US = 5000 };

/* Return whether a bootstrap is part of this library. */
static bool is_own(int choice)
{
    return choice == STEPAF_ENV_BOOT_local || choice == STEPAF_ENV_BOOT_tcp;
}

static stepaf_status_t open_own(int choice, const struct stepaf_env *env, stepaf_boot_t *boot_p)
{
    if (*env->join)
        return stepaf_boot_return(env, boot_p);
    return choice == STEPAF_ENV_BOOT_local ? stepaf_boot_join(env, boot_p)
                                           : stepaf_boot_tcp(env, boot_p);
}

stepaf_status_t stepaf_boot_open(stepaf_boot_t *boot_p)
{
    struct stepaf_env env;

    if (!boot_p)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT, "boot_p is NULL");
    stepaf_status_t status = stepaf_env_load_boot(&env);
    if (status)
        return status;
    int choice = stepaf_boot_choose(&env);
    status = is_own(choice) || *env.join
                 ? open_own(choice, &env, boot_p)
                 : stepaf_error_set(
                       STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                       "no bootstrap of the library is selected: set STEPAF_MEET, STEPAF_SIZE and "
                       "STEPAF_RANK, or STEPAF_LOCAL_SIZE and STEPAF_LOCAL_RANK");
    stepaf_env_free(&env);
    return status;
}

/* Start a job of processes without a launcher, as the separate bootstrap libraries do. */
static stepaf_status_t init_alone(int choice, const struct stepaf_env *env,
                                  const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    stepaf_boot_t boot;
    stepaf_status_t status = open_own(choice, env, &boot);

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

    if (*env->join)
        return init_alone(choice, env, params, ctx_p);
    if (choice < 0)
        return stepaf_error_set(
            STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
            "no launcher has started this process: start it with mpirun, srun --mpi=pmix, torchrun "
            "or stepaf-run, set STEPAF_LOCAL_SIZE and STEPAF_LOCAL_RANK or STEPAF_MEET, "
            "STEPAF_SIZE and STEPAF_RANK, or pass a bootstrap to stepaf_init");
    if (is_own(choice))
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

static stepaf_status_t init_with(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                 stepaf_context_h *ctx_p)
{
    struct stepaf_ctx *ctx;
    int slot;
    stepaf_status_t status = stepaf_handle_reserve(&slot);

    /* Called after a failure too: it notifies the other ranks. */
    status = stepaf_ctx_init(boot, params, &stepaf_gpu_feature, status, ctx_p ? &ctx : NULL);
    if (!status) {
        stepaf_handle_add(ctx, slot);
        *ctx_p = stepaf_ctx_handle(ctx);
    } else if (slot >= 0) {
        stepaf_handle_unreserve(slot);
    }
    return status;
}

/* With the launcher's bootstrap, one call is nested in the other. */
stepaf_status_t stepaf_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p)
{
    stepaf_interrupt_begin();
    return stepaf_interrupt_end(boot ? init_with(boot, params, ctx_p) : init_auto(params, ctx_p),
                                STEPAF_PHASE_INIT);
}

void stepaf_set_interrupt(stepaf_interrupt_cb_t callback, void *arg)
{
    stepaf_interrupt_set(callback, arg);
}

/* Leave the context allocated: nothing may be freed while a call is in it. */
static void leave_allocated(struct stepaf_ctx *ctx)
{
    stepaf_core_thread_abandon(ctx);
    stepaf_log_error("stepaf_finalize: a call of the batch handler, or of another thread, has not "
                     "returned within STEPAF_TIMEOUT_US, %lld us: the context stays allocated",
                     (long long)ctx->env.timeout_us);
}

/* Return the name of the context's callback that this thread is in; NULL: none. */
static const char *callback_of(const struct stepaf_ctx *ctx)
{
    if (stepaf_core_in_handler(ctx))
        return "batch handler";
    return stepaf_members_in_callback(ctx) ? "members' callback" : NULL;
}

void stepaf_finalize(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx)
        return;
    /* By a child that no handler of fork() was called for: see stepaf_handle_reserve. */
    bool inherited = ctx->job.ranks[ctx->job.boot.rank].pid != (uint32_t)getpid();
    const char *caller = callback_of(ctx);
    if (inherited || caller) {
        if (!inherited) {
            (void)stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                   "stepaf_finalize is called by the %s of the context: call it "
                                   "after the callback has returned",
                                   caller);
            stepaf_log_error("%s", stepaf_last_error()->text);
        }
        stepaf_handle_unpin(ctx);
        return;
    }
    int64_t deadline_ns = stepaf_deadline_ns(ctx->env.timeout_us);
    if (!stepaf_handle_remove(ctx))
        return;
    if (!stepaf_handle_await(ctx, deadline_ns)) {
        leave_allocated(ctx);
        return;
    }
    uint32_t slot = ctx->handle.slot, n_generations = stepaf_handle_generations(ctx);
    ctx->threads.closing = false; /* the last messages may be waited for */
    stepaf_trace_file_add(ctx);
    stepaf_ctx_free(ctx);
    stepaf_handle_retire(slot, n_generations);
}

/* Decide whether a commit continues to wait in the bootstrap. A commit needs no progress there,
 * since everything is quiet by then. But if a rank is lost, or members know of a lost one, the wait
 * is in vain. */
static int64_t go_on_in_commit(void *arg)
{
    struct stepaf_ctx *ctx = arg;

    return atomic_load(&ctx->threads.closing) || stepaf_members_call(ctx) ? -1 : CLOSING_LOOK_US;
}

static stepaf_status_t begin_commit(struct stepaf_ctx *ctx)
{
    if (ctx->state != STEPAF_CTX_OPEN)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                ctx->state == STEPAF_CTX_BROKEN ? "an earlier commit failed halfway"
                                : ctx->state == STEPAF_CTX_LEFT ? "this rank has left the job"
                                                                : "another thread is in a commit");
    if (stepaf_core_in_handler(ctx))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                "called by the batch handler, whose batch is not released");
    if (stepaf_members_in_callback(ctx))
        return stepaf_error_set(
            STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
            "called by the members' callback: commit after the callback has returned");
    ctx->state = STEPAF_CTX_COMMITTING;
    return STEPAF_OK;
}

static stepaf_status_t check_commit(const stepaf_commit_params_t *params)
{
    const char *what = NULL;

    if (params && (params->field_mask & ~(uint64_t)STEPAF_COMMIT_ALL))
        what = "unknown bits in the parameters' field_mask";
    else if (params && (params->field_mask & STEPAF_COMMIT_LOST) &&
             (unsigned)params->lost > STEPAF_COMMIT_LEAVE_LOST)
        what = "unknown way to treat lost ranks";
    else if (params && (params->field_mask & STEPAF_COMMIT_RETURN) &&
             (unsigned)params->returning > STEPAF_COMMIT_ADMIT)
        what = "unknown way to treat processes that return";
    else if (params && (params->field_mask & STEPAF_COMMIT_LEAVING) &&
             (unsigned)params->leaving > 1)
        what = "leaving is neither 0 nor 1";
    return what ? stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_COMMIT, "%s", what) : STEPAF_OK;
}

static struct stepaf_commit_will read_will(const struct stepaf_ctx *ctx,
                                           const stepaf_commit_params_t *params)
{
    uint64_t mask = params ? params->field_mask : 0;
    struct stepaf_commit_will will = {.leaves_lost = ctx->env.lost == STEPAF_ENV_LOST_leave,
                                      .admits = ctx->env.returning == STEPAF_ENV_RETURN_admit};

    if (mask & STEPAF_COMMIT_LOST)
        will.leaves_lost = params->lost == STEPAF_COMMIT_LEAVE_LOST;
    if (mask & STEPAF_COMMIT_RETURN)
        will.admits = params->returning == STEPAF_COMMIT_ADMIT;
    if (mask & STEPAF_COMMIT_LEAVING)
        will.leaves = params->leaving == 1;
    return will;
}

stepaf_status_t stepaf_commit(stepaf_context_h handle)
{
    return stepaf_commit_with(handle, NULL);
}

stepaf_status_t stepaf_commit_with(stepaf_context_h handle, const stepaf_commit_params_t *params)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    struct stepaf_commit_will will = read_will(ctx, params);
    status = check_commit(params);
    if (!status && will.leaves && !ctx->epoch)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                  "a rank cannot leave by its first commit");
    if (!status && will.leaves && !ctx->job.members.net)
        status = stepaf_error_set(
            STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
            "no rank can leave, since the ranks of this job cannot connect to each other: %.200s",
            ctx->job.members.mute);
    if (!status)
        status = begin_commit(ctx);
    if (status) {
        stepaf_leave(ctx);
        return status;
    }
    stepaf_lock_leave(&ctx->lock);
    int64_t deadline_ns = stepaf_deadline_ns(ctx->env.commit_timeout_us);
    if (!stepaf_core_thread_stop(ctx, deadline_ns))
        status = stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                  "a call of the batch handler has not returned in time");
    stepaf_lock_enter(&ctx->lock);
    stepaf_interrupt_begin();
    stepaf_boot_set_advance(go_on_in_commit, ctx);
    if (!status)
        status = stepaf_error_in(stepaf_core_commit(ctx, &will, deadline_ns), STEPAF_PHASE_COMMIT);
    stepaf_boot_set_advance(NULL, NULL);
    status = stepaf_interrupt_end(status, STEPAF_PHASE_COMMIT);
    if (ctx->state == STEPAF_CTX_COMMITTING)
        ctx->state = STEPAF_CTX_OPEN;
    if (ctx->state == STEPAF_CTX_OPEN && ctx->epoch && !ctx->threads.runs &&
        !atomic_load(&ctx->threads.closing)) {
        stepaf_lock_leave(&ctx->lock);
        stepaf_status_t thread = stepaf_core_thread_start(ctx);
        stepaf_lock_enter(&ctx->lock);
        status = status ? status : thread;
    }
    stepaf_lock_leave(&ctx->lock);
    stepaf_members_dispatch(ctx);
    stepaf_lock_enter(&ctx->lock);
    return stepaf_leave_wait(ctx, status);
}
