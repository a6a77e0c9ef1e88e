/* SPDX-License-Identifier: Apache-2.0 */
/* Counting of answer times, while times are measured. */
#ifndef STEPAF_CORE_METER_H
#define STEPAF_CORE_METER_H

#include "core/metrics.h"
#include "core/op.h"

/* Count the times of a part that was answered at @a answered (ticks), if times are measured.
 * @a may_tell: use the times that the peer reported, if any. */
static inline void stepaf_meter_answer(const struct stepaf_ctx *ctx, const struct stepaf_op *op,
                                       const struct stepaf_op_peer *op_peer, uint64_t answered,
                                       bool may_tell)
{
    struct stepaf_histogram *times = op_peer->peer->times;
    uint64_t ticks = answered - op->trace.started;

    if (!times || (int64_t)ticks < 0)
        return;
    uint64_t ns = ticks * ctx->clock.ns_scale >> STEPAF_NS_SCALE_BITS;
    stepaf_histogram_add(&times[STEPAF_TIME_ROUND], ns);
    if (may_tell && op_peer->work_ns != UINT32_MAX) {
        uint64_t ffn_ns = (uint64_t)op_peer->queue_ns + op_peer->work_ns;
        stepaf_histogram_add(&times[STEPAF_TIME_WAYS], ns > ffn_ns ? ns - ffn_ns : 0);
    }
}

#endif
