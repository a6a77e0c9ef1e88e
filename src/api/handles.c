/* SPDX-License-Identifier: Apache-2.0 */
/* The process's table of contexts, and the conversion of handles to objects. */
#include "api/handles.h"
#include "core/batch.h"
#include "core/plan.h"
#include "core/thread.h"

#include <pthread.h>
#include <time.h>

#include "base/log.h"
#include "base/time.h"

enum { LEAVE_PAUSE_NS = 20000 };

struct stepaf_place stepaf_contexts[STEPAF_HANDLE_CONTEXTS];
/* for the variables that follow */
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_taken[STEPAF_HANDLE_CONTEXTS]; /* also by a context that is being made */
static uint32_t next_generation;
/* Of plans, operations and batches: so that no handle of a freed context is valid in another
 * one. */
static uint32_t last_generations[STEPAF_HANDLE_CONTEXTS];

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_trouble; /* errno; 0: fork() calls the handlers */

static void lock_contexts(void)
{
    pthread_mutex_lock(&contexts_lock);
}

static void unlock_contexts(void)
{
    pthread_mutex_unlock(&contexts_lock);
}

/* In a child no handle finds its context: all share memory and connections with the parent. The
 * contexts stay allocated and keep their slots, so that no new handle equals an inherited one. Only
 * what a signal handler may call. */
static void drop_inherited(void)
{
    for (int slot = 0; slot < STEPAF_HANDLE_CONTEXTS; slot++)
        atomic_store_explicit(&stepaf_contexts[slot].ctx, NULL, memory_order_relaxed);
    stepaf_log_forked();
    pthread_mutex_unlock(&contexts_lock);
}

static void set_fork_handlers(void)
{
    fork_trouble = pthread_atfork(lock_contexts, unlock_contexts, drop_inherited);
}

stepaf_status_t stepaf_handle_reserve(int *slot_p)
{
    int slot = 0;

    *slot_p = -1;
    pthread_once(&fork_once, set_fork_handlers);
    if (fork_trouble)
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    pthread_mutex_lock(&contexts_lock);
    while (slot < STEPAF_HANDLE_CONTEXTS && is_taken[slot])
        slot++;
    if (slot < STEPAF_HANDLE_CONTEXTS)
        is_taken[slot] = true;
    pthread_mutex_unlock(&contexts_lock);
    if (slot == STEPAF_HANDLE_CONTEXTS)
        return stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_INIT,
                                "this process has %d contexts already", STEPAF_HANDLE_CONTEXTS);
    *slot_p = slot;
    return STEPAF_OK;
}

void stepaf_handle_unreserve(int slot)
{
    pthread_mutex_lock(&contexts_lock);
    is_taken[slot] = false;
    pthread_mutex_unlock(&contexts_lock);
}

void stepaf_handle_add(struct stepaf_ctx *ctx, int slot)
{
    pthread_mutex_lock(&contexts_lock);
    ctx->handle.slot = (uint32_t)slot;
    ctx->handle.generation = ++next_generation;
    stepaf_table_begin(&ctx->tables.plans, last_generations[slot]);
    stepaf_table_begin(&ctx->tables.ops, last_generations[slot]);
    stepaf_table_begin(&ctx->tables.batches, last_generations[slot]);
    atomic_store(&stepaf_contexts[slot].counts, ctx->threads.many);
    atomic_store(&stepaf_contexts[slot].ctx, ctx);
    pthread_mutex_unlock(&contexts_lock);
}

bool stepaf_handle_remove(struct stepaf_ctx *ctx)
{
    struct stepaf_place *place = &stepaf_contexts[ctx->handle.slot];
    struct stepaf_ctx *expected = ctx;
    bool removed = atomic_compare_exchange_strong(&place->ctx, &expected, NULL);

    if (removed) {
        atomic_store(&ctx->threads.closing, true);
        stepaf_core_thread_ask(ctx);
    }
    stepaf_handle_unpin(ctx);
    return removed;
}

bool stepaf_handle_await(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_place *place = &stepaf_contexts[ctx->handle.slot];

    while (atomic_load(&place->calls)) {
        if (stepaf_monotonic_ns() >= deadline_ns)
            return false;
        nanosleep(&(struct timespec){0, LEAVE_PAUSE_NS}, NULL);
    }
    return stepaf_core_thread_stop(ctx, deadline_ns);
}

uint32_t stepaf_handle_generations(const struct stepaf_ctx *ctx)
{
    uint32_t plans = stepaf_table_given(&ctx->tables.plans),
             ops = stepaf_table_given(&ctx->tables.ops),
             batches = stepaf_table_given(&ctx->tables.batches), most = plans > ops ? plans : ops;

    return most > batches ? most : batches;
}

void stepaf_handle_retire(uint32_t slot, uint32_t n_generations)
{
    last_generations[slot] += n_generations;
    stepaf_handle_unreserve((int)slot);
}

