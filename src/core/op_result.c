/* SPDX-License-Identifier: Apache-2.0 */
/* The result of an operation, and the error text that describes it. */
#include "core/op_result.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/peer.h"
#include "core/plan.h"

void stepaf_op_end(struct stepaf_op *op, stepaf_status_t status, int peer)
{
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++)
        if (op->op_peers[p].state == STEPAF_OP_PEER_WAITING)
            op->op_peers[p].state = status ? STEPAF_OP_PEER_LOST : STEPAF_OP_PEER_ANSWERED;
    op->answers.pending = op->answers.spare = 0;
    op->failed_peer = peer;
    atomic_store_explicit(&op->status, status,
                          memory_order_release); /* neither counted nor traced */
}

/* Return whether the operation has ended with its stream plan, which knows more about the failure
 * than the operation does. If so, the failure is set. After the next commit nobody knows. */
static bool says_more(const struct stepaf_op *op, stepaf_status_t status)
{
    return op->plan->stream && status != STEPAF_ERR_PEER_LOST && status != STEPAF_ERR_TIMEOUT &&
           status != STEPAF_ERR_CANCELED && op->plan->ctx->feature->plan_status(op->plan) == status;
}

stepaf_status_t stepaf_op_result(struct stepaf_op *op)
{
    stepaf_status_t status = atomic_load_explicit(&op->status, memory_order_acquire);
    const struct stepaf_ctx *ctx = op->plan->ctx;
    const struct stepaf_peer *peer = op->failed_peer >= 0 ? &ctx->peers[op->failed_peer] : NULL;

    if (__builtin_expect(status == STEPAF_OK, 1))
        return status;
    if (says_more(op, status))
        return status;
    if (status == STEPAF_ERR_PEER_LOST && peer)
        return stepaf_error_set_peer(
            status, STEPAF_PHASE_RESPONSE, peer->who,
            STEPAF_WHO_FORMAT " was lost before it answered operation %u of plan %u: %s",
            STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index, stepaf_peer_why_lost(peer));
    if (status == STEPAF_ERR_UNREGISTERED && !op->plan->stream)
        return stepaf_error_set(status, STEPAF_PHASE_PUSH,
                                "operation %u of plan %u: a source is in registered memory of this "
                                "rank that is no longer mapped",
                                op->seq, op->plan->index);
    if (status == STEPAF_ERR_TIMEOUT && peer)
        return stepaf_error_set_peer(
            status, STEPAF_PHASE_RESPONSE, peer->who,
            STEPAF_WHO_FORMAT
            " has not answered operation %u of stream plan %u within STEPAF_STREAM_TIMEOUT_US",
            STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index);
    if (status == STEPAF_ERR_CANCELED && peer)
        return stepaf_error_set_peer(
            status, STEPAF_PHASE_RESPONSE, peer->who,
            STEPAF_WHO_FORMAT " released the batch of operation %u of plan %u without an answer",
            STEPAF_WHO_ARGS(peer->who), op->seq, op->plan->index);
    return stepaf_error_set(status, STEPAF_PHASE_RESPONSE,
                            status == STEPAF_ERR_CANCELED ? "operation %u of plan %u was canceled"
                            : status == STEPAF_ERR_TRANSPORT
                                ? "operation %u of plan %u: the GPU has failed"
                                : "operation %u of plan %u ended with its stream plan",
                            op->seq, op->plan->index);
}
