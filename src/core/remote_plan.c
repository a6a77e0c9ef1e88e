/* SPDX-License-Identifier: Apache-2.0 */
/* Remote plans: built at an FFN rank from an attention rank's PLAN and TENSOR messages. Each
 * message is untrusted input: an invalid one is dropped, and the plan never becomes complete. */
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "core/batch_ahead.h"
#include "core/batch_end.h"
#include "core/feature.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/peer.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/table.h"
#include "device/gpu.h"

static void count_malformed(struct stepaf_peer *peer)
{
    peer->ctx->counters.dropped_malformed++;
}

static void remote_free(struct stepaf_remote_plan *remote)
{
    struct stepaf_ctx *ctx = remote->peer->ctx;

    remote->peer->ctx->feature->unbind(remote);
    /* The last slot first: numbers are reused in reverse order, so that slots keep theirs. */
    for (int s = remote->batches ? remote->depth : 0; s-- > 0;) {
        struct stepaf_batch_obj *batch = &remote->batches[s];
        if (stepaf_table_get(&ctx->tables.batches, batch->index) == batch)
            stepaf_table_remove(&ctx->tables.batches, batch->index);
        stepaf_post_complete(&batch->answer);
        if (batch->state == STEPAF_BATCH_READY)
            stepaf_batch_unlist(batch);
        if (batch->remote) /* it was opened */
            stepaf_batch_ahead_free(batch);
        if (batch->copied)
            stepaf_gpu_event_destroy(ctx->gpu.device, batch->copied);
        free(batch->xfers);
        free(batch->bytes);
    }
    free(remote->batches);
    free(remote->push);
    free(remote->pull);
    free(remote);
}

void stepaf_remote_plans_free(struct stepaf_peer *peer)
{
    for (uint32_t i = 0; i < peer->n_remotes; i++)
        if (peer->remotes[i])
            remote_free(peer->remotes[i]);
    free(peer->remotes);
    peer->remotes = NULL;
    peer->n_remotes = 0;
    peer->oom = false;
}

static bool batch_open(struct stepaf_remote_plan *remote, struct stepaf_batch_obj *batch,
                       uint8_t slot)
{
    batch->remote = remote;
    batch->slot = slot;
    stepaf_list_init(&batch->any);
    stepaf_list_init(&batch->own);
    batch->xfers = calloc((size_t)remote->n_pull + 1, sizeof(*batch->xfers));
    batch->bytes = calloc((size_t)remote->n_push + 1, sizeof(*batch->bytes));
    if (!batch->xfers || !batch->bytes)
        return false;
    batch->answer.link = remote->peer->link;
    batch->answer.xfer = batch->xfers;
    batch->release.link = remote->peer->link;
    batch->born = stepaf_table_generation(&remote->peer->ctx->tables.batches);
    return stepaf_table_add(&remote->peer->ctx->tables.batches, batch,
                            1u << STEPAF_HANDLE_INDEX_BITS, &batch->index);
}

static struct stepaf_remote_plan *remote_make(struct stepaf_peer *peer,
                                              const struct stepaf_msg *msg)
{
    struct stepaf_remote_plan *remote = calloc(1, sizeof(*remote));

    if (!remote)
        return NULL;
    remote->peer = peer;
    remote->number = msg->plan;
    remote->rank = (uint16_t)peer->who.rank;
    remote->n_push = (uint8_t)msg->word[0];
    remote->n_pull = (uint8_t)msg->word[1];
    remote->depth = (uint8_t)msg->word[2];
    remote->slot = msg->slot;
    remote->seq = msg->seq;
    remote->push = calloc((size_t)remote->n_push + 1, sizeof(*remote->push));
    remote->pull = calloc((size_t)remote->n_pull + 1, sizeof(*remote->pull));
    remote->batches = calloc(remote->depth, sizeof(*remote->batches));
    if (!remote->push || !remote->pull || !remote->batches)
        goto err_remote;
    for (uint8_t s = 0; s < remote->depth; s++)
        remote->batches[s].index = UINT32_MAX;
    for (uint8_t s = 0; s < remote->depth; s++)
        if (!batch_open(remote, &remote->batches[s], s))
            goto err_remote;
    return remote;

err_remote:
    remote_free(remote);
    return NULL;
}

/* Reserve space for plan number @a number. */
static bool reserve(struct stepaf_peer *peer, uint32_t number)
{
    uint32_t n = peer->n_remotes ? 2 * peer->n_remotes : 4;
    struct stepaf_remote_plan **remotes;

    if (number < peer->n_remotes)
        return true;
    if (n < number + 1)
        n = number + 1;
    remotes = realloc(peer->remotes, n * sizeof(*remotes));
    if (!remotes)
        return false;
    memset(&remotes[peer->n_remotes], 0, (n - peer->n_remotes) * sizeof(*remotes));
    peer->remotes = remotes;
    peer->n_remotes = n;
    return true;
}

static struct stepaf_remote_plan *find_remote_plan(struct stepaf_peer *peer, uint32_t number)
{
    return number < peer->n_remotes ? peer->remotes[number] : NULL;
}

/* Handle lack of memory for a plan, none of whose operations can be accepted: during a commit the
 * peer is notified, later it is declared lost. */
