/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of peers about parts of tensors that have landed. They are input: checked before the
 * stream is told. */
#include "core/batch.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "gpu/proxy.h"

/* Attention: return the stream plan that waits for this part of an answer next. */
static struct stepaf_proxy *find_answer_taker(struct stepaf_peer *peer,
                                              const struct stepaf_msg *msg)
{
    struct stepaf_plan_obj *plan = stepaf_table_get(&peer->ctx->tables.plans, msg->plan);
    struct stepaf_proxy *proxy = plan ? plan->proxied.proxy : NULL;

    if (!proxy || proxy->over || !proxy->proxy_plan || msg->slot >= plan->depth)
        return NULL;
    (void)stepaf_proxy_land(proxy); /* what came before */
    const struct stepaf_op *op = &plan->ops[msg->slot];
    const struct stepaf_proxy_peer *its = &proxy->peers[peer->index];
    bool next = its->proxied && its->n_in < proxy->n_started && op->seq == msg->seq &&
                op->seq == (uint32_t)its->n_in &&
                op->op_peers[peer->index].state == STEPAF_OP_PEER_WAITING;
    return next ? proxy : NULL;
}

/* FFN: return the stream plan that waits for this part of a batch. */
static struct stepaf_proxy *find_batch_taker(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_remote_plan *remote =
        msg->plan < peer->n_remotes ? peer->remotes[msg->plan] : NULL;
    struct stepaf_proxy *proxy = remote ? remote->proxy : NULL;

    if (!proxy || proxy->over)
        return NULL;
    const struct stepaf_proxy_peer *its = &proxy->peers[peer->index];
    bool next = msg->seq == its->first + (uint32_t)its->n_in && msg->seq == remote->seq &&
                msg->slot == remote->slot && !stepaf_batch_busy(&remote->batches[msg->slot]);
    return next ? proxy : NULL;
}

/* Return whether the message is possible, and has the same sizes as before. */
static bool makes_sense(const struct stepaf_proxy *proxy, uint32_t p, const struct stepaf_msg *msg)
{
    const struct stepaf_stream *stream = proxy->stream;
    uint32_t i = msg->word[STEPAF_MSG_TENSOR_INDEX];
    const uint32_t *sizes = &msg->word[STEPAF_MSG_SIZES];

    if (msg->n != stream->n_in || msg->n_words < (uint32_t)STEPAF_MSG_SIZES + msg->n ||
        i >= msg->n || msg->word[STEPAF_MSG_HERE] > sizes[i])
        return false;
    for (uint32_t k = 0; k < msg->n; k++)
        if (sizes[k] > stepaf_proxy_most(stream, p, k, false) ||
            (proxy->peers[p].told && sizes[k] != proxy->in[p * msg->n + k].bytes))
            return false;
    return true;
}

/* Tell the stream the sizes of all tensors that come by parts, as soon as something of one is
 * here. */
static void tell_sizes(struct stepaf_proxy *proxy, uint32_t p, uint32_t slot, const uint32_t *sizes)
{
    struct stepaf_proxy_buf *bufs = &proxy->in[p * proxy->stream->n_in];
    uint64_t stamp = stepaf_proxy_stamp(proxy->stream, proxy->peers[p].n_in);

    for (uint32_t i = 0; i < proxy->stream->n_in; i++) {
        bufs[i].bytes = sizes[i];
        if (bufs[i].part)
            stepaf_proxy_stamp_head(&bufs[i], slot, sizes[i], stamp);
    }
    proxy->peers[p].told = true;
}

void stepaf_proxy_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_proxy *proxy =
        stepaf_is_attention(ctx) ? find_answer_taker(peer, msg) : find_batch_taker(peer, msg);
    uint32_t p = peer->index;

    if (!proxy || ctx->gpu.proxies_still)
        return; /* no kernel waits for parts: the stream is told when all is here */
    if (!makes_sense(proxy, p, msg)) {
        ctx->counters.dropped_malformed++;
        return;
    }
    const struct stepaf_stream *stream = proxy->stream;
    uint32_t i = msg->word[STEPAF_MSG_TENSOR_INDEX];
    struct stepaf_proxy_buf *buf = &proxy->in[p * stream->n_in + i];
    uint32_t slot = (uint32_t)(proxy->peers[p].n_in % stream->plan->depth);

    if (!proxy->peers[p].told)
        tell_sizes(proxy, p, slot, &msg->word[STEPAF_MSG_SIZES]);
    uint32_t n = buf->part ? stepaf_parts(buf->bytes, buf->part) : 0;
    uint32_t end = buf->part ? msg->word[STEPAF_MSG_HERE] / buf->part : 0;
    if (end >= n) /* the last flag is for START or RESPONSE */
        end = n ? n - 1 : 0;
    stepaf_proxy_flag_parts(buf, slot, end, stepaf_proxy_stamp(stream, proxy->peers[p].n_in));
}
