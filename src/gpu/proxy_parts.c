/* SPDX-License-Identifier: Apache-2.0 */
/* Large tensors of proxied peers, part by part. While the GPU still writes a tensor to pinned
 * memory, what is there of it goes to the peer, ahead of the message that all is there. The stream
 * at the other end takes what has arrived while the rest is in flight. So both copies and the wire
 * work at the same time.
 *
 * A part on the wire is a post of its own: one write, and LANDED. It goes where the whole tensor
 * would go, so a peer without streams behaves as if nothing had arrived before START or RESPONSE.
 * These write what is left. Only they end an operation: the last flag of each tensor is set when
 * they have arrived. A stream that fails in between leaves nothing half sent on a link, and nothing
 * that could be taken for an operation. */
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "core/key.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "gpu/proxy.h"

uint32_t stepaf_proxy_most(const struct stepaf_stream *stream, uint32_t p, uint32_t i, bool out)
{
    const struct stepaf_plan_obj *plan = stream->plan;

    if (stepaf_is_attention(plan->ctx) == out)
        return out ? plan->push[i].bytes : plan->push[i].key->max_bytes;
    return plan->pull[p * plan->n_pull + i].bytes;
}

bool stepaf_proxy_has_parts(const struct stepaf_stream *stream, uint32_t p, bool out)
{
    const struct stepaf_env *env = &stream->plan->ctx->env;
    uint32_t n = out ? stream->n_out : stream->n_in, most = 0;

    for (uint32_t i = 0; i < n; i++)
        if (stepaf_proxy_most(stream, p, i, out) > most)
            most = stepaf_proxy_most(stream, p, i, out);
    return env->cuda_ahead_bytes && env->cuda_engine != STEPAF_ENV_CUDA_ENGINE_ce &&
           most > env->cuda_ahead_bytes;
}

static uint64_t *flag_of(const struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t part,
                         uint32_t tells)
{
    uint8_t *flags = buf->heads + (size_t)slot * buf->head_pitch + STEPAF_HEAD_BYTES;

    return (uint64_t *)(void *)(flags + (size_t)part * tells) + 1;
}

/* ---- out ---- */

/* Return how many bytes of a tensor are there, from its beginning. */
static uint32_t count_there(struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t bytes,
                            uint64_t stamp)
{
    uint32_t n = buf->part ? stepaf_parts(bytes, buf->part) : 0;

    while (buf->flagged < n && __atomic_load_n(flag_of(buf, slot, buf->flagged, STEPAF_PART_TOLD),
                                               __ATOMIC_ACQUIRE) == stamp)
        buf->flagged++;
    return buf->flagged == n ? bytes : buf->flagged * buf->part;
}

/* Set the destination of tensor @a i, and what the message says of the operation. */
static void address(const struct stepaf_proxy *proxy, uint32_t p, uint32_t i,
                    struct stepaf_proxy_post *post)
{
    const struct stepaf_ctx *ctx = proxy->stream->plan->ctx;
    const struct stepaf_proxy_peer *peer = &proxy->peers[p];
    uint32_t plan, slot, seq;

    if (stepaf_is_attention(ctx)) {
        const struct stepaf_push *push = &proxy->proxy_plan->push[i];
        plan = proxy->proxy_plan->index;
        slot = proxy->proxy_plan->next->slot;
        seq = proxy->proxy_plan->seq;
        post->xfer.dst = push->key->remote[p].rmem;
        post->xfer.dst_offset = stepaf_push_offset(push, p, slot);
    } else {
        const struct stepaf_remote_plan_pull *pull = &peer->remote->pull[i];
        plan = peer->remote->number;
        slot = (uint32_t)((peer->n_out + peer->turn) % peer->remote->depth);
        seq = peer->remote->batches[slot].seq;
        post->xfer.dst = pull->rmem;
        post->xfer.dst_offset = stepaf_pull_offset(pull, slot);
    }
    stepaf_msg_head(&post->post.msg, STEPAF_MSG_LANDED, 0, ctx->epoch, plan, slot,
                    proxy->stream->n_out);
    post->post.msg.seq = seq;
}

/* Send @a bytes of tensor @a i. */
static void send_ahead_part(struct stepaf_proxy *proxy, uint32_t p, uint32_t i,
                            const stepaf_tensor_t *tensors, uint32_t bytes)
{
    struct stepaf_ctx *ctx = proxy->stream->plan->ctx;
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    struct stepaf_proxy_post *its = peer->posts[peer->n_posted++ % STEPAF_PROXY_POSTS];
    uint32_t n = proxy->stream->n_out;

    *its = (struct stepaf_proxy_post){
        .post = {.link = ctx->peers[p].link, .xfer = &its->xfer, .n_xfer = 1}};
    address(proxy, p, i, its);
    stepaf_xfer_from(&its->xfer, its->post.link, ctx->gpu.streams->proxy_send, tensors[i].data);
    its->xfer.bytes = peer->ahead[i] + bytes;
    stepaf_xfer_skip(&its->xfer, its->xfer.dst_offset, peer->ahead[i]);
    peer->ahead[i] += bytes;
    its->post.msg.n_words = STEPAF_MSG_SIZES + n;
    its->post.msg.word[STEPAF_MSG_TENSOR_INDEX] = i;
    its->post.msg.word[STEPAF_MSG_HERE] = peer->ahead[i];
    for (uint32_t k = 0; k < n; k++)
        its->post.msg.word[STEPAF_MSG_SIZES + k] = (uint32_t)tensors[k].bytes;
    ctx->peers[p].bytes_sent += bytes;
    stepaf_core_post_one(ctx, &its->post);
}

