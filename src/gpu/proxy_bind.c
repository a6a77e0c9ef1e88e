/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies of FFN ranks: bind peers' plans to stream plans, and find where these receive. */
#include "core/batch.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "gpu/proxy.h"

static bool is_same_plan(const struct stepaf_plan_obj *plan,
                         const struct stepaf_remote_plan *remote)
{
    uint32_t p = remote->peer->index;
    bool same = plan->n_push == remote->n_push && plan->n_pull == remote->n_pull &&
                plan->depth == remote->depth;

    for (uint32_t i = 0; same && i < plan->n_push; i++)
        same = plan->push[i].key == remote->push[i].key;
    for (uint32_t i = 0; same && i < plan->n_pull; i++)
        same = plan->pull[p * plan->n_pull + i].key->id == remote->pull[i].key_id;
    return same;
}

/* The peer may begin with any slot: make kernels look where the peer does. Only what changes is
 * written, as in commits; at other times a thread may be enqueueing. */
static void turn_tensors(struct stepaf_proxy *proxy, uint32_t p)
{
    struct stepaf_stream *stream = proxy->stream;
    uint32_t depth = stream->plan->depth;

    for (uint32_t slot = 0; slot < depth; slot++) {
        struct stepaf_launch *launches =
            &stream->launches.receive[slot * stream->launches.n_receive];
        bool changed = false;
        for (uint32_t i = 0; i < stream->n_in; i++) {
            const struct stepaf_proxy_buf *its = &proxy->in[p * stream->n_in + i];
            uint8_t **body = &stepaf_launch_tensor(launches, stream->n_in, p, i)->body;
            uint8_t *turned =
                its->data + (size_t)((slot + proxy->peers[p].turn) % depth) * its->pitch;
            if (*body == turned)
                continue;
            *body = turned;
            changed = true;
        }
        if (changed)
            stepaf_stream_touch(&launches[p / stepaf_launch_peers(stream->n_in)].args);
    }
}

void stepaf_proxy_bind(struct stepaf_remote_plan *remote)
{
    struct stepaf_ctx *ctx = remote->peer->ctx;
    uint32_t p = remote->peer->index;

    for (struct stepaf_list *node = ctx->gpu.proxies.next; node != &ctx->gpu.proxies;
         node = node->next) {
        struct stepaf_proxy *proxy = stepaf_container_of(node, struct stepaf_proxy, node);
        struct stepaf_proxy_peer *peer = &proxy->peers[p];
        if (!peer->proxied || peer->remote || peer->n_in ||
            !is_same_plan(proxy->stream->plan, remote))
            continue;
        remote->proxy = proxy;
        remote->unbound = false;
        peer->remote = remote;
        peer->first = remote->seq;
        peer->turn = remote->slot;
        remote->ahead = peer->ahead;
        turn_tensors(proxy, p);
        return;
    }
}

/* Send all of an answer with its message from now on. */
static void forget_ahead(struct stepaf_remote_plan *remote)
{
    for (uint32_t s = 0; remote->ahead && s < remote->depth; s++)
        for (uint32_t i = 0; i < remote->n_pull; i++)
            remote->batches[s].xfers[i].dst_offset = stepaf_pull_offset(&remote->pull[i], s);
    remote->ahead = NULL;
}

void stepaf_proxy_unbind(struct stepaf_remote_plan *remote)
{
    if (!remote->proxy)
        return;
    remote->proxy->peers[remote->peer->index].remote = NULL;
    remote->proxy = NULL;
    forget_ahead(remote);
    remote->unbound = true;
}

/* Return where a stream plan in force lets a peer write @a key in place; NULL if none does. */
static uint8_t *in_place_of(const struct stepaf_key *key, const struct stepaf_peer *peer)
{
    const struct stepaf_list *all = &peer->ctx->gpu.proxies;

    for (struct stepaf_list *node = all->next; node != all; node = node->next) {
        const struct stepaf_proxy *proxy = stepaf_container_of(node, struct stepaf_proxy, node);
        const struct stepaf_stream *stream = proxy->stream;
        for (uint32_t i = 0; i < stream->n_in; i++) {
            const struct stepaf_proxy_buf *buf = &proxy->in[peer->index * stream->n_in + i];
            if (stream->plan->push[i].key == key && buf->in_place)
                return buf->data;
        }
    }
    return NULL;
}

uint8_t *stepaf_proxy_recv_place(const struct stepaf_key *key, const struct stepaf_peer *peer)
{
    const struct stepaf_recv_buf *recv_buf = key->proxy_recv;

    for (uint32_t i = 0; recv_buf && i < recv_buf->n_ranks; i++)
        if (recv_buf->ranks[i] == (uint32_t)peer->who.rank)
            return recv_buf->region->mem.base + recv_buf->offset + i * recv_buf->stride;
    return in_place_of(key, peer);
}
