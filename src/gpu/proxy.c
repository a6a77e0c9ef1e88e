/* SPDX-License-Identifier: Apache-2.0 */
/* Relays in use: between what streams stamp and what the host engine carries. Nothing here calls
 * the GPU's driver. */
#include "gpu/proxy.h"

#include <string.h>

bool stepaf_peer_relayed(const struct stepaf_ctx *ctx, uint32_t p)
{
    const struct stepaf_rank *own = &ctx->ranks[ctx->boot.rank];
    const struct stepaf_rank *its = &ctx->ranks[ctx->peers[p].who.world_rank];

    return own->relays || its->relays || own->node_id != its->node_id;
}

/* ---- heads ---- */

/* The two words of a head that mean something: bytes, stamp. */
static uint64_t *words_of(const struct stepaf_relay_lane *lane, uint32_t slot)
{
    return (uint64_t *)(void *)(lane->heads + (size_t)slot * STEPAF_HEAD_BYTES + STEPAF_HEAD_TELLS);
}

/* What operation @a n of a stream, from 0, is stamped with. */
static uint64_t stamp_of(const struct stepaf_stream *stream, uint64_t n)
{
    return stepaf_stamp(stream->epoch, (uint32_t)(n / stream->plan->depth + 1));
}

/* Tell the stream that a tensor is here: all of it can be seen before. */
static void tell(const struct stepaf_relay_lane *lane, uint32_t slot, uint32_t bytes,
                 uint64_t stamp)
{
    uint64_t *words = words_of(lane, slot);

    __atomic_store_n(&words[0], bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

/* Whether the stream has told of all tensors of operation @a n to one peer. What a copy engine has
 * written is told without a number, and cleared when all is there. */
static bool told(const struct stepaf_stream *stream, const struct stepaf_relay_lane *lanes,
                 uint64_t n, uint32_t *bytes_p)
{
    uint32_t slot = (uint32_t)(n % stream->plan->depth);
    uint64_t stamp = stamp_of(stream, n);

    for (uint32_t i = 0; i < stream->n_out; i++) {
        const uint64_t *words = words_of(&lanes[i], slot);
        uint64_t its = __atomic_load_n(&words[1], __ATOMIC_ACQUIRE);
        if (its == stamp)
            bytes_p[i] = (uint32_t)__atomic_load_n(&words[0], __ATOMIC_RELAXED);
        else if ((uint32_t)its >= STEPAF_TOLD_ALL)
            bytes_p[i] = (uint32_t)(its >> 32);
        else
            return false;
    }
    return true;
}

static void clear(const struct stepaf_stream *stream, const struct stepaf_relay_lane *lanes,
                  uint64_t n)
{
    for (uint32_t i = 0; i < stream->n_out; i++) {
        uint64_t *words = words_of(&lanes[i], (uint32_t)(n % stream->plan->depth));
        if ((uint32_t)words[1] >= STEPAF_TOLD_ALL)
            __atomic_store_n(&words[1], 0, __ATOMIC_RELAXED);
    }
}

/* ---- attention ---- */

/* Gather what the next operation pushes to the relayed peers. False: not all is there. */
static bool gather(struct stepaf_relay *relay)
{
    const struct stepaf_stream *stream = relay->stream;
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->n_out, slot = (uint32_t)(relay->n_started % plan->depth);
    uint32_t bytes[STEPAF_MAX_TENSORS];

    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        const struct stepaf_relay_lane *lanes = &relay->out[p * n];
        bool relayed = relay->peers[p].relayed;
        if (relayed && !told(stream, lanes, relay->n_started, bytes))
            return false;
        for (uint32_t i = 0; i < n; i++)
            relay->push[p * n + i] = (stepaf_tensor_t){
                .key = plan->push[i].key->id,
                .data = relayed ? lanes[i].data + (size_t)slot * lanes[i].pitch : NULL,
                .bytes = relayed ? bytes[i] : 0,
            };
    }
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        if (relay->peers[p].relayed)
            clear(stream, &relay->out[p * n], relay->n_started);
    return true;
}

static int first_relayed(const struct stepaf_relay *relay)
{
    int p = 0;

    while (!relay->peers[p].relayed)
        p++;
    return p;
}

/* Start the twin for what the stream has written. */
static unsigned start(struct stepaf_relay *relay)
{
    struct stepaf_stream *stream = relay->stream;
    stepaf_request_h request;

    /* A slot is free once the peers have given back the receive buffers, which may be later than
     * their answers: until then the tensors stay where they are. */
    if (!relay->twin || !stepaf_plan_slot_free(relay->twin) || !gather(relay))
        return 0;
    stepaf_start_params_t params = {.push = relay->push,
                                    .n_push = (int)(stream->plan->ctx->n_peers * stream->n_out)};
    if (stepaf_plan_start(relay->twin, &params, &request))
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, first_relayed(relay));
    relay->n_started++;
    return 1;
}

