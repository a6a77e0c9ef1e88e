/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: polling the transports and taking in what has arrived. */
#ifndef STEPAF_CORE_PROGRESS_H
#define STEPAF_CORE_PROGRESS_H

#include "core/ctx.h"
#include "core/wait.h"

/* Advance everything and return the number of events. The lock is held. Polls up to @a polls times.
 * The _many variant is for more than one transport, queued posts, or work of the feature. */
unsigned stepaf_core_progress_many(struct stepaf_ctx *ctx, unsigned polls);
static inline unsigned stepaf_core_progress_polls(struct stepaf_ctx *ctx, unsigned polls)
{
    struct stepaf_transport *transport = ctx->net.transports[0];
    unsigned n;

    if (__builtin_expect(
            ctx->net.n_transports == 1 && stepaf_list_empty(&ctx->net.queued) && !ctx->n_polled, 1))
        n = transport->ops->progress(transport, polls);
    else
        n = stepaf_core_progress_many(ctx, polls);
    /* Use time, not a poll count: a caller may sleep between polls. Most polls have a stamp
     * already. */
    uint64_t now = stepaf_arrival_ticks(ctx);
    if (n)
        ctx->polling.came = now;
    else if (__builtin_expect(ctx->polling.watch != NULL, 0))
        stepaf_core_note_vain(ctx, now);
    if (__builtin_expect((int64_t)(now - ctx->polling.look_at) >= 0, 0))
        stepaf_core_check_liveness(ctx, now, n > 0);
    ctx->up.polled = 0;
    return n;
}
/* Poll once. */
static inline unsigned stepaf_core_progress(struct stepaf_ctx *ctx)
{
    return stepaf_core_progress_polls(ctx, 1);
}
/* Make progress for a thread that has nothing else to do: poll for a few microseconds, if this
 * context and its core belong to this thread alone. */
static inline unsigned stepaf_core_progress_waiting(struct stepaf_ctx *ctx)
{
    return stepaf_core_progress_polls(ctx, ctx->polling.at_once);
}

#endif
