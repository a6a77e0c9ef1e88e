/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, attention side: checking what they name, making and freeing them. */
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/feature.h"
#include "core/key.h"
#include "core/plan.h"
#include "core/plan_announce.h"
#include "core/region.h"
#include "core/send.h"
#include "core/table.h"
#include "core/trace.h"
#include "device/gpu.h"

static stepaf_status_t invalid(const char *what)
{
    return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "%s", what);
}

/* Memory of a stream plan: the GPU's, or host memory that the GPU is let to use. What a key names
 * at its receiver is of the key's kind. */
static stepaf_status_t use_on_streams(struct stepaf_plan_obj *plan, const struct stepaf_key *key,
                                      struct stepaf_region *region, const char *what, int index)
{
    bool received = stepaf_is_attention(plan->ctx) && key->direction == STEPAF_PULL;
    stepaf_status_t status;

    if (received && region->mem.kind != key->mem_kind)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "%s %d is in %s memory, and key %llu is declared for %s memory",
                                what, index, region->mem.kind == STEPAF_MEM_CUDA ? "GPU" : "host",
                                (unsigned long long)key->id,
                                key->mem_kind == STEPAF_MEM_CUDA ? "GPU" : "host");
    status = stepaf_region_pin(plan->ctx, region);
    if (status && status != STEPAF_ERR_STATE) { /* which passes */
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "%s %d is in host memory that the GPU cannot use: %.200s", what,
                                index, stepaf_last_error()->text);
    }
    return status;
}

/* Find the memory of one tensor. */
static stepaf_status_t find_memory(struct stepaf_plan_obj *plan, const struct stepaf_key *key,
                                   const stepaf_tensor_t *tensor, const char *what, int index,
                                   struct stepaf_region **region_p)
{
    struct stepaf_ctx *ctx = plan->ctx;

    *region_p = stepaf_region_find(ctx, tensor->data, tensor->bytes);
    if (!*region_p)
        return stepaf_region_refuse(ctx, tensor->data, tensor->bytes, STEPAF_PHASE_NONE, what,
                                    index);
    return plan->on_streams ? use_on_streams(plan, key, *region_p, what, index) : STEPAF_OK;
}

/* Find the key and memory of one tensor, and check that it fits. */
static stepaf_status_t resolve(struct stepaf_plan_obj *plan, const stepaf_tensor_t *tensor,
                               stepaf_direction_t direction, const char *what, int index,
                               struct stepaf_key **key_p, struct stepaf_region **region_p)
{
    struct stepaf_key *key = stepaf_key_find(plan->ctx, tensor->key);
    unsigned long long id = tensor->key;

    if (!key)
        return stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE,
                                "%s %d: key %llu is not declared", what, index, id);
    if (key->direction != direction)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "%s %d: key %llu is declared for the other direction", what, index,
                                id);
    if (tensor->bytes > key->max_bytes)
        return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_NONE,
                                "%s %d: %zu bytes, but key %llu holds %u", what, index,
                                tensor->bytes, id, key->max_bytes);
    *key_p = key;
    *region_p = NULL;
    if (!tensor->bytes && !tensor->data)
        return STEPAF_OK;
    return find_memory(plan, key, tensor, what, index, region_p);
}

static stepaf_status_t compile_push(struct stepaf_plan_obj *plan, const stepaf_tensor_t *push)
{
    for (int i = 0; i < plan->n_push; i++) {
        struct stepaf_push *own = &plan->push[i];
        stepaf_status_t status =
            resolve(plan, &push[i], STEPAF_PUSH, "push tensor", i, &own->key, &own->region);
        if (status)
            return status;
        for (int j = 0; j < i; j++)
            if (plan->push[j].key == own->key)
                return invalid("a push key is named twice");
        own->data = push[i].data;
        own->bytes = (uint32_t)push[i].bytes;
        if (own->key->depth < plan->depth)
            plan->depth = (uint8_t)own->key->depth;
    }
    return STEPAF_OK;
}

/* A destination covers all slots: the planned depth decides how many. */
static size_t pull_span(const struct stepaf_plan_obj *plan, const struct stepaf_pull *pull)
{
    return (size_t)(plan->depth - 1) * pull->key->max_bytes + pull->bytes;
}

static int by_address(const void *a, const void *b)
{
    const struct stepaf_pull *const *one = a;
    const struct stepaf_pull *const *other = b;

    return ((*one)->data > (*other)->data) - ((*one)->data < (*other)->data);
}

static stepaf_status_t check_overlap(const struct stepaf_plan_obj *plan, uint32_t n)
{
    const struct stepaf_pull **sorted = malloc((n ? n : 1) * sizeof(*sorted));
    stepaf_status_t status = STEPAF_OK;
    uint32_t n_sorted = 0;

    if (!sorted)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    for (uint32_t i = 0; i < n; i++)
        if (plan->pull[i].bytes) /* nothing is nowhere */
            sorted[n_sorted++] = &plan->pull[i];
    qsort(sorted, n_sorted, sizeof(*sorted), by_address);
    for (uint32_t i = 1; i < n_sorted && !status; i++)
        if (sorted[i - 1]->data + pull_span(plan, sorted[i - 1]) > sorted[i]->data)
            status = invalid("pull destinations overlap");
    free(sorted);
    return status;
}

