/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies in use: between what streams stamp and what the core carries. Nothing here calls
 * the GPU's driver. */
#include "gpu/proxy.h"
#include "core/batch.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/start.h"

#include <string.h>

bool stepaf_peer_proxied(const struct stepaf_ctx *ctx, uint32_t p)
{
    const struct stepaf_rank *own = &ctx->job.ranks[ctx->job.boot.rank];
    const struct stepaf_rank *its = &ctx->job.ranks[ctx->peers[p].who.world_rank];

    return own->proxies || its->proxies || own->node_id != its->node_id;
}

/* ---- heads ---- */

/* The two words of a head that mean something: bytes, stamp. */
static uint64_t *words_of(const struct stepaf_proxy_buf *lane, uint32_t slot)
{
    return (uint64_t *)(void *)(lane->heads + (size_t)slot * STEPAF_HEAD_BYTES + STEPAF_HEAD_TELLS);
}

/* What operation @a n of a stream, from 0, is stamped with. */
static uint64_t stamp_of(const struct stepaf_stream *stream, uint64_t n)
{
    return stepaf_stamp(stream->epoch, (uint32_t)(n / stream->plan->depth + 1));
}

/* Tell the stream that a tensor is here: all of it can be seen before. */
static void stamp_head(const struct stepaf_proxy_buf *lane, uint32_t slot, uint32_t bytes,
                       uint64_t stamp)
{
    uint64_t *words = words_of(lane, slot);

    __atomic_store_n(&words[0], bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

/* What the stream has told of a tensor of operation @a n. What a copy engine has written is told without
 * a number, and cleared when all is there. False: nothing. */
static bool take_told(const struct stepaf_stream *stream, const struct stepaf_proxy_buf *lane,
                      uint64_t n, stepaf_tensor_t *tensor_p, bool *guarded_p)
{
    uint32_t slot = (uint32_t)(n % stream->plan->depth);
    const uint64_t *words = words_of(lane, slot), *source = words - 2;
    uint64_t stamp = stamp_of(stream, n), its = __atomic_load_n(&words[1], __ATOMIC_ACQUIRE);

    if (its == stamp)
        tensor_p->bytes = (uint32_t)__atomic_load_n(&words[0], __ATOMIC_RELAXED);
    else if ((uint32_t)its >= STEPAF_TOLD_ALL)
        tensor_p->bytes = (uint32_t)(its >> 32);
    else
        return false;
    tensor_p->data = lane->data + (size_t)slot * lane->pitch;
    if (!lane->in_place)
        return true;
    if (__atomic_load_n(&source[1], __ATOMIC_ACQUIRE) != stamp)
        return false; /* no order is relied on */
    uint64_t at = __atomic_load_n(&source[0], __ATOMIC_RELAXED);
    tensor_p->data = (void *)(uintptr_t)(at & ~STEPAF_SOURCE_GUARDED); /* NOLINT */
    *guarded_p = *guarded_p || at & STEPAF_SOURCE_GUARDED;
    return true;
}

/* Whether the stream has told of all tensors of operation @a n to a peer, and which. */
static bool take_all_told(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n,
                          stepaf_tensor_t *tensors, bool *guarded_p)
{
    uint32_t n_out = proxy->stream->n_out;

    *guarded_p = false;
    for (uint32_t i = 0; i < n_out; i++)
        if (!take_told(proxy->stream, &proxy->out[p * n_out + i], n, &tensors[i], guarded_p))
            return false;
    return true;
}

static void clear_stamps(const struct stepaf_stream *stream, const struct stepaf_proxy_buf *lanes,
                         uint64_t n)
{
    for (uint32_t i = 0; i < stream->n_out; i++) {
        uint64_t *words = words_of(&lanes[i], (uint32_t)(n % stream->plan->depth));
        if ((uint32_t)words[1] >= STEPAF_TOLD_ALL)
            __atomic_store_n(&words[1], 0, __ATOMIC_RELAXED);
    }
}

/* ---- attention ---- */

/* Whether a tensor is as the proxy plan has it. */
static bool is_planned(const struct stepaf_proxy *proxy, const stepaf_tensor_t *tensor, uint32_t i)
{
    const struct stepaf_push *push = &proxy->proxy_plan->push[i];

    return tensor->data == push->data && tensor->bytes == push->bytes;
}

/* Gather what the next operation pushes to the proxied peers. False: not all is there. */
static bool gather(struct stepaf_proxy *proxy)
{
    const struct stepaf_stream *stream = proxy->stream;
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->n_out, slot = (uint32_t)(proxy->n_started % plan->depth);

    proxy->as_planned = true;
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        stepaf_tensor_t *push = &proxy->push[p * n];
        if (!proxy->peers[p].proxied)
            continue; /* its keys alone are there, from the beginning */
        if (!take_all_told(proxy, p, proxy->n_started, push, &proxy->peers[p].asks))
            return false;
        for (uint32_t i = 0; i < n; i++)
            proxy->as_planned = proxy->as_planned && is_planned(proxy, &push[i], i);
    }
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        if (proxy->peers[p].proxied) {
            clear_stamps(stream, &proxy->out[p * n], proxy->n_started);
            proxy->peers[p].guarded |= (uint32_t)proxy->peers[p].asks << slot;
        }
    return true;
}

static int first_proxied(const struct stepaf_proxy *proxy)
{
    int p = 0;

    while (!proxy->peers[p].proxied)
        p++;
    return p;
}

/* Start the proxy plan for what the stream has written. */
static unsigned start(struct stepaf_proxy *proxy)
{
    struct stepaf_stream *stream = proxy->stream;
    stepaf_request_h request;

    /* A slot is free once the peers have given back the receive buffers, which may be later than
     * their answers: until then the tensors stay where they are. */
    if (!proxy->proxy_plan || !stepaf_plan_slot_free(proxy->proxy_plan) || !gather(proxy))
        return 0;
    stepaf_start_params_t params = {.push = proxy->push,
                                    .n_push = (int)(stream->plan->ctx->n_peers * stream->n_out)};
    if (stepaf_plan_start(proxy->proxy_plan, proxy->as_planned ? NULL : &params, &request))
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, first_proxied(proxy));
    proxy->n_started++;
    return 1;
}

