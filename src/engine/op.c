/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in flight, attention side: answers, releases, cancellation, loss. */
#include "engine/stage.h"

/* Give the operation its result, once. */
static void conclude(struct stepaf_op *op, stepaf_status_t status, int peer, uint64_t now)
{
    struct stepaf_ctx *ctx = op->plan->ctx;

    if (atomic_load_explicit(&op->status, memory_order_relaxed) != STEPAF_INPROGRESS)
        return;
    op->completed = now;
    op->failed_peer = peer;
    if (status == STEPAF_OK)
        ctx->counters.operations_completed++;
    else
        ctx->counters.operations_failed++;
    stepaf_trace_stamp(&ctx->trace, STEPAF_EVENT_COMPLETED, now, op->plan->index, op->seq,
                       STEPAF_TRACE_ALL, STEPAF_TRACE_WHOLE, 0);
    atomic_store_explicit(&op->status, status, memory_order_release);
}

/* A part is over, one way or another. */
static void end_part(struct stepaf_op *op, uint32_t p, enum stepaf_part_state state, uint64_t now)
{
    op->parts[p].state = (uint8_t)state;
    op->pending--;
    if (state == STEPAF_PART_LOST)
        conclude(op, STEPAF_ERR_PEER_LOST, (int)p, now);
    else if (state == STEPAF_PART_CANCELED)
        conclude(op, STEPAF_ERR_CANCELED, (int)p, now);
    else if (!op->pending)
        conclude(op, STEPAF_OK, -1, now);
}

/* The operation that a message is about, or NULL if it is about none of mine. */
static struct stepaf_op *find(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_plan_obj *plan = stepaf_table_get(&peer->ctx->plans, msg->plan);

    if (!plan || msg->slot >= plan->depth)
        return NULL;
    struct stepaf_op *op = &plan->ops[msg->slot];
    return op->seq == msg->seq && op->generation ? op : NULL;
}

static inline void give_back(struct stepaf_op *op, uint32_t p)
{
    struct stepaf_plan_obj *plan = op->plan;
    uint32_t bit = 1u << op->slot;

    if (!(plan->held[p] & bit))
        return;
    plan->held[p] &= ~bit;
    if (--op->n_held)
        return;
    for (uint32_t i = 0; i < plan->n_push; i++)
        plan->push[i].key->busy[op->slot] = false;
}

/* Whether the peer may answer: it cannot before it was told. What claims otherwise would free a slot
 * whose post still waits for room. */
static inline bool is_awaited(const struct stepaf_part *part)
{
    return part->state == STEPAF_PART_WAITING && part->post.state != STEPAF_POST_QUEUED;
}

/* Note the actual sizes. False if they cannot be. */
static bool take_sizes(struct stepaf_op *op, uint32_t p, const struct stepaf_msg *msg)
{
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t first = p * plan->n_pull;
    uint64_t sum = 0;

    if (msg->n && msg->n != plan->n_pull)
        return false;
    for (uint32_t i = 0; i < msg->n; i++)
        if (msg->word[STEPAF_MSG_SIZES + i] > plan->pull[first + i].bytes)
            return false;
    for (uint32_t i = 0; i < plan->n_pull; i++) {
        op->pull_bytes[first + i] =
            msg->n ? msg->word[STEPAF_MSG_SIZES + i] : plan->pull[first + i].bytes;
        sum += op->pull_bytes[first + i];
    }
    plan->ctx->peers[p].bytes_received += sum;
    return true;
}