static void starve(struct stepaf_peer *peer)
{
    if (peer->ready_epoch == peer->ctx->epoch)
        stepaf_peer_fail(peer, "out of memory for one of its plans");
    else
        peer->oom = true;
}

void stepaf_remote_plan_open(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    uint32_t depth = msg->word[2];

    if (msg->plan >= STEPAF_MAX_PLANS || msg->word[0] > STEPAF_MAX_TENSORS ||
        msg->word[1] > STEPAF_MAX_TENSORS || !depth || depth > STEPAF_MAX_DEPTH ||
        msg->slot >= depth || find_remote_plan(peer, msg->plan)) {
        count_malformed(peer);
        return;
    }
    struct stepaf_remote_plan *remote = reserve(peer, msg->plan) ? remote_make(peer, msg) : NULL;
    if (remote)
        peer->remotes[msg->plan] = remote;
    else
        starve(peer);
}

static bool is_complete(const struct stepaf_remote_plan *remote)
{
    return remote->n_known == remote->n_push + remote->n_pull;
}

/* Take a pushed tensor, which must have a receive buffer here. */
static bool take_push(struct stepaf_remote_plan *remote, const struct stepaf_msg *msg, uint64_t id)
{
    const struct stepaf_ctx *ctx = remote->peer->ctx;
    struct stepaf_peer *peer = remote->peer;
    struct stepaf_key *key = stepaf_key_known(ctx, id);
    uint8_t *place = key ? ctx->feature->recv_place(key, peer) : NULL;
    uint8_t *slice = key && !place ? stepaf_key_slice(key, peer->index) : place;

    remote->unbound = remote->unbound || place;
    if (slice && key->mem_kind != STEPAF_MEM_HOST) {
        const struct stepaf_region *region = stepaf_region_find(ctx, slice, 1);
        if (!region || !stepaf_region_is_linked(ctx, region) ||
            (!place && stepaf_key_on_streams(key)))
            return false;
        remote->on_gpu = remote->on_gpu || region->mem.kind != STEPAF_MEM_HOST;
    }
    if (msg->slot >= remote->n_push || !slice || msg->word[2] > key->max_bytes ||
        remote->depth > key->depth || remote->push[msg->slot].key)
        return false;
    remote->push[msg->slot] = (struct stepaf_remote_plan_push){key, slice, msg->word[2]};
    return true;
}

/* Take a destination, whose slots must all lie in memory that the peer has offered. */
static bool take_pull(struct stepaf_remote_plan *remote, const struct stepaf_msg *msg, uint64_t id)
{
    uint64_t offset = msg->word[4] | (uint64_t)msg->word[5] << 32;
    uint32_t bytes = msg->word[2], stride = msg->word[6];
    uint64_t span = (uint64_t)stride * (remote->depth - 1u) + bytes;
    const struct stepaf_rmem *rmem = stepaf_peer_find_rmem(remote->peer, msg->word[3]);

    if (msg->slot >= remote->n_pull || (remote->known_pulls & 1u << msg->slot))
        return false;
    if (bytes && (!rmem || offset > rmem->bytes || span > rmem->bytes - offset))
        return false;
    remote->pull[msg->slot] = (struct stepaf_remote_plan_pull){
        .key_id = id,
        .key = stepaf_key_known(remote->peer->ctx, id),
        .rmem = rmem,
        .offset = offset,
        .stride = stride,
        .bytes = bytes,
    };
    remote->known_pulls |= (uint8_t)(1u << msg->slot);
    return true;
}

/* Fill what every answer has in common, once the plan is complete. */
static void compile_answers(struct stepaf_remote_plan *remote)
{
    for (uint8_t s = 0; s < remote->depth; s++) {
        struct stepaf_batch_obj *batch = &remote->batches[s];
        batch->answer.n_xfer = remote->n_pull;
        for (uint8_t i = 0; i < remote->n_pull; i++) {
            const struct stepaf_remote_plan_pull *pull = &remote->pull[i];
            batch->xfers[i].dst = pull->rmem;
            batch->xfers[i].dst_offset = stepaf_pull_offset(pull, s);
        }
    }
    if (remote->unbound)
        remote->peer->ctx->feature->bind(remote);
}

void stepaf_remote_plan_tensor(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_remote_plan *remote = find_remote_plan(peer, msg->plan);
    uint64_t id = msg->word[0] | (uint64_t)msg->word[1] << 32;

    if (!remote || is_complete(remote) ||
        !(msg->flags & STEPAF_MSG_PULL_SIDE ? take_pull(remote, msg, id)
                                            : take_push(remote, msg, id)))
        count_malformed(peer);
    else if (++remote->n_known == remote->n_push + remote->n_pull)
        compile_answers(remote);
}

void stepaf_remote_plan_close(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_remote_plan *remote = find_remote_plan(peer, msg->plan);

    for (int s = 0; remote && s < remote->depth; s++)
        if (stepaf_batch_busy(&remote->batches[s]))
            remote = NULL;
    if (!remote) {
        count_malformed(peer);
        return;
    }
    remote_free(remote);
    peer->remotes[msg->plan] = NULL;
}
