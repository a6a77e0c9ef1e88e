/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: declaration, look-up by id, and shapes. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/key.h"

int stepaf_key_compare(const void *one, const void *other)
{
    const struct stepaf_key *a = one, *b = other;

    return (a->id > b->id) - (a->id < b->id);
}

static struct stepaf_key *find_in(void *const *tree, uint64_t id)
{
    struct stepaf_key model = {.id = id};
    struct stepaf_key *const *found = tfind(&model, tree, stepaf_key_compare);

    return found ? *found : NULL;
}

struct stepaf_key *stepaf_key_find(const struct stepaf_ctx *ctx, uint64_t id)
{
    return find_in(&ctx->memory.key_tree, id);
}

struct stepaf_key *stepaf_key_known(const struct stepaf_ctx *ctx, uint64_t id)
{
    struct stepaf_key *key = stepaf_key_find(ctx, id);

    if (key && key->since <= ctx->epoch)
        return key;
    key = find_in(&ctx->memory.withdrawn_tree, id);
    return key && key->until == ctx->epoch ? key : NULL;
}

static int compare_places(const void *one, const void *other)
{
    return stepaf_key_compare(*(struct stepaf_key *const *)one, *(struct stepaf_key *const *)other);
}

void stepaf_keys_sort(struct stepaf_ctx *ctx)
{
    struct stepaf_key **keys = ctx->memory.keys;

    if (ctx->memory.n_keys)
        qsort(keys, ctx->memory.n_keys, sizeof(struct stepaf_key *), compare_places);
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++)
        keys[i]->at = i;
}

stepaf_status_t stepaf_key_invalid(uint64_t id, const char *what)
{
    return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "key %llu: %s",
                            (unsigned long long)id, what);
}

/* Set the shape and the sizes that follow from it. */
static stepaf_status_t set_shape(struct stepaf_key *key, size_t max_bytes,
                                 const stepaf_key_params_t *params)
{
    size_t element = stepaf_dtype_bytes(key->dtype);
    uint64_t row = element;

    if (params->ndim < 1 || params->ndim > STEPAF_MAX_DIMS)
        return stepaf_key_invalid(key->id, "ndim must be 1 to 8");
    for (int i = 0; i < params->ndim; i++) {
        if (params->shape[i] < 0 || params->shape[i] > UINT32_MAX)
            return stepaf_key_invalid(key->id, "a dimension must be 0 to 2^32-1");
        if (i && __builtin_mul_overflow(row, (uint64_t)params->shape[i], &row))
            return stepaf_key_invalid(key->id, "the shape holds more than 2^32-1 bytes");
    }
    uint64_t bytes;
    if (__builtin_mul_overflow(row, (uint64_t)params->shape[0], &bytes) || bytes > UINT32_MAX)
        return stepaf_key_invalid(key->id, "the shape holds more than 2^32-1 bytes");
    if (max_bytes && max_bytes != bytes)
        return stepaf_key_invalid(key->id, "shape and max_bytes contradict each other");
    key->ndim = params->ndim;
    memcpy(key->shape, params->shape, (size_t)params->ndim * sizeof(key->shape[0]));
    key->max_bytes = (uint32_t)bytes;
    key->row_bytes = row <= UINT32_MAX ? (uint32_t)row : 0;
    return STEPAF_OK;
}

static stepaf_status_t set_size(struct stepaf_key *key, size_t max_bytes,
                                const stepaf_key_params_t *params)
{
    size_t element = stepaf_dtype_bytes(key->dtype);

    if (params->field_mask & STEPAF_KEY_SHAPE)
        return set_shape(key, max_bytes, params);
    if (max_bytes > UINT32_MAX)
        return stepaf_key_invalid(key->id, "max_bytes must be below 2^32");
    if (max_bytes % element)
        return stepaf_key_invalid(key->id, "max_bytes is not a multiple of the element size");
    key->max_bytes = (uint32_t)max_bytes;
    key->row_bytes = (uint32_t)element;
    key->ndim = 1;
    key->shape[0] = (int64_t)(max_bytes / element);
    return STEPAF_OK;
}

