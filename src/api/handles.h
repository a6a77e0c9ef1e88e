/* SPDX-License-Identifier: Apache-2.0 */
/* From handles to objects. "enter" functions pin the context, so that no thread frees it, and take
 * its lock; each is matched by leave. */
#ifndef STEPAF_API_HANDLES_H
#define STEPAF_API_HANDLES_H

#include "core/batch.h"
#include "core/ctx.h"
#include "core/lock.h"
#include "core/mesh.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "core/table.h"

/* A place in the process's table. Where several threads may call, their calls are counted: the
 * context is not freed before all have left. */
struct stepaf_place {
    _Alignas(64) _Atomic(struct stepaf_ctx *) ctx; /* NULL: none, or one that is being finalized */
    _Atomic bool counts;
    _Atomic uint32_t calls; /* under way */
};

extern struct stepaf_place stepaf_contexts[STEPAF_HANDLE_CONTEXTS];

/* Enter the context of any handle, if it is of @a kind, without its lock; NULL otherwise, and then
 * there is nothing to leave. */
static inline struct stepaf_ctx *stepaf_handle_pin(const void *handle, enum stepaf_handle_kind kind)
{
    struct stepaf_place *place = &stepaf_contexts[stepaf_handle_context(handle)];
    bool counts = atomic_load_explicit(&place->counts, memory_order_relaxed);

    if (stepaf_handle_kind(handle) != kind)
        return NULL;
    if (counts) /* before it is asked for the context: who takes that away then sees the call */
        atomic_fetch_add(&place->calls, 1);
    struct stepaf_ctx *ctx = atomic_load(&place->ctx);
    if (__builtin_expect(ctx && (kind != STEPAF_HANDLE_CONTEXT ||
                                 (ctx->handle.generation == stepaf_handle_generation(handle) &&
                                  !stepaf_handle_index(handle))),
                         1))
        return ctx;
    if (counts)
        atomic_fetch_sub_explicit(&place->calls, 1, memory_order_release);
    return NULL;
}

static inline void stepaf_handle_unpin(struct stepaf_ctx *ctx)
{
    struct stepaf_place *place = &stepaf_contexts[ctx->handle.slot];

    if (atomic_load_explicit(&place->counts, memory_order_relaxed))
        atomic_fetch_sub_explicit(&place->calls, 1, memory_order_release);
}

/* Take a place in the process's table: its number, or -1: all are taken. */
int stepaf_handle_reserve(void);
/* Give up a place that was taken and has no context yet. */
void stepaf_handle_unreserve(int slot);
/* Give the place @a slot to a context, so that handles of it are good. */
void stepaf_handle_add(struct stepaf_ctx *ctx, int slot);
/* Take the handles of a context that is pinned out of use, once; unpins it. False: another thread
 * has. */
bool stepaf_handle_remove(struct stepaf_ctx *ctx);
/* Then wait until no thread is in a call any more. False: one still is, or the handler, when @a
 * deadline_ns has passed. */
