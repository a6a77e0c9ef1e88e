/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in the public interface: wait, test, cancel. */
#include "api/advance.h"
#include "api/handles.h"
#include "core/batch.h"
#include "core/batch_ahead.h"
#include "core/batch_check.h"
#include "core/late.h"
#include "core/op_result.h"
#include "core/progress.h"
#include "core/send.h"
#include "core/wait.h"
#include "gpu/stream.h"

static bool op_done(struct stepaf_op *op)
{
    if (__builtin_expect(op->answers.enough, 0))
        stepaf_op_expire(op);
    return atomic_load_explicit(&op->status, memory_order_acquire) != STEPAF_INPROGRESS;
}

static bool response_done(const struct stepaf_batch_obj *batch)
{
    /* The slot's next batch has arrived, so the peer has received the answer to this one. */
    bool is_past = batch->responded != batch->generation;

    return is_past || !batch->answered ||
           (batch->answer.state == STEPAF_POST_SENT &&
            (!stepaf_batch_ahead_of(batch) || !stepaf_batch_is_ahead(batch)));
}

static stepaf_status_t waited_already(void)
{
    return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                            "the request was waited for already");
}

/* Another thread was faster: it has waited for the same request, or started the slot again. */
static stepaf_status_t overtaken(const struct stepaf_op *op, uint32_t generation)
{
    return op->generation != generation ? stepaf_handle_bad("request") : waited_already();
}

/* Return the error of a wait that ended without a result. */
static stepaf_status_t timed_out(const struct stepaf_op *op)
{
    const struct stepaf_ctx *ctx = op->plan->ctx;
    uint32_t p = 0;

    while (p + 1 < ctx->n_peers && !stepaf_op_peer_is_open(&op->op_peers[p]))
        p++;
    return stepaf_error_set_peer(
        STEPAF_ERR_TIMEOUT, op->plan->n_pull ? STEPAF_PHASE_RESPONSE : STEPAF_PHASE_RELEASE,
        ctx->peers[p].who,
        STEPAF_WHO_FORMAT " has not %s operation %u of plan %u in time; %u of %u are outstanding",
        STEPAF_WHO_ARGS(ctx->peers[p].who), op->plan->n_pull ? "answered" : "released", op->seq,
        op->plan->index, op->answers.pending, ctx->n_peers);
}

/* Return an operation's result, which ends its request. An operation on a stream may end by
 * STEPAF_ERR_TIMEOUT, which callers take for their own deadline: they get the same when they wait
 * again. */
static __attribute__((noinline)) stepaf_status_t take_result(struct stepaf_op *op)
{
    stepaf_status_t status = stepaf_op_result(op);

    op->retired = status != STEPAF_ERR_TIMEOUT;
    return status;
}

/* Wait until the operation is done, or the op has been started again: with several threads, another
 * one may wait for the operation too, and then start its slot again. @a n: result of the last poll.
 * Return false if the deadline has passed before. */
static __attribute__((noinline)) bool await(struct stepaf_op *op, int64_t timeout_us, unsigned n)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_ctx *ctx = op->plan->ctx;
    uint32_t generation = op->generation;
    bool over, more;

    op->n_waiting++;
    do {
        more = n ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                 : stepaf_waiter_idle(ctx, &waiter, timeout_us);
        over = op_done(op) || op->generation != generation;
        if (over || !more)
            break;
        ctx->polling.hint_op = op;
        n = stepaf_core_progress_waiting(ctx);
        over = op_done(op) || op->generation != generation;
    } while (!over);
    op->n_waiting--;
    return over;
}

/* Wait for an operation that is not done after the first poll. */
static __attribute__((noinline)) stepaf_status_t wait_longer(struct stepaf_op *op,
                                                             int64_t timeout_us, unsigned n)
{
    uint32_t generation = op->generation;
    bool over = await(op, timeout_us, n);

    op->plan->ctx->polling.hint_op = NULL;
    if (!over)
        return timeout_us ? timed_out(op) : STEPAF_INPROGRESS;
    if (op->generation != generation || op->retired)
        return overtaken(op, generation);
    return take_result(op);
}

