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

/* What is known already of an answer that is taken. */
enum stepaf_op_taking {
    /* Nobody watches or measures (else transports deliver to the function of the next), and the
     * operation needs each answer. */
    STEPAF_OP_AS_PLANNED,
    STEPAF_OP_OBSERVED, /* its operation needs each answer, and the peer reports no times */
    STEPAF_OP_ANY
};

/* All answers have come that an operation needs that may be complete without others. False: it waits
 * for those, for a while. */
bool stepaf_op_has_enough(struct stepaf_op *op);
/* Note the actual sizes: @a sizes, or those as planned. */
void stepaf_op_set_sizes(struct stepaf_op *op, struct stepaf_op_peer *op_peer,
                         const uint32_t *sizes);
/* Whether an answer is in GPU memory by now; else it is ARRIVING, or the peer is lost. */
bool stepaf_op_is_there(struct stepaf_op *op, struct stepaf_op_peer *op_peer, bool released);
/* Take an answer where that is none of the usual. */
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

/* Whether the peer may answer: it cannot before it was told. What claims otherwise would free a
 * slot whose post still waits for room. */
static inline bool stepaf_op_peer_is_awaited(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_WAITING && op_peer->post.state != STEPAF_POST_QUEUED;
}

/* The operation is complete with all that it needs: tell who watches it, if it is one to be picked.
 * What was before its start is the end of an operation, if that was not behind it, or of the slot's
 * one before. */
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

/* A peer's answer is complete, its post is through, and its sizes are known. Who watches comes last: a
 * call at the end needs no registers to be saved. */
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
