/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies in use: move tensors between what streams stamp and what the core transfers. Nothing here
 * calls the GPU's driver. */
#include "gpu/proxy.h"
#include "core/batch.h"
#include "core/batch_end.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/start.h"

bool stepaf_peer_proxied(const struct stepaf_ctx *ctx, uint32_t p)
{
    const struct stepaf_rank *own = &ctx->job.ranks[ctx->job.boot.rank];
    const struct stepaf_rank *its = &ctx->job.ranks[ctx->peers[p].who.world_rank];

    return own->proxies || its->proxies || own->node_id != its->node_id;
}

/* ---- attention ---- */

/* Return whether a tensor is as the proxy plan has it. */
static bool is_planned(const struct stepaf_proxy *proxy, const stepaf_tensor_t *tensor, uint32_t i)
{
    const struct stepaf_push *push = &proxy->proxy_plan->push[i];

    return tensor->data == push->data && tensor->bytes == push->bytes;
}

/* Gather what the next operation pushes to the proxied peers, and send the parts that go ahead.
 * Returns false if not all of it is there. */
static bool gather(struct stepaf_proxy *proxy, unsigned *n_sent_p)
{
    const struct stepaf_stream *stream = proxy->stream;
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->n_out, slot = (uint32_t)(proxy->n_started % plan->depth);
    bool all = true, here;

    proxy->as_planned = !proxy->ahead;
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        stepaf_tensor_t *push = &proxy->push[p * n];
        if (!proxy->peers[p].proxied)
            continue; /* a peer that is not proxied: only keys, set from the beginning */
        if (!stepaf_proxy_take_told(proxy, p, proxy->n_started, push, &proxy->peers[p].asks))
            return false;
        for (uint32_t i = 0; i < n; i++)
            proxy->as_planned = proxy->as_planned && is_planned(proxy, &push[i], i);
    }
    for (uint32_t p = 0; proxy->ahead && p < plan->ctx->n_peers; p++)
        if (proxy->peers[p].proxied) {
            *n_sent_p += stepaf_proxy_send_ahead(proxy, p, &proxy->push[p * n], &here);
            all = all && here;
        }
    for (uint32_t p = 0; all && p < plan->ctx->n_peers; p++)
        if (proxy->peers[p].proxied) {
            stepaf_proxy_clear_marks(proxy, p, proxy->n_started);
            proxy->peers[p].guarded |= (uint32_t)proxy->peers[p].asks << slot;
        }
    return all;
}

/* End the plan: what the peer has sent has other sizes than the peer announced ahead. */
static void fail_sizes(struct stepaf_stream *stream, uint32_t p)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    stepaf_phase_t phase = stepaf_is_attention(ctx) ? STEPAF_PHASE_RESPONSE : STEPAF_PHASE_RECV;
    stepaf_status_t status =
        stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, phase, ctx->peers[p].who,
                              STEPAF_WHO_FORMAT " has sent other sizes than it had announced",
                              STEPAF_WHO_ARGS(ctx->peers[p].who));

    stepaf_stream_fail_as(stream, status, (int)p);
}

/* Start the proxy plan for what the stream has written. */
static unsigned start(struct stepaf_proxy *proxy)
{
    struct stepaf_stream *stream = proxy->stream;
    stepaf_request_h request;
    unsigned n_sent = 0;

    /* A slot is free once the peers have given back the receive buffers, which may be later than
     * their answers. Until then the tensors stay where they are. */
    if (!proxy->proxy_plan || !stepaf_plan_slot_free(proxy->proxy_plan) || !gather(proxy, &n_sent))
        return n_sent;
    stepaf_start_params_t params = {.push = proxy->push,
                                    .n_push = (int)(stream->plan->ctx->n_peers * stream->n_out)};
    stepaf_status_t status =
        stepaf_plan_start(proxy->proxy_plan, proxy->as_planned ? NULL : &params, &request);
    if (status)
        stepaf_stream_fail_as(stream, status, -1);
    proxy->n_started++;
    for (uint32_t p = 0; proxy->ahead && p < stream->plan->ctx->n_peers; p++)
        stepaf_proxy_forget_ahead(proxy, p);
    return n_sent + 1;
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
            if (!stepaf_proxy_take_in(proxy, p, &op->pull_bytes[p * n])) {
                fail_sizes(stream, p);
                return done;
            }
            done++;
        }
    }
    return done;
}

/* ---- FFN ---- */

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
    if (batch->seq != peer->first + (uint32_t)peer->n_in) {
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, (int)p);
        return; /* progress gives it back, with all others */
    }
    if (!stepaf_proxy_take_in(proxy, p, batch->bytes))
        fail_sizes(stream, p);
}

/* Answer the next batch of a peer if the stream has written the answers; otherwise send the parts
 * that are there. */
static bool answer(struct stepaf_proxy *proxy, uint32_t p, unsigned *n_p)
{
    struct stepaf_stream *stream = proxy->stream;
    struct stepaf_proxy_peer *peer = &proxy->peers[p];
    uint32_t depth = stream->plan->depth, slot = (uint32_t)(peer->n_out % depth);
    stepaf_tensor_t tensors[STEPAF_MAX_TENSORS];
    bool guarded, all;

    if (!peer->remote || peer->n_out == peer->n_in ||
        !stepaf_proxy_take_told(proxy, p, peer->n_out, tensors, &guarded))
        return false;
    *n_p += stepaf_proxy_send_ahead(proxy, p, tensors, &all);
    if (!all)
        return false;
    stepaf_proxy_clear_marks(proxy, p, peer->n_out);
    struct stepaf_batch_obj *batch = &peer->remote->batches[(slot + peer->turn) % depth];
    for (uint32_t i = 0; i < stream->n_out; i++)
        tensors[i].key = peer->remote->pull[i].key_id;
    peer->guarded |= (uint32_t)guarded << slot;
    stepaf_status_t status =
        stepaf_batch_respond(batch, tensors, stream->n_out, STEPAF_RESPOND_RELEASE);
    if (status)
        stepaf_batch_finish(batch);
    if (status == STEPAF_ERR_SIZE) /* a stream plan's sizes are checked at the commit */
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, (int)p);
    else if (status && status != STEPAF_ERR_CANCELED) /* a cancellation concerns the peer alone */
        stepaf_stream_fail_as(stream, status, -1);
    peer->n_out++;
    stepaf_proxy_forget_ahead(proxy, p);
    ++*n_p;
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

/* Return the post that sends the tensors of a slot to a peer; NULL if no plan has one any more. */
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
        stepaf_proxy_stamp_head(
            &(struct stepaf_proxy_buf){.heads = peer->sent, .head_pitch = STEPAF_HEAD_BYTES}, slot,
            0, STEPAF_TOLD);
        peer->guarded &= ~(1u << slot);
        n++;
    }
    return n;
}

/* Return whether the stream has failed, as noticed by the host or the GPU. */
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
        while (!stepaf_is_attention(stream->plan->ctx) && answer(proxy, p, &n))
            ;
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