static inline __attribute__((always_inline)) stepaf_status_t wait_op(struct stepaf_op *op,
                                                                     int64_t timeout_us)
{
    struct stepaf_ctx *ctx = op->plan->ctx;
    int result = atomic_load_explicit(&op->status, memory_order_acquire);

    if (__builtin_expect(op->retired, 0))
        return waited_already();
    if (result == STEPAF_INPROGRESS) {
        if (__builtin_expect(op->plan->stream != NULL, 0)) {
            uint32_t generation = op->generation;
            stepaf_status_t status = stepaf_stream_enqueue_wait(op, &timeout_us);
            if (op->generation != generation || op->retired)
                return overtaken(op, generation);
            if (status)
                return status == STEPAF_INPROGRESS ? timed_out(op) : status;
        } else if (timeout_us) {
            uint64_t now = stepaf_ticks();
            stepaf_trace_put(&ctx->trace, now, op->seq, 0, op->trace.waited);
        }
        ctx->polling.hint_op = op;
        unsigned n = stepaf_core_progress_polls(ctx, timeout_us ? ctx->polling.at_once : 1);
        result = atomic_load_explicit(&op->status, memory_order_acquire);
        if (result == STEPAF_INPROGRESS)
            return wait_longer(op, timeout_us, n);
        ctx->polling.hint_op = NULL;
    }
    if (__builtin_expect(result != STEPAF_OK, 0))
        return take_result(op);
    op->retired = true;
    return STEPAF_OK;
}

static stepaf_status_t response_result(const struct stepaf_batch_obj *batch)
{
    return batch->refused ? stepaf_batch_no_source() : STEPAF_OK;
}

/* Wait for a response. Its batch may be freed while the lock is free, or by a message that is taken
 * in. */
static stepaf_status_t wait_response(stepaf_request_h request, struct stepaf_batch_obj *batch,
                                     int64_t timeout_us)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_ctx *ctx = stepaf_batch_ctx(batch);
    const struct stepaf_peer *peer = batch->remote->peer;
    bool more = true;

    if (batch->retired)
        return waited_already();
    while (batch && !response_done(batch)) {
        if (!more)
            return timeout_us
                       ? stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RESPOND, peer->who,
                                               STEPAF_WHO_FORMAT
                                               " did not accept the response in time",
                                               STEPAF_WHO_ARGS(peer->who))
                       : STEPAF_INPROGRESS;
        more = stepaf_api_advance(ctx, &waiter, timeout_us);
        batch = stepaf_find_response(ctx, request);
    }
    if (!batch)
        return STEPAF_OK;
    batch->retired = true;
    return response_result(batch);
}

static __attribute__((noinline)) stepaf_status_t wait_either(stepaf_request_h request,
                                                             int64_t timeout_us)
{
    struct stepaf_batch_obj *batch;
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_request(request, &op, &batch);

    if (status || (!op && !batch))
        return status;
    struct stepaf_ctx *ctx = op ? op->plan->ctx : stepaf_batch_ctx(batch);
    status = op ? wait_op(op, timeout_us) : wait_response(request, batch, timeout_us);
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_wait(stepaf_request_h request, int64_t timeout_us)
{
    struct stepaf_op *op = stepaf_peek_op(request);
    stepaf_status_t status = __builtin_expect(op != NULL, 1) ? wait_op(op, timeout_us)
                                                             : wait_either(request, timeout_us);

    if (status == STEPAF_INPROGRESS) /* a poll: the deadline has passed immediately */
        return STEPAF_ERR_TIMEOUT;
    return status;
}

stepaf_status_t stepaf_test(stepaf_request_h request)
{
    return wait_either(request, 0);
}

/* Check one of several requests. Return 1 if it is retired now, with *status_p set; 0 if it is
 * open; -1 if there is nothing to wait for. */
static int test_request(stepaf_request_h request, stepaf_status_t *status_p)
{
    struct stepaf_batch_obj *batch;
    struct stepaf_op *op;

    if (!request)
        return -1;
    *status_p = stepaf_enter_request(request, &op, &batch);
    if (*status_p)
        return 1;
    if (!op && !batch) /* over; unknown whether its result was returned before */
        return -1;
    struct stepaf_ctx *ctx = op ? op->plan->ctx : stepaf_batch_ctx(batch);
    bool retired = op ? op->retired : batch->retired;
    bool done = op ? op_done(op) : response_done(batch);
    if (op && op->plan->stream && !done && !retired)
        *status_p = stepaf_stream_enqueue_wait(op, &(int64_t){0});
    if (*status_p) {
        stepaf_leave(ctx);
        return 1;
    }
    if (!retired && done) {
        *status_p = op ? stepaf_op_result(op) : response_result(batch);
        if (op)
            op->retired = true;
        else
            batch->retired = true;
    }
    stepaf_leave(ctx);
    return retired ? -1 : done;
}

/* Pin the context that all requests belong to. */
static stepaf_status_t common_context(const stepaf_request_h *requests, int n,
                                      struct stepaf_ctx **ctx_p)
{
    struct stepaf_ctx *ctx = NULL;
    stepaf_status_t status = STEPAF_OK;

    for (int i = 0; i < n && !status; i++) {
        struct stepaf_ctx *its = stepaf_handle_pin(requests[i], STEPAF_HANDLE_OPERATION);
        if (!requests[i])
            continue;
        if (!its)
            its = stepaf_handle_pin(requests[i], STEPAF_HANDLE_RESPONSE);
        if (!its)
            status = stepaf_handle_bad("request");
        else if (ctx && its != ctx)
            status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                      "the requests belong to different contexts");
        if (!ctx)
            ctx = its;
        else if (its)
            stepaf_handle_unpin(its);
    }
    if (!ctx && !status)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE, "nothing to wait for");
    if (ctx && status)
        stepaf_handle_unpin(ctx);
    *ctx_p = ctx;
    return status;
}

