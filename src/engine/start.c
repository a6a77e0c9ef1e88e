/* SPDX-License-Identifier: Apache-2.0 */
/* Starting an operation: the hot path of the attention side. First everything that could refuse
 * is asked, then everything is done. */
#include "engine/stage.h"

static const stepaf_start_params_t no_params;

/* Check the caller's tensors against the plan. */
static stepaf_status_t check_overrides(struct stepaf_plan_obj *plan,
                                       const stepaf_start_params_t *params)
{
    int expected = plan->scatter ? (int)plan->ctx->n_peers * plan->n_push : plan->n_push;

    if (params->flags & ~(uint32_t)(STEPAF_START_WAIT | STEPAF_START_SKIP_LOST))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START, "unknown flags");
    if (!params->push)
        return STEPAF_OK;
    if (params->n_push != expected)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "%d push tensors given, %d expected", params->n_push, expected);
    for (int i = 0; i < expected; i++) {
        const stepaf_tensor_t *tensor = &params->push[i];
        const struct stepaf_push *planned = &plan->push[i % plan->n_push];
        if (tensor->key != planned->key->id)
            return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                    "push tensor %d has another key than planned", i);
        if (tensor->bytes > planned->bytes)
            return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_START,
                                    "push tensor %d: %zu bytes, but %u are planned", i,
                                    tensor->bytes, planned->bytes);
        if (!tensor->bytes)
            continue;
        const struct stepaf_region *region =
            stepaf_region_find_linked(plan->ctx, tensor->data, tensor->bytes);
        if (!region)
            return stepaf_region_refuse(plan->ctx, tensor->data, tensor->bytes, STEPAF_PHASE_START,
                                        "push tensor", i);
        plan->on_gpu = plan->on_gpu || region->kind == STEPAF_MEM_CUDA;
    }
    return STEPAF_OK;
}

static bool is_skipped(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                       uint32_t p)
{
    if (plan->left_out)
        return plan->left_out[p];
    if (!plan->scatter || !params->push)
        return false;
    for (uint32_t i = 0; i < plan->n_push; i++)
        if (params->push[p * plan->n_push + i].bytes)
            return false;
    return true;
}

/* All parts are over, and with them the posts; all peers have let go of the slot, and of the keys'
 * buffers, which operations of other plans may use too. What lost peers had was taken back. */
bool stepaf_plan_slot_free(const struct stepaf_plan_obj *plan)
{
    const struct stepaf_op *op = &plan->ops[plan->slot];
    uint32_t busy = op->pending | op->n_held;

    for (uint32_t i = 0; i < plan->n_push; i++)
        busy |= plan->push[i].key->busy[plan->slot];
    return !busy;
}

static stepaf_status_t check_peers(const struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    if (ctx->n_alive == ctx->n_peers || (params->flags & STEPAF_START_SKIP_LOST))
        return STEPAF_OK;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        if (peer->lost && !is_skipped(plan, params, p))
            return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_START, peer->who,
                                         STEPAF_WHO_FORMAT " is lost: %s",
                                         STEPAF_WHO_ARGS(peer->who), peer->reason);
    }
    return STEPAF_OK;
}

/* The writes and the message of one peer's part, as planned. */
static void compile_part(struct stepaf_op *op, uint32_t p)
{
    const struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_post *post = &op->parts[p].post;

    post->link = plan->ctx->peers[p].link;
    post->n_xfer = plan->n_push;
    post->is_short = true;
    post->is_like = p > 0;
    post->msg.n_words = 0;
    stepaf_msg_head(&post->msg, STEPAF_MSG_START, 0, plan->ctx->epoch, plan->index, op->slot, 0);
    for (uint32_t i = 0; i < plan->n_push; i++) {
        const struct stepaf_push *push = &plan->push[i];
        const struct stepaf_key_remote *remote = &push->key->remote[p];
        post->xfer[i] = (struct stepaf_xfer){
            .dst = remote->rmem,
            .dst_offset = remote->offset + (uint64_t)op->slot * push->key->max_bytes,
            .bytes = push->bytes,
        };
        stepaf_xfer_from(&post->xfer[i], post->link, push->region, push->data);
    }
}

void stepaf_op_compile(struct stepaf_op *op)
{
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++)
        compile_part(op, p);
    op->custom = false;
}

