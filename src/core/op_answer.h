/* SPDX-License-Identifier: Apache-2.0 */
/* Taking an answer: what op.c and op_imm.c share. */
#ifndef STEPAF_CORE_OP_ANSWER_H
#define STEPAF_CORE_OP_ANSWER_H

#include "core/ctx.h"
#include "core/late.h"
#include "core/meter.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/trace.h"
#include "core/watch.h"

/* What is already known of an answer that is taken. */
enum stepaf_op_taking {
    /* Operations are not watched or measured (else transports deliver to the function that uses the
     * next value), and the operation needs each answer. */
    STEPAF_OP_AS_PLANNED,
    STEPAF_OP_OBSERVED, /* its operation needs each answer, and the peer reports no times */
    STEPAF_OP_ANY
};

/* An operation that may complete without some answers has all that it needs. False: it waits for
 * the others for a while. */
bool stepaf_op_has_enough(struct stepaf_op *op);
/* Note the actual sizes: @a sizes, or those as planned. */
void stepaf_op_set_sizes(struct stepaf_op *op, struct stepaf_op_peer *op_peer,
                         const uint32_t *sizes);
/* Whether an answer is already in GPU memory; else it is ARRIVING, or the peer is lost. */
bool stepaf_op_is_there(struct stepaf_op *op, struct stepaf_op_peer *op_peer, bool released);
/* Take an unusual answer. */
void stepaf_op_take_unusual(struct stepaf_ctx *ctx, struct stepaf_op *op,
                            struct stepaf_op_peer *op_peer, bool released);

/* Note the operation's result. */
static inline void stepaf_op_set_result(struct stepaf_ctx *ctx, struct stepaf_op *op,
                                        stepaf_status_t status, int peer)
{
    op->failed_peer = peer;
    if (status == STEPAF_OK)
        ctx->counters.operations_completed++;
    else
        ctx->counters.operations_failed++;
    atomic_store_explicit(&op->status, status, memory_order_release);
}

/* Whether the peer may answer: it cannot before it has received the START. A message that claims
 * otherwise would free a slot whose post still waits for space. */
static inline bool stepaf_op_peer_is_awaited(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_WAITING && op_peer->post.state != STEPAF_POST_QUEUED;
}

/* The operation is complete with all that it needs: tell the watch, if it is one to be picked.
 * Before its start was the end of the last operation, if that was not after the start, or of the
 * slot's previous one. */
static inline void stepaf_op_tell_watch(const struct stepaf_ctx *ctx, struct stepaf_op *op,
                                        uint64_t now)
{
    const struct stepaf_watch_plan *watched = &op->plan->watched;
    struct stepaf_watch *watch = ctx->polling.watch;
    uint64_t started = op->trace.started, took = now - started;
    uint64_t idle = started - watch->last_done, since_slot = started - op->trace.done;

    if (since_slot < idle)
        idle = since_slot;
    watch->last_done = op->trace.done = now;
    if (__builtin_expect(stepaf_watch_is_due(watched, op->seq), 0) ||
        __builtin_expect(took - watched->least_took >= watched->more_took, 0) ||
        __builtin_expect(idle >= watched->late_idle, 0))
        watch->ops->pick(watch, op, now, idle);
}

/* A peer's answer is complete, its post is through, and its sizes are known. The watch is called
 * last: a call at the end needs no registers to be saved. */
static inline __attribute__((always_inline)) void stepaf_op_take_answer(
    struct stepaf_ctx *ctx, struct stepaf_op *op, struct stepaf_op_peer *op_peer, bool released,
    enum stepaf_op_taking taking, uint64_t now)
{
    uint64_t stamp = op_peer->stamp;
    bool open = atomic_load_explicit(&op->status, memory_order_relaxed) == STEPAF_INPROGRESS;

    op_peer->answered = now;
    op_peer->state = STEPAF_OP_PEER_ANSWERED;
    if (released)
        stepaf_op_give_back(op, op_peer);
    if (__builtin_expect(!open, 0))
        ctx->counters.late++;
    bool complete = !--op->answers.pending && open;
    if (complete && taking == STEPAF_OP_ANY && __builtin_expect(op->answers.some != 0, 0))
        complete = stepaf_op_has_enough(op);
    if (complete) {
        stepaf_op_set_result(ctx, op, STEPAF_OK, -1);
        stamp = stepaf_trace_word_with(stamp, STEPAF_TRACE_COMPLETED);
    }
    stepaf_trace_put(&ctx->trace, now, op->seq, 0, stamp);
    if (taking == STEPAF_OP_AS_PLANNED)
        return;
    stepaf_meter_answer(ctx, op, op_peer, now, taking == STEPAF_OP_ANY);
    if (complete && op->answers.watched)
        stepaf_op_tell_watch(ctx, op, now);
}

#endif
