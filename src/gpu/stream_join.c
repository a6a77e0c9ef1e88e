/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans at the commit: map what the peers have advertised, and make the kernel args. */
#include <stdlib.h>
#include <string.h>

#include "core/plan.h"
#include "gpu/proxy.h"
#include "gpu/stream_advert.h"
#include "gpu/stream_any.h"
#include "gpu/stream_some.h"
#include "gpu/times.h"
#include "wireup/connect.h"

static stepaf_status_t bad_mailbox(const struct stepaf_peer *peer)
{
    return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, peer->who,
                                 "a mailbox of " STEPAF_WHO_FORMAT " has an invalid address",
                                 STEPAF_WHO_ARGS(peer->who));
}

/* Map a piece of the peer's memory for writing @a bytes; *allocation_p: start of the allocation it
 * lies in. */
static stepaf_status_t map_peer_memory(struct stepaf_peer *peer,
                                       const struct stepaf_gpu_export *exported, uint64_t bytes,
                                       uint8_t **ptr_p, const void **allocation_p)
{
    struct stepaf_streams *streams = peer->ctx->gpu.streams;
    void **imports = realloc(streams->imports, (streams->n_imports + 1) * sizeof(*imports));
    struct stepaf_gpu_place place;
    stepaf_status_t status;
    void *ptr;

    if (!imports)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    streams->imports = imports;
    status = stepaf_stream_import(peer, exported, &ptr);
    if (status) {
        return stepaf_error_set_peer(
            STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, peer->who,
            "the GPU memory of " STEPAF_WHO_FORMAT
            " cannot be reached: %s; set STEPAF_CUDA_MAILBOX=host at that rank",
            STEPAF_WHO_ARGS(peer->who), stepaf_last_error()->text);
    }
    imports[streams->n_imports++] = ptr;
    stepaf_gpu_classify(ptr, &place);
    if (!place.is_device || !place.base || (uint8_t *)ptr < (uint8_t *)place.base ||
        bytes > place.bytes - (size_t)((uint8_t *)ptr - (uint8_t *)place.base))
        return bad_mailbox(peer);
    *ptr_p = ptr;
    *allocation_p = place.base;
    return STEPAF_OK;
}

/* The peer's mailboxes as mapped in this process. */
struct mailboxes {
    uint8_t *base;
    uint64_t bytes;
};

static stepaf_status_t map_mailboxes(struct stepaf_peer *peer,
                                     const struct stepaf_stream_advert *stream_advert,
                                     struct mailboxes *mailboxes_p)
{
    struct stepaf_ctx *ctx = peer->ctx;
    stepaf_status_t status;
    const void *allocation;
    int fd;

    if (stepaf_stream_advert_host(stream_advert, ctx->job.mesh.slot, &fd, &mailboxes_p->bytes)) {
        status = stepaf_streams_map_host(peer, fd, mailboxes_p->bytes);
        mailboxes_p->base = ctx->gpu.streams->host[peer->index].its;
        return status;
    }
    mailboxes_p->bytes = stream_advert->mailbox_bytes;
    return map_peer_memory(peer, &stream_advert->mailboxes, mailboxes_p->bytes, &mailboxes_p->base,
                           &allocation);
}

/* Return the bytes that the protocol needs at the receiver, after the head. */
static uint64_t mailbox_need(uint32_t proto, uint32_t bytes)
{
    if (proto == STEPAF_PROTO_LL)
        return STEPAF_HEAD_BYTES + stepaf_piece_groups(bytes) * STEPAF_GROUP_BYTES;
    if (proto == STEPAF_PROTO_CHUNKS)
        return STEPAF_HEAD_BYTES + stepaf_chunks_room(bytes);
    return STEPAF_HEAD_BYTES + (proto == STEPAF_PROTO_BCOPY ? bytes : 0);
}

