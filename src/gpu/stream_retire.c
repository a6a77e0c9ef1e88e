/* SPDX-License-Identifier: Apache-2.0 */
/* What stream plans share, when its commit is over: free it, except what graphs may still look
 * at. */
#include <stdlib.h>

#include "core/plan.h"
#include "gpu/proxy.h"
#include "gpu/times_clock.h"

/* Free what the operations of this commit used. Kept: the words that tell old graphs that there is
 * nothing to do any more, and what these graphs read before they look at the words. */
static void retire_streams(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    bool frees = streams->mailboxes && !streams->captured;
    uint32_t over = 1;

    for (uint32_t i = 0; i < streams->n_failed; i++) /* remaining waits may end */
        (void)stepaf_gpu_write(ctx->gpu.device, streams->failed[i], &over, sizeof(over));
    streams->n_failed = 0;
    if (frees) {
        stepaf_gpu_free(ctx->gpu.device,
                        streams->mailboxes); /* waits until those have come to their end */
        streams->mailboxes = NULL;
    }
    for (uint32_t i = 0; i < streams->n_imports; i++)
        stepaf_gpu_unimport(ctx->gpu.device, streams->imports[i]);
    free(streams->imports);
    streams->imports = NULL;
    streams->n_imports = 0;
    stepaf_streams_unmap_host(ctx, streams);
    if (streams->stream)
        stepaf_gpu_stream_destroy(ctx->gpu.device, streams->stream);
    streams->stream = NULL;
    free(streams->reach);
    streams->reach = NULL;
    free(streams->stream_advert.data);
    streams->stream_advert = (struct stepaf_pack){0};
    if (frees)
        stepaf_streams_free_host(ctx, streams);
    stepaf_proxies_retire(ctx, streams);
}

/* Free what retire_streams has left. */
static void free_streams(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    stepaf_proxies_free(ctx, streams);
    if (streams->mailboxes)
        stepaf_gpu_free(ctx->gpu.device, streams->mailboxes);
    stepaf_streams_free_host(ctx, streams);
    if (streams->control)
        stepaf_gpu_free(ctx->gpu.device, streams->control);
    if (streams->watches)
        stepaf_gpu_free_host(ctx->gpu.device, streams->watches);
    if (streams->times.rings)
        stepaf_gpu_free_host(ctx->gpu.device, streams->times.rings);
    free(streams->failed);
    free(streams);
}

/* End the GPU's clock if no plan takes timestamps. */
static void end_times(struct stepaf_ctx *ctx)
{
    struct stepaf_stream *stream = NULL;

    while ((stream = stepaf_stream_after(ctx, stream)))
        if (stream->times)
            return;
    stepaf_gpu_clock_free(ctx);
}

/* Without graphs nothing returns to what is over, and all of it is freed: a job whose ranks die and
 * return commits for ever. */
void stepaf_streams_retire(struct stepaf_ctx *ctx)
{
    struct stepaf_streams *before = ctx->gpu.streams ? ctx->gpu.streams->before : NULL;

    if (!before)
        return;
    retire_streams(ctx, before);
    end_times(ctx);
    if (before->captured || !before->sees_graphs)
        return;
    ctx->gpu.streams->before = before->before;
    free_streams(ctx, before);
}

/* Free the latest streams. */
static void pop(struct stepaf_ctx *ctx)
{
    struct stepaf_streams *streams = ctx->gpu.streams;

    ctx->gpu.streams = streams->before;
    retire_streams(ctx, streams);
    free_streams(ctx, streams);
}

void stepaf_streams_undo(struct stepaf_ctx *ctx)
{
    if (!ctx->gpu.streams || ctx->gpu.streams->joined)
        return;
    stepaf_proxies_undo(ctx);
    pop(ctx);
}

void stepaf_streams_free(struct stepaf_ctx *ctx)
{
    while (ctx->gpu.streams)
        pop(ctx);
}
