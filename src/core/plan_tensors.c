/* SPDX-License-Identifier: Apache-2.0 */
/* Resolving what a plan names: counts and flags, then each tensor's key and memory. */
#include <stdlib.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/plan_tensors.h"
#include "core/region.h"

static stepaf_status_t invalid(const char *what)
{
    return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "%s", what);
}

stepaf_status_t stepaf_plan_check(const struct stepaf_ctx *ctx, const stepaf_tensor_t *push,
                                  int n_push, const stepaf_tensor_t *pull, int n_pull,
                                  uint32_t flags)
{
    int n_peers = (int)ctx->n_peers;

    if (flags & ~(uint32_t)(STEPAF_PLAN_SCATTER | STEPAF_PLAN_STREAM | STEPAF_PLAN_ANY |
                            STEPAF_PLAN_KEEP_SOURCES | STEPAF_PLAN_PROXY))
        return invalid("unknown flags");
    if (flags & STEPAF_PLAN_ANY && !(flags & STEPAF_PLAN_STREAM))
        return invalid("STEPAF_PLAN_ANY requires STEPAF_PLAN_STREAM");
    if (flags & STEPAF_PLAN_KEEP_SOURCES && !(flags & STEPAF_PLAN_STREAM))
        return invalid("STEPAF_PLAN_KEEP_SOURCES requires STEPAF_PLAN_STREAM");
    if (flags & STEPAF_PLAN_ANY && stepaf_is_attention(ctx))
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE,
                                "STEPAF_PLAN_ANY is for FFN ranks");
    if (n_push < 0 || n_pull < 0 || (n_push && !push) || (n_pull && !pull))
        return invalid("a count is negative, or its tensors are NULL");
    if (!n_push && !n_pull)
        return invalid("a plan requires at least one tensor to push or to pull");
    if (n_pull % n_peers)
        return stepaf_error_set(STEPAF_ERR_PULLS, STEPAF_PHASE_NONE,
                                "%d pulls for %d FFN ranks of the mesh: each rank requires the "
                                "same number of destinations",
                                n_pull, n_peers);
    if (n_push > STEPAF_MAX_TENSORS || n_pull / n_peers > STEPAF_MAX_TENSORS)
        return invalid("more than 8 tensors to or from one FFN rank");
    return STEPAF_OK;
}

/* Prepare memory of a stream plan: the GPU's, or host memory that the GPU is allowed to use. Memory
 * that receives a key must be of the key's kind. */
static stepaf_status_t use_on_streams(struct stepaf_plan_obj *plan, const struct stepaf_key *key,
                                      struct stepaf_region *region, const char *what, int index)
{
    bool received = stepaf_is_attention(plan->ctx) && key->direction == STEPAF_PULL;
    stepaf_status_t status;

    if (received && region->mem.kind != key->mem_kind)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "%s %d is in %s memory, but key %llu is declared for %s memory",
                                what, index, region->mem.kind == STEPAF_MEM_CUDA ? "GPU" : "host",
                                (unsigned long long)key->id,
                                key->mem_kind == STEPAF_MEM_CUDA ? "GPU" : "host");
    status = stepaf_region_pin(plan->ctx, region);
    if (status && status != STEPAF_ERR_STATE) { /* a temporary state */
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

/* Return the bytes that a destination covers for all slots of the planned depth. */
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
        if (plan->pull[i].bytes) /* an empty tensor overlaps nothing */
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

stepaf_status_t stepaf_plan_take_tensors(struct stepaf_plan_obj *plan, const stepaf_tensor_t *push,
                                         const stepaf_tensor_t *pull)
{
    stepaf_status_t status = compile_push(plan, push);

    return status ? status : compile_pull(plan, pull);
}
