/* SPDX-License-Identifier: Apache-2.0 */
/* The slow path of progress: several transports, queued posts, work of the feature. */
#include <stdlib.h>

#include "core/ctx.h"
#include "core/feature.h"
#include "core/progress.h"
#include "core/send.h"

unsigned stepaf_core_progress_many(struct stepaf_ctx *ctx, unsigned polls)
{
    bool queued = !stepaf_list_empty(&ctx->net.queued);
    unsigned n = 0;

    for (unsigned i = 0; i < ctx->net.n_transports; i++)
        n += ctx->net.transports[i]->ops->progress(ctx->net.transports[i], queued ? 1 : polls);
    if (queued || !stepaf_list_empty(&ctx->net.queued))
        n += stepaf_core_send_queued(ctx);
    if (ctx->n_polled)
        n += ctx->feature->progress(ctx);
    return n;
}
