/* SPDX-License-Identifier: Apache-2.0 */
/* Plans at an attention rank: making and freeing them. */
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/feature.h"
#include "core/key.h"
#include "core/plan.h"
#include "core/plan_announce.h"
#include "core/plan_tensors.h"
#include "core/region.h"
#include "core/send.h"
#include "core/table.h"
#include "core/trace.h"
#include "core/watch.h"
#include "device/gpu.h"

/* Add or remove the plan as a user of a region. */
static void use_region(struct stepaf_plan_obj *plan, struct stepaf_region *region, unsigned change)
{
    region->uses += change;
    if (region->mem.kind != STEPAF_MEM_CUDA || plan->on_streams)
        return;
    plan->on_gpu = true;
    if (plan->proxied.is) /* its stream plan prepares the memory */
        return;
    plan->ctx->commit.changed = plan->ctx->commit.changed || !region->hosted;
    region->hosted = true;
}

/* Add or remove the plan as a user of a key. */
static void use_key(const struct stepaf_plan_obj *plan, struct stepaf_key *key, unsigned change)
{
    if (plan->proxied.is) /* the stream plan counts */
        return;
    key->uses += change;
    if (plan->on_streams)
        key->stream_uses += change;
}

/* Add or remove the plan as a user of its keys and memory. */
static void use_all(struct stepaf_plan_obj *plan, unsigned change)
{
    for (int i = 0; i < plan->n_push; i++)
        use_key(plan, plan->push[i].key, change);
    for (uint32_t i = 0; i < plan->ctx->n_peers * plan->n_pull; i++)
        use_key(plan, plan->pull[i].key, change);
    for (int i = 0; i < plan->n_push; i++)
        if (plan->push[i].region)
            use_region(plan, plan->push[i].region, change);
    for (uint32_t i = 0; i < plan->ctx->n_peers * plan->n_pull; i++)
        if (plan->pull[i].region) {
            use_region(plan, plan->pull[i].region, change);
            if (stepaf_is_attention(plan->ctx)) /* otherwise answers are sent from it */
                plan->pull[i].region->target = true;
        }
}

static bool op_open(struct stepaf_plan_obj *plan, struct stepaf_op *op, uint8_t slot)
{
    uint32_t n = plan->ctx->n_peers;

    op->plan = plan;
    op->slot = slot;
    op->bit = 1u << slot;
    op->after = &plan->ops[slot + 1 == plan->depth ? 0 : slot + 1];
    op->retired = true;
    op->not_as_planned = true;
    op->op_peers = calloc(n, sizeof(*op->op_peers));
    op->posts = calloc(n, sizeof(op->posts[0]));
    op->xfers = calloc((size_t)n * plan->n_push + 1, sizeof(*op->xfers));
    op->pull_bytes = calloc((size_t)n * plan->n_pull + 1, sizeof(*op->pull_bytes));
    op->answers.landed = calloc(n, sizeof(*op->answers.landed));
    if (!op->op_peers || !op->posts || !op->xfers || !op->pull_bytes || !op->answers.landed)
        return false;
    for (uint32_t p = 0; p < n; p++) {
        op->posts[p] = &op->op_peers[p].post;
        op->op_peers[p].post.xfer = &op->xfers[p * plan->n_push];
        op->op_peers[p].peer = &plan->ctx->peers[p];
        for (uint32_t i = 0; i < plan->n_pull; i++) {
            const struct stepaf_pull *pull = &plan->pull[p * plan->n_pull + i];
            op->pull_bytes[p * plan->n_pull + i] = pull->bytes;
            op->op_peers[p].pull_sum += pull->bytes;
        }
    }
    if (!stepaf_table_add(&plan->ctx->tables.ops, op, 1u << STEPAF_HANDLE_INDEX_BITS, &op->index))
        return false;
    op->name = stepaf_handle_name(STEPAF_HANDLE_OPERATION, plan->ctx->handle.slot, op->index);
    return true;
}

/* Set the trace words of an operation's end. */
static void set_stamps(struct stepaf_op *op)
{
    uint32_t index = op->plan->index;

    op->trace.waited =
        stepaf_trace_word(STEPAF_EVENT_WAITED, index, STEPAF_TRACE_ALL, STEPAF_TRACE_WHOLE);
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++)
        op->op_peers[p].stamp =
            stepaf_trace_word(STEPAF_EVENT_ANSWERED, index,
                              (uint32_t)op->op_peers[p].peer->who.rank, STEPAF_TRACE_WHOLE);
}

/* Announce the plan to the watch of the host's operations, if there is one. */
static void have_watched(struct stepaf_plan_obj *plan)
{
    struct stepaf_watch *watch = plan->ctx->polling.watch;

    if (!watch || plan->on_streams || plan->proxied.is || !watch->ops->meet(watch, plan, plan->seq))
        return;
    for (uint8_t s = 0; s < plan->depth; s++)
        plan->ops[s].answers.watched = true;
}

static void uncache(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx_cache *cache = &plan->ctx->cache;
    struct stepaf_plan_obj *last = cache->plans[--cache->n];

    last->cached.at = plan->cached.at;
    cache->plans[last->cached.at] = last;
}

