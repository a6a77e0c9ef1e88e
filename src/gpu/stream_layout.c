/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans: choose the protocol of each incoming tensor, and lay out the mailboxes. */
#include <stdlib.h>

#include "base/log.h"
#include "base/round.h"
#include "core/plan.h"
#include "core/region.h"
#include "gpu/proxy.h"
#include "gpu/stream_any.h"
#include "gpu/stream_some.h"
#include "gpu/times.h"

enum { ALIGN = 512 /* of mailboxes */ };

/* Return whether another plan receives a key in the same buffers. Its peers know nothing of this
 * plan's peers: data that they write in place may arrive while the batch of this plan is still
 * read. */
static bool is_shared(const struct stepaf_plan_obj *plan, const struct stepaf_key *key)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *other = stepaf_table_get(&ctx->tables.plans, i);
        for (uint32_t k = 0; other && other != plan && other->stream && k < other->n_push; k++)
            if (other->push[k].key == key)
                return true;
    }
    return false;
}

/* Choose the protocol of an incoming tensor. The receiver decides. */
static enum stepaf_proto choose(const struct stepaf_ctx *ctx, const struct stepaf_mailbox *mailbox,
                                bool never_in_place)
{
    bool copied = ctx->env.cuda_engine == STEPAF_ENV_CUDA_ENGINE_ce;

    if (mailbox->bytes <= STEPAF_HEAD_DATA)
        return STEPAF_PROTO_INLINE;
    if (mailbox->in_host)
        return copied ? STEPAF_PROTO_BCOPY : STEPAF_PROTO_CHUNKS;
    if (mailbox->bytes <= STEPAF_PIECES_MAX && !copied)
        return STEPAF_PROTO_LL;
    bool is_mapped = mailbox->region && mailbox->region->mem.kind == STEPAF_MEM_CUDA &&
                     mailbox->region->shareable;
    return is_mapped && !never_in_place ? STEPAF_PROTO_ZCOPY : STEPAF_PROTO_BCOPY;
}

static uint64_t mailbox_stride(const struct stepaf_mailbox *mailbox)
{
    uint64_t after = 0;

    if (mailbox->proxied)
        return 0;
    if (mailbox->proto == STEPAF_PROTO_LL)
        after = stepaf_piece_groups(mailbox->bytes) * STEPAF_GROUP_BYTES;
    else if (mailbox->proto == STEPAF_PROTO_BCOPY)
        after = mailbox->bytes;
    else if (mailbox->proto == STEPAF_PROTO_CHUNKS)
        after = stepaf_chunks_room(mailbox->bytes);
    return stepaf_round_up(STEPAF_HEAD_BYTES + after, ALIGN);
}

/* Set the destination of tensor @a i of peer @a p. */
static stepaf_status_t lay_one(struct stepaf_stream *stream, uint32_t p, uint32_t i,
                               struct stepaf_mailbox *mailbox)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    bool attention = stepaf_is_attention(ctx);
    stepaf_status_t status;
    const struct stepaf_key *key =
        attention ? plan->pull[p * plan->n_pull + i].key : plan->push[i].key;

    mailbox->bytes = attention ? plan->pull[p * plan->n_pull + i].bytes : key->max_bytes;
    mailbox->pitch = key->max_bytes;
    mailbox->data = attention ? plan->pull[p * plan->n_pull + i].data : stepaf_key_slice(key, p);
    mailbox->region = NULL;
    mailbox->copied = false;
    if (mailbox->bytes) {
        mailbox->region = stepaf_region_find(ctx, mailbox->data, mailbox->bytes);
        if (!mailbox->region)
            return stepaf_error_set_peer(
                STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
                "key %llu has no registered memory for " STEPAF_WHO_FORMAT,
                (unsigned long long)key->id, STEPAF_WHO_ARGS(ctx->peers[p].who));
    }
    status = mailbox->region ? stepaf_region_pin(ctx, mailbox->region) : STEPAF_OK;
    mailbox->proxied = stepaf_peer_proxied(ctx, p);
    mailbox->in_host = stepaf_stream_in_host(ctx, p);
    if (mailbox->proxied && stream->any)
        return stepaf_error_set_peer(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
                                     "stream plan %u takes any batch, but " STEPAF_WHO_FORMAT
                                     " is proxied, which such plans do not support",
                                     plan->index, STEPAF_WHO_ARGS(ctx->peers[p].who));
    if (mailbox->proxied && stepaf_some_is_asked(stream))
        return stepaf_error_set_peer(
            STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
            "stream plan %u does not wait for all answers, but " STEPAF_WHO_FORMAT
            " is proxied, which such plans do not support",
            plan->index, STEPAF_WHO_ARGS(ctx->peers[p].who));
    /* Data that may arrive late goes to a mailbox. */
    if (!mailbox->proxied)
        mailbox->proto = (uint8_t)choose(
            ctx, mailbox, attention ? stepaf_some_is_asked(stream) : is_shared(plan, key));
    else if (attention ? stepaf_proxy_is_in_place(ctx, p, mailbox->region)
                       : stepaf_proxy_receives_in_place(ctx, p, key))
        mailbox->proto = STEPAF_PROTO_ZCOPY;
    else
        mailbox->proto = (uint8_t)(stepaf_proxy_has_parts(stream, p, false) ? STEPAF_PROTO_PARTS
                                                                            : STEPAF_PROTO_BCOPY);
    return status;
}

