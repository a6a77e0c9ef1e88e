/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies at the commit: pinned memory for what goes out and what comes in. */
#include <stdlib.h>
#include <string.h>

#include "core/plan.h"
#include "core/region.h"
#include "gpu/proxy.h"

enum { ALIGN = 64 /* of slices of receive buffers */ };

/* ---- the proxy's receive buffers of push keys ---- */

static void attach(struct stepaf_streams *streams, bool there)
{
    for (struct stepaf_proxy_recv *proxy_recv = streams ? streams->proxy_recvs : NULL; proxy_recv;
         proxy_recv = proxy_recv->next)
        proxy_recv->key->proxy_recv = there ? &proxy_recv->recv_buf : NULL;
}

/* FFN: return whether peer @a p writes @a key to a receive buffer of the proxy. */
static bool lands(const struct stepaf_ctx *ctx, const struct stepaf_key *key, uint32_t p)
{
    return stepaf_peer_proxied(ctx, p) && !stepaf_proxy_receives_in_place(ctx, p, key);
}

/* FFN: give @a key a receive buffer, with a slice for each peer that writes there. */
static stepaf_status_t land_key(struct stepaf_ctx *ctx, struct stepaf_key *key,
                                struct stepaf_proxy_room *room)
{
    struct stepaf_proxy_recv *proxy_recv;
    uint32_t n = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n += lands(ctx, key, p);
    if (!n)
        return STEPAF_OK;
    proxy_recv = calloc(1, sizeof(*proxy_recv));
    if (!proxy_recv)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    proxy_recv->key = key;
    proxy_recv->next = ctx->gpu.streams->proxy_recvs;
    ctx->gpu.streams->proxy_recvs = proxy_recv;
    key->proxy_recv = &proxy_recv->recv_buf;
    proxy_recv->recv_buf.ranks = calloc(n, sizeof(proxy_recv->recv_buf.ranks[0]));
    if (!proxy_recv->recv_buf.ranks)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    proxy_recv->recv_buf.stride =
        ((uint64_t)key->depth * key->max_bytes + ALIGN - 1) / ALIGN * ALIGN;
    proxy_recv->recv_buf.offset =
        stepaf_proxy_take_room(&room->proxy_recvs, proxy_recv->recv_buf.stride * n);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (lands(ctx, key, p))
            proxy_recv->recv_buf.ranks[proxy_recv->recv_buf.n_ranks++] =
                (uint32_t)ctx->peers[p].who.rank;
    return STEPAF_OK;
}

/* ---- proxies ---- */

static stepaf_status_t proxy_open(struct stepaf_stream *stream, struct stepaf_proxy_room *room,
                                  struct stepaf_proxy **proxy_p)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_proxy *proxy = calloc(1, sizeof(*proxy));

    if (!proxy)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    *proxy_p = proxy; /* freed with the streams until it is in force */
    stepaf_list_init(&proxy->node);
    proxy->stream = stream; /* may be freed before a proxy that was never in force */
    proxy->n_peers = ctx->n_peers;
    proxy->peers = calloc(ctx->n_peers, sizeof(*proxy->peers));
    proxy->in = calloc((size_t)ctx->n_peers * stream->n_in, sizeof(*proxy->in));
    proxy->out = calloc((size_t)ctx->n_peers * stream->n_out, sizeof(*proxy->out));
    if (stepaf_is_attention(ctx))
        proxy->push = calloc((size_t)ctx->n_peers * stream->n_out, sizeof(*proxy->push));
    if (!proxy->peers || !proxy->in || !proxy->out || (stepaf_is_attention(ctx) && !proxy->push))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t at = 0; proxy->push && at < ctx->n_peers * stream->n_out; at++)
        proxy->push[at].key = stream->plan->push[at % stream->n_out].key->id;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        if (!stepaf_peer_proxied(ctx, p))
            continue;
        proxy->peers[p].proxied = true;
        stepaf_proxy_lay(proxy, p, room);
    }
    return stepaf_proxy_make_posts(proxy);
}