unsigned stepaf_proxy_land(struct stepaf_proxy *proxy)
{
    struct stepaf_stream *stream = proxy->stream;
    uint32_t n = stream->n_in, depth = stream->plan->depth;
    unsigned done = 0;

    for (uint32_t p = 0; proxy->proxy_plan && p < stream->plan->ctx->n_peers; p++) {
        struct stepaf_proxy_peer *peer = &proxy->peers[p];
        while (peer->proxied && peer->n_in < proxy->n_started) {
            uint32_t slot = (uint32_t)(peer->n_in % depth);
            const struct stepaf_op *op = &proxy->proxy_plan->ops[slot];
            if (op->op_peers[p].state == STEPAF_OP_PEER_CANCELED)
                stepaf_stream_fail(stream, STEPAF_ERR_CANCELED, (int)p);
            if (op->seq != (uint32_t)peer->n_in || op->op_peers[p].state != STEPAF_OP_PEER_ANSWERED)
                break;
            for (uint32_t i = 0; i < n; i++)
                stamp_head(&proxy->in[p * n + i], slot, op->pull_bytes[p * n + i],
                           stamp_of(stream, peer->n_in));
            peer->n_in++;
            done++;
        }
    }
    return done;
}

/* ---- FFN ---- */

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

/* The peer may begin with any slot: kernels look where it does. Written is only what changes, as it does
 * in commits: at other times a thread may be enqueueing. */
static void turn_lanes(struct stepaf_proxy *proxy, uint32_t p)
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
        turn_lanes(proxy, p);
        return;
    }
}

void stepaf_proxy_unbind(struct stepaf_remote_plan *remote)
{
    if (!remote->proxy)
        return;
    remote->proxy->peers[remote->peer->index].remote = NULL;
    remote->proxy = NULL;
    remote->unbound = true;
}

