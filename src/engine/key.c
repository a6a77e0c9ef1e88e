/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: declaration, and where an FFN rank receives them. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* Return the index of the first key that is not below @a id. */
static uint32_t lower_bound(const struct stepaf_ctx *ctx, uint64_t id)
{
    uint32_t low = 0, high = ctx->n_keys;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ctx->keys[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct stepaf_key *stepaf_key_find(const struct stepaf_ctx *ctx, uint64_t id)
{
    uint32_t at = lower_bound(ctx, id);

    return at < ctx->n_keys && ctx->keys[at]->id == id ? ctx->keys[at] : NULL;
}

static stepaf_status_t invalid(uint64_t id, const char *what)
{
    return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "key %llu: %s",
                            (unsigned long long)id, what);
}

/* Take over the shape and the sizes that follow from it. */
static stepaf_status_t set_shape(struct stepaf_key *key, const stepaf_key_params_t *params)
{
    size_t element = stepaf_dtype_bytes(key->dtype);
    uint64_t row = element;

    if (params->ndim < 1 || params->ndim > STEPAF_MAX_DIMS)
        return invalid(key->id, "ndim must be 1 to 8");
    for (int i = 0; i < params->ndim; i++) {
        if (params->shape[i] < 0 || params->shape[i] > UINT32_MAX)
            return invalid(key->id, "a dimension must be 0 to 2^32-1");
        if (i && __builtin_mul_overflow(row, (uint64_t)params->shape[i], &row))
            return invalid(key->id, "the shape holds more than 2^32-1 bytes");
    }
    uint64_t bytes;
    if (__builtin_mul_overflow(row, (uint64_t)params->shape[0], &bytes) || bytes > UINT32_MAX)
        return invalid(key->id, "the shape holds more than 2^32-1 bytes");
    if ((params->field_mask & STEPAF_KEY_MAX_BYTES) && params->max_bytes != bytes)
        return invalid(key->id, "shape and max_bytes contradict each other");
    key->ndim = params->ndim;
    memcpy(key->shape, params->shape, (size_t)params->ndim * sizeof(key->shape[0]));
    key->max_bytes = (uint32_t)bytes;
    key->row_bytes = row <= UINT32_MAX ? (uint32_t)row : 0;
    return STEPAF_OK;
}

static stepaf_status_t set_size(struct stepaf_key *key, const stepaf_key_params_t *params)
{
    size_t element = stepaf_dtype_bytes(key->dtype);

    if (params->field_mask & STEPAF_KEY_SHAPE)
        return set_shape(key, params);
    if (!(params->field_mask & STEPAF_KEY_MAX_BYTES))
        return invalid(key->id, "max_bytes or a shape is required");
    if (params->max_bytes > UINT32_MAX)
        return invalid(key->id, "max_bytes must be below 2^32");
    if (params->max_bytes % element)
        return invalid(key->id, "max_bytes is not a multiple of the element size");
    key->max_bytes = (uint32_t)params->max_bytes;
    key->row_bytes = (uint32_t)element;
    key->ndim = 1;
    key->shape[0] = (int64_t)(params->max_bytes / element);
    return STEPAF_OK;
}

static stepaf_status_t set_fields(const struct stepaf_ctx *ctx, struct stepaf_key *key,
                                  const stepaf_key_params_t *params)
{
    uint64_t mask = params->field_mask;

    if (mask & ~(uint64_t)STEPAF_KEY_ALL)
        return invalid(key->id, "unknown bits in field_mask");
    if (!(mask & STEPAF_KEY_DIRECTION) ||
        (params->direction != STEPAF_PUSH && params->direction != STEPAF_PULL))
        return invalid(key->id, "direction must be STEPAF_PUSH or STEPAF_PULL");
    key->direction = params->direction;
    key->dtype = mask & STEPAF_KEY_DTYPE ? params->dtype : STEPAF_U8;
    if ((unsigned)key->dtype >= STEPAF_DTYPE_LAST)
        return invalid(key->id, "unknown dtype");
    key->mem_kind = mask & STEPAF_KEY_MEM_KIND ? params->mem_kind : STEPAF_MEM_HOST;
    if (key->mem_kind != STEPAF_MEM_HOST && key->mem_kind != STEPAF_MEM_CUDA)
        return invalid(key->id, "unknown kind of memory");
    key->depth = mask & STEPAF_KEY_DEPTH ? params->depth : (uint32_t)ctx->env.depth;
    if (key->depth < 1 || key->depth > STEPAF_MAX_DEPTH)
        return invalid(key->id, "depth must be 1 to 32");
    return set_size(key, params);
}

static bool alike(const struct stepaf_key *a, const struct stepaf_key *b)
{
    return a->direction == b->direction && a->dtype == b->dtype && a->mem_kind == b->mem_kind &&
           a->max_bytes == b->max_bytes && a->depth == b->depth && a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, sizeof(a->shape));
}