static stepaf_status_t compile_pull(struct stepaf_plan_obj *plan, const stepaf_tensor_t *pull)
{
    uint32_t n = plan->ctx->n_peers * plan->n_pull;

    for (uint32_t i = 0; i < n; i++) {
        struct stepaf_pull *own = &plan->pull[i];
        stepaf_status_t status =
            resolve(plan, &pull[i], STEPAF_PULL, "pull tensor", (int)i, &own->key, &own->region);
        if (status)
            return status;
        own->data = pull[i].data;
        own->bytes = (uint32_t)pull[i].bytes;
        if (own->key->depth < plan->depth)
            plan->depth = (uint8_t)own->key->depth;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct stepaf_pull *own = &plan->pull[i];
        if (own->region &&
            stepaf_region_find(plan->ctx, own->data, pull_span(plan, own)) != own->region)
            return stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_NONE,
                                    "pull tensor %u: its %u slots are not in registered memory", i,
                                    plan->depth);
    }
    return stepaf_is_attention(plan->ctx) ? check_overlap(plan, n) : STEPAF_OK;
}

/* Count the plan in or out at a region. */
static void use_region(struct stepaf_plan_obj *plan, struct stepaf_region *region, unsigned change)
{
    region->uses += change;
    if (region->mem.kind != STEPAF_MEM_CUDA || plan->on_streams)
        return;
    plan->on_gpu = true;
    if (plan->proxied.is) /* its stream plan has seen to the memory */
        return;
    plan->ctx->commit.changed = plan->ctx->commit.changed || !region->hosted;
    region->hosted = true;
}

/* The same at a key. */
static void use_key(const struct stepaf_plan_obj *plan, struct stepaf_key *key, unsigned change)
{
    if (plan->proxied.is) /* nobody's but its stream plan's */
        return;
    key->uses += change;
    if (plan->on_streams)
        key->stream_uses += change;
}

/* Count the plan in or out at the keys and the memory that it uses. */
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
            if (stepaf_is_attention(plan->ctx)) /* else it is what answers are sent from */
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
    if (!op->op_peers || !op->posts || !op->xfers || !op->pull_bytes)
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

/* What the trace says of an operation's end. */
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

static stepaf_status_t check_counts(const struct stepaf_ctx *ctx, const stepaf_tensor_t *push,
                                    int n_push, const stepaf_tensor_t *pull, int n_pull,
                                    uint32_t flags)
{
    int n_peers = (int)ctx->n_peers;

    if (flags & ~(uint32_t)(STEPAF_PLAN_SCATTER | STEPAF_PLAN_STREAM | STEPAF_PLAN_ANY |
                            STEPAF_PLAN_KEEP_SOURCES | STEPAF_PLAN_PROXY))
        return invalid("unknown flags");
    if (flags & STEPAF_PLAN_ANY && !(flags & STEPAF_PLAN_STREAM))
        return invalid("STEPAF_PLAN_ANY goes with STEPAF_PLAN_STREAM");
    if (flags & STEPAF_PLAN_KEEP_SOURCES && !(flags & STEPAF_PLAN_STREAM))
        return invalid("STEPAF_PLAN_KEEP_SOURCES goes with STEPAF_PLAN_STREAM");
    if (flags & STEPAF_PLAN_ANY && stepaf_is_attention(ctx))
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE,
                                "STEPAF_PLAN_ANY is for FFN ranks");
    if (n_push < 0 || n_pull < 0 || (n_push && !push) || (n_pull && !pull))
        return invalid("a count is negative, or its tensors are NULL");
    if (!n_push && !n_pull)
        return invalid("a plan needs something to push or to pull");
    if (n_pull % n_peers)
        return stepaf_error_set(
            STEPAF_ERR_PULLS, STEPAF_PHASE_NONE,
            "%d pulls for %d FFN ranks of the mesh: each needs the same number of "
            "destinations, or some answers would have nowhere to go",
            n_pull, n_peers);
    if (n_push > STEPAF_MAX_TENSORS || n_pull / n_peers > STEPAF_MAX_TENSORS)
        return invalid("more than 8 tensors to or from one FFN rank");
    return STEPAF_OK;
}

stepaf_status_t stepaf_plan_make(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                                 const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                                 struct stepaf_plan_obj **plan_p)
{
    stepaf_status_t status = check_counts(ctx, push, n_push, pull, n_pull, flags);
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
    status = compile_push(plan, push);
    if (!status)
        status = compile_pull(plan, pull);
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