/* Where a stream plan in force has @a key written in its place by a peer; NULL: none has. */
static uint8_t *in_place_of(const struct stepaf_key *key, const struct stepaf_peer *peer)
{
    const struct stepaf_list *all = &peer->ctx->gpu.proxies;

    for (struct stepaf_list *node = all->next; node != all; node = node->next) {
        const struct stepaf_proxy *proxy = stepaf_container_of(node, struct stepaf_proxy, node);
        const struct stepaf_stream *stream = proxy->stream;
        for (uint32_t i = 0; i < stream->n_in; i++) {
            const struct stepaf_proxy_buf *lane = &proxy->in[peer->index * stream->n_in + i];
            if (stream->plan->push[i].key == key && lane->in_place)
                return lane->data;
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

void stepaf_proxy_arrived(struct stepaf_batch_obj *batch)
{
    struct stepaf_proxy *proxy = batch->remote->proxy;
    uint32_t p = batch->remote->peer->index;

    if (!proxy || proxy->over) {
        stepaf_batch_finish(batch);
        return;
    }
    struct stepaf_stream *stream = proxy->stream;
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    uint32_t slot = (uint32_t)(peer->n_in % stream->plan->depth);
    if (batch->seq != peer->first + (uint32_t)peer->n_in) {
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, (int)p);
        return; /* and progress gives it back, with all others */
    }
    for (uint32_t i = 0; i < stream->n_in; i++)
        stamp_head(&proxy->in[p * stream->n_in + i], slot, batch->bytes[i],
                   stamp_of(stream, peer->n_in));
    peer->n_in++;
}

/* Answer the next batch of a peer, if the stream has written the answers. */
static bool answer(struct stepaf_proxy *proxy, uint32_t p)
{
    struct stepaf_stream *stream = proxy->stream;
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    uint32_t depth = stream->plan->depth, slot = (uint32_t)(peer->n_out % depth);
    stepaf_tensor_t tensors[STEPAF_MAX_TENSORS];
    bool guarded;

    if (!peer->remote || peer->n_out == peer->n_in ||
        !take_all_told(proxy, p, peer->n_out, tensors, &guarded))
        return false;
    clear_stamps(stream, &proxy->out[p * stream->n_out], peer->n_out);
    struct stepaf_batch_obj *batch = &peer->remote->batches[(slot + peer->turn) % depth];
    for (uint32_t i = 0; i < stream->n_out; i++)
        tensors[i].key = peer->remote->pull[i].key_id;
    peer->guarded |= (uint32_t)guarded << slot;
    stepaf_status_t status =
        stepaf_batch_respond(batch, tensors, stream->n_out, STEPAF_RESPOND_RELEASE);
    if (status)
        stepaf_batch_finish(batch);
    if (status && status != STEPAF_ERR_CANCELED) /* which is the peer's own affair */
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, (int)p);
    peer->n_out++;
    return true;
}

void stepaf_proxy_finish_batches(struct stepaf_proxy *proxy)
{
    for (uint32_t p = 0; p < proxy->stream->plan->ctx->n_peers; p++) {
        struct stepaf_remote_plan *remote = proxy->peers[p].remote;
        for (uint8_t s = 0; remote && s < remote->depth; s++)
            if (remote->batches[s].state == STEPAF_BATCH_HELD)
                stepaf_batch_finish(&remote->batches[s]);
    }
}

/* ---- both ---- */

/* What carries the tensors of a slot to a peer; NULL: nothing any more. */
static const struct stepaf_post *post_of(const struct stepaf_proxy *proxy, uint32_t p,
                                         uint32_t slot)
{
    const struct stepaf_proxy_peer *peer = &proxy->peers[p];
    const struct stepaf_plan_obj *plan = proxy->stream->plan;

    if (stepaf_is_attention(plan->ctx))
        return proxy->proxy_plan ? &proxy->proxy_plan->ops[slot].op_peers[p].post : NULL;
    return peer->remote ? &peer->remote->batches[(slot + peer->turn) % plan->depth].answer : NULL;
}

/* Tell the stream which sources have been read. */
static unsigned tell_sent(struct stepaf_proxy *proxy, uint32_t p)
{
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    unsigned n = 0;

    for (uint32_t left = peer->guarded; left; left &= left - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(left);
        const struct stepaf_post *post = post_of(proxy, p, slot);
        if (post && stepaf_post_in_flight(post))
            continue;
        stamp_head(&(struct stepaf_proxy_buf){.heads = peer->sent}, slot, 0, STEPAF_TOLD);
        peer->guarded &= ~(1u << slot);
        n++;
    }
    return n;
}

/* Whether the stream has failed, as the host or the GPU has noticed. */
static bool stream_has_failed(const struct stepaf_stream *stream)
{
    return stream->failure || __atomic_load_n(&stream->watch->fault, __ATOMIC_ACQUIRE);
}

static unsigned progress_proxy(struct stepaf_proxy *proxy)
{
    struct stepaf_stream *stream = proxy->stream;
    unsigned n = 0;

    if (proxy->over)
        return 0;
    if (__builtin_expect(stream_has_failed(stream), 0)) {
        proxy->over = true;
        stepaf_proxy_finish_batches(proxy);
        return 1;
    }
    if (stepaf_is_attention(stream->plan->ctx))
        n = stepaf_proxy_land(proxy) + start(proxy);
    for (uint32_t p = 0; p < stream->plan->ctx->n_peers; p++) {
        while (!stepaf_is_attention(stream->plan->ctx) && answer(proxy, p))
            n++;
        if (proxy->peers[p].guarded)
            n += tell_sent(proxy, p);
    }
    return n;
}

unsigned stepaf_proxies_progress(struct stepaf_ctx *ctx)
{
    unsigned n = 0;

    if (ctx->gpu.proxies_still)
        return 0;
    for (struct stepaf_list *node = ctx->gpu.proxies.next, *next; node != &ctx->gpu.proxies;
         node = next) {
        next = node->next;
        n += progress_proxy(stepaf_container_of(node, struct stepaf_proxy, node));
    }
    return n;
}