void stepaf_plan_free(struct stepaf_plan_obj *plan)
{
    for (int s = 0; plan->ops && s < plan->depth; s++) {
        struct stepaf_op *op = &plan->ops[s];
        if (stepaf_table_get(&plan->ctx->tables.ops, op->index) == op)
            stepaf_table_remove(&plan->ctx->tables.ops, op->index);
        for (uint32_t p = 0; op->op_peers && p < plan->ctx->n_peers; p++)
            stepaf_post_complete(&op->op_peers[p].post);
        if (op->copied)
            stepaf_gpu_event_destroy(plan->ctx->gpu.device, op->copied);
        free(op->op_peers);
        free(op->posts);
        stepaf_op_drop_templates(op);
        free(op->xfers);
        free(op->pull_bytes);
        free(op->answers.landed);
    }
    if (stepaf_table_get(&plan->ctx->tables.plans, plan->index) == plan) {
        stepaf_table_remove(&plan->ctx->tables.plans, plan->index);
        use_all(plan, -1u);
        if (plan->cached.is)
            uncache(plan);
    }
    if (plan->stream)
        plan->ctx->feature->plan_free(plan);
    if (plan->proxied.is)
        plan->ctx->feature->plan_free(plan);
    free(plan->proxied.left_out);
    free(plan->ops);
    free(plan->pull);
    free(plan->partial.skipped);
    free(plan->partial.posts);
    free(plan);
}

stepaf_status_t stepaf_plan_make(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                                 const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                                 struct stepaf_plan_obj **plan_p)
{
    stepaf_status_t status = stepaf_plan_check(ctx, push, n_push, pull, n_pull, flags);
    struct stepaf_plan_obj *plan = status ? NULL : calloc(1, sizeof(*plan));

    if (status)
        return status;
    if (!plan)
        goto err_memory;
    plan->ctx = ctx;
    plan->index = UINT32_MAX;
    plan->depth = STEPAF_MAX_DEPTH;
    plan->n_push = (uint8_t)n_push;
    plan->n_pull = (uint8_t)((uint32_t)n_pull / ctx->n_peers);
    plan->scatter = flags & STEPAF_PLAN_SCATTER;
    plan->on_streams = flags & STEPAF_PLAN_STREAM;
    plan->keeps_sources = flags & STEPAF_PLAN_KEEP_SOURCES;
    plan->proxied.is = flags & STEPAF_PLAN_PROXY;
    plan->pull = calloc((size_t)n_pull + 1, sizeof(*plan->pull));
    plan->partial.skipped = calloc(ctx->n_peers, sizeof(*plan->partial.skipped));
    plan->partial.posts = calloc(ctx->n_peers, sizeof(*plan->partial.posts));
    if (!plan->pull || !plan->partial.skipped || !plan->partial.posts)
        goto err_memory;
    status = stepaf_plan_take_tensors(plan, push, pull);
    if (status)
        goto err_plan;
    plan->ops = calloc(plan->depth, sizeof(*plan->ops));
    if (!plan->ops)
        goto err_memory;
    for (uint8_t s = 0; s < plan->depth; s++)
        plan->ops[s].index = UINT32_MAX;
    plan->next = plan->ops;
    for (uint8_t s = 0; s < plan->depth; s++)
        if (!op_open(plan, &plan->ops[s], s))
            goto err_memory;
    if (flags & STEPAF_PLAN_STREAM)
        status = ctx->feature->plan_make(plan, flags);
    if (status)
        goto err_plan;
    if (!stepaf_table_add(&ctx->tables.plans, plan, STEPAF_MAX_PLANS, &plan->index)) {
        if (ctx->tables.plans.n_used < STEPAF_MAX_PLANS)
            goto err_memory;
        status = stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE, "more than %d plans",
                                  STEPAF_MAX_PLANS);
        goto err_plan;
    }
    plan->handle.name = stepaf_handle_name(STEPAF_HANDLE_PLAN, ctx->handle.slot, plan->index);
    plan->handle.generation = stepaf_table_generation(&ctx->tables.plans);
    for (uint8_t s = 0; s < plan->depth; s++)
        set_stamps(&plan->ops[s]);
    have_watched(plan);
    use_all(plan, 1);
    *plan_p = plan;
    return STEPAF_OK;

err_memory:
    status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
err_plan:
    if (plan)
        stepaf_plan_free(plan);
    return status;
}

unsigned stepaf_plan_names(const struct stepaf_plan_obj *plan, const struct stepaf_key *key)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < plan->n_push; i++)
        n += plan->push[i].key == key;
    for (uint32_t i = 0; i < plan->ctx->n_peers * plan->n_pull; i++)
        n += plan->pull[i].key == key;
    return n;
}

stepaf_status_t stepaf_plan_cache(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx_cache *cache = &plan->ctx->cache;

    if (cache->n == cache->max) {
        uint32_t max = cache->max ? 2 * cache->max : 16;
        struct stepaf_plan_obj **plans =
            realloc(cache->plans, max * sizeof(struct stepaf_plan_obj *));
        if (!plans)
            return stepaf_error_no_memory(STEPAF_PHASE_NONE);
        cache->plans = plans;
        cache->max = max;
    }
    plan->cached.is = true;
    plan->cached.at = cache->n;
    cache->plans[cache->n++] = plan;
    return STEPAF_OK;
}

bool stepaf_op_busy(const struct stepaf_op *op)
{
    bool busy = op->answers.pending;

    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++)
        busy = busy || stepaf_post_in_flight(&op->op_peers[p].post);
    return busy;
}

const struct stepaf_peer *stepaf_plan_holder(const struct stepaf_plan_obj *plan)
{
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        for (int s = 0; s < plan->depth; s++)
            if (plan->ops[s].op_peers[p].held)
                return &plan->ctx->peers[p];
    return NULL;
}
