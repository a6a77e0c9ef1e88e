/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in flight at an attention rank: answers, releases, cancellation, loss. */
#include "core/op.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/key.h"
#include "core/meter.h"
#include "core/op_answer.h"
#include "core/plan.h"
#include "core/send.h"
#include "core/table.h"

bool stepaf_op_has_enough(struct stepaf_op *op)
{
    op->answers.pending = op->answers.spare;
    op->answers.spare = 0;
    op->answers.enough = op->answers.pending && op->answers.until &&
                         (int64_t)(op->answers.until - stepaf_ticks()) > 0;
    if (op->answers.pending && !op->answers.enough)
        op->plan->ctx->counters.incomplete++;
    return !op->answers.enough;
}

/* Set the operation's result, once. */
static void conclude(struct stepaf_op *op, stepaf_status_t status, int peer, uint64_t now)
{
    struct stepaf_ctx *ctx = op->plan->ctx;

    if (atomic_load_explicit(&op->status, memory_order_relaxed) != STEPAF_INPROGRESS)
        return;
    op->answers.pending += op->answers.spare;
    op->answers.spare = 0;
    op->answers.enough = false;
    stepaf_op_set_result(ctx, op, status, peer);
    stepaf_trace_stamp(&ctx->trace, STEPAF_EVENT_COMPLETED, now, op->plan->index, op->seq,
                       STEPAF_TRACE_ALL, STEPAF_TRACE_WHOLE, 0);
    if (status == STEPAF_OK && op->answers.watched)
        stepaf_op_tell_watch(ctx, op, now);
}

/* Return the result of an operation that needs a part that has ended in @a state. */
static stepaf_status_t status_without(enum stepaf_op_peer_state state)
{
    return state == STEPAF_OP_PEER_LOST       ? STEPAF_ERR_PEER_LOST
           : state == STEPAF_OP_PEER_CANCELED ? STEPAF_ERR_CANCELED
           : state == STEPAF_OP_PEER_REFUSED  ? STEPAF_ERR_UNREGISTERED
                                              : STEPAF_OK;
}

/* End a part in @a state. */
static void end_op_peer(struct stepaf_op *op, uint32_t p, enum stepaf_op_peer_state state,
                        uint64_t now)
{
    stepaf_status_t status = status_without(state);

    op->op_peers[p].state = (uint8_t)state;
    if (status && op->answers.spare) {
        op->answers.spare--;
        return;
    }
    op->answers.pending--;
    if (status && !op->answers.enough)
        conclude(op, status, (int)p, now);
    else if (!op->answers.pending && (!op->answers.spare || stepaf_op_has_enough(op)))
        conclude(op, STEPAF_OK, -1, now);
}

void stepaf_op_expire(struct stepaf_op *op)
{
    uint64_t now = stepaf_ticks();

    if (!op->answers.enough || (int64_t)(op->answers.until - now) > 0)
        return;
    op->plan->ctx->counters.incomplete++;
    conclude(op, STEPAF_OK, -1, now);
}

struct stepaf_op *stepaf_op_find(const struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_plan_obj *plan = stepaf_table_get(&peer->ctx->tables.plans, msg->plan);

    if (!plan || msg->slot >= plan->depth)
        return NULL;
    struct stepaf_op *op = &plan->ops[msg->slot];
    return op->seq == msg->seq && op->generation ? op : NULL;
}

void stepaf_op_set_sizes(struct stepaf_op *op, struct stepaf_op_peer *op_peer,
                         const uint32_t *sizes)
{
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t first = op_peer->peer->index * plan->n_pull;

    for (uint32_t i = 0; i < plan->n_pull; i++)
        op->pull_bytes[first + i] = sizes ? sizes[i] : plan->pull[first + i].bytes;
    op_peer->odd = sizes != NULL;
}

/* Count an answer with the planned sizes. */
static inline void take_planned(struct stepaf_op *op, struct stepaf_op_peer *op_peer)
{
    if (__builtin_expect(op_peer->odd, 0))
        stepaf_op_set_sizes(op, op_peer, NULL);
    op_peer->peer->bytes_received += op_peer->pull_sum;
}