static stepaf_status_t join_mailbox(struct stepaf_peer *peer, const struct mailboxes *mailboxes,
                                    const struct stepaf_stream_advert_mailbox *mailbox,
                                    uint32_t bytes, uint32_t depth, struct stepaf_stream_dst *dst_p)
{
    uint64_t span = (uint64_t)mailbox->stride * depth;
    stepaf_status_t status = STEPAF_OK;

    if (mailbox->proto >= STEPAF_PROTO_RDMA || mailbox->offset > mailboxes->bytes ||
        span > mailboxes->bytes - mailbox->offset || (mailbox->offset | mailbox->stride) % 128 ||
        mailbox_need(mailbox->proto, bytes) > mailbox->stride ||
        (mailbox->proto == STEPAF_PROTO_INLINE && bytes > STEPAF_HEAD_DATA) ||
        (depth > 1 && mailbox->pitch < bytes))
        return bad_mailbox(peer);
    *dst_p = (struct stepaf_stream_dst){
        .mailbox = mailboxes->base + mailbox->offset,
        .allocation = mailboxes->base, /* all mailboxes this rank writes to lie in one */
        .stride = mailbox->stride,
        .pitch = mailbox->pitch,
        .bytes = bytes,
        .proto = (uint8_t)mailbox->proto,
    };
    if (mailbox->proto == STEPAF_PROTO_ZCOPY)
        status =
            map_peer_memory(peer, &mailbox->place, (uint64_t)mailbox->pitch * (depth - 1) + bytes,
                            &dst_p->place, &dst_p->allocation);
    return status;
}

/* Return this rank's own plan as it was advertised. */
static const struct stepaf_stream_advert_plan *find_own(const struct stepaf_stream_advert *own,
                                                        const struct stepaf_stream *stream)
{
    for (uint32_t i = 0; i < own->n_plans; i++)
        if (own->plans[i].number == stream->plan->index)
            return &own->plans[i];
    return NULL;
}

/* Set the number by which both ends know the plan. */
static void set_number(struct stepaf_stream *stream, const struct stepaf_peer *peer,
                       uint32_t its_number)
{
    stream->times_numbers[peer->index] =
        (uint16_t)(stepaf_is_attention(peer->ctx) ? stream->plan->index : its_number);
}

/* Find the destinations of @a stream's tensors at one peer, and the protocols of the tensors that
 * come from there. */
static stepaf_status_t join_peer(struct stepaf_stream *stream, struct stepaf_peer *peer,
                                 const struct stepaf_stream_advert *own,
                                 const struct stepaf_stream_advert *stream_advert,
                                 const struct mailboxes *mailboxes, struct stepaf_stream_dst *dsts)
{
    struct stepaf_ctx *ctx = peer->ctx;
    const struct stepaf_stream_advert_plan *mine = find_own(own, stream);
    const struct stepaf_stream_advert_plan *its =
        mine ? stepaf_stream_advert_match(stream_advert, ctx->job.mesh.slot, own, mine, peer->index)
             : NULL;
    stepaf_status_t status = its ? STEPAF_OK : bad_mailbox(peer); /* checked before */

    if (its)
        set_number(stream, peer, its->number);

    for (uint32_t i = 0; i < stream->n_in && !status; i++) {
        struct stepaf_mailbox *mailbox = &stream->mailboxes[peer->index * stream->n_in + i];
        mailbox->planned = stepaf_stream_advert_size(its, stream->n_in, ctx->job.mesh.slot, i);
        mailbox->copied =
            stepaf_stream_is_copied(stream_advert->engine, mailbox->proto, mailbox->planned);
    }
    for (uint32_t i = 0; i < stream->n_out && !status; i++) {
        uint32_t room = stepaf_stream_advert_room(its, stream->n_out, ctx->job.mesh.slot, i);
        struct stepaf_stream_advert_mailbox mailbox;
        status = stepaf_stream_advert_mailbox(its, stream->n_out, ctx->job.mesh.slot, i, &mailbox)
                     ? join_mailbox(peer, mailboxes, &mailbox, room, stream->plan->depth, &dsts[i])
                     : bad_mailbox(peer);
    }
    return status;
}