stepaf_status_t stepaf_handle_waited(struct stepaf_ctx *ctx, stepaf_status_t status)
{
    if (!atomic_load_explicit(&ctx->threads.closing, memory_order_relaxed))
        return status;
    return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_NONE,
                            "another thread finalizes the context");
}

stepaf_status_t stepaf_handle_bad(const char *what)
{
    return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_NONE,
                            "the %s handle is NULL, of another kind, or no longer valid", what);
}

stepaf_status_t stepaf_enter_context(stepaf_context_h handle, struct stepaf_ctx **ctx_p)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    if (__builtin_expect(!ctx, 0))
        return stepaf_handle_bad("context");
    stepaf_lock_enter(&ctx->lock);
    *ctx_p = ctx;
    return STEPAF_OK;
}

stepaf_status_t stepaf_enter_plan(stepaf_plan_h handle, struct stepaf_plan_obj **plan_p)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_PLAN);
    struct stepaf_plan_obj *plan;

    if (__builtin_expect(!ctx, 0))
        goto bad;
    stepaf_lock_enter(&ctx->lock);
    plan = stepaf_table_get(&ctx->tables.plans, stepaf_handle_index(handle));
    if (__builtin_expect(!plan || plan->handle.generation != stepaf_handle_generation(handle), 0)) {
        stepaf_leave(ctx);
        goto bad;
    }
    *plan_p = plan;
    return STEPAF_OK;

bad:
    return stepaf_handle_bad("plan");
}

stepaf_status_t stepaf_enter_op(stepaf_request_h handle, struct stepaf_op **op_p)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_OPERATION);
    struct stepaf_op *op;

    if (__builtin_expect(!ctx, 0))
        goto bad;
    stepaf_lock_enter(&ctx->lock);
    op = stepaf_table_get(&ctx->tables.ops, stepaf_handle_index(handle));
    if (__builtin_expect(!op || op->generation != stepaf_handle_generation(handle), 0)) {
        stepaf_leave(ctx);
        goto bad;
    }
    *op_p = op;
    return STEPAF_OK;

bad:
    return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_NONE,
                            "the request handle is NULL, of another kind, or no longer valid: its "
                            "slot has been started again, or its plan is destroyed");
}

struct stepaf_batch_obj *stepaf_find_response(struct stepaf_ctx *ctx, stepaf_request_h handle)
{
    struct stepaf_batch_obj *batch =
        stepaf_table_get(&ctx->tables.batches, stepaf_handle_index(handle));

    if (!batch || !batch->responded || batch->responded != stepaf_handle_generation(handle))
        return NULL;
    return batch;
}

/* Return whether @a handle is older than the batch that has its index now, if there is one. */
static bool is_gone(const struct stepaf_ctx *ctx, stepaf_request_h handle)
{
    uint32_t index = stepaf_handle_index(handle), generation = stepaf_handle_generation(handle);
    const struct stepaf_batch_obj *batch = stepaf_table_get(&ctx->tables.batches, index);

    return index < ctx->tables.batches.n && generation &&
           (int32_t)(ctx->tables.batches.last_generation - generation) >= 0 &&
           (ctx->tables.batches.wrapped || generation > ctx->tables.batches.not_ours) &&
           (!batch || (int32_t)(batch->born - generation) > 0);
}

/* Enter with a response's request, which outlives its batch until the slot's next response. */
static stepaf_status_t enter_response(stepaf_request_h handle, struct stepaf_batch_obj **batch_p)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_RESPONSE);

    if (!ctx)
        return stepaf_handle_bad("request");
    stepaf_lock_enter(&ctx->lock);
    *batch_p = stepaf_find_response(ctx, handle);
    if (__builtin_expect(*batch_p != NULL, 1))
        return STEPAF_OK;
    bool gone = is_gone(ctx, handle);
    stepaf_leave(ctx);
    return gone ? STEPAF_OK : stepaf_handle_bad("request");
}

stepaf_status_t stepaf_enter_request(stepaf_request_h handle, struct stepaf_op **op_p,
                                     struct stepaf_batch_obj **batch_p)
{
    *op_p = NULL;
    *batch_p = NULL;
    if (stepaf_handle_kind(handle) == STEPAF_HANDLE_RESPONSE)
        return enter_response(handle, batch_p);
    return stepaf_enter_op(handle, op_p);
}

stepaf_status_t stepaf_enter_batch(stepaf_batch_h handle, struct stepaf_batch_obj **batch_p)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_BATCH);
    struct stepaf_batch_obj *batch;

    if (__builtin_expect(!ctx, 0))
        goto bad;
    stepaf_lock_enter(&ctx->lock);
    batch = stepaf_table_get(&ctx->tables.batches, stepaf_handle_index(handle));
    if (__builtin_expect(!batch || batch->generation != stepaf_handle_generation(handle) ||
                             batch->state != STEPAF_BATCH_HELD,
                         0)) {
        stepaf_leave(ctx);
        goto bad;
    }
    *batch_p = batch;
    return STEPAF_OK;

bad:
    return stepaf_handle_bad("batch");
}