bool stepaf_handle_await(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* How many handles it has given out; take back its place when it is free. */
uint32_t stepaf_handle_generations(const struct stepaf_ctx *ctx);
void stepaf_handle_retire(uint32_t slot, uint32_t n_generations);

/* The failure that a bad handle is. */
stepaf_status_t stepaf_handle_bad(const char *what) __attribute__((cold));

stepaf_status_t stepaf_enter_context(stepaf_context_h handle, struct stepaf_ctx **ctx_p);
stepaf_status_t stepaf_enter_plan(stepaf_plan_h handle, struct stepaf_plan_obj **plan_p);
/* An operation's request. */
stepaf_status_t stepaf_enter_op(stepaf_request_h handle, struct stepaf_op **op_p);
/* An operation's request, or a response's: the other is NULL. Both are, and there is no lock to
 * leave, if it is a response's whose plan the attention rank has destroyed, or a commit has ended:
 * that rank has had the answer. */
stepaf_status_t stepaf_enter_request(stepaf_request_h handle, struct stepaf_op **op_p,
                                     struct stepaf_batch_obj **batch_p);
/* A response's batch, found anew after the lock was free; NULL: the peer has had the answer. */
struct stepaf_batch_obj *stepaf_find_response(struct stepaf_ctx *ctx, stepaf_request_h handle);
/* A batch that the caller holds. */
stepaf_status_t stepaf_enter_batch(stepaf_batch_h handle, struct stepaf_batch_obj **batch_p);

static inline void stepaf_leave(struct stepaf_ctx *ctx)
{
    if (__builtin_expect(!ctx->lock.used, 1)) /* then calls are not counted either */
        return;
    stepaf_lock_give(&ctx->lock);
    stepaf_handle_unpin(ctx);
}

/* What @a status of a wait is, if another thread has ended it. */
stepaf_status_t stepaf_handle_waited(struct stepaf_ctx *ctx, stepaf_status_t status)
    __attribute__((cold));

/* Leave after a wait that came to @a status, which is returned. A wait that ended because another
 * thread finalizes the context is STEPAF_ERR_HANDLE. */
static inline stepaf_status_t stepaf_leave_wait(struct stepaf_ctx *ctx, stepaf_status_t status)
{
    if (__builtin_expect(status == STEPAF_ERR_TIMEOUT || status == STEPAF_INPROGRESS, 0))
        status = stepaf_handle_waited(ctx, status);
    stepaf_leave(ctx);
    return status;
}

static inline stepaf_plan_h stepaf_plan_handle(const struct stepaf_plan_obj *plan)
{
    return stepaf_handle_of(plan->handle.name, plan->handle.generation);
}

/* The context of a handle of any kind, if one thread at a time calls. */
static inline struct stepaf_ctx *stepaf_peek_ctx(const void *handle)
{
    const struct stepaf_place *place = &stepaf_contexts[stepaf_handle_context(handle)];

    return atomic_load_explicit(&place->counts, memory_order_relaxed)
               ? NULL
               : atomic_load_explicit(&place->ctx, memory_order_acquire);
}

/* The plan of a handle that is good, in a context without a lock; NULL: find out by entering. */
static inline struct stepaf_plan_obj *stepaf_peek_plan(stepaf_plan_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_peek_ctx(handle);
    struct stepaf_plan_obj *plan =
        ctx ? stepaf_table_get(&ctx->tables.plans, stepaf_handle_index(handle)) : NULL;

    return plan && stepaf_plan_handle(plan) == handle ? plan : NULL;
}

/* The operation of a handle that is good, in a context without a lock; NULL: find out by
 * entering. */
static inline struct stepaf_op *stepaf_peek_op(stepaf_request_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_peek_ctx(handle);
    struct stepaf_op *op =
        ctx ? stepaf_table_get(&ctx->tables.ops, stepaf_handle_index(handle)) : NULL;

    return op && stepaf_op_handle(op) == handle ? op : NULL;
}

/* Index of the peer that is rank @a rank of the other role; -1: none of this rank's peers is. */
static inline int stepaf_find_peer(const struct stepaf_ctx *ctx, int rank)
{
    uint32_t index;

    if (rank < 0 || !stepaf_mesh_has(&ctx->job.mesh, (uint32_t)rank))
        return -1;
    index = stepaf_mesh_index(&ctx->job.mesh, (uint32_t)rank);
    return index < ctx->n_peers ? (int)index : -1;
}

static inline struct stepaf_ctx *stepaf_batch_ctx(const struct stepaf_batch_obj *batch)
{
    return batch->remote->peer->ctx;
}

static inline stepaf_context_h stepaf_ctx_handle(const struct stepaf_ctx *ctx)
{
    return stepaf_handle_make(STEPAF_HANDLE_CONTEXT, ctx->handle.slot, 0, ctx->handle.generation);
}

static inline stepaf_batch_h stepaf_batch_handle(const struct stepaf_batch_obj *batch)
{
    return stepaf_handle_make(STEPAF_HANDLE_BATCH, stepaf_batch_ctx(batch)->handle.slot,
                              batch->index, batch->generation);
}

static inline stepaf_request_h stepaf_response_handle(const struct stepaf_batch_obj *batch)
{
    return stepaf_handle_make(STEPAF_HANDLE_RESPONSE, stepaf_batch_ctx(batch)->handle.slot,
                              batch->index, batch->generation);
}

#endif