/* A peer's answer is complete, and its sizes are known. */
static inline __attribute__((always_inline)) void take_answer(struct stepaf_peer *peer,
                                                              struct stepaf_op *op,
                                                              struct stepaf_part *part,
                                                              bool released)
{
    struct stepaf_ctx *ctx = peer->ctx;
    uint64_t now = stepaf_arrival_ticks(ctx);

    stepaf_post_conclude(&part->post);
    part->answered = now;
    part->state = STEPAF_PART_ANSWERED;
    stepaf_trace_stamp(&ctx->trace, STEPAF_EVENT_ANSWERED, now, op->plan->index, op->seq,
                       part->rank, STEPAF_TRACE_WHOLE, 0);
    if (__builtin_expect(
            atomic_load_explicit(&op->status, memory_order_relaxed) != STEPAF_INPROGRESS, 0))
        ctx->counters.late++;
    if (released)
        give_back(op, peer->index);
    if (!--op->pending)
        conclude(op, STEPAF_OK, -1, now);
}

void stepaf_op_response(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    uint32_t p = peer->index;
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_op *op = find(peer, msg);

    if (__builtin_expect(!op || !is_awaited(&op->parts[p]), 0)) {
        ctx->counters.dropped_stale++;
        return;
    }
    if (__builtin_expect(!take_sizes(op, p, msg), 0)) {
        ctx->counters.dropped_malformed++;
        return;
    }
    if (__builtin_expect(op->plan->on_gpu, 0) && !stepaf_stage_pulled(op, peer))
        return;
    op->parts[p].queue_ns = msg->word[STEPAF_MSG_QUEUE];
    op->parts[p].work_ns = msg->word[STEPAF_MSG_WORK];
    take_answer(peer, op, &op->parts[p], msg->flags & STEPAF_MSG_RELEASED);
}

/* The answer to an operation, as planned. */
static inline void take_planned(struct stepaf_peer *peer, struct stepaf_op *op,
                                struct stepaf_part *part, bool released)
{
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t p = peer->index, n = plan->n_pull;
    const struct stepaf_pull *pull = &plan->pull[p * n];
    uint32_t *bytes = &op->pull_bytes[p * n];
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += bytes[i] = pull[i].bytes;
    peer->bytes_received += sum;
    if (__builtin_expect(plan->on_gpu, 0) && !stepaf_stage_pulled(op, peer))
        return;
    part->queue_ns = UINT32_MAX;
    part->work_ns = UINT32_MAX;
    take_answer(peer, op, part, released);
}

/* The operation that an answer of 32 bits is about. */
static inline struct stepaf_op *find_short(const struct stepaf_peer *peer, uint32_t imm)
{
    const struct stepaf_plan_obj *plan =
        stepaf_table_get(&peer->ctx->plans, imm >> STEPAF_IMM_PLAN_SHIFT & 0xffff);

    if (!plan)
        return NULL;
    uint32_t behind = (plan->seq - (imm >> STEPAF_IMM_SEQ_SHIFT)) & STEPAF_IMM_SEQ_MASK;
    if (!behind || behind > plan->depth)
        return NULL;
    uint32_t slot = plan->slot + (behind > plan->slot ? plan->depth : 0u) - behind;
    struct stepaf_op *op = &plan->ops[slot];
    return op->generation ? op : NULL;
}

static __attribute__((noinline)) void deliver_other(struct stepaf_host *host,
                                                    struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_msg msg;

    if (stepaf_engine_expand(host, link, imm, &msg))
        stepaf_engine_deliver(host, link, &msg);
}

void stepaf_engine_deliver_imm(struct stepaf_host *host, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)host;
    struct stepaf_peer *peer = &ctx->peers[link->peer];
    uint32_t code = imm >> STEPAF_IMM_CODE_SHIFT;

    if (stepaf_is_attention(ctx) && !peer->lost &&
        (code == STEPAF_IMM_RESPONSE || code == STEPAF_IMM_RELEASED) &&
        !((imm ^ ctx->epoch) & STEPAF_IMM_EPOCH_MASK)) {
        struct stepaf_op *op = find_short(peer, imm);
        struct stepaf_part *part = op ? &op->parts[peer->index] : NULL;
        if (__builtin_expect(part && is_awaited(part), 1))
            take_planned(peer, op, part, code == STEPAF_IMM_RELEASED);
        else
            ctx->counters.dropped_stale++;
    } else {
        deliver_other(host, link, imm);
    }
}

