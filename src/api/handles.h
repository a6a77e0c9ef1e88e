/* SPDX-License-Identifier: Apache-2.0 */
/* From handles to objects. "enter" functions take the context's lock; each is matched by leave. */
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

extern _Atomic(struct stepaf_ctx *) stepaf_contexts[STEPAF_HANDLE_CONTEXTS];

/* The context of any handle, if it is of @a kind; NULL otherwise. */
static inline struct stepaf_ctx *stepaf_handle_ctx(const void *handle, enum stepaf_handle_kind kind)
{
    if (stepaf_handle_kind(handle) != kind)
        return NULL;
    struct stepaf_ctx *ctx =
        atomic_load_explicit(&stepaf_contexts[stepaf_handle_context(handle)], memory_order_acquire);
    if (ctx && kind == STEPAF_HANDLE_CONTEXT &&
        (ctx->handle.generation != stepaf_handle_generation(handle) || stepaf_handle_index(handle)))
        return NULL;
    return ctx;
}

/* Take a place in the process's table: its number, or -1: all are taken. */
int stepaf_handle_reserve(void);
/* Give up a place that was taken and has no context yet. */
void stepaf_handle_unreserve(int slot);
/* Give the place @a slot to a context, so that handles of it are good; take it back from one. */
void stepaf_handle_add(struct stepaf_ctx *ctx, int slot);
void stepaf_handle_remove(struct stepaf_ctx *ctx);

/* The failure that a bad handle is. */
stepaf_status_t stepaf_handle_bad(const char *what) __attribute__((cold));

stepaf_status_t stepaf_enter_context(stepaf_context_h handle, struct stepaf_ctx **ctx_p);
stepaf_status_t stepaf_enter_plan(stepaf_plan_h handle, struct stepaf_plan_obj **plan_p);
/* An operation's request. */
stepaf_status_t stepaf_enter_op(stepaf_request_h handle, struct stepaf_op **op_p);
/* An operation's request, or a response's: the other is NULL. Both are, and there is no lock to leave,
 * if it is a response's whose plan the attention rank has destroyed, or a commit has ended: that rank
 * has had the answer. */
stepaf_status_t stepaf_enter_request(stepaf_request_h handle, struct stepaf_op **op_p,
                                     struct stepaf_batch_obj **batch_p);
/* A response's batch, found anew after the lock was free; NULL: the peer has had the answer. */
struct stepaf_batch_obj *stepaf_find_response(struct stepaf_ctx *ctx, stepaf_request_h handle);
/* A batch that the caller holds. */
stepaf_status_t stepaf_enter_batch(stepaf_batch_h handle, struct stepaf_batch_obj **batch_p);

static inline void stepaf_leave(struct stepaf_ctx *ctx)
{
    stepaf_lock_leave(&ctx->lock);
}

static inline stepaf_plan_h stepaf_plan_handle(const struct stepaf_plan_obj *plan)
{
    return stepaf_handle_of(plan->name, plan->generation);
}

/* The context of a handle of any kind, if it has no lock. */
static inline struct stepaf_ctx *stepaf_peek_ctx(const void *handle)
{
    struct stepaf_ctx *ctx =
        atomic_load_explicit(&stepaf_contexts[stepaf_handle_context(handle)], memory_order_acquire);

    return ctx && !ctx->lock.used ? ctx : NULL;
}

/* The plan of a handle that is good, in a context without a lock; NULL: find out by entering. */
static inline struct stepaf_plan_obj *stepaf_peek_plan(stepaf_plan_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_peek_ctx(handle);
    struct stepaf_plan_obj *plan =
        ctx ? stepaf_table_get(&ctx->tables.plans, stepaf_handle_index(handle)) : NULL;

    return plan && stepaf_plan_handle(plan) == handle ? plan : NULL;
}

/* The same of an operation. */
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
