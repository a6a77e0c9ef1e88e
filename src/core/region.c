/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: an array by address, and one by number, looked up by bisection. */
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/feature.h"
#include "core/plan_end.h"
#include "core/progress.h"
#include "core/region.h"
#include "core/region_kind.h"
#include "core/wait.h"
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

/* CUDA waits for all streams in such calls, and these for the host. */
static stepaf_status_t waits(void)
{
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
    if (ctx->feature->is_ahead(ctx))
        return waits();
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

/* The region that may go; NULL, and *status_p says why. */
static struct stepaf_region *removable(struct stepaf_ctx *ctx, void *base, bool allocated,
                                       stepaf_status_t *status_p)
{
    uint32_t at = upper_bound(ctx, base);
    struct stepaf_region *region = at ? ctx->memory.regions[at - 1] : NULL;

    if (region && region->mem.base == base && region->library == allocated && region->uses)
        stepaf_plans_uncache(ctx, region);
    if (!region || region->mem.base != base || region->library != allocated)
        *status_p =
            stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_NONE,
                             allocated ? "not the start of memory from stepaf_alloc"
                                       : "not the start of memory given to stepaf_register");
    else if (region->uses)
        *status_p = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                     "%u tensors of plans or receive registrations use this memory",
                                     region->uses);
    else if ((region->mem.kind != STEPAF_MEM_HOST || region->unpin) && ctx->feature->is_ahead(ctx))
        *status_p = waits();
    else
        return region;
    return NULL;
}

/* A peer to which a device may send again what it reads anew, or a lost one that still writes; NULL:
 * none. */
static const struct stepaf_peer *unsettled(struct stepaf_ctx *ctx, bool begin)
{
    const struct stepaf_peer *peer = NULL;
    uint32_t index;

    for (unsigned i = 0; i < ctx->net.n_transports; i++) {
        struct stepaf_transport *transport = ctx->net.transports[i];
        if (!transport->ops->is_quiet(transport, begin, &index))
            peer = &ctx->peers[index];
    }
    return peer;
}

/* Whether a post that waits for room has a tensor there, or in what stands in for it. */
static bool reads(const struct stepaf_post *post, const struct stepaf_region *region)
{
    for (uint32_t i = 0; i < post->n_xfer; i++) {
        const struct stepaf_region *from = stepaf_region_of(post->xfer[i].src_mem);
        if (post->xfer[i].bytes && (from == region || (from && from == region->bounce)))
            return true;
    }
    return false;
}

/* A peer to which something of a region is still to be sent; NULL: none. */
static const struct stepaf_peer *queued(const struct stepaf_ctx *ctx,
                                        const struct stepaf_region *region)
{
    for (const struct stepaf_list *n = ctx->net.queued.next; n != &ctx->net.queued; n = n->next) {
        const struct stepaf_peer *peer = stepaf_container_of(n, struct stepaf_peer, queue_node);
        for (const struct stepaf_list *m = peer->queue.next; m != &peer->queue; m = m->next)
            if (reads(stepaf_container_of(m, struct stepaf_post, node), region))
                return peer;
    }
    return NULL;
}

static stepaf_status_t not_acknowledged(const struct stepaf_peer *peer, stepaf_phase_t phase)
{
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, phase, peer->who,
                                 STEPAF_WHO_FORMAT
                                 " has not acknowledged what was sent to it, or still writes",
                                 STEPAF_WHO_ARGS(peer->who));
}

/* Go on, for the last time when the deadline has passed. */
static bool go_on(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns)
{
    bool more = stepaf_core_advance(ctx, waiter, deadline_ns);

    if (!more)
        (void)stepaf_core_progress(ctx);
    return more;
}

stepaf_status_t stepaf_regions_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    const struct stepaf_peer *peer;
    bool more = true;

    for (bool begin = true; (peer = unsettled(ctx, begin)); begin = false) {
        if (!more)
            return not_acknowledged(peer, STEPAF_PHASE_COMMIT);
        more = go_on(ctx, &waiter, deadline_ns);
    }
    return STEPAF_OK;
}

/* The lock is free while this waits: then a plan may have come to use the memory, or another thread
 * have removed it. */
stepaf_status_t stepaf_region_remove(struct stepaf_ctx *ctx, void *base, bool allocated)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + ctx->env.timeout_us * 1000;
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_region *region;
    bool begin = true, more = true;
    stepaf_status_t status;

    while ((region = removable(ctx, base, allocated, &status))) {
        const struct stepaf_peer *late = queued(ctx, region);
        const struct stepaf_peer *peer = late ? late : unsettled(ctx, begin);
        begin = late != NULL; /* what was sent until then counts */
        if (!peer)
            break;
        if (!more)
            return not_acknowledged(peer, STEPAF_PHASE_NONE);
        more = go_on(ctx, &waiter, deadline_ns);
    }
    if (!region)
        return status;
    if (region->offered)
        ctx->commit.changed = true;
    stepaf_region_drop(ctx, region);
    return STEPAF_OK;
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
