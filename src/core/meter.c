/* SPDX-License-Identifier: Apache-2.0 */
#include "core/meter.h"

#include "core/deliver.h"

/* The operation's part that an answer of its peer would end. NULL: none. */
static const struct stepaf_op_peer *awaited_part(const struct stepaf_op *op, uint32_t peer)
{
    const struct stepaf_op_peer *op_peer = op ? &op->op_peers[peer] : NULL;

    return op_peer && op_peer->state == STEPAF_OP_PEER_WAITING ? op_peer : NULL;
}

/* As stepaf_core_deliver. */
static void deliver_measured(struct stepaf_upcalls *up, struct stepaf_link *link,
                             const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    bool ends = msg->type == STEPAF_MSG_RESPONSE || msg->type == STEPAF_MSG_RELEASE;
    const struct stepaf_op *op = ends ? stepaf_op_find(&ctx->peers[link->peer], msg) : NULL;
    const struct stepaf_op_peer *op_peer = awaited_part(op, link->peer);

    stepaf_core_deliver(up, link, msg);
    if (op_peer && op_peer->state == STEPAF_OP_PEER_ANSWERED)
        stepaf_meter_answer(ctx, op, op_peer);
}

const struct stepaf_metrics_path stepaf_meter_path = {
    .deliver = deliver_measured, .deliver_imm = stepaf_core_deliver_imm_observed};
