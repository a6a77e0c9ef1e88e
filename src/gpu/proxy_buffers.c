/* SPDX-License-Identifier: Apache-2.0 */
/* Relays at the commit: pinned memory for what goes out and comes in. */
#include <stdlib.h>
#include <string.h>

#include "gpu/proxy.h"

enum { ALIGN = 64 };

/* Bytes of each kind of memory. */
struct room {
    uint64_t landings, outlets, heads;
};

static uint64_t take(uint64_t *room, uint64_t bytes)
{
    uint64_t at = *room;

    *room += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* ---- landings of push keys ---- */

static void attach(struct stepaf_streams *streams, bool there)
{
    for (struct stepaf_landing *landing = streams ? streams->landings : NULL; landing;
         landing = landing->next)
        landing->key->landing = there ? &landing->segment : NULL;
}

/* FFN: give @a key a landing: a slice for each relayed peer. */
static stepaf_status_t land_key(struct stepaf_ctx *ctx, struct stepaf_key *key, uint32_t n_relayed,
                                struct room *room)
{
    struct stepaf_landing *landing = calloc(1, sizeof(*landing));

    if (!landing)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    landing->key = key;
    landing->next = ctx->streams->landings;
    ctx->streams->landings = landing;
    key->landing = &landing->segment;
    landing->segment.ranks = calloc(n_relayed, sizeof(landing->segment.ranks[0]));
    if (!landing->segment.ranks)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    landing->segment.stride = ((uint64_t)key->depth * key->max_bytes + ALIGN - 1) / ALIGN * ALIGN;
    landing->segment.offset = take(&room->landings, landing->segment.stride * n_relayed);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (stepaf_peer_relayed(ctx, p))
            landing->segment.ranks[landing->segment.n_ranks++] = (uint32_t)ctx->peers[p].who.rank;
    return STEPAF_OK;
}

/* ---- lanes: first as offsets, then as places ---- */

static void *offset(uint64_t at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

static void place(struct stepaf_relay_lane *lane, uint8_t *data, uint8_t *heads)
{
    lane->data = data + (uintptr_t)lane->data;
    lane->heads = heads + (uintptr_t)lane->heads;
}

/* What tensor @a i of peer @a p is at most, and from slot to slot where it comes to. */
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

/* Lay out one peer's lanes: all but FFN ranks' landings, which belong to keys. */
static void lay_peer(struct stepaf_relay *relay, const struct stepaf_stream *stream, uint32_t p,
                     struct room *room)
{
    uint32_t depth = stream->plan->depth;

    for (uint32_t i = 0; i < stream->n_in; i++) {
        struct stepaf_relay_lane *lane = &relay->in[p * stream->n_in + i];
        const struct stepaf_key *key = in_key(stream, p, i);
        lane->pitch = key->max_bytes;
        lane->heads = offset(take(&room->heads, (uint64_t)depth * STEPAF_HEAD_BYTES));
        lane->data =
            stepaf_is_attention(stream->plan->ctx)
                ? offset(take(&room->landings, (uint64_t)depth * key->max_bytes))
                : offset(key->landing->offset + relay->peers[p].order * key->landing->stride);
    }
    for (uint32_t i = 0; i < stream->n_out; i++) {
        struct stepaf_relay_lane *lane = &relay->out[p * stream->n_out + i];
        uint64_t pitch = (out_bytes(stream, p, i) + (uint64_t)ALIGN - 1) / ALIGN * ALIGN;
        lane->pitch = pitch > UINT32_MAX ? out_bytes(stream, p, i) : (uint32_t)pitch;
        lane->heads = offset(take(&room->heads, (uint64_t)depth * STEPAF_HEAD_BYTES));
        lane->data = offset(take(&room->outlets, (uint64_t)depth * pitch));
    }
}

static stepaf_status_t relay_open(struct stepaf_stream *stream, struct room *room,
                                  struct stepaf_relay **relay_p)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_relay *relay = calloc(1, sizeof(*relay));
    uint32_t order = 0;

    if (!relay)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    *relay_p = relay; /* freed with the streams, until it is in force */
    stepaf_list_init(&relay->node);
    relay->stream = stream;
    relay->peers = calloc(ctx->n_peers, sizeof(*relay->peers));
    relay->in = calloc((size_t)ctx->n_peers * stream->n_in, sizeof(*relay->in));
    relay->out = calloc((size_t)ctx->n_peers * stream->n_out, sizeof(*relay->out));
    if (stepaf_is_attention(ctx))
        relay->push = calloc((size_t)ctx->n_peers * stream->n_out, sizeof(*relay->push));
    if (!relay->peers || !relay->in || !relay->out || (stepaf_is_attention(ctx) && !relay->push))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        if (!stepaf_peer_relayed(ctx, p))
            continue;
        relay->peers[p].relayed = true;
        relay->peers[p].order = order++;
        lay_peer(relay, stream, p, room);
    }
    return STEPAF_OK;
}

