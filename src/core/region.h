/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: set-up, and look-ups by bisection. Included by core.h. */
#ifndef STEPAF_CORE_REGION_H
#define STEPAF_CORE_REGION_H

#include "base/error.h"
#include "transport/mem.h"

struct stepaf_ctx;
struct stepaf_gpu;
struct stepaf_upcalls;

struct stepaf_region {
    struct stepaf_mem mem; /* first: what transports know of it */
    bool library;     /* from stepaf_alloc, or receive buffers; else pages of the caller's own */
    bool shareable;   /* GPU memory: other processes can map it */
    bool target;      /* peers write to it: it is offered at commit */
    bool hidden;      /* it is offered to nobody (any more) */
    bool hosted;      /* GPU memory: plans without streams name it */
    bool is_bounce;   /* it is the stage of another */
    bool pinned;      /* host memory that the GPU can use as well */
    bool unpin;       /* and this library has seen to that */
    unsigned uses;    /* by plans and receive registrations */
    uint32_t offered; /* epoch in which peers learned of it, 0: not yet */
    uint32_t linked;  /* GPU memory: epoch from which on links can carry it, 0: they do not */
    struct stepaf_region *bounce; /* GPU memory: host memory that stands for it, see gpu/bounce.h */
};

/* The region whose memory @a mem is. */
static inline const struct stepaf_region *stepaf_region_of(const struct stepaf_mem *mem)
{
    return (const struct stepaf_region *)mem;
}

/* Find the region that holds a range; NULL: none does. _host: only host memory, and fast; _linked:
 * that, or GPU memory that links can carry. */
struct stepaf_region *stepaf_region_find(const struct stepaf_ctx *ctx, const void *data,
                                         size_t bytes);
struct stepaf_region *stepaf_region_find_host(struct stepaf_ctx *ctx, const void *data,
                                              size_t bytes);
struct stepaf_region *stepaf_region_find_linked(struct stepaf_ctx *ctx, const void *data,
                                                size_t bytes);
/* Say why find_linked has found nothing for @a what ("push tensor") @a index. */
stepaf_status_t stepaf_region_refuse(const struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                     stepaf_phase_t phase, const char *what, int index)
    __attribute__((cold));
stepaf_status_t stepaf_region_alloc(struct stepaf_ctx *ctx, size_t bytes, stepaf_mem_kind_t kind,
                                    struct stepaf_region **region_p);
stepaf_status_t stepaf_region_register(struct stepaf_ctx *ctx, void *base, size_t bytes);
/* Let the GPU read and write host memory, until the region is dropped. */
stepaf_status_t stepaf_region_pin(struct stepaf_ctx *ctx, struct stepaf_region *region);
/* Wait until no device reads any more what was sent before: until peers have acknowledged it, or are
 * lost. STEPAF_ERR_TIMEOUT names one that has not. */
stepaf_status_t stepaf_regions_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* The same for one region, which goes then. */
stepaf_status_t stepaf_region_remove(struct stepaf_ctx *ctx, void *base, bool allocated);
void stepaf_region_drop(struct stepaf_ctx *ctx, struct stepaf_region *region);
void stepaf_regions_free(struct stepaf_ctx *ctx);
uint8_t *stepaf_region_resolve(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                               uint32_t bytes);

/* region_kind.c: the GPU of this context, opened by the first call that needs one */
stepaf_status_t stepaf_ctx_gpu(struct stepaf_ctx *ctx, struct stepaf_gpu **gpu_p);
/* Find out what kind of memory the caller has given: sets kind and shareable of @a region. */
stepaf_status_t stepaf_ctx_place(struct stepaf_ctx *ctx, struct stepaf_region *region);

#endif
