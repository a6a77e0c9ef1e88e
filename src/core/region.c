/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: regions in a tree by address, and in an array by id, searched by bisection. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "core/feature.h"
#include "core/region.h"
#include "core/region_kind.h"
#include "device/device.h"

/* Compare regions for the tree. Regions do not overlap; overlapping ranges compare equal. A probe
 * is a region of which only the mem part exists. */
static int compare_ranges(const void *one, const void *other)
{
    const struct stepaf_mem *a = one, *b = other;
    uintptr_t at = (uintptr_t)a->base, its = (uintptr_t)b->base;

    if (at <= its)
        return its - at >= a->bytes ? -1 : 0;
    return at - its >= b->bytes;
}

/* Find the region that has a byte in common with a range; return NULL if there is none. */
static struct stepaf_region *find_in_range(const struct stepaf_ctx *ctx, const void *base,
                                           size_t bytes)
{
    struct stepaf_mem probe = {.base = (uint8_t *)(uintptr_t)base, .bytes = bytes};
    struct stepaf_region *const *found = tfind(&probe, &ctx->memory.region_tree, compare_ranges);

    return found ? *found : NULL;
}

/* Return the index of the first name that is not below @a id. */
static uint32_t place_of(const struct stepaf_ctx *ctx, uint32_t id)
{
    uint32_t low = 0, high = ctx->memory.n_named;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ctx->memory.by_id[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool holds(const struct stepaf_region *region, const uint8_t *place, size_t bytes)
{
    return place >= region->mem.base && bytes <= region->mem.bytes &&
           (size_t)(place - region->mem.base) <= region->mem.bytes - bytes;
}

struct stepaf_region *stepaf_region_find(const struct stepaf_ctx *ctx, const void *data,
                                         size_t bytes)
{
    struct stepaf_region *region = find_in_range(ctx, data, 1);

    if (!region && !bytes && data) /* an empty range may also start at a region's end */
        region = find_in_range(ctx, (const uint8_t *)data - 1, 1);
    return region && holds(region, data, bytes) ? region : NULL;
}

struct stepaf_region *stepaf_region_find_host(struct stepaf_ctx *ctx, const void *data,
                                              size_t bytes)
{
    if (ctx->memory.last && holds(ctx->memory.last, data, bytes))
        return ctx->memory.last;
    struct stepaf_region *region = stepaf_region_find(ctx, data, bytes);
    if (!region || region->mem.kind != STEPAF_MEM_HOST)
        return NULL;
    ctx->memory.last = region;
    return region;
}

struct stepaf_region *stepaf_region_find_linked(struct stepaf_ctx *ctx, const void *data,
                                                size_t bytes)
{
    struct stepaf_region *region = stepaf_region_find_host(ctx, data, bytes);

    if (__builtin_expect(region != NULL, 1))
        return region;
    region = stepaf_region_find(ctx, data, bytes);
    return region && stepaf_region_is_linked(ctx, region) ? region : NULL;
}

stepaf_status_t stepaf_region_refuse(const struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                     stepaf_phase_t phase, const char *what, int index)
{
    if (stepaf_region_find(ctx, data, bytes))
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, phase,
                                "%s %d is in GPU memory that no commit has prepared for plans "
                                "without STEPAF_PLAN_STREAM",
                                what, index);
    return stepaf_error_set(STEPAF_ERR_UNREGISTERED, phase,
                            "%s %d: its %zu bytes are not in registered memory", what, index,
                            bytes);
}

static void tell_drop(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    ctx->feature->region_dropped(ctx, region);
    for (unsigned t = 0; t < ctx->net.n_transports; t++)
        ctx->net.transports[t]->ops->dereg_mem(ctx->net.transports[t], &region->mem);
}

/* Register a region with the open transports. They learn of GPU memory at commit, if links use
 * it. */
static stepaf_status_t tell_add(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    stepaf_status_t status = STEPAF_OK;

    if (region->mem.kind != STEPAF_MEM_HOST)
        return STEPAF_OK;
    for (unsigned t = 0; t < ctx->net.n_transports && !status; t++)
        status = ctx->net.transports[t]->ops->reg_mem(ctx->net.transports[t], &region->mem);
    return status;
}

/* Reserve space for one more region. */
static bool reserve_region(struct stepaf_ctx_memory *memory)
{
    if (memory->n_regions == memory->max_regions) {
        uint32_t max = memory->max_regions ? 2 * memory->max_regions : 16;
        struct stepaf_region **regions =
            realloc(memory->regions, max * sizeof(struct stepaf_region *));
        if (!regions)
            return false;
        memory->regions = regions;
        memory->max_regions = max;
    }
    if (memory->n_named == memory->max_named) {
        uint32_t max = memory->max_named ? 2 * memory->max_named : 16;
        struct stepaf_region_name *by_id = realloc(memory->by_id, max * sizeof(*by_id));
        if (!by_id)
            return false;
        memory->by_id = by_id;
        memory->max_named = max;
    }
    return true;
}

static stepaf_status_t region_add(struct stepaf_ctx *ctx, const struct stepaf_region *model,
                                  struct stepaf_region **region_p)
{
    struct stepaf_ctx_memory *memory = &ctx->memory;
    struct stepaf_region *region = malloc(sizeof(*region));

    if (!region || !reserve_region(memory)) {
        free(region);
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    }
    *region = *model;
    region->mem.id = memory->next_id;
    stepaf_status_t status = tell_add(ctx, region);
    if (!status && !tsearch(region, &memory->region_tree, compare_ranges))
        status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (status) {
        stepaf_error_t error = *stepaf_last_error();
        for (unsigned t = 0; t < ctx->net.n_transports; t++) /* some may have registered it */
            ctx->net.transports[t]->ops->dereg_mem(ctx->net.transports[t], &region->mem);
        free(region);
        return stepaf_error_raise(&error);
    }
    region->at = memory->n_regions;
    memory->regions[memory->n_regions++] = region;
    memory->by_id[memory->n_named++] = (struct stepaf_region_name){memory->next_id++, region};
    *region_p = region;
    return STEPAF_OK;
}

stepaf_status_t stepaf_region_alloc(struct stepaf_ctx *ctx, size_t bytes, stepaf_mem_kind_t kind,
                                    struct stepaf_region **region_p)
{
    struct stepaf_device_mem mem;
    struct stepaf_gpu *gpu = NULL;
    stepaf_status_t status = kind == STEPAF_MEM_CUDA ? stepaf_ctx_gpu(ctx, &gpu) : STEPAF_OK;

    if (!status)
        status = stepaf_device_alloc(kind, gpu, bytes, &mem);
    if (status)
        return status;
    struct stepaf_region model = {
        .mem = {.base = mem.base, .bytes = mem.bytes, .kind = kind, .fd = mem.fd, .gpu = gpu},
        .library = true,
        .shareable = true};
    status = region_add(ctx, &model, region_p);
    if (status)
        stepaf_device_free(&mem);
    return status;
}

stepaf_status_t stepaf_region_register(struct stepaf_ctx *ctx, void *base, size_t bytes)
{
    struct stepaf_region model = {
        .mem = {.base = base, .bytes = bytes, .kind = STEPAF_MEM_HOST, .fd = -1}};
    struct stepaf_region *region;
    stepaf_status_t status;

    if (find_in_range(ctx, base, bytes))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "the range overlaps registered memory");
    status = stepaf_ctx_place(ctx, &model);
    if (status)
        return status;
    model.mem.lent = model.mem.kind == STEPAF_MEM_HOST;
    return region_add(ctx, &model, &region);
}