/* Turn offsets into places. */
static void relay_place(struct stepaf_relay *relay, const struct stepaf_streams *streams)
{
    const struct stepaf_stream *stream = relay->stream;

    for (uint32_t at = 0; at < stream->plan->ctx->n_peers * stream->n_in; at++)
        if (relay->peers[at / stream->n_in].relayed)
            place(&relay->in[at], streams->landing->mem.base, streams->heads);
    for (uint32_t at = 0; at < stream->plan->ctx->n_peers * stream->n_out; at++)
        if (relay->peers[at / stream->n_out].relayed)
            place(&relay->out[at], streams->outlets->mem.base, streams->heads);
}

/* ---- memory ---- */

/* A region of the library's that the GPU can use. */
static stepaf_status_t pinned(struct stepaf_ctx *ctx, uint64_t bytes,
                              struct stepaf_region **region_p)
{
    struct stepaf_region *region;
    stepaf_status_t status =
        stepaf_region_alloc(ctx, bytes ? bytes : ALIGN, STEPAF_MEM_HOST, &region);

    if (status)
        return status;
    *region_p = region; /* dropped with the streams */
    return stepaf_region_pin(ctx, region);
}

static stepaf_status_t make_memory(struct stepaf_ctx *ctx, const struct room *room)
{
    struct stepaf_streams *streams = ctx->streams;
    stepaf_status_t status = pinned(ctx, room->landings, &streams->landing);

    if (!status)
        status = pinned(ctx, room->outlets, &streams->outlets);
    if (!status)
        status = stepaf_gpu_alloc_host(ctx->gpu, room->heads, (void **)&streams->heads);
    if (status)
        return status;
    streams->landing->target = true;
    streams->outlets->hidden = true; /* nobody else reads or writes it */
    for (struct stepaf_landing *landing = streams->landings; landing; landing = landing->next)
        landing->segment.region = streams->landing;
    return STEPAF_OK;
}

/* Streams do not wait on the host, so somebody else has to see to it that it goes on. */
static stepaf_status_t check_progress(const struct stepaf_ctx *ctx)
{
    uint32_t p = 0;

    if (ctx->progress_thread)
        return STEPAF_OK;
    while (!stepaf_peer_relayed(ctx, p))
        p++;
    return stepaf_error_set_peer(
        STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
        "stream plans with " STEPAF_WHO_FORMAT
        " go by way of the host (%s): that takes the library's thread, STEPAF_PROGRESS=thread",
        STEPAF_WHO_ARGS(ctx->peers[p].who),
        ctx->ranks[ctx->peers[p].who.world_rank].node_id != ctx->ranks[ctx->boot.rank].node_id
            ? "it is on another node"
            : "it has no GPU, or STEPAF_CUDA_PROXY says so");
}

/* All keys that FFN ranks' stream plans receive. */
static stepaf_status_t land_keys(struct stepaf_ctx *ctx, uint32_t n_relayed, struct room *room)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0; i < ctx->plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        for (uint32_t k = 0; plan && plan->stream && k < plan->n_push && !status; k++)
            if (!plan->push[k].key->landing)
                status = land_key(ctx, plan->push[k].key, n_relayed, room);
    }
    return status;
}