void stepaf_op_release(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    uint32_t p = peer->index;
    struct stepaf_op *op = find(peer, msg);

    if (__builtin_expect(!op || !(op->plan->held[p] & 1u << op->slot) ||
                             op->parts[p].post.state == STEPAF_POST_QUEUED,
                         0)) {
        peer->ctx->counters.dropped_stale++;
        return;
    }
    stepaf_post_conclude(&op->parts[p].post);
    give_back(op, p);
    if (op->parts[p].state != STEPAF_PART_WAITING)
        return;
    uint64_t now = stepaf_arrival_ticks(peer->ctx);
    op->parts[p].answered = now;
    op->parts[p].queue_ns = UINT32_MAX;
    op->parts[p].work_ns = UINT32_MAX;
    /* Nothing was expected: that the peer is done with it is the answer. */
    end_part(op, p, op->plan->n_pull ? STEPAF_PART_CANCELED : STEPAF_PART_ANSWERED, now);
}

void stepaf_op_peer_lost(struct stepaf_peer *peer)
{
    uint32_t p = peer->index;
    struct stepaf_ctx *ctx = peer->ctx;
    uint64_t now = stepaf_ticks();

    for (uint32_t i = 0; i < ctx->plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        for (int s = 0; plan && s < plan->depth; s++) {
            struct stepaf_op *op = &plan->ops[s];
            give_back(op, p);
            if (op->pending && op->parts[p].state == STEPAF_PART_WAITING)
                end_part(op, p, STEPAF_PART_LOST, now);
        }
    }
}

void stepaf_op_end(struct stepaf_op *op, stepaf_status_t status, int peer)
{
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++)
        if (op->parts[p].state == STEPAF_PART_WAITING)
            op->parts[p].state = status ? STEPAF_PART_LOST : STEPAF_PART_ANSWERED;
    op->pending = 0;
    conclude(op, status, peer, stepaf_ticks());
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
        /* Out of memory, the peer is not told and answers in vain: nothing worse. */
        if (op->parts[p].state == STEPAF_PART_WAITING)
            (void)stepaf_engine_send(&ctx->peers[p], &msg);
    }
    conclude(op, STEPAF_ERR_CANCELED, -1, stepaf_ticks());
    return STEPAF_OK;
}

stepaf_status_t stepaf_op_result(struct stepaf_op *op)
{
    stepaf_status_t status = atomic_load_explicit(&op->status, memory_order_acquire);
    const struct stepaf_ctx *ctx = op->plan->ctx;
    const struct stepaf_peer *peer = op->failed_peer >= 0 ? &ctx->peers[op->failed_peer] : NULL;

    if (__builtin_expect(status == STEPAF_OK, 1))
        return status;
    if (status == STEPAF_ERR_PEER_LOST)
        return stepaf_error_set_peer(
            status, STEPAF_PHASE_RESPONSE, peer->who,
            STEPAF_WHO_FORMAT " was lost before it answered operation %u of plan %u: %s",
            STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index, peer->reason);
    if (status == STEPAF_ERR_TIMEOUT && peer)
        return stepaf_error_set_peer(status, STEPAF_PHASE_RESPONSE, peer->who,
                                     STEPAF_WHO_FORMAT
                                     " has not answered operation %u of stream plan %u for "
                                     "STEPAF_STREAM_TIMEOUT_US",
                                     STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index);
    if (peer)
        return stepaf_error_set_peer(status, STEPAF_PHASE_RESPONSE, peer->who,
                                     STEPAF_WHO_FORMAT
                                     " released the batch of operation %u of plan %u unanswered",
                                     STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index);
    return stepaf_error_set(status, STEPAF_PHASE_RESPONSE,
                            status == STEPAF_ERR_CANCELED
                                ? "operation %u of plan %u was canceled"
                                : "operation %u of plan %u: the GPU has failed",
                            op->seq, op->plan->index);
}