stepaf_status_t stepaf_region_check_streams(const struct stepaf_ctx *ctx)
{
    if (!ctx->feature->is_ahead(ctx))
        return STEPAF_OK;
    return stepaf_error_set(
        STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
        "streams have not completed the operations that were enqueued for proxied peers");
}

stepaf_status_t stepaf_region_pin(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    struct stepaf_gpu *gpu;
    stepaf_status_t status;

    if (region->pinned || region->mem.kind != STEPAF_MEM_HOST)
        return STEPAF_OK;
    status = stepaf_region_check_streams(ctx);
    if (!status)
        status = stepaf_ctx_gpu(ctx, &gpu);
    if (!status)
        status = stepaf_gpu_pin(gpu, region->mem.base, region->mem.bytes, &region->unpin);
    region->pinned = !status;
    return status;
}

static stepaf_status_t pin_again(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    if (!region || !region->pinned || region->unpin)
        return STEPAF_OK;
    return stepaf_gpu_pin(ctx->gpu.device, region->mem.base, region->mem.bytes, &region->unpin);
}

stepaf_status_t stepaf_regions_pin_again(struct stepaf_ctx *ctx)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0; i < ctx->memory.n_regions && !status; i++) {
        status = pin_again(ctx, ctx->memory.regions[i]);
        if (!status)
            status = pin_again(ctx, ctx->memory.regions[i]->bounce);
    }
    return status;
}

