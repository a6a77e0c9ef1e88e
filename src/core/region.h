/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: set-up and look-ups. */
#ifndef STEPAF_CORE_REGION_H
#define STEPAF_CORE_REGION_H

#include "base/error.h"
#include "core/ctx.h"
#include "transport/mem.h"
#include "transport/transport.h"

struct stepaf_region {
    struct stepaf_mem mem; /* first: what transports know of the region */
    bool library;          /* from stepaf_alloc, or receive buffers; otherwise the caller's pages */
    bool shareable;        /* GPU memory: other processes can map it */
    bool target;           /* peers write to it: offered at commit */
    bool hidden;           /* offered to nobody, or no longer offered */
    bool hosted;           /* GPU memory: named by plans without streams */
    bool is_bounce;        /* bounce buffer of another region */
    bool pinned;           /* host memory that the GPU can use too */
    bool unpin;            /* pinned by this library */
    bool
        receives_hosted; /* GPU memory, FFN: some key is received there that no stream plan names */
    unsigned uses;       /* by plans and receive buffers */
    unsigned received;   /* of these, by receive buffers */
    unsigned leaving;    /* of those, by receive buffers that the next commit frees */
    uint32_t at;         /* in ctx->memory.regions */
    uint32_t offered;    /* epoch in which peers learned of it; 0: not yet */
    uint32_t linked;     /* GPU memory: first epoch in which links can carry it; 0: none */
    struct stepaf_region *bounce; /* GPU memory: host memory that stands for it, see gpu/bounce.h */
};

/* A region by its id. */
struct stepaf_region_name {
    uint32_t id;
    struct stepaf_region *region; /* NULL: dropped */
};

/* Return the region that contains @a mem. */
static inline const struct stepaf_region *stepaf_region_of(const struct stepaf_mem *mem)
{
    return (const struct stepaf_region *)mem;
}

/* Find the region that holds a range; return NULL if none does. _host: host memory only, fast.
 * _linked: host memory, or GPU memory that links can carry. */
struct stepaf_region *stepaf_region_find(const struct stepaf_ctx *ctx, const void *data,
                                         size_t bytes);
struct stepaf_region *stepaf_region_find_host(struct stepaf_ctx *ctx, const void *data,
                                              size_t bytes);
struct stepaf_region *stepaf_region_find_linked(struct stepaf_ctx *ctx, const void *data,
                                                size_t bytes);
/* Return the error that says why find_linked found nothing for @a what ("push tensor") @a index. */
stepaf_status_t stepaf_region_refuse(const struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                     stepaf_phase_t phase, const char *what, int index)
    __attribute__((cold));
stepaf_status_t stepaf_region_alloc(struct stepaf_ctx *ctx, size_t bytes, stepaf_mem_kind_t kind,
                                    struct stepaf_region **region_p);
stepaf_status_t stepaf_region_register(struct stepaf_ctx *ctx, void *base, size_t bytes);
/* Return STEPAF_ERR_STATE if CUDA might deadlock: some CUDA calls wait for all streams, and these
 * may wait for the host, which then could not continue. */
stepaf_status_t stepaf_region_check_streams(const struct stepaf_ctx *ctx);
/* Let the GPU read and write host memory, until the region is dropped. */
stepaf_status_t stepaf_region_pin(struct stepaf_ctx *ctx, struct stepaf_region *region);
/* Pin again all regions that must be pinned and that others had pinned. A transport that has been
 * closed may have pinned them, as UCX does with CUDA, and its pinning is gone. */
stepaf_status_t stepaf_regions_pin_again(struct stepaf_ctx *ctx);
void stepaf_region_drop(struct stepaf_ctx *ctx, struct stepaf_region *region);
void stepaf_regions_free(struct stepaf_ctx *ctx);
struct stepaf_target stepaf_region_resolve(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                                           uint32_t bytes);

static inline bool stepaf_region_is_linked(const struct stepaf_ctx *ctx,
                                           const struct stepaf_region *region)
{
    return region->mem.kind == STEPAF_MEM_HOST || (region->linked && region->linked <= ctx->epoch);
}

/* Return whether links of a transport carry a region of GPU memory directly. */
static inline bool stepaf_is_taken(const struct stepaf_transport *transport,
                                   const struct stepaf_region *region)
{
    return region->mem.registration[transport->index];
}

/* Return what links of a transport use in place of @a region. */
static inline const struct stepaf_mem *stepaf_reach(const struct stepaf_transport *transport,
                                                    const struct stepaf_region *region)
{
    if (__builtin_expect(region->mem.kind == STEPAF_MEM_HOST, 1) ||
        stepaf_is_taken(transport, region))
        return &region->mem;
    return &region->bounce->mem;
}

/* Set the source of a write of @a link. @a region: NULL if nothing is written. */
static inline void stepaf_xfer_from(struct stepaf_xfer *xfer, const struct stepaf_link *link,
                                    const struct stepaf_region *region, const void *data)
{
    xfer->src = data;
    xfer->src_mem = region ? &region->mem : NULL;
    if (__builtin_expect(!region || region->mem.kind == STEPAF_MEM_HOST, 1))
        return;
    xfer->src_mem = stepaf_reach(link->transport, region);
    xfer->src = xfer->src_mem->base + ((const uint8_t *)data - region->mem.base);
}

#endif