static stepaf_status_t wait_any(struct stepaf_ctx *ctx, const stepaf_request_h *requests, int n,
                                int64_t timeout_us, int *index_p)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    stepaf_status_t status = STEPAF_OK;
    bool more = true;

    while (true) {
        int open = 0;
        for (int i = 0; i < n; i++) {
            int found = test_request(requests[i], &status);
            if (found == 1) {
                *index_p = i;
                return status;
            }
            open += found == 0;
        }
        if (!open)
            return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE, "nothing to wait for");
        if (!more)
            return timeout_us ? stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RESPONSE,
                                                 "none of %d requests completed in time", open)
                              : STEPAF_ERR_TIMEOUT;
        stepaf_lock_enter(&ctx->lock);
        more = stepaf_api_advance(ctx, &waiter, timeout_us);
        stepaf_lock_leave(&ctx->lock);
    }
}

stepaf_status_t stepaf_wait_any(const stepaf_request_h *requests, int n, int64_t timeout_us,
                                int *index_p)
{
    struct stepaf_ctx *ctx = NULL;

    if (n < 0 || (n && !requests) || !index_p)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "requests, n or index_p is invalid");
    stepaf_status_t status = common_context(requests, n, &ctx);
    if (status)
        return status;
    status = wait_any(ctx, requests, n, timeout_us, index_p);
    stepaf_lock_enter(&ctx->lock);
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_cancel(stepaf_request_h request)
{
    struct stepaf_batch_obj *batch;
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_request(request, &op, &batch);

    if (status)
        return status;
    if (op)
        status = stepaf_op_cancel(op);
    if (op || batch)
        stepaf_leave(op ? op->plan->ctx : stepaf_batch_ctx(batch));
    return op ? status
              : stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                 "a response cannot be canceled");
}

stepaf_status_t stepaf_request_sent(stepaf_request_h request)
{
    struct stepaf_batch_obj *batch;
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_request(request, &op, &batch);

    if (status || (!op && !batch))
        return status;
    struct stepaf_ctx *ctx = op ? op->plan->ctx : stepaf_batch_ctx(batch);
    stepaf_core_progress(ctx);
    if (!op) {
        batch = stepaf_find_response(ctx, request);
        status = !batch || response_done(batch) ? STEPAF_OK : STEPAF_INPROGRESS;
    } else if (op->plan->stream) {
        status = stepaf_stream_sent(op);
    } else {
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            if (op->op_peers[p].state != STEPAF_OP_PEER_LEFT_OUT &&
                stepaf_post_in_flight(&op->op_peers[p].post))
                status = STEPAF_INPROGRESS;
    }
    stepaf_leave(ctx);
    return status;
}
