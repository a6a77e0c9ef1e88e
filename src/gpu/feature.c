/* SPDX-License-Identifier: Apache-2.0 */
/* The table of stream plans and bounce buffers through which the core calls them. */
#include "gpu/feature.h"
#include "core/plan.h"

#include "gpu/bounce.h"
#include "gpu/bounce_in.h"
#include "gpu/proxy.h"
#include "gpu/stream_advert.h"
#include "gpu/stream_any.h"
#include "gpu/times.h"
#include "gpu/times_clock.h"
#include "gpu/times_read.h"

#include <stdlib.h>

static unsigned progress(struct stepaf_ctx *ctx)
{
    unsigned n = stepaf_proxies_progress(ctx) + stepaf_bounce_in_progress(ctx);

    return ctx->gpu.n_requests ? n + stepaf_streams_progress(ctx) : n;
}

static void peer_lost(struct stepaf_peer *peer)
{
    if (peer->ctx->gpu.streams)
        stepaf_streams_peer_lost(peer);
}

static void describe_gpu_way(const struct stepaf_peer *peer, char *text)
{
    if (!stepaf_proxy_describe(peer, text))
        stepaf_bounce_describe(peer, text);
}

static const char *way(const struct stepaf_peer *peer)
{
    const struct stepaf_ctx *ctx = peer->ctx;

    if (!ctx->gpu.streams || !ctx->gpu.streams->control)
        return "";
    if (stepaf_peer_proxied(ctx, peer->index))
        return "cuda_proxy";
    return ctx->gpu.streams->host[peer->index].its ? "cuda_host" : "cuda_ipc";
}

static void free_all(struct stepaf_ctx *ctx)
{
    stepaf_streams_free(ctx); /* then no stream waits for a peer, nor for the clock's kernel */
    stepaf_gpu_clock_free(ctx);
}

static void close_all(struct stepaf_ctx *ctx)
{
    stepaf_bounce_in_free(ctx);
    free(ctx->gpu.unreached);
    ctx->gpu.unreached = NULL;
    if (ctx->gpu.bounce_stream)
        stepaf_gpu_stream_destroy(ctx->gpu.device, ctx->gpu.bounce_stream);
}

static stepaf_status_t prepare(struct stepaf_ctx *ctx)
{
    stepaf_times_read(ctx); /* of the last commit, while its peers are in force */
    stepaf_status_t status = stepaf_streams_prepare(ctx);

    return status ? status : stepaf_bounces_prepare(ctx);
}

/* Ask the GPU's timestamps where the host knows nothing. */
static bool carrier(const struct stepaf_op *op, uint32_t p, const struct stepaf_op **carrier_p)
{
    if (stepaf_proxy_carrier(op, p, carrier_p))
        return true;
    *carrier_p = stepaf_times_find(op);
    return op->plan->stream->times != NULL;
}

static int64_t bound_ns(const struct stepaf_ctx *ctx)
{
    return ctx->gpu.clock ? stepaf_gpu_clock_bound_ns(ctx) : 0;
}

static stepaf_status_t plan_make(struct stepaf_plan_obj *plan, uint32_t flags)
{
    stepaf_status_t status = stepaf_stream_make(plan);

    return status || !(flags & STEPAF_PLAN_ANY) ? status : stepaf_any_make(plan->stream);
}

static bool plan_busy(const struct stepaf_plan_obj *plan)
{
    return stepaf_stream_busy(plan->stream);
}

static stepaf_status_t plan_status(struct stepaf_plan_obj *plan)
{
    return stepaf_stream_status(plan->stream);
}

static stepaf_status_t plan_end(struct stepaf_plan_obj *plan)
{
    stepaf_times_read(plan->ctx);
    return stepaf_proxy_end_plan(plan->stream);
}

static void plan_free(struct stepaf_plan_obj *plan)
{
    if (plan->stream)
        stepaf_stream_free(plan->stream);
    if (plan->proxied.proxy)
        plan->proxied.proxy->proxy_plan = NULL;
}

static void unbind(struct stepaf_remote_plan *remote)
{
    stepaf_bounce_in_forget(remote);
    stepaf_proxy_unbind(remote);
}

const struct stepaf_feature_ops stepaf_gpu_feature = {
    .progress = progress,
    .peer_lost = peer_lost,
    .is_ahead = stepaf_proxies_are_ahead,
    .is_enqueueing = stepaf_streams_enqueueing,
    .refresh = stepaf_times_read,
    .describe = describe_gpu_way,
    .way = way,
    .free = free_all,
    .close = close_all,
    .prepare = prepare,
    .pack = stepaf_streams_pack,
    .check = stepaf_stream_adverts_check,
    .agree_reach = stepaf_streams_agree_reach,
    .undo = stepaf_streams_undo,
    .join = stepaf_streams_join,
    .retire = stepaf_streams_retire,
    .ready = stepaf_bounces_retire,
    .carrier = carrier,
    .unlooked = stepaf_times_unlooked,
    .bound_ns = bound_ns,
    .plan_make = plan_make,
    .plan_busy = plan_busy,
    .plan_status = plan_status,
    .plan_end = plan_end,
    .plan_free = plan_free,
    .recv_place = stepaf_proxy_recv_place,
    .bind = stepaf_proxy_bind,
    .unbind = unbind,
    .arrived = stepaf_proxy_arrived,
    .landed = stepaf_proxy_landed,
    .region_dropped = stepaf_bounce_free,
    .op_source = stepaf_bounce_start,
    .batch_source = stepaf_bounce_answer,
    .gate = stepaf_bounce_gate,
    .gate_open = stepaf_bounce_copied,
    .op_bring = stepaf_bounce_in_op,
    .batch_bring = stepaf_bounce_in_batch,
};