/* What this start changes for one peer. */
static void override_part(struct stepaf_op *op, const stepaf_start_params_t *params, uint32_t p)
{
    const struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_post *post = &op->parts[p].post;

    for (uint32_t i = 0; i < plan->n_push; i++) {
        const stepaf_tensor_t *given = &params->push[plan->scatter ? p * plan->n_push + i : i];
        struct stepaf_xfer *xfer = &post->xfer[i];
        const struct stepaf_region *region = plan->push[i].region;
        if (given->data != plan->push[i].data)
            region = stepaf_region_find_linked(plan->ctx, given->data, given->bytes);
        stepaf_xfer_from(xfer, post->link, region, given->data);
        xfer->bytes = (uint32_t)given->bytes;
        post->msg.word[STEPAF_MSG_SIZES + i] = xfer->bytes;
    }
    post->is_short = false;
    post->is_like = false;
    post->msg.n_words = STEPAF_MSG_SIZES + plan->n_push;
    stepaf_msg_head(&post->msg, STEPAF_MSG_START, 0, plan->ctx->epoch, plan->index, op->slot,
                    plan->n_push);
    op->custom = true;
}

/* Take the slot and the keys' buffers at @a n peers. */
static inline void take_buffers(struct stepaf_op *op, uint32_t n)
{
    const struct stepaf_plan_obj *plan = op->plan;

    op->pending = n;
    op->n_held = n;
    for (uint32_t i = 0; i < plan->n_push; i++)
        plan->push[i].key->busy[op->slot] = n > 0;
}

/* Stamp and count what has been handed to the transports: all parts but those that were skipped. */
static void stamp_posted(const struct stepaf_op *op, uint64_t now)
{
    const struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_part *part = op->parts, *end = part + plan->ctx->n_peers;
    struct stepaf_peer *peer = plan->ctx->peers;
    struct stepaf_trace_pen pen = stepaf_trace_begin(&plan->ctx->trace, now, plan->index, op->seq);
    const bool traced = pen.ring;
    const uint32_t n = plan->n_push;

    for (; part != end; part++, peer++) {
        const struct stepaf_xfer *xfer = part->post.xfer, *last = xfer + n;
        uint64_t bytes = 0;
        if (part->state == STEPAF_PART_NONE || part->state == STEPAF_PART_LOST)
            continue;
        part->notified = now;
        for (uint32_t i = 0; xfer != last; xfer++, i++) {
            bytes += xfer->bytes;
            if (traced)
                stepaf_trace_write(&pen, STEPAF_EVENT_POSTED, part->rank, i, xfer->bytes);
        }
        peer->bytes_sent += bytes;
        if (traced)
            stepaf_trace_write(&pen, STEPAF_EVENT_NOTIFIED, part->rank, STEPAF_TRACE_WHOLE, 0);
    }
    stepaf_trace_end(&plan->ctx->trace, &pen);
}

static struct stepaf_op *take_slot(struct stepaf_plan_obj *plan)
{
    struct stepaf_op *op = &plan->ops[plan->slot];

    op->generation = stepaf_table_generation(&plan->ctx->ops);
    op->seq = plan->seq++;
    op->retired = false;
    op->failed_peer = -1;
    op->completed = 0;
    atomic_store_explicit(&op->status, STEPAF_INPROGRESS, memory_order_relaxed);
    return op;
}

/* A peer that has been skipped, who knows how often, needs the whole sequence: the message must not
 * be one that stepaf_msg_compact can shorten. */
static void say_all(struct stepaf_op *op, uint32_t p)
{
    struct stepaf_post *post = &op->parts[p].post;
    struct stepaf_msg *msg = &post->msg;

    op->plan->skipped[p] = false;
    if (msg->n_words)
        return;
    post->is_short = false;
    msg->n_words = STEPAF_MSG_SIZES;
    msg->word[STEPAF_MSG_QUEUE] = msg->word[STEPAF_MSG_WORK] = 0;
    op->custom = true;
}

/* A part that is to be sent: it holds the slot. */
static inline void take_part(struct stepaf_op *op, struct stepaf_part *part, uint32_t p,
                             uint32_t imm)
{
    op->plan->held[p] |= 1u << op->slot;
    part->post.at = 0;
    part->post.at_offset = 0;
    part->post.imm = imm;
    part->post.msg.seq = op->seq;
    part->state = STEPAF_PART_WAITING;
    if (__builtin_expect(op->plan->skipped[p], 0))
        say_all(op, p);
}

/* The commonest way: as planned, to every peer. */
static unsigned gather_all(struct stepaf_op *op, uint32_t imm)
{
    struct stepaf_plan_obj *plan = op->plan;
    uint32_t n = plan->ctx->n_peers;
    struct stepaf_part *part = op->parts;

    for (uint32_t p = 0; p < n; p++, part++) {
        take_part(op, part, p, imm);
        plan->posts[p] = &part->post;
    }
    return n;
}

