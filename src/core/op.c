/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in flight, attention side: answers, releases, cancellation, loss. */
#include "core/op.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/imm.h"
#include "core/key.h"
#include "core/late.h"
#include "core/plan.h"
#include "core/send.h"
#include "core/table.h"
#include "core/trace.h"
#include "core/watch.h"

/* Note the operation's result. */
static inline void set_result(struct stepaf_ctx *ctx, struct stepaf_op *op, stepaf_status_t status,
                              int peer)
{
    op->failed_peer = peer;
    if (status == STEPAF_OK)
        ctx->counters.operations_completed++;
    else
        ctx->counters.operations_failed++;
    atomic_store_explicit(&op->status, status, memory_order_release);
}

/* All answers that it needs have come. False: it waits for the others, for a while. */
static __attribute__((noinline)) bool has_enough(struct stepaf_op *op)
{
    op->answers.pending = op->answers.spare;
    op->answers.spare = 0;
    op->answers.enough = op->answers.pending && op->answers.until &&
                         (int64_t)(op->answers.until - stepaf_ticks()) > 0;
    if (op->answers.pending && !op->answers.enough)
        op->plan->ctx->counters.incomplete++;
    return !op->answers.enough;
}

/* The operation is complete with what it needs: tell who watches it. True. */
static inline bool tell_watch(const struct stepaf_op *op, uint64_t now)
{
    struct stepaf_watch *watch = op->plan->ctx->polling.watch;

    return watch->ops->done(watch, op, now);
}

/* Give the operation its result, once. */
static void conclude(struct stepaf_op *op, stepaf_status_t status, int peer, uint64_t now)
{
    struct stepaf_ctx *ctx = op->plan->ctx;

    if (atomic_load_explicit(&op->status, memory_order_relaxed) != STEPAF_INPROGRESS)
        return;
    op->answers.pending += op->answers.spare;
    op->answers.spare = 0;
    op->answers.enough = false;
    set_result(ctx, op, status, peer);
    stepaf_trace_stamp(&ctx->trace, STEPAF_EVENT_COMPLETED, now, op->plan->index, op->seq,
                       STEPAF_TRACE_ALL, STEPAF_TRACE_WHOLE, 0);
    if (status == STEPAF_OK && op->answers.watched)
        (void)tell_watch(op, now);
}

/* What an operation comes to that needs a part that has ended so. */
static stepaf_status_t status_without(enum stepaf_op_peer_state state)
{
    return state == STEPAF_OP_PEER_LOST       ? STEPAF_ERR_PEER_LOST
           : state == STEPAF_OP_PEER_CANCELED ? STEPAF_ERR_CANCELED
           : state == STEPAF_OP_PEER_REFUSED  ? STEPAF_ERR_UNREGISTERED
                                              : STEPAF_OK;
}

/* A part is over, one way or another. */
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
    else if (!op->answers.pending && (!op->answers.spare || has_enough(op)))
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

/* Whether the peer may answer: it cannot before it was told. What claims otherwise would free a
 * slot whose post still waits for room. */
static inline bool is_awaited(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_WAITING && op_peer->post.state != STEPAF_POST_QUEUED;
}

/* Note the actual sizes: @a sizes, or those as planned. */
static void set_sizes(struct stepaf_op *op, struct stepaf_op_peer *op_peer, const uint32_t *sizes)
{
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t first = op_peer->peer->index * plan->n_pull;

    for (uint32_t i = 0; i < plan->n_pull; i++)
        op->pull_bytes[first + i] = sizes ? sizes[i] : plan->pull[first + i].bytes;
    op_peer->odd = sizes != NULL;
}

/* The answer brings what was planned. */
static inline void take_planned(struct stepaf_op *op, struct stepaf_op_peer *op_peer)
{
    if (__builtin_expect(op_peer->odd, 0))
        set_sizes(op, op_peer, NULL);
    op_peer->peer->bytes_received += op_peer->pull_sum;
}

/* It brings what it says. False if it cannot. */
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
    set_sizes(op, op_peer, sizes);
    for (uint32_t i = 0; i < msg->n; i++)
        op_peer->peer->bytes_received += sizes[i];
    return true;
}

