/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation has come to, tensor by tensor and peer by peer. */
#include "api/fill.h"
#include "api/handles.h"
#include "core/plan.h"
#include "core/progress.h"

/* What one peer's part of the operation has come to. */
static stepaf_status_t part_status(struct stepaf_op *op, uint32_t p)
{
    const struct stepaf_peer *peer = &op->plan->ctx->peers[p];

    switch (op->op_peers[p].state) {
    case STEPAF_OP_PEER_WAITING:
    case STEPAF_OP_PEER_ARRIVING:
        /* Canceled by the caller; if a peer let go of it, the others' answers still come. */
        if (op->failed_peer < 0 &&
            atomic_load_explicit(&op->status, memory_order_relaxed) == STEPAF_ERR_CANCELED)
            return stepaf_error_set(STEPAF_ERR_CANCELED, STEPAF_PHASE_RESPONSE,
                                    "the operation was canceled");
        return STEPAF_INPROGRESS;
    case STEPAF_OP_PEER_LOST:
        if (op->plan->stream && !peer->lost) /* all parts have failed with the operation */
            return stepaf_op_result(op);
        return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_RESPONSE, peer->who,
                                     STEPAF_WHO_FORMAT " is lost: %s", STEPAF_WHO_ARGS(peer->who),
                                     peer->reason);
    case STEPAF_OP_PEER_CANCELED:
        return stepaf_error_set_peer(STEPAF_ERR_CANCELED, STEPAF_PHASE_RESPONSE, peer->who,
                                     STEPAF_WHO_FORMAT " released the batch unanswered",
                                     STEPAF_WHO_ARGS(peer->who));
    case STEPAF_OP_PEER_REFUSED:
        return stepaf_op_result(op);
    default:
        return STEPAF_OK;
    }
}

stepaf_status_t stepaf_request_tensor(stepaf_request_h request, int index,
                                      stepaf_tensor_info_t *info_p)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    const struct stepaf_plan_obj *plan = op->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    if (index < 0 || (uint32_t)index >= ctx->n_peers * plan->n_pull) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "the operation has no pull tensor %d", index);
        goto out;
    }
    stepaf_core_progress(ctx);
    status = part_status(op, (uint32_t)index / plan->n_pull);
    if (!status && info_p) {
        const struct stepaf_pull *pull = &plan->pull[index];
        status = stepaf_fill_tensor(pull->key, pull->key->id,
                                    pull->data + (size_t)op->slot * pull->key->max_bytes,
                                    op->pull_bytes[index], pull->bytes, info_p);
    }
out:
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_request_peer(stepaf_request_h request, int ffn_rank)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    struct stepaf_ctx *ctx = op->plan->ctx;
    int p = stepaf_find_peer(ctx, ffn_rank);
    if (p < 0) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "FFN rank %d is none of this rank's peers", ffn_rank);
    } else {
        stepaf_core_progress(ctx);
        status = part_status(op, (uint32_t)p);
    }
    stepaf_leave(ctx);
    return status;
}

int stepaf_request_slot(stepaf_request_h request)
{
    struct stepaf_op *op;

    if (stepaf_enter_op(request, &op))
        return -1;
    int slot = op->slot;
    stepaf_leave(op->plan->ctx);
    return slot;
}