/* ---- memory ---- */

/* Make a region of the library's own that the GPU can use; none if all tensors are in place. */
static stepaf_status_t pinned(struct stepaf_ctx *ctx, uint64_t bytes, bool copied,
                              struct stepaf_region **region_p)
{
    struct stepaf_region *region;
    stepaf_status_t status;

    if (!copied)
        return STEPAF_OK;
    status = stepaf_region_alloc(ctx, bytes ? bytes : ALIGN, STEPAF_MEM_HOST, &region);

    if (status)
        return status;
    *region_p = region; /* dropped with the streams */
    return stepaf_region_pin(ctx, region);
}

static stepaf_status_t make_memory(struct stepaf_ctx *ctx, const struct stepaf_proxy_room *room)
{
    struct stepaf_streams *streams = ctx->gpu.streams;
    stepaf_status_t status = pinned(ctx, room->proxy_recvs, room->copied_in, &streams->proxy_recv);

    if (!status)
        status = pinned(ctx, room->proxy_sends, room->copied_out, &streams->proxy_send);
    if (!status)
        status = stepaf_gpu_alloc_host(ctx->gpu.device, room->heads, (void **)&streams->heads);
    if (status)
        return status;
    if (streams->proxy_recv)
        streams->proxy_recv->target = true;
    if (streams->proxy_send)
        streams->proxy_send->hidden = true; /* nobody else reads or writes it */
    for (struct stepaf_proxy_recv *proxy_recv = streams->proxy_recvs; proxy_recv;
         proxy_recv = proxy_recv->next)
        proxy_recv->recv_buf.region = streams->proxy_recv;
    return STEPAF_OK;
}

/* Check that this process makes progress: streams do not wait on the host, so a thread must. */
static stepaf_status_t check_progress(const struct stepaf_ctx *ctx)
{
    uint32_t p = 0;

    if (ctx->threads.progress_wanted)
        return STEPAF_OK;
    while (!stepaf_peer_proxied(ctx, p))
        p++;
    return stepaf_error_set_peer(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
                                 "stream plans with " STEPAF_WHO_FORMAT
                                 " use the proxy (%s), which requires STEPAF_PROGRESS=thread",
                                 STEPAF_WHO_ARGS(ctx->peers[p].who),
                                 ctx->job.ranks[ctx->peers[p].who.world_rank].node_id !=
                                         ctx->job.ranks[ctx->job.boot.rank].node_id
                                     ? "it is on another node"
                                     : "it has no GPU, or STEPAF_CUDA_PROXY=always is set");
}

/* Set up the proxy's receive buffers for all keys that FFN ranks' stream plans receive. */
static stepaf_status_t land_keys(struct stepaf_ctx *ctx, struct stepaf_proxy_room *room)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        for (uint32_t k = 0; plan && plan->stream && k < plan->n_push && !status; k++)
            if (!plan->push[k].key->proxy_recv)
                status = land_key(ctx, plan->push[k].key, room);
    }
    return status;
}

stepaf_status_t stepaf_proxies_prepare(struct stepaf_ctx *ctx)
{
    struct stepaf_streams *streams = ctx->gpu.streams, *before = streams->before;
    stepaf_status_t status = STEPAF_OK;
    uint32_t n_proxied = 0, n_plans = 0;
    struct stepaf_proxy_room room = {0};

    attach(before, false);
    if (before && before->proxy_recv)
        before->proxy_recv->hidden = true; /* in adverts from now on */
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n_proxied += stepaf_peer_proxied(ctx, p);
    streams->proxies = calloc(ctx->tables.plans.n + 1, sizeof(*streams->proxies));
    if (!streams->proxies)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    streams->n_proxies = ctx->tables.plans.n;
    if (n_proxied && !stepaf_is_attention(ctx))
        status = land_keys(ctx, &room);
    for (uint32_t i = 0; n_proxied && i < ctx->tables.plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream && n_plans++ == 0)
            status = check_progress(ctx);
        if (plan && plan->stream && !status)
            status = proxy_open(plan->stream, &room, &streams->proxies[i]);
    }
    if (status || !n_proxied || !n_plans)
        return status;
    status = make_memory(ctx, &room);
    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++)
        if (streams->proxies[i])
            stepaf_proxy_place(streams->proxies[i], streams);
    return status;
}