stepaf_status_t stepaf_relays_prepare(struct stepaf_ctx *ctx)
{
    struct stepaf_streams *streams = ctx->streams, *before = streams->before;
    stepaf_status_t status = STEPAF_OK;
    uint32_t n_relayed = 0, n_plans = 0;
    struct room room = {0};

    attach(before, false);
    if (before && before->landing)
        before->landing->hidden = true; /* in what is declared from now on */
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n_relayed += stepaf_peer_relayed(ctx, p);
    streams->relays = calloc(ctx->plans.n + 1, sizeof(*streams->relays));
    if (!streams->relays)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    streams->n_relays = ctx->plans.n;
    if (n_relayed && !stepaf_is_attention(ctx))
        status = land_keys(ctx, n_relayed, &room);
    for (uint32_t i = 0; n_relayed && i < ctx->plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        if (plan && plan->stream && n_plans++ == 0)
            status = check_progress(ctx);
        if (plan && plan->stream && !status)
            status = relay_open(plan->stream, &room, &streams->relays[i]);
    }
    if (status || !n_relayed || !n_plans)
        return status;
    status = make_memory(ctx, &room);
    for (uint32_t i = 0; i < ctx->plans.n && !status; i++)
        if (streams->relays[i])
            relay_place(streams->relays[i], streams);
    return status;
}

void stepaf_relays_undo(struct stepaf_ctx *ctx)
{
    attach(ctx->streams, false);
    attach(ctx->streams->before, true);
}

/* ---- in force ---- */

void stepaf_relay_begin(struct stepaf_stream *stream)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_relay **relay = &ctx->streams->relays[stream->plan->index];

    stepaf_relay_free(stream->relay);
    stream->relay = *relay;
    *relay = NULL;
    if (stream->relay) {
        stepaf_list_append(&ctx->relays, &stream->relay->node);
        ctx->n_polled++;
    }
}

void stepaf_relay_outlets(const struct stepaf_streams *streams, const struct stepaf_stream *stream,
                          uint32_t p, struct stepaf_outlet *outlets)
{
    const struct stepaf_relay *relay = streams->relays[stream->plan->index];

    for (uint32_t i = 0; i < stream->n_out; i++) {
        const struct stepaf_relay_lane *lane = &relay->out[p * stream->n_out + i];
        outlets[i] = (struct stepaf_outlet){
            .inlet = lane->heads,
            .place = lane->data,
            .allocation = streams->outlets->mem.base,
            .stride = STEPAF_HEAD_BYTES,
            .pitch = lane->pitch,
            .bytes = out_bytes(stream, p, i),
            .way = STEPAF_WAY_INLET,
        };
    }
}

/* ---- the end ---- */

static void free_parts(struct stepaf_relay *relay)
{
    if (!relay)
        return;
    free(relay->peers);
    free(relay->in);
    free(relay->out);
    free(relay->push);
    free(relay);
}

void stepaf_relay_free(struct stepaf_relay *relay)
{
    if (!relay)
        return;
    for (uint32_t p = 0; relay->peers && p < relay->stream->plan->ctx->n_peers; p++)
        if (relay->peers[p].mirror)
            stepaf_relay_unbind(relay->peers[p].mirror);
    if (relay->twin) {
        relay->twin->relay = NULL; /* the sweep ends it: peers may still answer it */
        relay->twin = NULL;
    }
    stepaf_list_remove(&relay->node);
    relay->stream->plan->ctx->n_polled--;
    stepaf_relay_forget(relay);
    free_parts(relay);
}

void stepaf_relays_retire(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    for (struct stepaf_landing *landing = streams->landings, *next; landing; landing = next) {
        next = landing->next;
        if (landing->key->landing == &landing->segment)
            landing->key->landing = NULL;
        free(landing->segment.ranks);
        free(landing);
    }
    streams->landings = NULL;
    for (uint32_t i = 0; i < streams->n_relays; i++)
        free_parts(streams->relays[i]); /* never in force */
    free(streams->relays);
    streams->relays = NULL;
    streams->n_relays = 0;
    if (streams->landing)
        stepaf_region_drop(ctx, streams->landing);
    if (streams->outlets)
        stepaf_region_drop(ctx, streams->outlets);
    streams->landing = streams->outlets = NULL;
}

void stepaf_relays_free(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    if (streams->heads)
        stepaf_gpu_free_host(ctx->gpu, streams->heads);
    streams->heads = NULL;
}