stepaf_status_t stepaf_key_add(struct stepaf_ctx *ctx, uint64_t id,
                               const stepaf_key_params_t *params)
{
    struct stepaf_key *old = stepaf_key_find(ctx, id);
    struct stepaf_key *key = calloc(1, sizeof(*key));
    struct stepaf_key **keys;
    stepaf_status_t status;
    uint32_t at;

    if (!key)
        goto err_memory;
    key->id = id;
    stepaf_list_init(&key->segments);
    status = set_fields(ctx, key, params);
    if (!status && old && !alike(old, key))
        status = invalid(id, "declared already, with other parameters");
    if (!status && !old && ctx->n_keys == STEPAF_MAX_KEYS)
        status = stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE, "more than %d keys",
                                  STEPAF_MAX_KEYS);
    if (status || old) {
        free(key);
        return status;
    }
    keys = realloc(ctx->keys, (ctx->n_keys + 1) * sizeof(*keys));
    if (!keys)
        goto err_key;
    ctx->keys = keys;
    at = lower_bound(ctx, id);
    memmove(&keys[at + 1], &keys[at], (ctx->n_keys - at) * sizeof(*keys));
    keys[at] = key;
    ctx->n_keys++;
    ctx->changed = true;
    return STEPAF_OK;

err_key:
    free(key);
err_memory:
    return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
}

static void segment_free(struct stepaf_segment *segment)
{
    segment->region->uses--;
    stepaf_list_remove(&segment->node);
    free(segment->ranks);
    free(segment);
}

static struct stepaf_segment *segment_add(struct stepaf_key *key, struct stepaf_region *region,
                                          uint64_t offset, uint64_t stride, const uint32_t *ranks,
                                          uint32_t n_ranks)
{
    struct stepaf_segment *segment = calloc(1, sizeof(*segment));

    if (!segment)
        return NULL;
    segment->ranks = malloc(n_ranks * sizeof(segment->ranks[0]));
    if (!segment->ranks) {
        free(segment);
        return NULL;
    }
    memcpy(segment->ranks, ranks, n_ranks * sizeof(ranks[0]));
    segment->region = region;
    segment->offset = offset;
    segment->stride = stride;
    segment->n_ranks = n_ranks;
    region->uses++;
    region->target = true;
    stepaf_list_append(&key->segments, &segment->node);
    return segment;
}

uint8_t *stepaf_key_slice(const struct stepaf_key *key, uint32_t rank)
{
    for (struct stepaf_list *node = key->segments.next; node != &key->segments; node = node->next) {
        const struct stepaf_segment *segment =
            stepaf_container_of(node, struct stepaf_segment, node);
        for (uint32_t i = 0; i < segment->n_ranks; i++)
            if (segment->ranks[i] == rank)
                return segment->region->base + segment->offset + i * segment->stride;
    }
    return NULL;
}

static stepaf_status_t check_rank(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                                  int rank)
{
    if (rank < 0 || rank >= ctx->group_size[STEPAF_GROUP_ATTENTION])
        return invalid(key->id, "no such attention rank");
    if (!stepaf_mesh_has(&ctx->mesh, (uint32_t)rank))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "key %llu: attention rank %d is in lane %u of the mesh, this rank "
                                "in lane %u: it will never push here",
                                (unsigned long long)key->id, rank, (uint32_t)rank % ctx->mesh.lanes,
                                ctx->mesh.lane);
    return STEPAF_OK;
}

