/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an operation's parts: tensor by tensor and peer by peer. */
#include "api/result.h"
#include "api/fill.h"
#include "api/handles.h"
#include "core/op_result.h"
#include "core/peer.h"
#include "core/plan.h"
#include "core/progress.h"

stepaf_status_t stepaf_part_status(struct stepaf_op *op, uint32_t p)
{
    const struct stepaf_peer *peer = &op->plan->ctx->peers[p];

    switch (op->op_peers[p].state) {
    case STEPAF_OP_PEER_WAITING:
    case STEPAF_OP_PEER_ARRIVING:
        /* Canceled by the caller. If a peer has released its batch, answers of the others still
         * arrive. */
        if (op->failed_peer < 0 &&
            atomic_load_explicit(&op->status, memory_order_relaxed) == STEPAF_ERR_CANCELED)
            return stepaf_error_set(STEPAF_ERR_CANCELED, STEPAF_PHASE_RESPONSE,
                                    "the operation was canceled");
        return STEPAF_INPROGRESS;
    case STEPAF_OP_PEER_LOST:
        if (op->plan->stream && !peer->lost) /* all parts have failed with the operation */
            return stepaf_op_result(op);
        return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_RESPONSE, peer->who,
                                     STEPAF_WHO_FORMAT " %s lost: %s", STEPAF_WHO_ARGS(peer->who),
                                     peer->lost ? "is" : "was", stepaf_peer_why_lost(peer));
    case STEPAF_OP_PEER_CANCELED:
        return stepaf_error_set_peer(STEPAF_ERR_CANCELED, STEPAF_PHASE_RESPONSE, peer->who,
                                     STEPAF_WHO_FORMAT " released the batch without an answer",
                                     STEPAF_WHO_ARGS(peer->who));
    case STEPAF_OP_PEER_REFUSED:
        return stepaf_error_set_peer(
            STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_PUSH, peer->who,
            "operation %u of plan %u did not go to " STEPAF_WHO_FORMAT
            ": a source is in registered memory of this rank that is no longer mapped",
            op->seq, op->plan->index, STEPAF_WHO_ARGS(peer->who));
    case STEPAF_OP_PEER_LEFT_OUT:
        if (op->plan->stream)
            return stepaf_error_set_peer(
                STEPAF_ERR_WOULD_BLOCK, STEPAF_PHASE_RESPONSE, peer->who,
                "operation %u of plan %u was complete before " STEPAF_WHO_FORMAT " had answered",
                op->seq, op->plan->index, STEPAF_WHO_ARGS(peer->who));
        return stepaf_error_set_peer(
            STEPAF_ERR_WOULD_BLOCK, STEPAF_PHASE_START, peer->who,
            STEPAF_WHO_FORMAT " was left out of operation %u of plan %u: it had not released an "
                              "earlier one",
            STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index);
    default:
        return STEPAF_OK;
    }
}

stepaf_status_t stepaf_tensor_status(struct stepaf_op *op, uint32_t index)
{
    uint32_t n = op->plan->n_pull;

    if (stepaf_op_has_landed(op, index / n) & 1u << index % n)
        return STEPAF_OK; /* regardless of the peer's later state */
    return stepaf_part_status(op, index / n);
}

/* Return whether the tensors pulled from a peer have their final content. */
static bool is_valid(const struct stepaf_op *op, uint32_t p)
{
    return op->op_peers[p].state == STEPAF_OP_PEER_ANSWERED ||
           op->op_peers[p].state == STEPAF_OP_PEER_NONE;
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
    status = stepaf_tensor_status(op, (uint32_t)index);
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
                                  "FFN rank %d is not a peer of this rank", ffn_rank);
    } else {
        stepaf_core_progress(ctx);
        status = stepaf_part_status(op, (uint32_t)p);
    }
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_request_answers(stepaf_request_h request, uint64_t *mask_p, int n_words)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    struct stepaf_ctx *ctx = op->plan->ctx;
    if (!mask_p || n_words < 0 || (uint64_t)n_words * 64 < ctx->n_peers) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "mask_p is NULL, or %d words have no bit for each of %u peers",
                                  n_words, ctx->n_peers);
    } else {
        stepaf_core_progress(ctx);
        for (int i = 0; i < n_words; i++)
            mask_p[i] = 0;
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            if (is_valid(op, p))
                mask_p[p / 64] |= (uint64_t)1 << p % 64;
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
