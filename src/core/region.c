/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: an array by address, and one by number, looked up by bisection. */
#include <stdlib.h>
#include <string.h>

#include "core/feature.h"
#include "core/region.h"
#include "core/region_kind.h"
#include "device/device.h"

/* Return the number of regions that begin at or below @a place. */
static uint32_t upper_bound(const struct stepaf_ctx *ctx, const uint8_t *place)
{
    uint32_t low = 0, high = ctx->memory.n_regions;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ctx->memory.regions[middle]->mem.base <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return the index of the first region whose number is not below @a id. */
static uint32_t place_of(const struct stepaf_ctx *ctx, uint32_t id)
{
    uint32_t low = 0, high = ctx->memory.n_regions;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ctx->memory.by_id[middle]->mem.id < id)
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
    uint32_t at = upper_bound(ctx, data);

    return at && holds(ctx->memory.regions[at - 1], data, bytes) ? ctx->memory.regions[at - 1]
                                                                 : NULL;
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
                                "%s %d is in GPU memory that no commit has made ready for plans "
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

/* Tell the transports that are open. Of GPU memory they learn at commit, if it is for links. */
static stepaf_status_t tell_add(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    stepaf_status_t status = STEPAF_OK;

    if (region->mem.kind != STEPAF_MEM_HOST)
        return STEPAF_OK;
    for (unsigned t = 0; t < ctx->net.n_transports && !status; t++)
        status = ctx->net.transports[t]->ops->reg_mem(ctx->net.transports[t], &region->mem);
    return status;
}

static stepaf_status_t region_add(struct stepaf_ctx *ctx, const struct stepaf_region *model,
                                  struct stepaf_region **region_p)
{
    struct stepaf_region *region = malloc(sizeof(*region));
    struct stepaf_region **regions =
        realloc(ctx->memory.regions, (ctx->memory.n_regions + 1) * sizeof(*regions));
    struct stepaf_region **named =
        realloc(ctx->memory.by_id, (ctx->memory.n_regions + 1) * sizeof(*named));
    uint32_t at;

    ctx->memory.regions = regions ? regions : ctx->memory.regions;
    ctx->memory.by_id = named ? named : ctx->memory.by_id;
    if (!region || !regions || !named) {
        free(region);
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    }
    *region = *model;
    region->mem.id = ctx->memory.next_id;
    stepaf_status_t status = tell_add(ctx, region);
    if (status) {
        stepaf_error_t error = *stepaf_last_error();
        for (unsigned t = 0; t < ctx->net.n_transports; t++) /* some may have taken it */
            ctx->net.transports[t]->ops->dereg_mem(ctx->net.transports[t], &region->mem);
        free(region);
        return stepaf_error_raise(&error);
    }
    ctx->memory.next_id++;
    at = upper_bound(ctx, region->mem.base);
    memmove(&regions[at + 1], &regions[at], (ctx->memory.n_regions - at) * sizeof(*regions));
    regions[at] = region;
    named[ctx->memory.n_regions++] = region; /* numbers ascend */
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
    uint32_t at = upper_bound(ctx, (uint8_t *)base + bytes - 1);
    stepaf_status_t status;

    if (at && ctx->memory.regions[at - 1]->mem.base + ctx->memory.regions[at - 1]->mem.bytes >
                  (uint8_t *)base)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "the range overlaps registered memory");
    status = stepaf_ctx_place(ctx, &model);
    if (status)
        return status;
    return region_add(ctx, &model, &region);
}

stepaf_status_t stepaf_region_check_streams(const struct stepaf_ctx *ctx)
{
    if (!ctx->feature->is_ahead(ctx))
        return STEPAF_OK;
    return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                            "streams have not come by what was enqueued for peers by way of the "
                            "host");
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

void stepaf_region_drop(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    uint32_t at = upper_bound(ctx, region->mem.base) - 1, named_at = place_of(ctx, region->mem.id);

    tell_drop(ctx, region);
    ctx->memory.n_regions--;
    memmove(&ctx->memory.regions[at], &ctx->memory.regions[at + 1],
            (ctx->memory.n_regions - at) * sizeof(ctx->memory.regions[0]));
    memmove(&ctx->memory.by_id[named_at], &ctx->memory.by_id[named_at + 1],
            (ctx->memory.n_regions - named_at) * sizeof(ctx->memory.by_id[0]));
    if (ctx->memory.last == region)
        ctx->memory.last = NULL;
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

uint8_t *stepaf_region_resolve(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                               uint32_t bytes)
{
    const struct stepaf_ctx *ctx = (const struct stepaf_ctx *)up;
    uint32_t at = place_of(ctx, id);
    const struct stepaf_region *region = at < ctx->memory.n_regions ? ctx->memory.by_id[at] : NULL;

    if (!region || region->mem.id != id || !region->target || offset > region->mem.bytes ||
        bytes > region->mem.bytes - offset)
        return NULL;
    if (region->mem.kind != STEPAF_MEM_HOST)
        return region->bounce ? region->bounce->mem.base + offset : NULL;
    return region->mem.base + offset;
}
