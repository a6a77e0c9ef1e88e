/* SPDX-License-Identifier: Apache-2.0 */
/* The handler, and the progress thread, which calls it as well. */
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "core/batch.h"
#include "core/ctx.h"
#include "core/lock.h"
#include "core/progress.h"
#include "core/table.h"
#include "core/thread.h"
#include "core/wait.h"

enum { STOP_PAUSE_NS = 20000 };

bool stepaf_core_is_dispatching(const struct stepaf_ctx *ctx)
{
    return ctx->inbox.dispatching && !pthread_equal(ctx->inbox.dispatcher, pthread_self());
}

bool stepaf_core_in_handler(const struct stepaf_ctx *ctx)
{
    return ctx->inbox.dispatching && pthread_equal(ctx->inbox.dispatcher, pthread_self());
}

void stepaf_core_dispatch(struct stepaf_ctx *ctx)
{
    stepaf_lock_enter(&ctx->lock);
    if (ctx->inbox.handler && !ctx->inbox.dispatching) {
        struct stepaf_batch_obj *batch;
        ctx->inbox.dispatcher = pthread_self();
        ctx->inbox.dispatching = true;
        while (ctx->inbox.handler && (batch = stepaf_batch_take(ctx, NULL, stepaf_ticks()))) {
            stepaf_batch_cb_t handler = ctx->inbox.handler;
            void *arg = ctx->inbox.handler_arg;
            stepaf_batch_h handle = stepaf_handle_make(STEPAF_HANDLE_BATCH, ctx->handle.slot,
                                                       batch->index, batch->generation);
            stepaf_lock_leave(&ctx->lock);
            handler(handle, arg);
            stepaf_lock_enter(&ctx->lock);
            ctx->inbox.n_dispatched++;
        }
        ctx->inbox.dispatching = false;
    }
    stepaf_lock_leave(&ctx->lock);
}

static void *progress_main(void *arg)
{
    struct stepaf_ctx *ctx = arg;
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    (void)stepaf_topo_bind_thread(ctx->env.progress_cores); /* was checked at init */
    while (!atomic_load_explicit(&ctx->threads.stop, memory_order_relaxed)) {
        stepaf_lock_enter(&ctx->lock);
        if (stepaf_core_progress_waiting(ctx))
            waiter = stepaf_waiter_begin();
        else if (!stepaf_waiter_idle(ctx, &waiter, INT32_MAX))
            waiter = stepaf_waiter_begin();
        bool handle = ctx->inbox.handler != NULL;
        stepaf_lock_leave(&ctx->lock);
        if (handle)
            stepaf_core_dispatch(ctx);
    }
    atomic_store_explicit(&ctx->threads.over, true, memory_order_release);
    return NULL;
}

stepaf_status_t stepaf_core_thread_start(struct stepaf_ctx *ctx)
{
    int error;

    if (!ctx->threads.progress_wanted)
        return STEPAF_OK;
    atomic_store(&ctx->threads.stop, false);
    atomic_store(&ctx->threads.over, false);
    error = pthread_create(&ctx->threads.progress, NULL, progress_main, ctx);
    if (error) {
        ctx->threads.progress_wanted = false;
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT,
                                "cannot start the progress thread: %s", strerror(error));
    }
    ctx->threads.runs = true;
    return STEPAF_OK;
}

bool stepaf_core_thread_stop(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    if (!ctx->threads.runs)
        return true;
    atomic_store(&ctx->threads.stop, true);
    while (!atomic_load_explicit(&ctx->threads.over, memory_order_acquire)) {
        if (stepaf_monotonic_ns() >= deadline_ns)
            return false;
        nanosleep(&(struct timespec){0, STOP_PAUSE_NS}, NULL);
    }
    pthread_join(ctx->threads.progress, NULL);
    ctx->threads.runs = false;
    return true;
}

void stepaf_core_thread_abandon(struct stepaf_ctx *ctx)
{
    if (ctx->threads.runs)
        pthread_detach(ctx->threads.progress);
}
