/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as an FFN rank knows them: built from an attention rank's PLAN and TENSOR messages. Each
 * is input: what does not fit is dropped, and the plan never becomes complete. */
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "device/gpu.h"

static void malformed(struct stepaf_peer *peer)
{
    peer->ctx->counters.dropped_malformed++;
}

static void mirror_free(struct stepaf_mirror *mirror)
{
    struct stepaf_ctx *ctx = mirror->peer->ctx;

    mirror->peer->ctx->feature->unbind(mirror);
    for (int s = 0; mirror->batches && s < mirror->depth; s++) {
        struct stepaf_batch_obj *batch = &mirror->batches[s];
        if (stepaf_table_get(&ctx->batches, batch->index) == batch)
            stepaf_table_remove(&ctx->batches, batch->index);
        stepaf_post_conclude(&batch->answer);
        if (batch->copied)
            stepaf_gpu_event_destroy(ctx->gpu, batch->copied);
        free(batch->xfers);
        free(batch->bytes);
    }
    free(mirror->batches);
    free(mirror->push);
    free(mirror->pull);
    free(mirror);
}

void stepaf_mirrors_free(struct stepaf_peer *peer)
{
    for (uint32_t i = 0; i < peer->n_mirrors; i++)
        if (peer->mirrors[i])
            mirror_free(peer->mirrors[i]);
    free(peer->mirrors);
    peer->mirrors = NULL;
    peer->n_mirrors = 0;
    peer->starved = false;
}

static bool batch_open(struct stepaf_mirror *mirror, struct stepaf_batch_obj *batch, uint8_t slot)
{
    batch->mirror = mirror;
    batch->slot = slot;
    stepaf_list_init(&batch->any);
    stepaf_list_init(&batch->own);
    batch->xfers = calloc((size_t)mirror->n_pull + 1, sizeof(*batch->xfers));
    batch->bytes = calloc((size_t)mirror->n_push + 1, sizeof(*batch->bytes));
    if (!batch->xfers || !batch->bytes)
        return false;
    batch->answer.link = mirror->peer->link;
    batch->answer.xfer = batch->xfers;
    batch->release.link = mirror->peer->link;
    batch->born = stepaf_table_generation(&mirror->peer->ctx->batches);
    return stepaf_table_add(&mirror->peer->ctx->batches, batch, 1u << STEPAF_HANDLE_INDEX_BITS,
                            &batch->index);
}

static struct stepaf_mirror *mirror_make(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_mirror *mirror = calloc(1, sizeof(*mirror));

    if (!mirror)
        return NULL;
    mirror->peer = peer;
    mirror->number = msg->plan;
    mirror->n_push = (uint8_t)msg->word[0];
    mirror->n_pull = (uint8_t)msg->word[1];
    mirror->depth = (uint8_t)msg->word[2];
    mirror->slot = msg->slot;
    mirror->seq = msg->seq;
    mirror->push = calloc((size_t)mirror->n_push + 1, sizeof(*mirror->push));
    mirror->pull = calloc((size_t)mirror->n_pull + 1, sizeof(*mirror->pull));
    mirror->batches = calloc(mirror->depth, sizeof(*mirror->batches));
    if (!mirror->push || !mirror->pull || !mirror->batches)
        goto err_mirror;
    for (uint8_t s = 0; s < mirror->depth; s++)
        mirror->batches[s].index = UINT32_MAX;
    for (uint8_t s = 0; s < mirror->depth; s++)
        if (!batch_open(mirror, &mirror->batches[s], s))
            goto err_mirror;
    return mirror;

err_mirror:
    mirror_free(mirror);
    return NULL;
}

/* Make room for plan number @a number. */
static bool reserve(struct stepaf_peer *peer, uint32_t number)
{
    uint32_t n = number + 1;
    struct stepaf_mirror **mirrors;

    if (number < peer->n_mirrors)
        return true;
    mirrors = realloc(peer->mirrors, n * sizeof(*mirrors));
    if (!mirrors)
        return false;
    memset(&mirrors[peer->n_mirrors], 0, (n - peer->n_mirrors) * sizeof(*mirrors));
    peer->mirrors = mirrors;
    peer->n_mirrors = n;
    return true;
}

static struct stepaf_mirror *find(struct stepaf_peer *peer, uint32_t number)
{
    return number < peer->n_mirrors ? peer->mirrors[number] : NULL;
}

/* Nothing that the peer starts by the plan could be taken: in a commit it is told so, else it is lost. */
static void starve(struct stepaf_peer *peer)
{
    if (peer->ready_epoch == peer->ctx->epoch)
        stepaf_engine_give_up(peer, "there is no memory for a plan that it has made");
    else
        peer->starved = true;
}

