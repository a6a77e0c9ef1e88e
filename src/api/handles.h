/* SPDX-License-Identifier: Apache-2.0 */
/* From handles to objects. "enter" functions take the context's lock; each is matched by leave. */
#ifndef STEPAF_API_HANDLES_H
#define STEPAF_API_HANDLES_H

#include "engine/engine.h"

/* The context of any handle, if it is of @a kind; NULL otherwise. */
struct stepaf_ctx *stepaf_handle_ctx(const void *handle, enum stepaf_handle_kind kind);

/* Give a context a place in the process's table. False: all are taken. */
bool stepaf_handle_add(struct stepaf_ctx *ctx);
void stepaf_handle_remove(struct stepaf_ctx *ctx);

/* The failure that a bad handle is. */
stepaf_status_t stepaf_handle_bad(const char *what);

stepaf_status_t stepaf_enter_context(stepaf_context_h handle, struct stepaf_ctx **ctx_p);
stepaf_status_t stepaf_enter_plan(stepaf_plan_h handle, struct stepaf_plan_obj **plan_p);
/* An operation's request. */
stepaf_status_t stepaf_enter_op(stepaf_request_h handle, struct stepaf_op **op_p);
/* An operation's request, or a response's: the other is NULL. */
stepaf_status_t stepaf_enter_request(stepaf_request_h handle, struct stepaf_op **op_p,
                                     struct stepaf_batch_obj **batch_p);
/* A batch that the caller holds. */
stepaf_status_t stepaf_enter_batch(stepaf_batch_h handle, struct stepaf_batch_obj **batch_p);

static inline void stepaf_leave(struct stepaf_ctx *ctx)
{
    stepaf_lock_leave(&ctx->lock);
}

/* Index of the peer that is rank @a rank of the other role; -1: none of this rank's peers is. */
static inline int stepaf_find_peer(const struct stepaf_ctx *ctx, int rank)
{
    uint32_t index;

    if (rank < 0 || !stepaf_mesh_has(&ctx->mesh, (uint32_t)rank))
        return -1;
    index = stepaf_mesh_index(&ctx->mesh, (uint32_t)rank);
    return index < ctx->n_peers ? (int)index : -1;
}

static inline struct stepaf_ctx *stepaf_batch_ctx(const struct stepaf_batch_obj *batch)
{
    return batch->mirror->peer->ctx;
}

static inline stepaf_context_h stepaf_ctx_handle(const struct stepaf_ctx *ctx)
{
    return stepaf_handle_make(STEPAF_HANDLE_CONTEXT, ctx->slot, 0, ctx->generation);
}

static inline stepaf_plan_h stepaf_plan_handle(const struct stepaf_plan_obj *plan)
{
    return stepaf_handle_make(STEPAF_HANDLE_PLAN, plan->ctx->slot, plan->index, plan->generation);
}

static inline stepaf_request_h stepaf_op_handle(const struct stepaf_op *op)
{
    return stepaf_handle_make(STEPAF_HANDLE_OPERATION, op->plan->ctx->slot, op->index,
                              op->generation);
}

static inline stepaf_batch_h stepaf_batch_handle(const struct stepaf_batch_obj *batch)
{
    return stepaf_handle_make(STEPAF_HANDLE_BATCH, stepaf_batch_ctx(batch)->slot, batch->index,
                              batch->generation);
}

static inline stepaf_request_h stepaf_response_handle(const struct stepaf_batch_obj *batch)
{
    return stepaf_handle_make(STEPAF_HANDLE_RESPONSE, stepaf_batch_ctx(batch)->slot, batch->index,
                              batch->generation);
}

#endif
