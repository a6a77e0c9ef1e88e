/* SPDX-License-Identifier: Apache-2.0 */
/* Starting an operation: the hot path of the attention side. First every check that could reject
 * the start (start_check.c), then the start itself. */
#include "core/start.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/late.h"
#include "core/op.h"
#include "core/region.h"
#include "core/send.h"
#include "core/start_check.h"
#include "core/table.h"
#include "core/trace.h"
#include "core/wait.h"

static const stepaf_start_params_t no_params;

/* Return whether @a op, the next operation, can start as planned and immediately, to all peers. One
 * expression covers every obstacle. An op that was never compiled is not_as_planned, so a plan that
 * passes has seen a commit. */
static inline bool is_usual(const struct stepaf_ctx *ctx, const struct stepaf_plan_obj *plan,
                            const struct stepaf_op *op)
{
    return !((plan->usable ^ ctx->epoch) | (ctx->n_alive ^ ctx->n_peers) | plan->partial.n_odd |
             op->not_as_planned | plan->on_gpu | stepaf_plan_slot_use(plan, op));
}

/* Fill the writes and the message of one peer's part, as planned. */
static void compile_op_peer(struct stepaf_op *op, uint32_t p)
{
    const struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_post *post = &op->op_peers[p].post;

    post->link = plan->ctx->peers[p].link;
    post->n_xfer = plan->n_push;
    post->is_short = true;
    post->template = op->templates[post->link->transport->index];
    post->msg.n_words = 0;
    stepaf_msg_head(&post->msg, STEPAF_MSG_START, 0, plan->ctx->epoch, plan->index, op->slot, 0);
    for (uint32_t i = 0; i < plan->n_push; i++) {
        const struct stepaf_push *push = &plan->push[i];
        const struct stepaf_key_remote *remote = &push->key->remote[p];
        post->xfer[i] = (struct stepaf_xfer){
            .dst = remote->rmem,
            .dst_offset = stepaf_push_offset(push, p, op->slot),
            .bytes = push->bytes,
        };
        stepaf_xfer_from(&post->xfer[i], post->link, push->region, push->data);
    }
}

void stepaf_op_compile(struct stepaf_op *op)
{
    op->not_as_planned = false;
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++)
        if (__builtin_expect(stepaf_post_in_flight(&op->op_peers[p].post), 0))
            op->not_as_planned = true; /* post of a late peer, which is left out */
        else
            compile_op_peer(op, p);
}

/* Apply to one peer's part what this start changes. */
static void override_op_peer(struct stepaf_op *op, const stepaf_start_params_t *params, uint32_t p)
{
    const struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_post *post = &op->op_peers[p].post;
    bool sized = false;

    for (uint32_t i = 0; i < plan->n_push; i++) {
        const stepaf_tensor_t *given = &params->push[plan->scatter ? p * plan->n_push + i : i];
        struct stepaf_xfer *xfer = &post->xfer[i];
        const struct stepaf_region *region = plan->push[i].region;
        if (given->data != plan->push[i].data)
            region = stepaf_region_find_linked(plan->ctx, given->data, given->bytes);
        stepaf_xfer_from(xfer, post->link, region, given->data);
        xfer->bytes = (uint32_t)given->bytes;
        post->msg.word[STEPAF_MSG_SIZES + i] = xfer->bytes;
        sized = sized || xfer->bytes != plan->push[i].bytes;
        if (plan->proxied.ahead)
            stepaf_xfer_skip(xfer, stepaf_push_offset(&plan->push[i], p, op->slot),
                             plan->proxied.ahead[p * plan->n_push + i]);
    }
    post->is_short = !sized;
    post->template = NULL;
    post->msg.n_words = sized ? STEPAF_MSG_SIZES + plan->n_push : 0;
    stepaf_msg_head(&post->msg, STEPAF_MSG_START, 0, plan->ctx->epoch, plan->index, op->slot,
                    sized ? plan->n_push : 0);
    op->not_as_planned = true;
}

/* Take the slot and the keys' buffers at @a n peers, in addition to @a n_held peers that have not
 * released them. */
static inline void take_buffers(struct stepaf_plan_obj *plan, struct stepaf_op *op, uint32_t n,
                                uint32_t n_held)
{
    op->answers.pending = n;
    op->n_held = n_held + n;
    for (uint32_t i = 0; i < plan->n_push; i++)
        plan->push[i].key->busy |= op->bit;
}

/* Stamp START, and the posts handed to the transports, peer by peer. */
static __attribute__((noinline)) void trace_some(const struct stepaf_op *op,
                                                 struct stepaf_trace *trace,
                                                 struct stepaf_post *const *posts, unsigned n)
{
    uint32_t plan = op->plan->index, seq = op->seq;
    uint64_t ticks = op->trace.notified;

