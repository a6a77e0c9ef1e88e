/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for one part of an operation, or for the parts that a complete operation has left
 * open. */
#include "api/handles.h"
#include "api/result.h"
#include "core/late.h"
#include "core/plan.h"
#include "core/progress.h"
#include "core/wait.h"

/* Check whether something has happened. @a which: index of the peer or tensor concerned, if any. */
typedef stepaf_status_t (*look_t)(struct stepaf_op *op, uint32_t which);

static stepaf_status_t look_for_push(struct stepaf_op *op, uint32_t p)
{
    return stepaf_op_has_landed(op, p) ? STEPAF_OK : stepaf_part_status(op, p);
}

static stepaf_status_t look_for_rest(struct stepaf_op *op, uint32_t p)
{
    (void)p;
    return stepaf_late_first(op) ? STEPAF_INPROGRESS : STEPAF_OK;
}

/* Wait until @a look finds something. Return STEPAF_INPROGRESS if the deadline has passed
 * before. */
static stepaf_status_t wait_to_find(struct stepaf_op *op, look_t look, uint32_t which,
                                    int64_t timeout_us)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_ctx *ctx = op->plan->ctx;
    uint32_t generation = op->generation;
    stepaf_status_t status;
    bool more = true;

    stepaf_core_progress(ctx);
    op->n_waiting++; /* keeps the operation alive while the lock is free */
    while ((status = look(op, which)) == STEPAF_INPROGRESS && more) {
        unsigned n = timeout_us ? stepaf_core_progress_waiting(ctx) : 0;
        more = n ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                 : stepaf_waiter_idle(ctx, &waiter, timeout_us);
        if (op->generation != generation) { /* another thread has started the slot again */
            status = stepaf_handle_bad("request");
            break;
        }
    }
    op->n_waiting--;
    return status;
}

static stepaf_status_t timed_out_at(const struct stepaf_op *op, const struct stepaf_peer *peer,
                                    const char *what)
{
    return stepaf_error_set_peer(
        STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RESPONSE, peer->who,
        STEPAF_WHO_FORMAT " has not %s operation %u of plan %u%s in time",
        STEPAF_WHO_ARGS(peer->who), what, op->seq, op->plan->index,
        stepaf_op_peer_owes(&op->op_peers[peer->index]) ? ", or one before it in the slot," : "");
}

static stepaf_status_t not_on_streams(void)
{
    return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_RESPONSE,
                            "an operation on a stream can only be waited for as a whole");
}

stepaf_status_t stepaf_wait_rest(stepaf_request_h request, int64_t timeout_us)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    struct stepaf_ctx *ctx = op->plan->ctx;
    status = op->plan->stream ? not_on_streams() : wait_to_find(op, look_for_rest, 0, timeout_us);
    if (status == STEPAF_INPROGRESS)
        status =
            timeout_us ? timed_out_at(op, stepaf_late_first(op), "released") : STEPAF_ERR_TIMEOUT;
    return stepaf_leave_wait(ctx, status);
}

/* Wait for a part of peer @a p. The lock is held, and released on return. @a what: what the peer
 * has not done with the operation. */
static stepaf_status_t wait_for_part(struct stepaf_op *op, look_t look, uint32_t which, uint32_t p,
                                     const char *what, int64_t timeout_us)
{
    struct stepaf_ctx *ctx = op->plan->ctx;
    stepaf_status_t status =
        op->plan->stream ? not_on_streams() : wait_to_find(op, look, which, timeout_us);

    if (status == STEPAF_INPROGRESS)
        status = timeout_us ? timed_out_at(op, &ctx->peers[p], what) : STEPAF_ERR_TIMEOUT;
    return stepaf_leave_wait(ctx, status);
}

static stepaf_status_t wait_for_rank(stepaf_request_h request, int ffn_rank, look_t look,
                                     const char *what, int64_t timeout_us)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    int p = stepaf_find_peer(op->plan->ctx, ffn_rank);
    if (p >= 0)
        return wait_for_part(op, look, (uint32_t)p, (uint32_t)p, what, timeout_us);
    status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                              "FFN rank %d is not a peer of this rank", ffn_rank);
    stepaf_leave(op->plan->ctx);
    return status;
}

stepaf_status_t stepaf_wait_peer(stepaf_request_h request, int ffn_rank, int64_t timeout_us)
{
    return wait_for_rank(request, ffn_rank, stepaf_part_status, "answered", timeout_us);
}

stepaf_status_t stepaf_wait_push(stepaf_request_h request, int ffn_rank, int64_t timeout_us)
{
    return wait_for_rank(request, ffn_rank, look_for_push, "confirmed", timeout_us);
}

stepaf_status_t stepaf_wait_tensor(stepaf_request_h request, int index, int64_t timeout_us)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    const struct stepaf_plan_obj *plan = op->plan;
    if (index >= 0 && (uint32_t)index < plan->ctx->n_peers * plan->n_pull)
        return wait_for_part(op, stepaf_tensor_status, (uint32_t)index,
                             (uint32_t)index / plan->n_pull, "answered", timeout_us);
    status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                              "the operation has no pull tensor %d", index);
    stepaf_leave(plan->ctx);
    return status;
}