void stepaf_proxies_undo(struct stepaf_ctx *ctx)
{
    attach(ctx->gpu.streams, false);
    attach(ctx->gpu.streams->before, true);
}

/* ---- in force ---- */

/* Leave out lost peers. Returns whether there is something left to transfer. */
static bool leave_lost(struct stepaf_proxy *proxy)
{
    bool any = false;

    for (uint32_t p = 0; p < proxy->n_peers; p++) {
        struct stepaf_proxy_peer *peer = &proxy->peers[p];
        if (proxy->stream->plan->ctx->peers[p].lost) {
            peer->proxied = false;
            peer->sent = NULL;
        }
        any = any || peer->proxied;
    }
    return any;
}

void stepaf_proxy_begin(struct stepaf_stream *stream)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_proxy **proxy = &ctx->gpu.streams->proxies[stream->plan->index];

    stepaf_proxy_free(stream->proxy);
    stream->proxy = NULL;
    if (!*proxy || !leave_lost(*proxy)) /* freed with the epoch, as if never in force */
        return;
    stream->proxy = *proxy;
    *proxy = NULL;
    if (stream->proxy) {
        stepaf_list_append(&ctx->gpu.proxies, &stream->proxy->node);
        ctx->n_polled++;
    }
}

/* ---- the end ---- */

static void free_parts(struct stepaf_proxy *proxy)
{
    if (!proxy)
        return;
    stepaf_proxy_free_posts(proxy);
    free(proxy->peers);
    free(proxy->in);
    free(proxy->out);
    free(proxy->push);
    free(proxy);
}

void stepaf_proxy_free(struct stepaf_proxy *proxy)
{
    if (!proxy)
        return;
    for (uint32_t p = 0; proxy->peers && p < proxy->stream->plan->ctx->n_peers; p++)
        if (proxy->peers[p].remote)
            stepaf_proxy_unbind(proxy->peers[p].remote);
    if (proxy->proxy_plan) {
        proxy->proxy_plan->proxied.ahead = NULL;
        proxy->proxy_plan->proxied.proxy = NULL; /* the sweep ends it: peers may still answer */
        proxy->proxy_plan = NULL;
    }
    stepaf_list_remove(&proxy->node);
    proxy->stream->plan->ctx->n_polled--;
    stepaf_proxy_free_events(proxy);
    free_parts(proxy);
}

void stepaf_proxies_retire(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    for (struct stepaf_proxy_recv *proxy_recv = streams->proxy_recvs, *next; proxy_recv;
         proxy_recv = next) {
        next = proxy_recv->next;
        if (proxy_recv->key->proxy_recv == &proxy_recv->recv_buf)
            proxy_recv->key->proxy_recv = NULL;
        free(proxy_recv->recv_buf.ranks);
        free(proxy_recv);
    }
    streams->proxy_recvs = NULL;
    for (uint32_t i = 0; i < streams->n_proxies; i++)
        free_parts(streams->proxies[i]); /* never in force */
    free(streams->proxies);
    streams->proxies = NULL;
    streams->n_proxies = 0;
    if (streams->proxy_recv)
        stepaf_region_drop(ctx, streams->proxy_recv);
    if (streams->proxy_send)
        stepaf_region_drop(ctx, streams->proxy_send);
    streams->proxy_recv = streams->proxy_send = NULL;
}

void stepaf_proxies_free(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    if (streams->heads)
        stepaf_gpu_free_host(ctx->gpu.device, streams->heads);
    streams->heads = NULL;
}