/* Remove a region from all tables. */
static void region_unlist(struct stepaf_ctx_memory *memory, struct stepaf_region *region,
                          uint32_t named_at)
{
    struct stepaf_region *last = memory->regions[--memory->n_regions];

    last->at = region->at;
    memory->regions[last->at] = last;
    (void)tdelete(region, &memory->region_tree, compare_ranges);
    memory->by_id[named_at].region = NULL;
    if (++memory->n_dropped <= memory->n_named / 2)
        return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < memory->n_named; i++)
        if (memory->by_id[i].region)
            memory->by_id[n++] = memory->by_id[i];
    memory->n_named = n;
    memory->n_dropped = 0;
}

void stepaf_region_drop(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    tell_drop(ctx, region);
    region_unlist(&ctx->memory, region, place_of(ctx, region->mem.id));
    if (ctx->memory.last == region)
        ctx->memory.last = NULL;
    if (ctx->memory.named == region)
        ctx->memory.named = NULL;
    if (region->unpin)
        stepaf_gpu_unpin(ctx->gpu.device, region->mem.base);
    if (region->library)
        stepaf_device_free(&(struct stepaf_device_mem){
            region->mem.base, region->mem.bytes, region->mem.fd, region->mem.kind,
            region->mem.kind == STEPAF_MEM_CUDA ? ctx->gpu.device : NULL});
    free(region);
}

void stepaf_regions_free(struct stepaf_ctx *ctx)
{
    while (ctx->memory.n_regions)
        stepaf_region_drop(ctx, ctx->memory.regions[ctx->memory.n_regions - 1]);
    free(ctx->memory.regions);
    free(ctx->memory.by_id);
}

static __attribute__((noinline)) struct stepaf_region *find_id(struct stepaf_ctx *ctx, uint32_t id)
{
    uint32_t at = place_of(ctx, id);

    if (at == ctx->memory.n_named || ctx->memory.by_id[at].id != id)
        return NULL;
    ctx->memory.named = ctx->memory.by_id[at].region;
    return ctx->memory.named;
}

struct stepaf_target stepaf_region_resolve(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                                           uint32_t bytes)
{
    static const struct stepaf_target nowhere;
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    const struct stepaf_region *region = ctx->memory.named;

    if (!region || region->mem.id != id)
        region = find_id(ctx, id);
    if (!region || !region->target || offset > region->mem.bytes ||
        bytes > region->mem.bytes - offset)
        return nowhere;
    const struct stepaf_region *host =
        region->mem.kind == STEPAF_MEM_HOST ? region : region->bounce;
    return (struct stepaf_target){host ? host->mem.base + offset : NULL, &region->mem};
}