/* Count an answer with the sizes that it states. Return false if they are impossible. */
static bool take_pull_sizes(struct stepaf_op *op, struct stepaf_op_peer *op_peer,
                            const struct stepaf_msg *msg)
{
    const struct stepaf_plan_obj *plan = op->plan;
    const uint32_t *sizes = &msg->word[STEPAF_MSG_SIZES];

    if (!msg->n) {
        take_planned(op, op_peer);
        return true;
    }
    if (msg->n != plan->n_pull)
        return false;
    for (uint32_t i = 0; i < msg->n; i++)
        if (sizes[i] > plan->pull[op_peer->peer->index * plan->n_pull + i].bytes)
            return false;
    stepaf_op_set_sizes(op, op_peer, sizes);
    for (uint32_t i = 0; i < msg->n; i++)
        op_peer->peer->bytes_received += sizes[i];
    return true;
}

void stepaf_op_take_unusual(struct stepaf_ctx *ctx, struct stepaf_op *op,
                            struct stepaf_op_peer *op_peer, bool released)
{
    stepaf_op_take_answer(ctx, op, op_peer, released, STEPAF_OP_ANY, stepaf_arrival_ticks(ctx));
}

bool stepaf_op_is_there(struct stepaf_op *op, struct stepaf_op_peer *op_peer, bool released)
{
    stepaf_status_t status = op->plan->ctx->feature->op_bring(op, op_peer->peer);

    if (status == STEPAF_INPROGRESS) {
        op_peer->state = STEPAF_OP_PEER_ARRIVING;
        if (released)
            stepaf_op_give_back(op, op_peer);
    }
    return !status;
}

void stepaf_op_arrived(struct stepaf_op *op, const struct stepaf_peer *peer)
{
    struct stepaf_ctx *ctx = peer->ctx;

    stepaf_op_take_unusual(ctx, op, &op->op_peers[peer->index], false);
}

void stepaf_op_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_op *op = stepaf_op_find(peer, msg);
    uint32_t i = msg->word[STEPAF_MSG_TENSOR_INDEX], bit = STEPAF_OP_PUSHED;

    if (!op) {
        peer->ctx->counters.dropped_stale++;
        return;
    }
    if (op->plan->proxied.is || !stepaf_op_peer_is_awaited(&op->op_peers[peer->index]))
        return; /* the part is over, or nobody can ask */
    struct stepaf_op_peer *op_peer = &op->op_peers[peer->index];
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t first = peer->index * plan->n_pull;
    if (msg->n_words < STEPAF_MSG_SIZES ||
        (i != STEPAF_MSG_NO_TENSOR &&
         (i >= plan->n_pull || msg->word[STEPAF_MSG_HERE] > plan->pull[first + i].bytes))) {
        peer->ctx->counters.dropped_malformed++;
        return;
    }
    if (i != STEPAF_MSG_NO_TENSOR && plan->on_gpu)
        return; /* copied to the GPU together with the other tensors */
    if (i != STEPAF_MSG_NO_TENSOR) {
        bit = 1u << i;
        op->pull_bytes[first + i] = msg->word[STEPAF_MSG_HERE];
        op_peer->odd = op_peer->odd || msg->word[STEPAF_MSG_HERE] != plan->pull[first + i].bytes;
    }
    op->answers.landed[peer->index] = (struct stepaf_op_landed){
        .seq = op->seq, .bits = stepaf_op_has_landed(op, peer->index) | bit};
}

void stepaf_op_response(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_op *op = stepaf_op_find(peer, msg);
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[peer->index] : NULL;

    if (__builtin_expect(!op_peer || !stepaf_op_peer_is_awaited(op_peer), 0)) {
        ctx->counters.dropped_stale += !stepaf_late_take(peer, msg);
        return;
    }
    if (__builtin_expect(!take_pull_sizes(op, op_peer, msg), 0)) {
        ctx->counters.dropped_malformed++;
        return;
    }
    op_peer->queue_ns = msg->word[STEPAF_MSG_QUEUE];
    op_peer->work_ns = msg->word[STEPAF_MSG_WORK];
    stepaf_post_complete(&op_peer->post);
    if (__builtin_expect(op->plan->on_gpu, 0) &&
        !stepaf_op_is_there(op, op_peer, msg->flags & STEPAF_MSG_RELEASED))
        return;
    stepaf_op_take_answer(ctx, op, op_peer, msg->flags & STEPAF_MSG_RELEASED, STEPAF_OP_ANY,
                          stepaf_arrival_ticks(ctx));
}