unsigned stepaf_relay_land(struct stepaf_relay *relay)
{
    struct stepaf_stream *stream = relay->stream;
    uint32_t n = stream->n_in, depth = stream->plan->depth;
    unsigned done = 0;

    for (uint32_t p = 0; relay->twin && p < stream->plan->ctx->n_peers; p++) {
        struct stepaf_relay_peer *peer = &relay->peers[p];
        while (peer->relayed && peer->n_in < relay->n_started) {
            uint32_t slot = (uint32_t)(peer->n_in % depth);
            const struct stepaf_op *op = &relay->twin->ops[slot];
            if (op->parts[p].state == STEPAF_PART_CANCELED)
                stepaf_stream_fail(stream, STEPAF_ERR_CANCELED, (int)p);
            if (op->seq != (uint32_t)peer->n_in || op->parts[p].state != STEPAF_PART_ANSWERED)
                break;
            for (uint32_t i = 0; i < n; i++)
                tell(&relay->in[p * n + i], slot, op->pull_bytes[p * n + i],
                     stamp_of(stream, peer->n_in));
            peer->n_in++;
            done++;
        }
    }
    return done;
}

/* ---- FFN ---- */

static bool is_same_plan(const struct stepaf_plan_obj *plan, const struct stepaf_mirror *mirror)
{
    uint32_t p = mirror->peer->index;
    bool same = plan->n_push == mirror->n_push && plan->n_pull == mirror->n_pull &&
                plan->depth == mirror->depth;

    for (uint32_t i = 0; same && i < plan->n_push; i++)
        same = plan->push[i].key == mirror->push[i].key;
    for (uint32_t i = 0; same && i < plan->n_pull; i++)
        same = plan->pull[p * plan->n_pull + i].key->id == mirror->pull[i].key_id;
    return same;
}

/* The peer may begin with any slot: kernels look where it does. Written is only what changes, as it does
 * in commits: at other times a thread may be enqueueing. */
static void turn_lanes(struct stepaf_relay *relay, uint32_t p)
{
    struct stepaf_stream *stream = relay->stream;
    uint32_t depth = stream->plan->depth;

    for (uint32_t slot = 0; slot < depth; slot++) {
        struct stepaf_leg *legs = &stream->receive[slot * stream->n_receive];
        bool changed = false;
        for (uint32_t i = 0; i < stream->n_in; i++) {
            const struct stepaf_relay_lane *its = &relay->in[p * stream->n_in + i];
            uint8_t **body = &stepaf_leg_lane(legs, stream->n_in, p, i)->body;
            uint8_t *turned =
                its->data + (size_t)((slot + relay->peers[p].turn) % depth) * its->pitch;
            if (*body == turned)
                continue;
            *body = turned;
            changed = true;
        }
        if (changed)
            stepaf_stream_touch(&legs[p / stepaf_leg_peers(stream->n_in)].flow);
    }
}

void stepaf_relay_bind(struct stepaf_mirror *mirror)
{
    struct stepaf_ctx *ctx = mirror->peer->ctx;
    uint32_t p = mirror->peer->index;

    for (struct stepaf_list *node = ctx->relays.next; node != &ctx->relays; node = node->next) {
        struct stepaf_relay *relay = stepaf_container_of(node, struct stepaf_relay, node);
        struct stepaf_relay_peer *peer = &relay->peers[p];
        if (!peer->relayed || peer->mirror || peer->n_in ||
            !is_same_plan(relay->stream->plan, mirror))
            continue;
        mirror->relay = relay;
        mirror->strayed = false;
        peer->mirror = mirror;
        peer->first = mirror->seq;
        peer->turn = mirror->slot;
        turn_lanes(relay, p);
        return;
    }
}

void stepaf_relay_unbind(struct stepaf_mirror *mirror)
{
    if (!mirror->relay)
        return;
    mirror->relay->peers[mirror->peer->index].mirror = NULL;
    mirror->relay = NULL;
    mirror->strayed = true;
}