/* All answers that it needs are here, and some may be to spare. False: it waits for others. */
static __attribute__((noinline)) bool has_enough_for_watch(struct stepaf_op *op, uint64_t now)
{
    return has_enough(op) && (!op->answers.watched || tell_watch(op, now));
}

/* All answers that the operation needs are here, and it is none of the usual. False: it waits for
 * others. */
static __attribute__((noinline)) bool has_all_answers(struct stepaf_op *op, uint64_t now)
{
    if (__builtin_expect(op->answers.spare | op->answers.enough, 0))
        return has_enough_for_watch(op, now);
    return tell_watch(op, now); /* then it is watched */
}

/* A peer's answer is complete, its post is through, and its sizes are known. @a spares: the
 * operation may be complete without others. */
static inline __attribute__((always_inline)) void take_answer(struct stepaf_ctx *ctx,
                                                              struct stepaf_op *op,
                                                              struct stepaf_op_peer *op_peer,
                                                              bool released, bool spares,
                                                              uint64_t now)
{
    uint64_t stamp = op_peer->stamp;
    bool open = atomic_load_explicit(&op->status, memory_order_relaxed) == STEPAF_INPROGRESS;

    op_peer->answered = now;
    op_peer->state = STEPAF_OP_PEER_ANSWERED;
    if (released)
        stepaf_op_give_back(op, op_peer);
    if (__builtin_expect(!open, 0))
        ctx->counters.late++;
    if (!--op->answers.pending && open &&
        (!spares || __builtin_expect(!op->answers.unusual, 1) || has_all_answers(op, now))) {
        set_result(ctx, op, STEPAF_OK, -1);
        stamp |= (uint64_t)STEPAF_TRACE_COMPLETED << 32;
    }
    stepaf_trace_stamp_word(&ctx->trace, now, op->seq, stamp);
}

/* Take an answer where that is none of the usual. */
static __attribute__((noinline)) void take_unusual(struct stepaf_ctx *ctx, struct stepaf_op *op,
                                                   struct stepaf_op_peer *op_peer, bool released)
{
    take_answer(ctx, op, op_peer, released, true, stepaf_arrival_ticks(ctx));
}

/* Whether an answer is in GPU memory by now; else it is ARRIVING, or the peer is lost. */
static __attribute__((noinline)) bool is_there(struct stepaf_op *op, struct stepaf_op_peer *op_peer,
                                               bool released)
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

    take_unusual(ctx, op, &op->op_peers[peer->index], false);
}

void stepaf_op_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_op *op = stepaf_op_find(peer, msg);
    uint32_t i = msg->word[STEPAF_MSG_TENSOR_INDEX], bit = STEPAF_OP_PUSHED;

    if (!op) {
        peer->ctx->counters.dropped_stale++;
        return;
    }
    if (op->plan->proxied.is || !is_awaited(&op->op_peers[peer->index]))
        return; /* it is over, or nobody can ask */
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
        return; /* it is brought there with the others */
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

    if (__builtin_expect(!op_peer || !is_awaited(op_peer), 0)) {
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
        !is_there(op, op_peer, msg->flags & STEPAF_MSG_RELEASED))
        return;
    take_answer(ctx, op, op_peer, msg->flags & STEPAF_MSG_RELEASED, true,
                stepaf_arrival_ticks(ctx));
}

static __attribute__((noinline)) void deliver_other(struct stepaf_upcalls *up,
                                                    struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_msg msg;

    if (stepaf_imm_decode(up, link, imm, &msg))
        up->deliver(up, link, &msg);
}

__attribute__((noinline)) struct stepaf_op *stepaf_op_find_short(const struct stepaf_ctx *ctx,
                                                                 uint32_t imm)
{
    const struct stepaf_plan_obj *plan =
        stepaf_table_get(&ctx->tables.plans, imm >> STEPAF_IMM_PLAN_SHIFT & 0xffff);
    const struct stepaf_op *op = plan ? plan->ops : NULL;

    if (!stepaf_is_attention(ctx) || !plan)
        return NULL;
    for (uint32_t s = 0; s < plan->depth; s++, op++)
        if (op->imm == (imm & STEPAF_IMM_SAME_MASK) && op->generation)
            return (struct stepaf_op *)op;
    return NULL;
}