void stepaf_op_release(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_op *op = stepaf_op_find(peer, msg);
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[peer->index] : NULL;

    if (__builtin_expect(!op_peer || !op_peer->held || op_peer->state == STEPAF_OP_PEER_LEFT_OUT ||
                             op_peer->post.state == STEPAF_POST_QUEUED,
                         0)) {
        peer->ctx->counters.dropped_stale += !stepaf_late_take(peer, msg);
        return;
    }
    stepaf_post_complete(&op_peer->post);
    stepaf_op_give_back(op, op_peer);
    if (op_peer->state != STEPAF_OP_PEER_WAITING)
        return;
    uint64_t now = stepaf_arrival_ticks(peer->ctx);
    bool timed = msg->flags & STEPAF_MSG_TIMED && msg->n_words >= STEPAF_MSG_SIZES;
    op_peer->answered = now;
    op_peer->queue_ns = timed ? msg->word[STEPAF_MSG_QUEUE] : UINT32_MAX;
    op_peer->work_ns = timed ? msg->word[STEPAF_MSG_WORK] : UINT32_MAX;
    /* An operation without pull tensors expects nothing: its release is the answer. */
    end_op_peer(op, peer->index,
                op->plan->n_pull ? STEPAF_OP_PEER_CANCELED : STEPAF_OP_PEER_ANSWERED, now);
    if (op_peer->state == STEPAF_OP_PEER_ANSWERED)
        stepaf_meter_answer(peer->ctx, op, op_peer, now, true);
}

void stepaf_op_peer_lost(struct stepaf_peer *peer)
{
    uint32_t p = peer->index;
    struct stepaf_ctx *ctx = peer->ctx;
    uint64_t now = stepaf_ticks();

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        for (int s = 0; plan && s < plan->depth; s++) {
            struct stepaf_op *op = &plan->ops[s];
            stepaf_post_complete(&op->op_peers[p].post); /* nobody reads it */
            stepaf_late_forget(op, &op->op_peers[p]);
            if (op->answers.pending && op->op_peers[p].state == STEPAF_OP_PEER_WAITING)
                end_op_peer(op, p, STEPAF_OP_PEER_LOST, now);
        }
    }
}

/* The peer has not heard of the operation: for the peer, the operation was skipped. */
void stepaf_op_refused(struct stepaf_peer *peer, const struct stepaf_post *post)
{
    struct stepaf_plan_obj *plan = stepaf_table_get(&peer->ctx->tables.plans, post->msg.plan);
    struct stepaf_op *op = plan && post->msg.slot < plan->depth ? &plan->ops[post->msg.slot] : NULL;
    uint32_t p = peer->index;

    if (!op || &op->op_peers[p].post != post)
        return;
    stepaf_late_forget(op, &op->op_peers[p]);
    plan->partial.n_odd += !plan->partial.skipped[p];
    plan->partial.skipped[p] = true;
    for (uint32_t i = 0; i < post->n_xfer; i++)
        peer->bytes_sent -= post->xfer[i].bytes;
    if (op->op_peers[p].state == STEPAF_OP_PEER_WAITING)
        end_op_peer(op, p, STEPAF_OP_PEER_REFUSED, stepaf_ticks());
}

stepaf_status_t stepaf_op_cancel(struct stepaf_op *op)
{
    struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_ctx *ctx = plan->ctx;

    if (plan->stream)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "an operation on a stream cannot be canceled");
    if (atomic_load_explicit(&op->status, memory_order_relaxed) != STEPAF_INPROGRESS)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "the operation is complete already");
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_msg msg = {
            .type = STEPAF_MSG_CANCEL,
            .epoch = (uint16_t)ctx->epoch,
            .plan = (uint16_t)plan->index,
            .slot = op->slot,
            .seq = op->seq,
        };
        /* If out of memory, the peer is not notified and answers in vain, which is harmless. */
        if (op->op_peers[p].state == STEPAF_OP_PEER_WAITING)
            (void)stepaf_core_send(&ctx->peers[p], &msg);
    }
    conclude(op, STEPAF_ERR_CANCELED, -1, stepaf_ticks());
    return STEPAF_OK;
}