static bool has_free_post(const struct stepaf_proxy_peer *peer)
{
    return !stepaf_post_in_flight(&peer->posts[peer->n_posted % STEPAF_PROXY_POSTS]->post);
}

unsigned stepaf_proxy_send_ahead(struct stepaf_proxy *proxy, uint32_t p,
                                 const stepaf_tensor_t *tensors, bool *all_p)
{
    const struct stepaf_stream *stream = proxy->stream;
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    uint64_t n = stepaf_is_attention(stream->plan->ctx) ? proxy->n_started : peer->n_out;
    uint32_t slot = (uint32_t)(n % stream->plan->depth);
    uint32_t each = (uint32_t)stream->plan->ctx->env.cuda_ahead_bytes;
    unsigned n_sent = 0;

    *all_p = true;
    for (uint32_t i = 0; peer->ahead && i < stream->n_out; i++) {
        struct stepaf_proxy_buf *buf = &proxy->out[p * stream->n_out + i];
        uint32_t bytes = (uint32_t)tensors[i].bytes;
        uint32_t there = count_there(buf, slot, bytes, stepaf_proxy_stamp(stream, n));
        for (; buf->part && there - peer->ahead[i] >= each && bytes - peer->ahead[i] > each &&
               has_free_post(peer);
             n_sent++)
            send_ahead_part(
                proxy, p, i, tensors,
                stepaf_proxy_next_part(there - peer->ahead[i], bytes - peer->ahead[i], each));
        *all_p = *all_p && there == bytes && (!buf->part || bytes - peer->ahead[i] <= each);
    }
    return n_sent;
}

void stepaf_proxy_forget_ahead(struct stepaf_proxy *proxy, uint32_t p)
{
    uint32_t n = proxy->stream->n_out;

    if (!proxy->peers[p].ahead)
        return;
    memset(proxy->peers[p].ahead, 0, n * sizeof(proxy->peers[p].ahead[0]));
    for (uint32_t i = 0; i < n; i++)
        proxy->out[p * n + i].flagged = 0;
}

/* ---- in ---- */

void stepaf_proxy_flag_parts(struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t end,
                             uint64_t stamp)
{
    for (; buf->flagged < end; buf->flagged++)
        __atomic_store_n(flag_of(buf, slot, buf->flagged, STEPAF_PART_TELLS), stamp,
                         __ATOMIC_RELEASE);
}

bool stepaf_proxy_take_in(struct stepaf_proxy *proxy, uint32_t p, const uint32_t *bytes)
{
    struct stepaf_stream *stream = proxy->stream;
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    uint64_t stamp = stepaf_proxy_stamp(stream, peer->n_in);
    uint32_t slot = (uint32_t)(peer->n_in % stream->plan->depth);

    for (uint32_t i = 0; i < stream->n_in; i++) {
        struct stepaf_proxy_buf *buf = &proxy->in[p * stream->n_in + i];
        if (peer->told && buf->bytes != bytes[i])
            return false;
        if (!peer->told || !buf->part)
            stepaf_proxy_stamp_head(buf, slot, bytes[i], stamp);
        if (buf->part)
            stepaf_proxy_flag_parts(buf, slot, stepaf_parts(bytes[i], buf->part), stamp);
        buf->flagged = 0;
    }
    peer->told = false;
    peer->n_in++;
    return true;
}

/* ---- set-up and end ---- */

stepaf_status_t stepaf_proxy_make_posts(struct stepaf_proxy *proxy)
{
    uint32_t n_peers = proxy->stream->plan->ctx->n_peers, n_out = proxy->stream->n_out;

    for (uint32_t p = 0; p < n_peers; p++) {
        struct stepaf_proxy_peer *peer = &proxy->peers[p];
        if (!peer->proxied || !stepaf_proxy_has_parts(proxy->stream, p, true))
            continue;
        if (!proxy->ahead)
            proxy->ahead = calloc((size_t)n_peers * n_out, sizeof(*proxy->ahead));
        if (!proxy->ahead)
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        for (int i = 0; i < STEPAF_PROXY_POSTS; i++) {
            peer->posts[i] = calloc(1, sizeof(*peer->posts[i]));
            if (!peer->posts[i])
                return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        }
        peer->ahead = &proxy->ahead[p * n_out];
    }
    return STEPAF_OK;
}

void stepaf_proxy_free_posts(struct stepaf_proxy *proxy)
{
    for (uint32_t p = 0; proxy->peers && p < proxy->n_peers; p++)
        for (int i = 0; i < STEPAF_PROXY_POSTS; i++) {
            struct stepaf_proxy_post *its = proxy->peers[p].posts[i];
            if (its && its->post.state == STEPAF_POST_QUEUED) {
                its->post.owned = true; /* the core frees it when it has left */
                continue;
            }
            if (its)
                stepaf_post_complete(&its->post);
            free(its);
        }
    free(proxy->ahead);
}
