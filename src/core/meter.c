/* SPDX-License-Identifier: Apache-2.0 */
#include "core/meter.h"

#include "core/deliver.h"
#include "core/imm.h"
#include "core/op.h"

/* The operation's part that an answer of its peer would end. NULL: none. */
static inline const struct stepaf_op_peer *awaited_part(const struct stepaf_op *op, uint32_t peer)
{
    const struct stepaf_op_peer *op_peer = op ? &op->op_peers[peer] : NULL;

    return op_peer && op_peer->state == STEPAF_OP_PEER_WAITING ? op_peer : NULL;
}

/* Count the times of a part, if it has been answered now. */
static inline void note_answer(const struct stepaf_ctx *ctx, const struct stepaf_op *op,
                               const struct stepaf_op_peer *op_peer)
{
    uint64_t ticks = op_peer->answered - op->trace.started;

    if (op_peer->state != STEPAF_OP_PEER_ANSWERED || (int64_t)ticks < 0)
        return;
    struct stepaf_histogram *times = stepaf_metrics_times(ctx->polling.metrics, op_peer->peer);
    uint64_t ns = ticks * ctx->clock.ns_scale >> STEPAF_NS_SCALE_BITS;
    uint64_t ffn_ns = (uint64_t)op_peer->queue_ns + op_peer->work_ns;
    stepaf_histogram_add(&times[STEPAF_TIME_ROUND], ns);
    if (op_peer->work_ns != UINT32_MAX)
        stepaf_histogram_add(&times[STEPAF_TIME_WAYS], ns > ffn_ns ? ns - ffn_ns : 0);
}

static void deliver_measured(struct stepaf_upcalls *up, struct stepaf_link *link,
                             const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    bool ends = msg->type == STEPAF_MSG_RESPONSE || msg->type == STEPAF_MSG_RELEASE;
    const struct stepaf_op *op = ends ? stepaf_op_find(&ctx->peers[link->peer], msg) : NULL;
    const struct stepaf_op_peer *op_peer = awaited_part(op, link->peer);

    stepaf_core_deliver(up, link, msg);
    if (op_peer)
        note_answer(ctx, op, op_peer);
}

/* What is no answer in 32 bits comes by deliver_measured. */
static void deliver_imm_measured(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    const struct stepaf_op *op = ctx->polling.hint_op;

    if (__builtin_expect(!op || op->imm != (imm & STEPAF_IMM_SAME_MASK), 0))
        op = stepaf_op_find_short(ctx, imm);
    const struct stepaf_op_peer *op_peer =
        stepaf_imm_is_answer(imm) ? awaited_part(op, link->peer) : NULL;
    stepaf_core_deliver_imm(up, link, imm);
    if (op_peer)
        note_answer(ctx, op, op_peer);
}

const struct stepaf_metrics_path stepaf_meter_path = {.deliver = deliver_measured,
                                                      .deliver_imm = deliver_imm_measured};