/* Fill ranks_p with the attention ranks meant, and check them. */
static stepaf_status_t receive_ranks(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                                     const int *ranks, uint32_t n, uint32_t *ranks_p)
{
    for (uint32_t i = 0; i < n; i++) {
        int rank = ranks ? ranks[i] : (int)stepaf_mesh_rank(&ctx->mesh, i);
        stepaf_status_t status = check_rank(ctx, key, rank);
        if (status)
            return status;
        for (uint32_t j = 0; j < i; j++)
            if (ranks_p[j] == (uint32_t)rank)
                return invalid(key->id, "an attention rank is named twice");
        if (stepaf_key_slice(key, (uint32_t)rank))
            return invalid(key->id, "an attention rank has a receive buffer for it already");
        ranks_p[i] = (uint32_t)rank;
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_key_receive(struct stepaf_ctx *ctx, uint64_t id, void *buffer, size_t bytes,
                                   const int *ranks, int n_ranks)
{
    struct stepaf_key *key = stepaf_key_find(ctx, id);
    struct stepaf_region *region;
    stepaf_status_t status;
    uint32_t n, *list;
    size_t stride;

    if (!key || key->direction != STEPAF_PUSH)
        return stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE,
                                "key %llu is not declared as a push key", (unsigned long long)id);
    if (n_ranks < 0 || (!ranks) != (n_ranks == 0) || (uint32_t)n_ranks > ctx->n_peers)
        return invalid(id, "ranks and n_ranks do not name attention ranks");
    n = ranks ? (uint32_t)n_ranks : ctx->n_peers;
    if (bytes % n)
        return invalid(id, "bytes is not a multiple of the number of ranks");
    stride = bytes / n;
    if (stride < (size_t)key->depth * key->max_bytes)
        return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_NONE,
                                "key %llu: a slice of %zu bytes holds less than %u buffers of %u "
                                "bytes",
                                (unsigned long long)id, stride, key->depth, key->max_bytes);
    region = stepaf_region_find(ctx, buffer, bytes);
    if (!region)
        return stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_NONE,
                                "key %llu: the receive buffer is not in registered memory",
                                (unsigned long long)id);
    if (region->kind != key->mem_kind)
        return invalid(id, region->kind == STEPAF_MEM_CUDA
                               ? "the receive buffer is in GPU memory, but the key is declared for "
                                 "host memory"
                               : "the receive buffer is in host memory, but the key is declared "
                                 "for GPU memory");
    list = malloc(n * sizeof(*list));
    if (!list)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
    status = receive_ranks(ctx, key, ranks, n, list);
    if (!status &&
        !segment_add(key, region, (uint64_t)((uint8_t *)buffer - region->base), stride, list, n))
        status = stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
    free(list);
    if (!status)
        ctx->changed = true;
    return status;
}

/* Slot and slice starts are kept a cache line apart, so that neighbours do not share one. */
static uint64_t slice_bytes(const struct stepaf_key *key)
{
    return ((uint64_t)key->depth * key->max_bytes + 63) / 64 * 64;
}

/* Collect the attention ranks that have no buffer for @a key. */
static uint32_t ranks_without(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                              uint32_t *ranks_p)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (!stepaf_key_slice(key, stepaf_mesh_rank(&ctx->mesh, p)))
            ranks_p[n++] = stepaf_mesh_rank(&ctx->mesh, p);
    return n;
}

static bool is_received_in(const struct stepaf_key *key, stepaf_mem_kind_t kind)
{
    return key->direction == STEPAF_PUSH && key->mem_kind == kind;
}

/* One region holds the buffers of all keys of a kind that lack some. @a ranks is scratch. */
static stepaf_status_t allocate_kind(struct stepaf_ctx *ctx, stepaf_mem_kind_t kind,
                                     uint32_t *ranks)
{
    struct stepaf_region *region = NULL;
    uint64_t total = 0, at = 0;
    stepaf_status_t status;

    for (uint32_t i = 0; i < ctx->n_keys; i++)
        if (is_received_in(ctx->keys[i], kind))
            total += ranks_without(ctx, ctx->keys[i], ranks) * slice_bytes(ctx->keys[i]);
    for (uint32_t i = 0; i < ctx->n_keys; i++) {
        struct stepaf_key *key = ctx->keys[i];
        uint32_t n = is_received_in(key, kind) ? ranks_without(ctx, key, ranks) : 0;
        if (!n)
            continue;
        if (!region && (status = stepaf_region_alloc(ctx, total ? total : 64, kind, &region)))
            return status;
        struct stepaf_segment *segment = segment_add(key, region, at, slice_bytes(key), ranks, n);
        if (!segment)
            return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT, "out of memory");
        segment->library = true;
        at += n * slice_bytes(key);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_key_allocate(struct stepaf_ctx *ctx)
{
    uint32_t *ranks = malloc(ctx->n_peers * sizeof(*ranks));
    stepaf_status_t status;

    if (!ranks)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT, "out of memory");
    status = allocate_kind(ctx, STEPAF_MEM_HOST, ranks);
    if (!status)
        status = allocate_kind(ctx, STEPAF_MEM_CUDA, ranks);
    free(ranks);
    if (status)
        stepaf_key_allocate_undo(ctx);
    return status;
}

void stepaf_key_allocate_undo(struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->n_keys; i++) {
        struct stepaf_list *segments = &ctx->keys[i]->segments;
        for (struct stepaf_list *node = segments->next, *next; node != segments; node = next) {
            struct stepaf_segment *segment = stepaf_container_of(node, struct stepaf_segment, node);
            struct stepaf_region *region = segment->region;
            next = node->next;
            if (!segment->library || region->offered)
                continue;
            segment_free(segment);
            if (!region->uses)
                stepaf_region_drop(ctx, region);
        }
    }
}

void stepaf_keys_free(struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->n_keys; i++) {
        struct stepaf_key *key = ctx->keys[i];
        while (!stepaf_list_empty(&key->segments))
            segment_free(stepaf_container_of(key->segments.next, struct stepaf_segment, node));
        free(key->remote);
        free(key);
    }
    free(ctx->keys);
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