uint8_t *stepaf_relay_landing(const struct stepaf_key *key, const struct stepaf_peer *peer)
{
    const struct stepaf_segment *segment = key->landing;

    for (uint32_t i = 0; segment && i < segment->n_ranks; i++)
        if (segment->ranks[i] == (uint32_t)peer->who.rank)
            return segment->region->mem.base + segment->offset + i * segment->stride;
    return NULL;
}

void stepaf_relay_arrived(struct stepaf_batch_obj *batch)
{
    struct stepaf_relay *relay = batch->mirror->relay;
    uint32_t p = batch->mirror->peer->index;

    if (!relay || relay->over) {
        stepaf_batch_let_go(batch);
        return;
    }
    struct stepaf_stream *stream = relay->stream;
    struct stepaf_relay_peer *peer = &relay->peers[p];
    uint32_t slot = (uint32_t)(peer->n_in % stream->plan->depth);
    if (batch->seq != peer->first + (uint32_t)peer->n_in) {
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, (int)p);
        return; /* and progress gives it back, with all others */
    }
    for (uint32_t i = 0; i < stream->n_in; i++)
        tell(&relay->in[p * stream->n_in + i], slot, batch->bytes[i], stamp_of(stream, peer->n_in));
    peer->n_in++;
}

/* Answer the next batch of a peer, if the stream has written the answers. */
static bool answer(struct stepaf_relay *relay, uint32_t p)
{
    struct stepaf_stream *stream = relay->stream;
    struct stepaf_relay_peer *peer = &relay->peers[p];
    const struct stepaf_relay_lane *lanes = &relay->out[p * stream->n_out];
    uint32_t depth = stream->plan->depth, slot = (uint32_t)(peer->n_out % depth);
    stepaf_tensor_t tensors[STEPAF_MAX_TENSORS];
    uint32_t bytes[STEPAF_MAX_TENSORS];

    if (!peer->mirror || peer->n_out == peer->n_in || !told(stream, lanes, peer->n_out, bytes))
        return false;
    clear(stream, lanes, peer->n_out);
    struct stepaf_batch_obj *batch = &peer->mirror->batches[(slot + peer->turn) % depth];
    for (uint32_t i = 0; i < stream->n_out; i++)
        tensors[i] = (stepaf_tensor_t){peer->mirror->pull[i].key_id,
                                       lanes[i].data + (size_t)slot * lanes[i].pitch, bytes[i]};
    stepaf_status_t status =
        stepaf_batch_respond(batch, tensors, stream->n_out, STEPAF_RESPOND_RELEASE);
    if (status)
        stepaf_batch_let_go(batch);
    if (status && status != STEPAF_ERR_CANCELED) /* which is the peer's own affair */
        stepaf_stream_fail(stream, STEPAF_ERR_PROTOCOL, (int)p);
    peer->n_out++;
    return true;
}

void stepaf_relay_let_go(struct stepaf_relay *relay)
{
    for (uint32_t p = 0; p < relay->stream->plan->ctx->n_peers; p++) {
        struct stepaf_mirror *mirror = relay->peers[p].mirror;
        for (uint8_t s = 0; mirror && s < mirror->depth; s++)
            if (mirror->batches[s].state == STEPAF_BATCH_HELD)
                stepaf_batch_let_go(&mirror->batches[s]);
    }
}

/* ---- both ---- */

/* Whether the stream has failed, as the host or the GPU has noticed. */
static bool has_failed(const struct stepaf_stream *stream)
{
    return stream->failure || __atomic_load_n(&stream->watch->fault, __ATOMIC_ACQUIRE);
}

static unsigned progress(struct stepaf_relay *relay)
{
    struct stepaf_stream *stream = relay->stream;
    unsigned n = 0;

    if (relay->over)
        return 0;
    if (__builtin_expect(has_failed(stream), 0)) {
        relay->over = true;
        stepaf_relay_let_go(relay);
        return 1;
    }
    if (stepaf_is_attention(stream->plan->ctx))
        return stepaf_relay_land(relay) + start(relay);
    for (uint32_t p = 0; p < stream->plan->ctx->n_peers; p++)
        while (answer(relay, p))
            n++;
    return n;
}

unsigned stepaf_relays_progress(struct stepaf_ctx *ctx)
{
    unsigned n = 0;

    if (ctx->relays_still)
        return 0;
    for (struct stepaf_list *node = ctx->relays.next, *next; node != &ctx->relays; node = next) {
        next = node->next;
        n += progress(stepaf_container_of(node, struct stepaf_relay, node));
    }
    return n;
}