    if (!trace->next)
        return;
    stepaf_trace_stamp(trace, STEPAF_EVENT_START, op->trace.started, plan, seq, STEPAF_TRACE_ALL,
                       STEPAF_TRACE_WHOLE, 0);
    for (unsigned p = 0; p < n; p++) {
        const struct stepaf_post *post = posts[p];
        const struct stepaf_op_peer *op_peer = (const struct stepaf_op_peer *)post;
        uint32_t rank = (uint32_t)op_peer->peer->who.rank;
        if (op_peer->state == STEPAF_OP_PEER_LOST)
            continue;
        for (uint32_t i = 0; i < post->n_xfer; i++)
            stepaf_trace_stamp(trace, STEPAF_EVENT_POSTED, ticks, plan, seq, rank, i,
                               post->xfer[i].bytes);
        stepaf_trace_stamp(trace, STEPAF_EVENT_NOTIFIED, ticks, plan, seq, rank, STEPAF_TRACE_WHOLE,
                           0);
    }
}

/* Stamp the records of trace_some in the case that each peer got the same. */
static inline void trace_all(const struct stepaf_plan_obj *plan, const struct stepaf_op *op,
                             struct stepaf_trace *trace)
{
    uint64_t ticks = op->trace.started;
    uint32_t i = 0;

    do {
        stepaf_trace_put(trace, ticks, op->seq, plan->stamps.at[i].bytes, plan->stamps.at[i].word);
        ticks = op->trace.notified;
    } while (++i < plan->stamps.n);
}

static inline void take_slot(struct stepaf_plan_obj *plan, struct stepaf_op *op)
{
    op->generation = stepaf_table_generation(&plan->ctx->tables.ops);
    op->seq = plan->seq++;
    op->imm = plan->imm | stepaf_imm_make(0, 0, op->seq, 0);
    op->retired = false;
    atomic_store_explicit(&op->status, STEPAF_INPROGRESS, memory_order_relaxed);
    plan->next = op->after;
}

/* Send the whole sequence to a peer that has been skipped an unknown number of times: the message
 * must not be one that stepaf_msg_to_imm can shorten. */
static void say_all(struct stepaf_op *op, uint32_t p)
{
    struct stepaf_post *post = &op->op_peers[p].post;
    struct stepaf_msg *msg = &post->msg;

    op->plan->partial.skipped[p] = false;
    op->plan->partial.n_odd--;
    if (msg->n_words)
        return;
    post->is_short = false;
    post->template = NULL;
    msg->n_words = STEPAF_MSG_SIZES;
    msg->word[STEPAF_MSG_QUEUE] = msg->word[STEPAF_MSG_WORK] = 0;
    op->not_as_planned = true;
}

/* Prepare a part that is sent: it holds the slot. */
static inline void take_op_peer(struct stepaf_op_peer *op_peer, uint32_t imm, uint32_t seq,
                                uint64_t bytes)
{
    op_peer->post.at = 0;
    op_peer->post.at_offset = 0;
    op_peer->post.imm = imm;
    op_peer->post.msg.seq = seq;
    op_peer->state = STEPAF_OP_PEER_WAITING;
    op_peer->held = true;
    op_peer->peer->bytes_sent += bytes;
}

/* Take every peer as planned: the most frequent case. */
static inline void take_all(const struct stepaf_plan_obj *plan, struct stepaf_op *op)
{
    struct stepaf_op_peer *op_peer = op->op_peers, *end = op_peer + plan->ctx->n_peers;
    uint32_t imm = op->imm, seq = op->seq;
    uint64_t bytes = plan->push_bytes;

    do
        take_op_peer(op_peer, imm, seq, bytes);
    while (++op_peer != end);
}

static uint64_t sum(const struct stepaf_post *post)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < post->n_xfer; i++)
        bytes += post->xfer[i].bytes;
    return bytes;
}