void stepaf_mirror_plan(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    uint32_t depth = msg->word[2];

    if (msg->plan >= STEPAF_MAX_PLANS || msg->word[0] > STEPAF_MAX_TENSORS ||
        msg->word[1] > STEPAF_MAX_TENSORS || !depth || depth > STEPAF_MAX_DEPTH ||
        msg->slot >= depth || find(peer, msg->plan)) {
        malformed(peer);
        return;
    }
    struct stepaf_mirror *mirror = reserve(peer, msg->plan) ? mirror_make(peer, msg) : NULL;
    if (mirror)
        peer->mirrors[msg->plan] = mirror;
    else
        starve(peer);
}

static bool is_complete(const struct stepaf_mirror *mirror)
{
    return mirror->n_known == mirror->n_push + mirror->n_pull;
}

/* A pushed tensor: it must have a receive buffer here. */
static bool take_push(struct stepaf_mirror *mirror, const struct stepaf_msg *msg, uint64_t id)
{
    struct stepaf_peer *peer = mirror->peer;
    struct stepaf_key *key = stepaf_key_known(peer->ctx, id);
    uint8_t *slice = key ? peer->ctx->feature->recv_place(key, peer) : NULL;

    mirror->strayed = mirror->strayed || slice;
    if (key && !slice) {
        slice = stepaf_key_slice(key, (uint32_t)peer->who.rank);
        if (slice && key->mem_kind != STEPAF_MEM_HOST) {
            const struct stepaf_region *region = stepaf_region_find(peer->ctx, slice, 1);
            if (!region || !stepaf_region_is_linked(peer->ctx, region) ||
                stepaf_key_on_streams(peer->ctx, key))
                return false;
            mirror->on_gpu = true;
        }
    }
    if (msg->slot >= mirror->n_push || !slice || msg->word[2] > key->max_bytes ||
        mirror->depth > key->depth || mirror->push[msg->slot].key)
        return false;
    mirror->push[msg->slot] = (struct stepaf_mirror_push){key, slice, msg->word[2]};
    return true;
}

static const struct stepaf_rmem *find_rmem(const struct stepaf_peer *peer, uint32_t id)
{
    for (uint32_t i = 0; i < peer->n_rmems; i++)
        if (peer->rmems[i]->id == id)
            return peer->rmems[i];
    return NULL;
}

/* A destination: all its slots must lie in memory that the peer has offered. */
static bool take_pull(struct stepaf_mirror *mirror, const struct stepaf_msg *msg, uint64_t id)
{
    uint64_t offset = msg->word[4] | (uint64_t)msg->word[5] << 32;
    uint32_t bytes = msg->word[2], stride = msg->word[6];
    uint64_t span = (uint64_t)stride * (mirror->depth - 1u) + bytes;
    const struct stepaf_rmem *rmem = find_rmem(mirror->peer, msg->word[3]);

    if (msg->slot >= mirror->n_pull || (mirror->known_pulls & 1u << msg->slot))
        return false;
    if (bytes && (!rmem || offset > rmem->bytes || span > rmem->bytes - offset))
        return false;
    mirror->pull[msg->slot] = (struct stepaf_mirror_pull){
        .key_id = id,
        .key = stepaf_key_known(mirror->peer->ctx, id),
        .rmem = rmem,
        .offset = offset,
        .stride = stride,
        .bytes = bytes,
    };
    mirror->known_pulls |= (uint8_t)(1u << msg->slot);
    return true;
}

/* All is known: fill what every answer has in common. */
static void compile(struct stepaf_mirror *mirror)
{
    for (uint8_t s = 0; s < mirror->depth; s++) {
        struct stepaf_batch_obj *batch = &mirror->batches[s];
        batch->answer.n_xfer = mirror->n_pull;
        for (uint8_t i = 0; i < mirror->n_pull; i++) {
            const struct stepaf_mirror_pull *pull = &mirror->pull[i];
            batch->xfers[i].dst = pull->rmem;
            batch->xfers[i].dst_offset = pull->offset + (uint64_t)s * pull->stride;
        }
    }
    if (mirror->strayed)
        mirror->peer->ctx->feature->bind(mirror);
}

void stepaf_mirror_tensor(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_mirror *mirror = find(peer, msg->plan);
    uint64_t id = msg->word[0] | (uint64_t)msg->word[1] << 32;

    if (!mirror || is_complete(mirror) ||
        !(msg->flags & STEPAF_MSG_PULL_SIDE ? take_pull(mirror, msg, id)
                                            : take_push(mirror, msg, id)))
        malformed(peer);
    else if (++mirror->n_known == mirror->n_push + mirror->n_pull)
        compile(mirror);
}

void stepaf_mirror_close(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_mirror *mirror = find(peer, msg->plan);

    for (int s = 0; mirror && s < mirror->depth; s++)
        if (stepaf_batch_busy(&mirror->batches[s]))
            mirror = NULL;
    if (!mirror) {
        malformed(peer);
        return;
    }
    mirror_free(mirror);
    peer->mirrors[msg->plan] = NULL;
}
