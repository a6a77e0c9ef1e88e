/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a context, with those that peers and transports keep. */
#include "core/counters.h"

#include "core/ctx.h"

stepaf_counters_t stepaf_core_counters(const struct stepaf_ctx *ctx)
{
    stepaf_counters_t counters = ctx->counters;

    counters.dropped_malformed += ctx->up.dropped_malformed;
    if (ctx->threads.busy)
        counters.thread_busy_ns =
            (uint64_t)((double)ctx->threads.busy * 1e3 / ctx->clock.own.ticks_per_us);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        counters.bytes_sent += ctx->peers[p].bytes_sent;
        counters.bytes_received += ctx->peers[p].bytes_received;
    }
    return counters;
}
