/* SPDX-License-Identifier: Apache-2.0 */
/* Choose how tensors of proxied peers travel, region by region: in place if the link to the peer
 * reads and writes GPU memory itself; otherwise through the proxy's pinned buffers. */
#include <stdio.h>

#include "core/key.h"
#include "core/key_recv.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "gpu/bounce.h"
#include "gpu/proxy.h"

/* Return the transport to a peer: the link's, or before there is a link the one that is tried
 * first. If another one connects, the region's bounce buffer stands for the region. */
static const struct stepaf_transport *carrier_of(const struct stepaf_ctx *ctx, uint32_t p)
{
    const struct stepaf_peer *peer = &ctx->peers[p];
    bool near =
        ctx->job.ranks[peer->who.world_rank].node_id == ctx->job.ranks[ctx->job.boot.rank].node_id;

    if (peer->link)
        return peer->link->transport;
    for (unsigned t = 0; t < ctx->net.n_transports; t++)
        if (near || !(ctx->net.transports[t]->ops->caps & STEPAF_TRANSPORT_LOCAL))
            return ctx->net.transports[t];
    return NULL;
}

/* Return whether that transport has registered the region, no matter which others must. */
static bool is_carried(const struct stepaf_ctx *ctx, uint32_t p, const struct stepaf_region *region)
{
    const struct stepaf_transport *carrier = carrier_of(ctx, p);

    return stepaf_peer_proxied(ctx, p) && carrier && stepaf_is_taken(carrier, region);
}

bool stepaf_proxy_is_in_place(const struct stepaf_ctx *ctx, uint32_t p,
                              const struct stepaf_region *region)
{
    return region && region->mem.kind == STEPAF_MEM_CUDA && region->linked &&
           is_carried(ctx, p, region);
}

static bool has_streams(const struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream)
            return true;
    }
    return false;
}

/* All registered GPU memory, since an operation may name other sources than its plan. */
stepaf_status_t stepaf_proxies_link(struct stepaf_ctx *ctx)
{
    stepaf_status_t status = STEPAF_OK;
    bool proxied = false;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        proxied = proxied || stepaf_peer_proxied(ctx, p);
    if (!proxied || !has_streams(ctx))
        return STEPAF_OK;
    for (uint32_t i = 0; i < ctx->memory.n_regions && !status; i++) {
        struct stepaf_region *region = ctx->memory.regions[i];
        bool carried = false;
        if (region->mem.kind != STEPAF_MEM_CUDA || region->linked)
            continue;
        status = stepaf_bounce_offer(ctx, region);
        for (uint32_t p = 0; p < ctx->n_peers && !status; p++)
            carried = carried || is_carried(ctx, p, region);
        if (carried)
            status = stepaf_bounce_link(ctx, region);
    }
    return status;
}

/* An ordinary plan keeps its slot over commits, while streams begin with the first. What arrives in
 * another slot than the stream's must be copied. Return whether this applies to a plan of peer @a p
 * with @a key. */
static bool is_turned(const struct stepaf_ctx *ctx, uint32_t p, const struct stepaf_key *key)
{
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        const struct stepaf_proxy *proxy = plan && plan->stream ? plan->stream->proxy : NULL;
        const struct stepaf_remote_plan *remote = proxy ? proxy->peers[p].remote : NULL;
        if (remote && remote->slot && !proxy->peers[p].on_streams && stepaf_plan_names(plan, key))
            return true;
    }
    return false;
}

bool stepaf_proxy_receives_in_place(const struct stepaf_ctx *ctx, uint32_t p,
                                    const struct stepaf_key *key)
{
    const uint8_t *slice = stepaf_key_slice(key, p);

    return slice && stepaf_proxy_is_in_place(ctx, p, stepaf_region_find(ctx, slice, 1)) &&
           !is_turned(ctx, p, key);
}

/* ---- for the map ---- */

/* Count the tensors of stream plans that go to and come from a peer, and how many of them are in
 * place. */
static uint32_t count_tensors(const struct stepaf_ctx *ctx, uint32_t p, uint32_t *in_place_p)
{
    const struct stepaf_streams *streams = ctx->gpu.streams;
    uint32_t n = 0;

    *in_place_p = 0;
    for (uint32_t k = 0; streams && k < streams->n_proxies; k++) {
        const struct stepaf_proxy *proxy = streams->proxies[k];
        const struct stepaf_stream *stream = proxy ? proxy->stream : NULL;
        if (!proxy || !proxy->peers[p].proxied)
            continue;
        for (uint32_t i = 0; i < stream->n_in; i++)
            *in_place_p += proxy->in[p * stream->n_in + i].in_place;
        for (uint32_t i = 0; i < stream->n_out; i++)
            *in_place_p += proxy->out[p * stream->n_out + i].in_place;
        n += stream->n_in + stream->n_out;
    }
    return n;
}

bool stepaf_proxy_describe(const struct stepaf_peer *peer, char *text)
{
    const struct stepaf_transport *transport = peer->link->transport;
    uint32_t in_place, n = count_tensors(peer->ctx, peer->index, &in_place);
    char how[STEPAF_REASON_MAX] = "the transport carries host memory only";
    bool takes = transport->ops->caps & STEPAF_TRANSPORT_GPU;

    if (!n)
        return false;
    if (takes)
        transport->ops->describe_gpu(transport, how);
    if (in_place && !takes)
        snprintf(text, STEPAF_REASON_MAX,
                 "streams by way of bounce buffers until the next commit: %.90s", how);
    else if (in_place == n)
        snprintf(text, STEPAF_REASON_MAX, "streams in place, %.150s", how);
    else if (in_place)
        snprintf(
            text, STEPAF_REASON_MAX,
            "streams: %u of %u tensors in place, the others by way of pinned host memory; %.90s",
            in_place, n, how);
    else
        snprintf(text, STEPAF_REASON_MAX, "streams by way of pinned host memory: %.130s",
                 how[0] ? how : "their tensors are in host memory");
    return true;
}