/* Lay out a plan's mailboxes behind those of other plans. */
static stepaf_status_t lay_out_mailboxes(struct stepaf_stream *stream,
                                         struct stepaf_streams *streams)
{
    uint32_t n_peers = stream->plan->ctx->n_peers;

    stream->launches.counts = stream->any != NULL;
    for (uint32_t at = 0; at < n_peers * stream->n_in; at++) {
        struct stepaf_mailbox *mailbox = &stream->mailboxes[at];
        stepaf_status_t status = lay_one(stream, at / stream->n_in, at % stream->n_in, mailbox);
        if (status)
            return status;
        uint64_t stride = mailbox_stride(mailbox);
        if (stride > UINT32_MAX)
            return stepaf_error_set(
                STEPAF_ERR_LIMIT, STEPAF_PHASE_COMMIT,
                "a tensor of %u bytes is too large to be kept in a mailbox, and "
                "its memory cannot be shared between processes, or plans share "
                "it",
                mailbox->bytes);
        uint64_t *end =
            mailbox->in_host ? &streams->host[at / stream->n_in].bytes : &streams->mailbox_bytes;
        mailbox->stride = (uint32_t)stride;
        mailbox->offset = *end;
        *end += stride * stream->plan->depth;
        stream->launches.counts =
            stream->launches.counts || stepaf_proto_has_chunks(mailbox->proto);
    }
    return STEPAF_OK;
}

/* Allocate a ring for each plan that takes timestamps. On failure the job runs without
 * timestamps. */
static void allocate_rings(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    uint64_t n = 0;

    for (struct stepaf_stream *stream = NULL; (stream = stepaf_stream_after(ctx, stream));)
        n += stepaf_times_wanted(stream);
    if (n && stepaf_gpu_alloc_host(ctx->gpu.device, n * stepaf_times_ring_bytes(ctx),
                                   (void **)&streams->times.rings))
        stepaf_log_warn("no timestamps are taken on streams: %s", stepaf_last_error()->text);
}

/* Allocate the memory for what was laid out. */
static stepaf_status_t allocate_streams(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    stepaf_status_t status;

    streams->mailbox_bytes = streams->mailbox_bytes ? streams->mailbox_bytes : ALIGN;
    streams->failed = calloc(ctx->tables.plans.n, sizeof(*streams->failed));
    if (!streams->failed)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    status =
        stepaf_gpu_alloc(ctx->gpu.device, streams->mailbox_bytes, (void **)&streams->mailboxes);
    if (!status)
        status = stepaf_streams_make_host(ctx, streams);
    if (!status)
        status =
            stepaf_gpu_alloc(ctx->gpu.device, streams->control_bytes, (void **)&streams->control);
    if (!status)
        status = stepaf_gpu_alloc_host(ctx->gpu.device,
                                       ctx->tables.plans.n * sizeof(streams->watches[0]),
                                       (void **)&streams->watches);
    if (!status)
        streams->n_watches = ctx->tables.plans.n;
    if (!status)
        allocate_rings(ctx, streams);
    return status;
}

stepaf_status_t stepaf_streams_prepare(struct stepaf_ctx *ctx)
{
    bool any = stepaf_stream_after(ctx, NULL) != NULL;
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_streams *streams;

    ctx->gpu.asks = false;
    if (!any && !ctx->gpu.streams)
        return STEPAF_OK;
    status = stepaf_proxies_link(ctx);
    if (status)
        return status;
    streams = calloc(1, sizeof(*streams));
    if (streams)
        streams->host = calloc(ctx->n_peers + 1, sizeof(*streams->host));
    if (!streams || !streams->host)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan || !plan->stream)
            continue;
        status = lay_out_mailboxes(plan->stream, streams);
        streams->control_bytes += stepaf_stream_control_bytes(plan->stream);
    }
    if (status) {
        if (streams)
            free(streams->host);
        free(streams);
        return status;
    }
    streams->before = ctx->gpu.streams;
    ctx->gpu.streams = streams;
    status = stepaf_proxies_prepare(ctx);
    if (!status && any)
        status = stepaf_streams_prepare_reach(ctx);
    if (!status && any)
        status = allocate_streams(ctx, streams);
    return status || !any ? status : stepaf_streams_advertise(ctx);
}
