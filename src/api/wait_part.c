/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for one part of an operation, or for all that a complete one has left behind. */
#include "api/handles.h"
#include "api/result.h"
#include "core/late.h"
#include "core/plan.h"
#include "core/progress.h"
#include "core/wait.h"

/* Look whether something has come to pass; @a p: a peer's index, if it is about one. */
typedef stepaf_status_t (*look_t)(struct stepaf_op *op, uint32_t p);

static stepaf_status_t look_for_rest(struct stepaf_op *op, uint32_t p)
{
    (void)p;
    return stepaf_late_first(op) ? STEPAF_INPROGRESS : STEPAF_OK;
}

/* Wait until @a look finds something. STEPAF_INPROGRESS: the deadline has passed before. */
static stepaf_status_t wait_to_find(struct stepaf_op *op, look_t look, uint32_t p,
                                    int64_t timeout_us)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_ctx *ctx = op->plan->ctx;
    uint32_t generation = op->generation;
    stepaf_status_t status;
    bool more = true;

    stepaf_core_progress(ctx);
    op->n_waiting++; /* so that it stays, while the lock is free */
    while ((status = look(op, p)) == STEPAF_INPROGRESS && more) {
        unsigned n = timeout_us ? stepaf_core_progress_waiting(ctx) : 0;
        more = n ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                 : stepaf_waiter_idle(ctx, &waiter, timeout_us);
        if (op->generation != generation) { /* another thread has started the slot anew */
            status = stepaf_handle_bad("request");
            break;
        }
    }
    op->n_waiting--;
    return status;
}

static stepaf_status_t has_not(const struct stepaf_op *op, const struct stepaf_peer *peer,
                               const char *what)
{
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RESPONSE, peer->who,
                                 STEPAF_WHO_FORMAT
                                 " has not %s operation %u of plan %u, or one before it, in time",
                                 STEPAF_WHO_ARGS(peer->who), what, op->seq, op->plan->index);
}

stepaf_status_t stepaf_wait_rest(stepaf_request_h request, int64_t timeout_us)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    struct stepaf_ctx *ctx = op->plan->ctx;
    if (op->plan->stream)
        status = stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_RESPONSE,
                                  "operations on streams leave nothing behind");
    else
        status = wait_to_find(op, look_for_rest, 0, timeout_us);
    if (status == STEPAF_INPROGRESS)
        status = timeout_us ? has_not(op, stepaf_late_first(op), "released") : STEPAF_ERR_TIMEOUT;
    return stepaf_leave_wait(ctx, status);
}
