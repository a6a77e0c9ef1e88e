/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"
#include "core/batch.h"
#include "core/key.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/remote_plan.h"

#include "base/hash.h"

#define ADD(hash_, value_) (hash_ = stepaf_hash(hash_, &(value_), sizeof(value_)))

static uint64_t add_op(uint64_t hash, const struct stepaf_op *op, uint32_t n_peers)
{
    int status = op->status;

    ADD(hash, status);
    ADD(hash, op->generation);
    ADD(hash, op->seq);
    ADD(hash, op->answers.pending);
    ADD(hash, op->answers.spare);
    ADD(hash, op->answers.enough);
    ADD(hash, op->failed_peer);
    for (uint32_t p = 0; p < n_peers; p++) {
        ADD(hash, op->op_peers[p].state);
        ADD(hash, op->op_peers[p].held);
        ADD(hash, op->op_peers[p].owed);
        ADD(hash, op->op_peers[p].post.state);
    }
    return stepaf_hash(hash, op->pull_bytes, n_peers * op->plan->n_pull * sizeof(uint32_t));
}

static uint64_t add_plan(uint64_t hash, const struct stepaf_plan_obj *plan)
{
    uint32_t n_peers = plan->ctx->n_peers;

    ADD(hash, plan->seq);
    ADD(hash, plan->next->slot);
    for (int i = 0; i < plan->n_push; i++)
        ADD(hash, plan->push[i].key->busy);
    for (int s = 0; s < plan->depth; s++)
        hash = add_op(hash, &plan->ops[s], n_peers);
    return hash;
}

static uint64_t add_remote(uint64_t hash, const struct stepaf_remote_plan *remote)
{
    ADD(hash, remote->n_known);
    ADD(hash, remote->slot);
    ADD(hash, remote->seq);
    for (int s = 0; s < remote->depth; s++) {
        const struct stepaf_batch_obj *batch = &remote->batches[s];
        ADD(hash, batch->generation);
        ADD(hash, batch->state);
        ADD(hash, batch->canceled);
        ADD(hash, batch->answered);
        hash = stepaf_hash(hash, batch->bytes, remote->n_push * sizeof(uint32_t));
    }
    return hash;
}

uint64_t state_digest(const struct stepaf_ctx *ctx)
{
    uint64_t hash = STEPAF_HASH_START;

    ADD(hash, ctx->n_alive);
    ADD(hash, ctx->inbox.n_peers);
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++)
        if (stepaf_table_get(&ctx->tables.plans, i))
            hash = add_plan(hash, stepaf_table_get(&ctx->tables.plans, i));
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        ADD(hash, peer->lost);
        ADD(hash, peer->ready_epoch);
        for (uint32_t i = 0; i < peer->n_remotes; i++)
            if (peer->remotes[i])
                hash = add_remote(hash, peer->remotes[i]);
    }
    return hash;
}

/* Count a list's nodes; -1 if it is not well linked. */
static int list_length(const struct stepaf_list *list)
{
    int n = 0;

    for (const struct stepaf_list *node = list->next; node != list; node = node->next)
        if (node->next->prev != node || node->prev->next != node || ++n > 1 << 20)
            return -1;
    return n;
}

static const char *check_op(const struct stepaf_op *op)
{
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t waiting = 0;

    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        bool waits = stepaf_op_peer_is_open(&op->op_peers[p]);
        waiting += waits;
        if (op->op_peers[p].state == STEPAF_OP_PEER_WAITING && plan->ctx->peers[p].lost)
            return "an operation waits for a lost peer";
        for (uint32_t i = 0; i < plan->n_pull; i++)
            if (op->pull_bytes[p * plan->n_pull + i] > plan->pull[p * plan->n_pull + i].bytes)
                return "more bytes have come than the destination holds";
    }
    if (waiting != op->answers.pending + op->answers.spare)
        return "an operation's count of open parts is wrong";
    if (op->generation && !waiting && op->status == STEPAF_INPROGRESS)
        return "an operation has no open part and no result";
    return NULL;
}

static const char *check_plan(const struct stepaf_plan_obj *plan)
{
    const char *wrong = NULL;

    for (int s = 0; s < plan->depth && !wrong; s++)
        wrong = check_op(&plan->ops[s]);
    for (int s = 0; s < plan->depth && !wrong; s++) {
        uint32_t held = 0;
        for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
            held += plan->ops[s].op_peers[p].held;
        if (held != plan->ops[s].n_held)
            wrong = "an operation's count of peers that hold its slot is wrong";
        for (int i = 0; i < plan->n_push && held; i++)
            if (!(plan->push[i].key->busy >> s & 1))
                wrong = "a slot is held whose key is not busy";
    }
    return wrong;
}

static const char *check_remote(const struct stepaf_remote_plan *remote)
{
    if (remote->n_known > remote->n_push + remote->n_pull)
        return "a plan has more tensors than it announced";
    if (remote->slot >= remote->depth)
        return "a plan's next slot is beyond its depth";
    for (int s = 0; s < remote->depth; s++) {
        const struct stepaf_batch_obj *batch = &remote->batches[s];
        bool listed = !stepaf_list_empty(&batch->any);
        if (listed != (batch->state == STEPAF_BATCH_READY) ||
            listed != !stepaf_list_empty(&batch->own))
            return "a batch is listed but not ready, or the other way round";
        for (int i = 0; i < remote->n_push; i++)
            if (batch->bytes[i] > remote->push[i].bytes && batch->state != STEPAF_BATCH_FREE)
                return "a batch has more bytes than its buffer";
    }
    return NULL;
}

static const char *check_peer(const struct stepaf_peer *peer, int *n_ready_p)
{
    const char *wrong = NULL;
    int queued = list_length(&peer->queue), ready = list_length(&peer->ready);

    if (queued < 0 || ready < 0)
        return "a peer's list is broken";
    if ((queued > 0) != !stepaf_list_empty(&peer->queue_node))
        return "a peer with queued posts is not listed, or one without is";
    for (uint32_t i = 0; i < peer->n_remotes && !wrong; i++)
        if (peer->remotes[i])
            wrong = check_remote(peer->remotes[i]);
    *n_ready_p += ready;
    return wrong;
}

const char *state_check(const struct stepaf_ctx *ctx)
{
    const char *wrong = NULL;
    uint32_t alive = 0, with_batches = 0;
    int n_ready = 0;

    for (uint32_t p = 0; p < ctx->n_peers && !wrong; p++) {
        wrong = check_peer(&ctx->peers[p], &n_ready);
        alive += !ctx->peers[p].lost;
        with_batches += !stepaf_list_empty(&ctx->peers[p].ready);
    }
    for (uint32_t i = 0; i < ctx->tables.plans.n && !wrong; i++)
        if (stepaf_table_get(&ctx->tables.plans, i))
            wrong = check_plan(stepaf_table_get(&ctx->tables.plans, i));
    if (wrong)
        return wrong;
    if (list_length(&ctx->net.queued) < 0)
        return "the list of queues is broken";
    if (list_length(&ctx->inbox.ready) != n_ready)
        return "the list of batches differs from the peers' lists";
    if (alive != ctx->n_alive || with_batches != ctx->inbox.n_peers)
        return "peers are counted wrongly";
    return NULL;
}