/* Set a proxied peer's share of every plan's destinations, which are in this process. */
static void proxy_one(const struct stepaf_peer *peer, const struct stepaf_stream_advert *own,
                      const struct stepaf_stream_advert *its, struct stepaf_stream_dst **dsts)
{
    const struct stepaf_ctx *ctx = peer->ctx;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan || !plan->stream)
            continue;
        const struct stepaf_stream_advert_plan *mine = find_own(own, plan->stream);
        const struct stepaf_stream_advert_plan *its_plan =
            mine ? stepaf_stream_advert_match(its, ctx->job.mesh.slot, own, mine, peer->index)
                 : NULL;
        ctx->gpu.streams->proxies[i]->peers[peer->index].on_streams = its_plan != NULL;
        if (its_plan)
            set_number(plan->stream, peer, its_plan->number);
        stepaf_proxy_dsts(ctx->gpu.streams, plan->stream, peer->index,
                          &dsts[i][peer->index * plan->stream->n_out]);
    }
}

/* Check that this rank has prepared for the peer at its place: another process may have taken the
 * place since. */
static stepaf_status_t check_place(const struct stepaf_peer *peer, bool proxied)
{
    struct stepaf_stream *stream = NULL;

    while ((stream = stepaf_stream_after(peer->ctx, stream)))
        if (stream->mailboxes[peer->index * stream->n_in].proxied != proxied)
            return stepaf_error_set_peer(
                STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, peer->who,
                STEPAF_WHO_FORMAT
                " has moved to or from another host, since this rank has prepared its stream plans",
                STEPAF_WHO_ARGS(peer->who));
    return STEPAF_OK;
}

/* Join one peer: map its mailbox memory, then set its share of every plan's destinations. */
static stepaf_status_t join_one(struct stepaf_peer *peer, const struct stepaf_advert *its,
                                const struct stepaf_stream_advert *own,
                                struct stepaf_stream_dst **dsts)
{
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_stream_advert stream_advert;
    struct mailboxes mailboxes;
    stepaf_status_t status;

    bool proxied = stepaf_peer_proxied(ctx, peer->index);
    status = check_place(peer, proxied);
    if (!status)
        status =
            stepaf_stream_advert_read(its->streams, its->role, its->world_rank, &stream_advert);
    if (status)
        return status;
    if (proxied)
        proxy_one(peer, own, &stream_advert, dsts);
    else
        status = map_mailboxes(peer, &stream_advert, &mailboxes);
    for (uint32_t i = 0; i < ctx->tables.plans.n && !status && !proxied; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream)
            status = join_peer(plan->stream, peer, own, &stream_advert, &mailboxes,
                               &dsts[i][peer->index * plan->stream->n_out]);
    }
    stepaf_stream_advert_free(&stream_advert);
    return status;
}

/* Join a peer that may be lost: it keeps its numbers then, and nothing goes there. The failure of a
 * peer that the epoch can do without is ignored. */
static stepaf_status_t join_if_there(struct stepaf_peer *peer, const struct stepaf_advert *its,
                                     const struct stepaf_stream_advert *own,
                                     struct stepaf_stream_dst **dsts)
{
    if (peer->lost)
        return STEPAF_OK;
    stepaf_status_t status = join_one(peer, its, own, dsts);
    return status && stepaf_peer_may_lack(peer) ? STEPAF_OK : status;
}

/* Return the first peer that the epoch was to have, and that is lost already; -1 if there is
 * none. */
static int first_lost_already(const struct stepaf_ctx *ctx)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].lost && !ctx->peers[p].is_out)
            return (int)p;
    return -1;
}

/* Make a stream plan ready, from its first operation on. */
static void begin_stream(struct stepaf_stream *stream, const struct stepaf_stream_dst *dsts,
                         uint8_t *control)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    int lost = first_lost_already(ctx);

    stepaf_proxy_begin(stream);
    stream->watch = &ctx->gpu.streams->watches[stream->plan->index];
    stream->watch->abort = 0; /* losses of the last epoch may have set it */
    stream->watch->lost = 0;
    stepaf_stream_compile(stream, dsts, control);
    ctx->gpu.streams->failed[ctx->gpu.streams->n_failed++] = (uint32_t *)control;
    stream->n_sent = 0;
    stream->n_received = 0;
    stream->failure = STEPAF_OK;
    stream->failed_peer = -1;
    stream->why.status = STEPAF_OK;
    stream->epoch = ctx->epoch;
    if (lost >= 0 && !stepaf_some_goes_on(stream))
        stepaf_stream_fail(stream, STEPAF_ERR_PEER_LOST, lost);
}

