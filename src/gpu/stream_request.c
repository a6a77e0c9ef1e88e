/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of stream plans: the host's view of operations on streams. */
#include "core/op.h"
#include "core/op_result.h"
#include "core/plan.h"
#include "core/wait.h"
#include "gpu/stream_some.h"

static void close_request(struct stepaf_stream *stream, uint8_t slot, stepaf_status_t status)
{
    stream->requests &= ~(1u << slot);
    stream->plan->ctx->n_polled--;
    stream->plan->ctx->gpu.n_requests--;
    stepaf_op_end(&stream->plan->ops[slot], status, stream->failed_peer);
    if (stream->some && !status)
        stepaf_some_note(stream, &stream->plan->ops[slot]);
}

/* Return whether @a op has a request, and no enqueued wait is for it. */
static bool has_open_request(const struct stepaf_stream *stream, const struct stepaf_op *op)
{
    return stream->requests & ~stream->awaited & 1u << op->slot;
}

/* Wait until no other thread is enqueueing; what that thread enqueues may make the caller's own
 * wait needless. Returns false if the wait was in vain. */
static bool await_turn(const struct stepaf_stream *stream, struct stepaf_op *op,
                       int64_t *timeout_us)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    int64_t began = stepaf_monotonic_ns();
    uint32_t generation = op->generation;
    bool more = true;

    op->n_waiting++; /* keeps the operation */
    while (more && stream->enqueueing && op->generation == generation &&
           has_open_request(stream, op))
        more = stepaf_waiter_idle(ctx, &waiter, *timeout_us);
    op->n_waiting--;
    *timeout_us = stepaf_timeout_us(ctx, *timeout_us) - (stepaf_monotonic_ns() - began) / 1000;
    if (*timeout_us <= 0)
        *timeout_us = 1;
    return more && op->generation == generation;
}

/* Enqueue the library's own wait for the operations up to @a op. */
static stepaf_status_t claim(struct stepaf_stream *stream, const struct stepaf_op *op)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    stepaf_status_t status = STEPAF_OK;

    if (!ctx->gpu.streams->stream)
        status = stepaf_gpu_stream_create(ctx->gpu.device, &ctx->gpu.streams->stream);
    /* Earlier operations have marks of their own only if they have requests. The others precede
     * @a op on the streams, as do the earlier waits in their slots. */
    while (!status && has_open_request(stream, op)) {
        uint8_t slot = (uint8_t)(stream->n_received % stream->plan->depth);
        void *behind[] = {stream->sent[op->slot], slot != op->slot ? stream->sent[slot] : NULL};
        status = stepaf_stream_receive(stream, ctx->gpu.streams->stream, behind);
    }
    return status;
}

stepaf_status_t stepaf_stream_enqueue_wait(struct stepaf_op *op, int64_t *timeout_us)
{
    struct stepaf_stream *stream = op->plan->stream;
    stepaf_status_t status;

    if (__builtin_expect(stream->enqueueing, 0)) {
        if (!*timeout_us) /* another time */
            return STEPAF_OK;
        if (!await_turn(stream, op, timeout_us))
            return STEPAF_INPROGRESS;
    }
    status = stepaf_stream_status(stream);
    if (!status && has_open_request(stream, op))
        status = claim(stream, op);
    if (!status || !stream->failure)
        return status;
    if (has_open_request(stream, op)) /* the operation's result, which the caller takes from it */
        close_request(stream, op->slot, stream->failure);
    return STEPAF_OK;
}

/* Complete the open requests of one plan. Requests that no stream waits for end only with the
 * plan. */
static unsigned progress_requests(struct stepaf_stream *stream)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    stepaf_status_t over = stepaf_stream_status(stream);
    uint32_t open = over ? stream->requests : stream->requests & stream->awaited;
    unsigned n = 0;

    while (open) {
        uint8_t slot = (uint8_t)__builtin_ctz(open);
        stepaf_status_t status = stream->awaited & 1u << slot
                                     ? stepaf_gpu_event_test(ctx->gpu.device, stream->arrived[slot])
                                     : over;
        open &= open - 1;
        if (status == STEPAF_INPROGRESS)
            continue;
        if (!status)
            status = stepaf_stream_status(stream);
        close_request(stream, slot, status);
        n++;
    }
    return n;
}

bool stepaf_stream_slot_is_free(struct stepaf_stream *stream)
{
    uint8_t slot = (uint8_t)(stream->n_sent % stream->plan->depth);

    if (__builtin_expect(!(stream->claimed & 1u << slot), 1))
        return true;
    if (stepaf_gpu_event_test(stream->plan->ctx->gpu.device, stream->arrived[slot]) ==
        STEPAF_INPROGRESS)
        return false;
    (void)progress_requests(stream); /* the slot's request completes before there is another */
    stream->claimed &= ~(1u << slot);
    return true;
}

unsigned stepaf_streams_progress(struct stepaf_ctx *ctx)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream && plan->stream->requests)
            n += progress_requests(plan->stream);
    }
    return n;
}

/* OK only when the stream has passed the operation, even if it has failed meanwhile: the stream
 * still sends to other peers. */
stepaf_status_t stepaf_stream_sent(struct stepaf_op *op)
{
    return stepaf_gpu_event_test(op->plan->ctx->gpu.device, op->plan->stream->sent[op->slot]);
}
