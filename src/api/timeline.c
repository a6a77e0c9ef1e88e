/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_timeline_query. */
#include <stepaf/timeline.h>

#include "api/fill.h"
#include "api/handles.h"
#include "core/clock_keep.h"
#include "core/feature.h"

static int64_t since(const struct stepaf_ctx *ctx, uint64_t from, uint64_t to)
{
    return stepaf_clock_common_ns(ctx, to) - stepaf_clock_common_ns(ctx, from);
}

/* Return the times of an operation at peer @a p. @a op: NULL: nothing has happened yet. */
static stepaf_timeline_t timeline_of(const struct stepaf_ctx *ctx, const struct stepaf_op *op,
                                     int p)
{
    if (!op)
        return (stepaf_timeline_t){.start_ns = -1,
                                   .notified_ns = -1,
                                   .answered_ns = -1,
                                   .ffn_queue_ns = -1,
                                   .ffn_work_ns = -1};
    const struct stepaf_op_peer *op_peer = &op->op_peers[p];
    bool over =
        op_peer->state == STEPAF_OP_PEER_ANSWERED || op_peer->state == STEPAF_OP_PEER_CANCELED;
    bool sent = over || stepaf_op_peer_is_open(op_peer);
    return (stepaf_timeline_t){
        .start_ns = stepaf_clock_common_ns(ctx, op->trace.started),
        .notified_ns =
            sent && op->trace.notified ? since(ctx, op->trace.started, op->trace.notified) : -1,
        .answered_ns = over ? since(ctx, op->trace.started, op_peer->answered) : -1,
        .ffn_queue_ns = over && op_peer->queue_ns != UINT32_MAX ? (int64_t)op_peer->queue_ns : -1,
        .ffn_work_ns = over && op_peer->work_ns != UINT32_MAX ? (int64_t)op_peer->work_ns : -1,
    };
}

stepaf_status_t stepaf_timeline_query(stepaf_request_h request, int ffn_rank,
                                      stepaf_timeline_t *timeline_p)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    struct stepaf_ctx *ctx = op->plan->ctx;
    const struct stepaf_op *timed = op;

    if (op->plan->stream)
        ctx->feature->refresh(ctx);
    int p = stepaf_find_peer(ctx, ffn_rank);
    if (p < 0 || !timeline_p) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "FFN rank %d is not a peer of this rank, or timeline_p is NULL",
                                  ffn_rank);
    } else if (op->plan->stream && !ctx->feature->carrier(op, (uint32_t)p, &timed)) {
        status = stepaf_error_set(
            STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
            "operation %u of plan %u is on streams, and is timed only with STEPAF_STREAM_TIMES=on, "
            "or if the host transfers it and no graph is replayed",
            op->seq, op->plan->index);
    } else {
        stepaf_clock_refresh(ctx);
        stepaf_timeline_t timeline = timeline_of(ctx, timed, p);
        status = stepaf_fill(timeline_p, "stepaf_timeline_t", STEPAF_FIRST_TIMELINE, &timeline,
                             sizeof(timeline));
    }
    stepaf_leave(ctx);
    return status;
}