/* An answer of 32 bits: all bytes as planned, and times that are too short to be told. */
static inline void count_planned(struct stepaf_op_peer *op_peer)
{
    op_peer->peer->bytes_received += op_peer->pull_sum;
    op_peer->queue_ns = UINT32_MAX;
    op_peer->work_ns = UINT32_MAX;
}

/* Take an answer as planned, to an operation that needs it: else its parts are odd. */
static inline __attribute__((always_inline)) void take_planned_answer(
    struct stepaf_ctx *ctx, struct stepaf_op *op, struct stepaf_op_peer *op_peer, uint32_t imm)
{
    count_planned(op_peer);
    take_answer(ctx, op, op_peer, imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_RELEASED, false,
                ctx->up.polled);
}

/* An answer as planned, where something is to be done before; or no such answer. */
static __attribute__((noinline)) void deliver_unusual(struct stepaf_ctx *ctx,
                                                      struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_op *op = stepaf_op_find_short(ctx, imm);
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[link->peer] : NULL;

    if (!op_peer || !is_awaited(op_peer) || !stepaf_imm_is_answer(imm)) {
        deliver_other(&ctx->up, link, imm);
        return;
    }
    stepaf_post_complete(&op_peer->post);
    if (op_peer->odd)
        set_sizes(op, op_peer, NULL);
    count_planned(op_peer);
    bool released = imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_RELEASED;
    if (op->plan->on_gpu && !is_there(op, op_peer, released))
        return;
    take_unusual(ctx, op, op_peer, released);
}

/* The same while a thread waits for @a op, which most such answers are for: where it is watched,
 * and has nothing else that is none of the usual. */
static __attribute__((noinline)) void deliver_watched(struct stepaf_ctx *ctx, struct stepaf_op *op,
                                                      struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_op_peer *op_peer = &op->op_peers[link->peer];

    if (op->imm != (imm & STEPAF_IMM_SAME_MASK) || !stepaf_imm_is_answer(imm) ||
        op_peer->state != STEPAF_OP_PEER_WAITING || op_peer->post.state != STEPAF_POST_SENT ||
        op_peer->odd) {
        deliver_unusual(ctx, link, imm);
        return;
    }
    count_planned(op_peer);
    take_answer(ctx, op, op_peer, imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_RELEASED, true,
                ctx->up.polled);
}

/* The operation that a thread waits for is the likeliest. Its START says the same in its 32 bits as
 * the answer, but for the code. */
void stepaf_core_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_op *op = ctx->polling.hint_op;
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[link->peer] : NULL;

    if (__builtin_expect(op_peer && op->imm == (imm & STEPAF_IMM_SAME_MASK) &&
                             stepaf_imm_is_answer(imm) &&
                             op_peer->state == STEPAF_OP_PEER_WAITING &&
                             op_peer->post.state == STEPAF_POST_SENT && !op_peer->unusual,
                         1))
        take_planned_answer(ctx, op, op_peer, imm);
    else if (__builtin_expect(op != NULL, 0))
        deliver_watched(ctx, op, link, imm);
    else
        deliver_unusual(ctx, link, imm);
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
    /* Nothing was expected: that the peer is done with it is the answer. */
    end_op_peer(op, peer->index,
                op->plan->n_pull ? STEPAF_OP_PEER_CANCELED : STEPAF_OP_PEER_ANSWERED, now);
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

/* The peer has not heard of the operation: to it, it is one that was skipped. */
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
        /* One that is not told, out of memory, answers in vain: nothing worse. */
        if (op->op_peers[p].state == STEPAF_OP_PEER_WAITING)
            (void)stepaf_core_send(&ctx->peers[p], &msg);
    }
    conclude(op, STEPAF_ERR_CANCELED, -1, stepaf_ticks());
    return STEPAF_OK;
}
