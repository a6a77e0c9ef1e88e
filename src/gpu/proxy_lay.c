/* SPDX-License-Identifier: Apache-2.0 */
/* Lay out the buffers for tensors of proxied peers: first as offsets in memory of each kind, then
 * as addresses. */
#include "base/round.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/plan.h"
#include "core/region.h"
#include "gpu/proxy.h"

enum { ALIGN = 64 };

uint64_t stepaf_proxy_take_room(uint64_t *room, uint64_t bytes)
{
    uint64_t at = *room;

    *room += stepaf_round_up(bytes, ALIGN);
    return at;
}

static void *offset(uint64_t at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

static void place(struct stepaf_proxy_buf *buf, const struct stepaf_region *region, uint8_t *heads)
{
    if (!buf->in_place)
        buf->data = region->mem.base + (uintptr_t)buf->data;
    buf->heads = heads + (uintptr_t)buf->heads;
}

/* out_bytes: maximum size of tensor @a i of peer @a p. in_key: its key, for the stride from slot to
 * slot of its destination. */
static uint32_t out_bytes(const struct stepaf_stream *stream, uint32_t p, uint32_t i)
{
    const struct stepaf_plan_obj *plan = stream->plan;

    return stepaf_is_attention(plan->ctx) ? plan->push[i].bytes
                                          : plan->pull[p * plan->n_pull + i].bytes;
}

static const struct stepaf_key *in_key(const struct stepaf_stream *stream, uint32_t p, uint32_t i)
{
    const struct stepaf_plan_obj *plan = stream->plan;

    return stepaf_is_attention(plan->ctx) ? plan->pull[p * plan->n_pull + i].key
                                          : plan->push[i].key;
}

static void *take_heads(const struct stepaf_stream *stream, uint32_t pitch,
                        struct stepaf_proxy_room *room)
{
    return offset(stepaf_proxy_take_room(&room->heads, (uint64_t)stream->plan->depth * pitch));
}

/* Lay out heads, with flags of parts if there are parts: @a tells bytes from flag to flag. */
static void lay_heads(const struct stepaf_stream *stream, struct stepaf_proxy_buf *buf,
                      uint32_t most, uint32_t tells, struct stepaf_proxy_room *room)
{
    uint64_t flags = buf->part ? (uint64_t)stepaf_parts(most, buf->part) * tells : 0;

    buf->head_pitch = STEPAF_HEAD_BYTES + (uint32_t)stepaf_round_up(flags, STEPAF_HEAD_BYTES);
    buf->heads = take_heads(stream, buf->head_pitch, room);
}

/* FFN: return where peer @a p's slice of a key's receive buffer begins. */
static uint64_t slice_of(const struct stepaf_ctx *ctx, const struct stepaf_key *key, uint32_t p)
{
    const struct stepaf_recv_buf *recv_buf = key->proxy_recv;
    uint32_t i = 0;

    while (recv_buf->ranks[i] != (uint32_t)ctx->peers[p].who.rank)
        i++;
    return recv_buf->offset + i * recv_buf->stride;
}

/* FFN ranks' receive buffers belong to keys. */
static void lay_in(struct stepaf_proxy *proxy, uint32_t p, uint32_t i,
                   struct stepaf_proxy_room *room)
{
    const struct stepaf_stream *stream = proxy->stream;
    struct stepaf_proxy_buf *buf = &proxy->in[p * stream->n_in + i];
    const struct stepaf_mailbox *mailbox = &stream->mailboxes[p * stream->n_in + i];
    const struct stepaf_key *key = in_key(stream, p, i);
    uint64_t bytes = (uint64_t)stream->plan->depth * key->max_bytes;

    buf->pitch = key->max_bytes;
    buf->part = mailbox->proto == STEPAF_PROTO_PARTS ? stepaf_part_bytes(mailbox->bytes) : 0;
    lay_heads(stream, buf, mailbox->bytes, STEPAF_PART_TELLS, room);
    buf->in_place = mailbox->proto == STEPAF_PROTO_ZCOPY;
    room->copied_in = room->copied_in || !buf->in_place;
    if (buf->in_place)
        buf->data = mailbox->data;
    else if (stepaf_is_attention(stream->plan->ctx))
        buf->data = offset(stepaf_proxy_take_room(&room->proxy_recvs, bytes));
    else
        buf->data = offset(slice_of(stream->plan->ctx, key, p));
}

static void lay_out(struct stepaf_proxy *proxy, uint32_t p, uint32_t i,
                    struct stepaf_proxy_room *room)
{
    const struct stepaf_stream *stream = proxy->stream;
    const struct stepaf_plan_obj *plan = stream->plan;
    struct stepaf_proxy_buf *buf = &proxy->out[p * stream->n_out + i];
    const struct stepaf_pull *pull = &plan->pull[p * plan->n_pull + i];
    bool attention = stepaf_is_attention(plan->ctx);
    uint64_t pitch = (out_bytes(stream, p, i) + (uint64_t)ALIGN - 1) / ALIGN * ALIGN;

    buf->in_place =
        stepaf_proxy_is_in_place(plan->ctx, p, attention ? plan->push[i].region : pull->region);
    if (!buf->in_place && stepaf_proxy_has_parts(stream, p, true))
        buf->part = stepaf_part_bytes(out_bytes(stream, p, i));
    lay_heads(stream, buf, out_bytes(stream, p, i), STEPAF_PART_TOLD, room);
    if (buf->in_place) {
        buf->data = attention ? plan->push[i].data : pull->data;
        buf->pitch = attention ? 0 : pull->key->max_bytes;
        if (!proxy->peers[p].sent)
            proxy->peers[p].sent = take_heads(stream, STEPAF_HEAD_BYTES, room);
        return;
    }
    room->copied_out = true;
    buf->pitch = pitch > UINT32_MAX ? out_bytes(stream, p, i) : (uint32_t)pitch;
    buf->data = offset(stepaf_proxy_take_room(&room->proxy_sends, (uint64_t)plan->depth * pitch));
}

void stepaf_proxy_lay(struct stepaf_proxy *proxy, uint32_t p, struct stepaf_proxy_room *room)
{
    for (uint32_t i = 0; i < proxy->stream->n_in; i++)
        lay_in(proxy, p, i, room);
    for (uint32_t i = 0; i < proxy->stream->n_out; i++)
        lay_out(proxy, p, i, room);
}

void stepaf_proxy_place(struct stepaf_proxy *proxy, const struct stepaf_streams *streams)
{
    const struct stepaf_stream *stream = proxy->stream;

    for (uint32_t at = 0; at < stream->plan->ctx->n_peers * stream->n_in; at++)
        if (proxy->peers[at / stream->n_in].proxied)
            place(&proxy->in[at], streams->proxy_recv, streams->heads);
    for (uint32_t at = 0; at < stream->plan->ctx->n_peers * stream->n_out; at++)
        if (proxy->peers[at / stream->n_out].proxied)
            place(&proxy->out[at], streams->proxy_send, streams->heads);
    for (uint32_t p = 0; p < stream->plan->ctx->n_peers; p++)
        if (proxy->peers[p].sent)
            proxy->peers[p].sent = streams->heads + (uintptr_t)proxy->peers[p].sent;
}

void stepaf_proxy_dsts(const struct stepaf_streams *streams, const struct stepaf_stream *stream,
                       uint32_t p, struct stepaf_stream_dst *dsts)
{
    const struct stepaf_proxy *proxy = streams->proxies[stream->plan->index];

    for (uint32_t i = 0; i < stream->n_out; i++) {
        const struct stepaf_proxy_buf *buf = &proxy->out[p * stream->n_out + i];
        dsts[i] = (struct stepaf_stream_dst){
            .mailbox = buf->heads,
            .place = buf->in_place ? NULL : buf->data,
            .allocation = buf->in_place ? NULL : streams->proxy_send->mem.base,
            .stride = buf->head_pitch,
            .pitch = buf->pitch,
            .bytes = out_bytes(stream, p, i),
            .proto = buf->in_place ? STEPAF_PROTO_RDMA
                     : buf->part   ? STEPAF_PROTO_PARTS
                                   : STEPAF_PROTO_BCOPY,
        };
    }
}