/* Begin the plan's timestamps anew, in the next ring. */
static void begin_plan_times(struct stepaf_stream *stream, uint8_t *control)
{
    struct stepaf_streams *streams = stream->plan->ctx->gpu.streams;
    uint64_t each = stepaf_times_ring_bytes(stream->plan->ctx) / sizeof(struct stepaf_timestamp);

    stepaf_times_free(stream->times);
    stream->times = NULL;
    if (!streams->times.rings || !stepaf_times_wanted(stream))
        return;
    stepaf_times_begin(stream, control, streams->times.rings + streams->times.n++ * each);
    if (!stream->times || !stream->any)
        return;
    stream->times->point.batches = stream->any->receive.ring;
    stream->times->point.batch_mask = stream->any->receive.ring_mask;
    stream->times->point.n_batches = stream->any->receive.counts;
}

/* End the proxy plans of plans that no longer exist, and make the others. */
static stepaf_status_t make_proxy_plans(struct stepaf_ctx *ctx)
{
    stepaf_status_t status = STEPAF_OK;

    stepaf_proxies_free_plans(ctx);
    for (struct stepaf_stream *stream = NULL;
         !status && (stream = stepaf_stream_after(ctx, stream));)
        status = stepaf_proxy_make_plan(stream);
    return status;
}

stepaf_status_t stepaf_streams_join(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    const struct stepaf_advert *mine = &adverts[ctx->job.boot.rank];
    struct stepaf_stream_dst **dsts;
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_stream_advert own;
    uint64_t at = 0;

    if (!ctx->gpu.streams)
        return STEPAF_OK;
    ctx->gpu.streams->joined = true;
    ctx->gpu.streams->sees_graphs = true;
    if (!ctx->gpu.streams->control)
        return make_proxy_plans(ctx);
    status = stepaf_stream_advert_read(mine->streams, mine->role, mine->world_rank, &own);
    if (status)
        return status;
    uint32_t n_plans = ctx->tables.plans.n;
    dsts = calloc(n_plans + 1, sizeof(*dsts));
    if (!dsts)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan || !plan->stream)
            continue;
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            plan->stream->times_numbers[p] = STEPAF_TIMES_NONE;
        dsts[i] = calloc((size_t)ctx->n_peers * plan->stream->n_out, sizeof(*dsts[i]));
        if (!dsts[i])
            status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    for (uint32_t p = 0; p < ctx->n_peers && !status; p++)
        status = join_if_there(&ctx->peers[p], &adverts[ctx->peers[p].who.world_rank], &own, dsts);
    for (struct stepaf_stream *stream = NULL;
         !status && (stream = stepaf_stream_after(ctx, stream));) {
        begin_stream(stream, dsts[stream->plan->index], ctx->gpu.streams->control + at);
        at += stepaf_stream_control_bytes(stream) - stepaf_times_control_bytes(stream);
        if (!stream->launches.sees_graphs || stream->any)
            ctx->gpu.streams->sees_graphs = false;
        if (stream->any)
            status = stepaf_any_begin(stream, ctx->gpu.streams->control + at -
                                                  stepaf_any_control_bytes(stream));
        else if (stream->some)
            status = stepaf_some_begin(stream);
        if (!status)
            begin_plan_times(stream, ctx->gpu.streams->control + at);
        at += stepaf_times_control_bytes(stream);
    }
    for (uint32_t i = 0; dsts && i < n_plans; i++)
        free(dsts[i]);
    free(dsts);
    if (!status)
        status = make_proxy_plans(ctx);
    stepaf_stream_advert_free(&own);
    return status;
}
