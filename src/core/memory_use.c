/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a context takes, by what it depends on. */
#include "core/memory_use.h"
#include "core/batch.h"
#include "core/batch_ahead.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "core/watch.h"

static void count_key(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                      stepaf_memory_use_t *use)
{
    use->declared += sizeof(*key);
    if (key->remote)
        use->per_key += ctx->n_peers * sizeof(key->remote[0]);
    if (key->slices)
        use->per_key += ctx->n_peers * sizeof(key->slices[0]);
    for (struct stepaf_list *node = key->recv_bufs.next; node != &key->recv_bufs;
         node = node->next) {
        const struct stepaf_recv_buf *recv_buf =
            stepaf_container_of(node, struct stepaf_recv_buf, node);
        use->declared += sizeof(*recv_buf) + recv_buf->n_ranks * sizeof(recv_buf->ranks[0]);
        if (recv_buf->library)
            use->receive += recv_buf->n_ranks * recv_buf->stride;
    }
}

/* Count the memory of an attention rank's plans, for all peers. */
static void count_plans(const struct stepaf_ctx *ctx, stepaf_memory_use_t *use)
{
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan)
            continue;
        size_t per_peer =
            sizeof(plan->partial.skipped[0]) + sizeof(plan->partial.posts[0]) +
            plan->n_pull * sizeof(plan->pull[0]) +
            plan->depth * (sizeof(struct stepaf_op_peer) + sizeof(struct stepaf_post *) +
                           plan->n_push * sizeof(struct stepaf_xfer) +
                           plan->n_pull * sizeof(uint32_t) + sizeof(struct stepaf_op_landed));
        use->declared +=
            sizeof(*plan) + plan->depth * (sizeof(struct stepaf_op) + plan->ops[0].template_bytes);
        use->per_key += ctx->n_peers * per_peer;
        use->key_peers += (size_t)(plan->n_push + plan->n_pull) * plan->depth * ctx->n_peers;
    }
}

/* Count the memory of an FFN rank's remote plans. */
static void count_remotes(const struct stepaf_ctx *ctx, stepaf_memory_use_t *use)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        for (uint32_t i = 0; i < ctx->peers[p].n_remotes; i++) {
            const struct stepaf_remote_plan *remote = ctx->peers[p].remotes[i];
            if (!remote)
                continue;
            use->per_key += sizeof(*remote) + sizeof(ctx->peers[p].remotes[0]) +
                            remote->n_push * sizeof(remote->push[0]) +
                            remote->n_pull * sizeof(remote->pull[0]) +
                            remote->depth * (sizeof(struct stepaf_batch_obj) +
                                             remote->n_pull * sizeof(struct stepaf_xfer) +
                                             remote->n_push * sizeof(uint32_t));
            for (uint8_t s = 0; s < remote->depth; s++)
                use->per_key += stepaf_batch_ahead_bytes(&remote->batches[s]);
            use->key_peers += (size_t)(remote->n_push + remote->n_pull) * remote->depth;
        }
}

stepaf_memory_use_t stepaf_memory_count(const struct stepaf_ctx *ctx)
{
    stepaf_memory_use_t use = {
        .fixed = sizeof(*ctx) +
                 (size_t)ctx->job.boot.size * (sizeof(ctx->job.ranks[0]) + 3 * sizeof(int)),
        .per_peer = sizeof(struct stepaf_peer),
        .peers = ctx->n_peers,
    };
    use.fixed += stepaf_trace_size(&ctx->trace) * sizeof(ctx->trace.ring[0]);
    if (ctx->polling.watch)
        ctx->polling.watch->ops->count(ctx->polling.watch, &use);
    for (unsigned t = 0; t < ctx->net.n_transports; t++) {
        size_t per_link, bounce;
        ctx->net.transports[t]->ops->query_memory(ctx->net.transports[t], &per_link, &bounce);
        use.per_peer += per_link;
        use.bounce += bounce;
    }
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++)
        count_key(ctx, ctx->memory.keys[i], &use);
    for (const struct stepaf_key *key = ctx->memory.withdrawn; key; key = key->next)
        count_key(ctx, key, &use);
    count_plans(ctx, &use);
    count_remotes(ctx, &use);
    return use;
}