static stepaf_status_t set_fields(const struct stepaf_ctx *ctx, struct stepaf_key *key,
                                  stepaf_direction_t direction, size_t max_bytes,
                                  const stepaf_key_params_t *params)
{
    uint64_t mask = params->field_mask;

    if (mask & ~(uint64_t)STEPAF_KEY_ALL)
        return stepaf_key_invalid(key->id, "unknown bits in field_mask");
    if (direction != STEPAF_PUSH && direction != STEPAF_PULL)
        return stepaf_key_invalid(key->id, "direction must be STEPAF_PUSH or STEPAF_PULL");
    key->direction = direction;
    key->dtype = mask & STEPAF_KEY_DTYPE ? params->dtype : STEPAF_U8;
    if ((unsigned)key->dtype >= STEPAF_DTYPE_LAST)
        return stepaf_key_invalid(key->id, "unknown dtype");
    key->mem_kind = mask & STEPAF_KEY_MEM_KIND ? params->mem_kind : STEPAF_MEM_HOST;
    if (key->mem_kind != STEPAF_MEM_HOST && key->mem_kind != STEPAF_MEM_CUDA)
        return stepaf_key_invalid(key->id, "unknown kind of memory");
    key->depth = mask & STEPAF_KEY_DEPTH ? params->depth : (uint32_t)ctx->env.depth;
    if (key->depth < 1 || key->depth > STEPAF_MAX_DEPTH)
        return stepaf_key_invalid(key->id, "depth must be 1 to 32");
    return set_size(key, max_bytes, params);
}

static bool alike(const struct stepaf_key *a, const struct stepaf_key *b)
{
    return a->direction == b->direction && a->dtype == b->dtype && a->mem_kind == b->mem_kind &&
           a->max_bytes == b->max_bytes && a->depth == b->depth && a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, sizeof(a->shape));
}

stepaf_status_t stepaf_key_add(struct stepaf_ctx *ctx, uint64_t id, stepaf_direction_t direction,
                               size_t max_bytes, const stepaf_key_params_t *params)
{
    struct stepaf_key *old = stepaf_key_find(ctx, id);
    struct stepaf_key *key = calloc(1, sizeof(*key));
    struct stepaf_key **keys;
    stepaf_status_t status;

    if (!key)
        goto err_memory;
    key->id = id;
    key->since = ctx->epoch + 1;
    stepaf_list_init(&key->recv_bufs);
    status = set_fields(ctx, key, direction, max_bytes, params);
    if (!status && old && !alike(old, key))
        status = stepaf_key_invalid(id, "declared already, with other parameters");
    if (!status && !old && ctx->memory.n_keys == STEPAF_MAX_KEYS)
        status = stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE, "more than %d keys",
                                  STEPAF_MAX_KEYS);
    if (status || old) {
        free(key);
        return status;
    }
    if (stepaf_is_attention(ctx) && direction == STEPAF_PUSH) {
        key->remote = calloc(ctx->n_peers, sizeof(key->remote[0]));
        if (!key->remote)
            goto err_key;
    }
    if (ctx->memory.n_keys == ctx->memory.max_keys) {
        uint32_t max = ctx->memory.max_keys ? 2 * ctx->memory.max_keys : 16;
        keys = realloc(ctx->memory.keys, max * sizeof(*keys));
        if (!keys)
            goto err_key;
        ctx->memory.keys = keys;
        ctx->memory.max_keys = max;
    }
    if (!tsearch(key, &ctx->memory.key_tree, stepaf_key_compare))
        goto err_key;
    key->at = ctx->memory.n_keys;
    ctx->memory.keys[key->at] = key;
    ctx->memory.n_keys++;
    ctx->commit.changed = true;
    return STEPAF_OK;

err_key:
    free(key->remote);
    free(key);
err_memory:
    return stepaf_error_no_memory(STEPAF_PHASE_NONE);
}

void stepaf_key_unlist(struct stepaf_ctx *ctx, const struct stepaf_key *key)
{
    struct stepaf_key *last = ctx->memory.keys[--ctx->memory.n_keys];

    last->at = key->at;
    ctx->memory.keys[key->at] = last;
    (void)tdelete(key, &ctx->memory.key_tree, stepaf_key_compare);
    ctx->commit.changed = true;
}

void stepaf_key_describe(const struct stepaf_key *key, uint64_t id, void *data, uint32_t bytes,
                         uint32_t max_bytes, stepaf_tensor_info_t *info_p)
{
    bool has_rows = key && key->row_bytes && bytes % key->row_bytes == 0;

    info_p->key = id;
    info_p->data = data;
    info_p->bytes = bytes;
    info_p->max_bytes = max_bytes;
    info_p->dtype = has_rows ? key->dtype : STEPAF_U8;
    info_p->mem_kind = key ? key->mem_kind : STEPAF_MEM_HOST;
    info_p->ndim = has_rows ? key->ndim : 1;
    info_p->shape[0] = has_rows ? bytes / key->row_bytes : bytes;
    for (int i = 1; i < STEPAF_MAX_DIMS; i++)
        info_p->shape[i] = has_rows ? key->shape[i] : 0;
}
