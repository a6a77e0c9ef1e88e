/* SPDX-License-Identifier: Apache-2.0 */
/* The batch handler, and the progress thread, which also calls it. */
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "base/time.h"
#include "core/batch.h"
#include "core/ctx.h"
#include "core/lock.h"
#include "core/members.h"
#include "core/progress.h"
#include "core/table.h"
#include "core/thread.h"
#include "core/wait.h"

enum { STOP_PAUSE_NS = 20000, STOP_PAUSE_MAX_NS = 1000000 };

bool stepaf_core_is_dispatching(const struct stepaf_ctx *ctx)
{
    return ctx->inbox.dispatching && !pthread_equal(ctx->inbox.dispatcher, pthread_self());
}

bool stepaf_core_in_handler(const struct stepaf_ctx *ctx)
{
    return ctx->inbox.dispatching && pthread_equal(ctx->inbox.dispatcher, pthread_self());
}

/* Return whether there is a batch for the handler that had arrived by @a began. Batches that arrive
 * during the handler's calls wait for the next dispatch: under load, a caller would never
 * return. */
static bool has_batch(const struct stepaf_ctx *ctx, uint64_t began)
{
    const struct stepaf_list *first = ctx->inbox.ready.next;

    if (!ctx->inbox.handler || stepaf_list_empty(&ctx->inbox.ready))
        return false;
    return (int64_t)(stepaf_container_of(first, struct stepaf_batch_obj, any)->arrived - began) <=
           0;
}

void stepaf_core_dispatch(struct stepaf_ctx *ctx)
{
    stepaf_lock_enter(&ctx->lock);
    if (!stepaf_list_empty(&ctx->inbox.ready) && !ctx->inbox.dispatching) {
        uint64_t began = stepaf_ticks();
        struct stepaf_batch_obj *batch;
        ctx->inbox.dispatcher = pthread_self();
        ctx->inbox.dispatching = true;
        while (has_batch(ctx, began) && (batch = stepaf_batch_take(ctx, NULL, stepaf_ticks()))) {
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

/* Return whether the thread continues. The thread that asked it to stop may have withdrawn the
 * request. */
static bool thread_goes_on(struct stepaf_ctx *ctx)
{
    uint8_t asked = STEPAF_THREAD_STOPS;

    return atomic_load_explicit(&ctx->threads.state, memory_order_relaxed) == STEPAF_THREAD_GOES ||
           !atomic_compare_exchange_strong(&ctx->threads.state, &asked, STEPAF_THREAD_OVER);
}

/* Poll once, and count the time if something had arrived. The lock is held. */
static unsigned look(struct stepaf_ctx *ctx)
{
    uint64_t began = stepaf_ticks();
    unsigned n = stepaf_core_progress_waiting(ctx);

    if (n)
        ctx->threads.busy += stepaf_ticks() - began;
    return n;
}

static void *progress_main(void *arg)
{
    struct stepaf_ctx *ctx = arg;
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    (void)stepaf_topo_bind_thread(ctx->env.progress_cores); /* checked at init */
    while (thread_goes_on(ctx)) {
        stepaf_lock_enter(&ctx->lock);
        if (look(ctx))
            waiter = stepaf_waiter_begin();
        else if (!stepaf_waiter_idle(ctx, &waiter, INT32_MAX))
            waiter = stepaf_waiter_begin();
        bool handle = ctx->inbox.handler != NULL;
        stepaf_lock_leave(&ctx->lock);
        if (handle)
            stepaf_core_dispatch(ctx);
        stepaf_members_dispatch(ctx);
    }
    return NULL;
}

stepaf_status_t stepaf_core_thread_start(struct stepaf_ctx *ctx)
{
    int error;

    if (!ctx->threads.progress_wanted)
        return STEPAF_OK;
    atomic_store(&ctx->threads.state, STEPAF_THREAD_GOES);
    error = stepaf_thread_start(&ctx->threads.progress, progress_main, ctx);
    if (error) {
        ctx->threads.progress_wanted = false;
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT,
                                "cannot start the progress thread: %s", strerror(error));
    }
    ctx->threads.runs = true;
    return STEPAF_OK;
}

void stepaf_core_thread_ask(struct stepaf_ctx *ctx)
{
    uint8_t goes = STEPAF_THREAD_GOES;

    (void)atomic_compare_exchange_strong(&ctx->threads.state, &goes, STEPAF_THREAD_STOPS);
}

bool stepaf_core_thread_stop(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    uint8_t asked = STEPAF_THREAD_STOPS;
    long pause_ns = STOP_PAUSE_NS;

    if (!ctx->threads.runs)
        return true;
    stepaf_core_thread_ask(ctx);
    while (atomic_load(&ctx->threads.state) != STEPAF_THREAD_OVER) {
        if (stepaf_monotonic_ns() >= deadline_ns &&
            atomic_compare_exchange_strong(&ctx->threads.state, &asked, STEPAF_THREAD_GOES))
            return false;
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
        if (pause_ns <
            STOP_PAUSE_MAX_NS) /* not near its next poll: it binds itself, or is in a handler */
            pause_ns *= 2;
    }
    pthread_join(ctx->threads.progress, NULL);
    ctx->threads.runs = false;
    return true;
}

void stepaf_core_thread_abandon(struct stepaf_ctx *ctx)
{
    if (!ctx->threads.runs)
        return;
    stepaf_core_thread_ask(ctx);
    pthread_detach(ctx->threads.progress);
}