/* Take the peers where some are skipped, lost, left out if @a some_late, or sent other tensors. */
static unsigned take_some(struct stepaf_op *op, const stepaf_start_params_t *params, bool some_late)
{
    struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    unsigned n = 0;

    if (op->not_as_planned && !params->push)
        stepaf_op_compile(op);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_op_peer *op_peer = &op->op_peers[p];
        bool is_out = some_late && op_peer->state == STEPAF_OP_PEER_LEFT_OUT;
        if (is_out || stepaf_start_skips(plan, params, p)) {
            op_peer->state = is_out ? STEPAF_OP_PEER_LEFT_OUT : STEPAF_OP_PEER_NONE;
            ctx->counters.left_out += is_out;
            plan->partial.n_odd += !plan->partial.skipped[p];
            plan->partial.skipped[p] = true;
        } else if (ctx->peers[p].lost) {
            op_peer->state = STEPAF_OP_PEER_LOST;
        } else {
            if (params->push)
                override_op_peer(op, params, p);
            take_op_peer(op_peer, op->imm, op->seq, sum(&op_peer->post));
            op_peer->odd =
                op_peer->odd || plan->on_gpu; /* the answer must first be copied to the GPU */
            if (plan->partial.skipped[p])
                say_all(op, p);
            plan->partial.posts[n++] = &op_peer->post;
            continue;
        }
        for (uint32_t i = 0; i < plan->n_pull; i++)
            op->pull_bytes[p * plan->n_pull + i] = 0;
        op_peer->odd = true;
    }
    return n;
}

/* Stamp and count a started operation. */
static inline void note_start(struct stepaf_ctx *ctx, struct stepaf_op *op, uint64_t began)
{
    op->trace.notified = stepaf_ticks();
    op->trace.started = began ? began : op->trace.notified;
    ctx->counters.operations_started++;
}

/* Set up an operation that needs @a n_needed of @a n answers. */
static void set_spare(struct stepaf_op *op, const stepaf_start_params_t *params, uint32_t n,
                      uint32_t n_needed)
{
    const struct stepaf_plan_obj *plan = op->plan;
    int64_t us = params->field_mask & STEPAF_START_PARAM_PATIENCE ? params->patience_us
                                                                  : plan->partial.patience_us;

    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        op->op_peers[p].odd = true; /* its answer takes the slow path */
    op->answers.spare = n - n_needed;
    op->answers.until = us ? stepaf_ticks() + stepaf_ticks_of_us(plan->ctx, us) : 0;
    op->answers.pending = n_needed;
}

/* Start in any case other than the usual one. */
static __attribute__((noinline)) stepaf_status_t start_some(struct stepaf_plan_obj *plan,
                                                            const stepaf_start_params_t *params,
                                                            uint64_t began,
                                                            stepaf_request_h *request_p)
{
    struct stepaf_ctx *ctx = plan->ctx;
    stepaf_status_t status;

    if (!request_p)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START, "request_p is NULL");
    if (!params)
        params = &no_params;
    status = stepaf_start_check(plan, params);
    if (status)
        return status;
    struct stepaf_op *op = plan->next;
    if (plan->on_gpu && (status = ctx->feature->op_source(op, params->push, params->n_push)))
        return status;
    uint32_t n_needed = stepaf_start_needs(plan, params);
    bool some_late = op->n_held || plan->partial.n_owed;
    if (__builtin_expect(some_late, 0))
        stepaf_late_leave_out(plan);
    take_slot(plan, op);
    unsigned n = take_some(op, params, some_late);
    if (n) {
        take_buffers(plan, op, n, op->n_held);
        if (n_needed < n)
            set_spare(op, params, n, n_needed);
        if (plan->on_gpu && op->bounced) {
            ctx->feature->gate(plan->partial.posts, n, op->copied);
            stepaf_core_post_mixed(ctx, plan->partial.posts, n);
        } else {
            stepaf_core_post(ctx, plan->partial.posts, n);
        }
    }
    note_start(ctx, op, began);
    trace_some(op, &ctx->trace, plan->partial.posts, n);
    if (!n) { /* every rank was skipped: what late ranks owe belongs to other operations */
        op->answers.pending = 0;
        op->failed_peer = -1;
        ctx->counters.operations_completed++;
        atomic_store_explicit(&op->status, STEPAF_OK, memory_order_release);
    }
    *request_p = stepaf_op_handle(op);
    return STEPAF_OK;
}

stepaf_status_t stepaf_plan_start(struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                                  stepaf_request_h *request_p)
{
    struct stepaf_ctx *ctx = plan->ctx;
    uint64_t began = plan->stamps.is_small ? 0 : stepaf_ticks();
    struct stepaf_op *op = plan->next;

    if (__builtin_expect(params || !request_p || !is_usual(ctx, plan, op), 0))
        return start_some(plan, params, began, request_p);
    take_slot(plan, op);
    take_all(plan, op);
    take_buffers(plan, op, ctx->n_peers, 0);
    stepaf_core_post(ctx, op->posts, ctx->n_peers);
    note_start(ctx, op, began);
    if (__builtin_expect(ctx->n_alive != ctx->n_peers, 0))
        trace_some(op, &ctx->trace, op->posts, ctx->n_peers); /* a peer was lost by posting */
    else if (ctx->trace.next)
        trace_all(plan, op, &ctx->trace);
    *request_p = stepaf_op_handle(op);
    return STEPAF_OK;
}
