/* SPDX-License-Identifier: Apache-2.0 */
/* Taking an answer: code shared by op.c and op_imm.c. */
#ifndef STEPAF_CORE_OP_ANSWER_H
#define STEPAF_CORE_OP_ANSWER_H

#include "core/ctx.h"
#include "core/late.h"
#include "core/meter.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/trace.h"
#include "core/watch.h"

/* What is already known of an answer being taken. */
enum stepaf_op_taking {
    /* Nobody watches or measures (otherwise transports deliver to the OBSERVED function), and the
     * operation needs each answer. */
    STEPAF_OP_AS_PLANNED,
    STEPAF_OP_OBSERVED, /* the operation needs each answer, and the peer reports no times */
    STEPAF_OP_ANY
};

/* Note that an operation that may complete without all answers has those it needs. Return false if
 * it waits a while for the others. */
bool stepaf_op_has_enough(struct stepaf_op *op);
/* Note the actual sizes: @a sizes, or the planned ones if NULL. */
void stepaf_op_set_sizes(struct stepaf_op *op, struct stepaf_op_peer *op_peer,
                         const uint32_t *sizes);
/* Return whether an answer is in GPU memory. If not, it is ARRIVING, or the peer is lost. */
bool stepaf_op_is_there(struct stepaf_op *op, struct stepaf_op_peer *op_peer, bool released);
/* Take an answer on the slow path. */
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

/* Return whether the peer may answer. A peer cannot answer before its START has left; accepting
 * such an answer would free a slot whose post still waits for space. */
static inline bool stepaf_op_peer_is_awaited(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_WAITING && op_peer->post.state != STEPAF_POST_QUEUED;
}

/* Report a completed operation to the watch, if the operation is to be picked. The time before its
 * start counts from the last completion of any operation, if that preceded the start, or of the
 * slot's previous operation. */
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

/* Take a peer's answer. The answer is complete, its post is done, and its sizes are known. The
 * watch is called last: a call at the end needs no registers to be saved. */
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