/* Peers may be skipped, lost, or sent something else. */
static unsigned gather_some(struct stepaf_op *op, const stepaf_start_params_t *params, uint32_t imm)
{
    struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    unsigned n = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_part *part = &op->parts[p];
        if (is_skipped(plan, params, p)) {
            part->state = STEPAF_PART_NONE;
            plan->skipped[p] = true;
        } else if (ctx->peers[p].lost) {
            part->state = STEPAF_PART_LOST;
        } else {
            if (params->push)
                override_part(op, params, p);
            take_part(op, part, p, imm);
            plan->posts[n++] = &part->post;
            continue;
        }
        for (uint32_t i = 0; i < plan->n_pull; i++)
            op->pull_bytes[p * plan->n_pull + i] = 0;
    }
    return n;
}

static unsigned send_parts(struct stepaf_op *op, const stepaf_start_params_t *params)
{
    struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    uint32_t imm = stepaf_imm_make(STEPAF_IMM_START, plan->index, op->seq, ctx->epoch);
    unsigned n;

    if (__builtin_expect(op->custom && !params->push, 0))
        stepaf_op_compile(op);
    if (__builtin_expect(!params->push && ctx->n_alive == ctx->n_peers, 1))
        n = gather_all(op, imm);
    else
        n = gather_some(op, params, imm);
    take_buffers(op, n);
    plan->slot = (uint8_t)(plan->slot + 1 == plan->depth ? 0 : plan->slot + 1);
    if (__builtin_expect(op->staged, 0))
        stepaf_stage_gate(plan->posts, n, op->copied);
    stepaf_engine_post(plan->posts, n);
    return n;
}

/* Wait until the plan's next slot is free. */
static stepaf_status_t wait_for_slot(struct stepaf_plan_obj *plan, int64_t timeout_us)
{
    struct stepaf_ctx *ctx = plan->ctx;
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    while (!stepaf_plan_slot_free(plan)) {
        if (!(stepaf_engine_progress_waiting(ctx) ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                                                  : stepaf_waiter_idle(ctx, &waiter, timeout_us)) &&
            !stepaf_plan_slot_free(plan))
            return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RELEASE,
                                    "plan %u: slot %u did not come free in time", plan->index,
                                    plan->slot);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_plan_start(struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                                  struct stepaf_op **op_p)
{
    struct stepaf_ctx *ctx = plan->ctx;
    uint64_t now = plan->is_small ? 0 : stepaf_ticks();
    stepaf_status_t status;
    struct stepaf_op *op;

    if (__builtin_expect(plan->usable != ctx->epoch || !ctx->epoch, 0))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                plan->stream ? "plan %u is started on streams only"
                                             : "plan %u has keys or memory that wait for a commit, "
                                               "or a key that FFN ranks receive on streams",
                                plan->index);
    if (!params)
        params = &no_params;
    else if ((status = check_overrides(plan, params)))
        return status;
    if ((status = check_peers(plan, params)))
        return status;
    if (!stepaf_plan_slot_free(plan)) {
        stepaf_engine_progress(ctx);
        if (params->flags & STEPAF_START_WAIT) {
            if ((status = wait_for_slot(plan, params->timeout_us)) ||
                (status = check_peers(plan, params)))
                return status;
        } else if (!stepaf_plan_slot_free(plan)) {
            ctx->counters.would_block++;
            return STEPAF_ERR_WOULD_BLOCK;
        }
    }
    if (__builtin_expect(plan->on_gpu, 0) &&
        (status = stepaf_stage_start(&plan->ops[plan->slot], params->push, params->n_push)))
        return status;
    op = take_slot(plan);
    unsigned n_sent = send_parts(op, params);
    uint64_t posted = stepaf_ticks();
    op->started = now ? now : posted;
    stepaf_trace_stamp(&ctx->trace, STEPAF_EVENT_START, op->started, plan->index, op->seq,
                       STEPAF_TRACE_ALL, STEPAF_TRACE_WHOLE, 0);
    stamp_posted(op, posted);
    ctx->counters.operations_started++;
    if (!n_sent) { /* every rank was skipped */
        op->completed = op->started;
        ctx->counters.operations_completed++;
        atomic_store_explicit(&op->status, STEPAF_OK, memory_order_release);
    }
    *op_p = op;
    return STEPAF_OK;
}
