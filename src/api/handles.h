/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of handles to objects. The "enter" functions pin the context, so that no thread frees
 * it, and take its lock. Each enter is matched by a leave. */
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

/* A slot in the process's table of contexts. If several threads may call, their calls are counted:
 * the context is not freed before all have left. */
struct stepaf_place {
    _Alignas(64) _Atomic(struct stepaf_ctx *) ctx; /* NULL: none, or being finalized */
    _Atomic bool counts;
    _Atomic uint32_t calls; /* calls in progress */
};

extern struct stepaf_place stepaf_contexts[STEPAF_HANDLE_CONTEXTS];

/* Pin the context of any handle, without taking its lock, if the handle is of @a kind. Return NULL
 * otherwise; then there is nothing to leave. */
static inline struct stepaf_ctx *stepaf_handle_pin(const void *handle, enum stepaf_handle_kind kind)
{
    struct stepaf_place *place = &stepaf_contexts[stepaf_handle_context(handle)];
    bool counts = atomic_load_explicit(&place->counts, memory_order_relaxed);

    if (stepaf_handle_kind(handle) != kind)
        return NULL;
    if (counts) /* before ctx is read: a thread that removes ctx then sees the call */
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

/* Reserve a slot in the process's table. @a slot_p: its number; -1 on failure: all are taken, or
 * pthread_atfork failed, and inherited handles would stay valid in children. */
stepaf_status_t stepaf_handle_reserve(int *slot_p);
/* Give back a reserved slot that has no context yet. */
void stepaf_handle_unreserve(int slot);
/* Assign the slot @a slot to a context, which makes its handles valid. */
void stepaf_handle_add(struct stepaf_ctx *ctx, int slot);
/* Invalidate the handles of a pinned context, once, and unpin the context. Return false if another
 * thread has done so. */
bool stepaf_handle_remove(struct stepaf_ctx *ctx);
/* Wait, after the removal, until no thread is in a call. Return false if a thread or the handler
 * still is at @a deadline_ns. */
bool stepaf_handle_await(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* Return how many generations of handles the context has given out; give its slot back once it is
 * freed. */
uint32_t stepaf_handle_generations(const struct stepaf_ctx *ctx);
void stepaf_handle_retire(uint32_t slot, uint32_t n_generations);

/* Return the error of an invalid handle. */
stepaf_status_t stepaf_handle_bad(const char *what) __attribute__((cold));

stepaf_status_t stepaf_enter_context(stepaf_context_h handle, struct stepaf_ctx **ctx_p);
stepaf_status_t stepaf_enter_plan(stepaf_plan_h handle, struct stepaf_plan_obj **plan_p);
/* Enter with an operation's request. */
stepaf_status_t stepaf_enter_op(stepaf_request_h handle, struct stepaf_op **op_p);
/* Enter with a request of an operation or of a response, and set the other pointer to NULL. Both
 * are NULL, and there is no lock to leave, for a response whose plan the attention rank has
 * destroyed, or which a commit has ended: the attention rank has received the answer. */
stepaf_status_t stepaf_enter_request(stepaf_request_h handle, struct stepaf_op **op_p,
                                     struct stepaf_batch_obj **batch_p);
/* Find a response's batch again after the lock was free. Return NULL if the peer has received the
 * answer. */
struct stepaf_batch_obj *stepaf_find_response(struct stepaf_ctx *ctx, stepaf_request_h handle);
/* Enter with a batch that the caller holds. */
stepaf_status_t stepaf_enter_batch(stepaf_batch_h handle, struct stepaf_batch_obj **batch_p);

static inline void stepaf_leave(struct stepaf_ctx *ctx)
{
    if (__builtin_expect(!ctx->lock.used, 1)) /* calls are not counted either */
        return;
    stepaf_lock_give(&ctx->lock);
    stepaf_handle_unpin(ctx);
}

/* Return what @a status of a wait becomes if another thread has ended the wait. */
stepaf_status_t stepaf_handle_waited(struct stepaf_ctx *ctx, stepaf_status_t status)
    __attribute__((cold));

/* Leave after a wait that ended with @a status, and return the status. If the wait ended because
 * another thread finalizes the context, the status is STEPAF_ERR_HANDLE. */
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

/* Return the context of a handle of any kind, if only one thread at a time calls. */
static inline struct stepaf_ctx *stepaf_peek_ctx(const void *handle)
{
    const struct stepaf_place *place = &stepaf_contexts[stepaf_handle_context(handle)];

    return atomic_load_explicit(&place->counts, memory_order_relaxed)
               ? NULL
               : atomic_load_explicit(&place->ctx, memory_order_acquire);
}

/* Return the plan of a valid handle, in a context without a lock; NULL: enter to find out. */
static inline struct stepaf_plan_obj *stepaf_peek_plan(stepaf_plan_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_peek_ctx(handle);
    struct stepaf_plan_obj *plan =
        ctx ? stepaf_table_get(&ctx->tables.plans, stepaf_handle_index(handle)) : NULL;

    return plan && stepaf_plan_handle(plan) == handle ? plan : NULL;
}

/* Return the operation of a valid handle, in a context without a lock; NULL: enter to find out. */
static inline struct stepaf_op *stepaf_peek_op(stepaf_request_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_peek_ctx(handle);
    struct stepaf_op *op =
        ctx ? stepaf_table_get(&ctx->tables.ops, stepaf_handle_index(handle)) : NULL;

    return op && stepaf_op_handle(op) == handle ? op : NULL;
}

/* Return the index of the peer that is rank @a rank of the other role; -1: no such peer. */
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
