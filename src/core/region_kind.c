/* SPDX-License-Identifier: Apache-2.0 */
/* A context's GPU, and the kind of memory that a caller has given. */
#include "core/region_kind.h"
#include "device/device.h"
#include "device/gpu.h"

/* The smallest piece of CUDA allocations that are mapped piece by piece. */
enum { PIECE = 2 << 20 };

stepaf_status_t stepaf_ctx_gpu(struct stepaf_ctx *ctx, struct stepaf_gpu **gpu_p)
{
    stepaf_status_t status = ctx->gpu.device ? STEPAF_OK : stepaf_gpu_open(&ctx->gpu.device);

    if (!status)
        *gpu_p = ctx->gpu.device;
    return status;
}

/* Return where the piece of memory that holds @a at ends. Pieces that are mapped one by one
 * (PyTorch's expandable segments) lie in an address range that may have holes: only the smallest
 * piece is certain. */
static uintptr_t piece_end(const struct stepaf_gpu_place *place, uintptr_t at)
{
    if (place->shareable && place->base)
        return (uintptr_t)place->base + place->bytes;
    return (at / PIECE + 1) * PIECE;
}

static stepaf_status_t check_gpu(const struct stepaf_ctx *ctx, const struct stepaf_gpu_place *place)
{
    const struct stepaf_gpu_facts *facts = stepaf_gpu_facts(ctx->gpu.device);

    if (!stepaf_gpu_owns(ctx->gpu.device, place))
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "the memory is of GPU %d, but this context uses GPU %d (%s)",
                                place->ordinal, facts->ordinal, facts->name);
    return STEPAF_OK;
}

/* Check that the whole range is memory of the context's GPU. The range can be shared if it lies in
 * a single shareable allocation. */
static stepaf_status_t place_cuda(struct stepaf_ctx *ctx, struct stepaf_region *region,
                                  struct stepaf_gpu_place place)
{
    uintptr_t at = (uintptr_t)region->mem.base, end = at + region->mem.bytes;
    struct stepaf_gpu *gpu;
    stepaf_status_t status = stepaf_ctx_gpu(ctx, &gpu);

    if (!status)
        status = check_gpu(ctx, &place);
    if (status)
        return status;
    region->mem.kind = STEPAF_MEM_CUDA;
    region->mem.gpu = gpu;
    region->shareable = place.shareable && piece_end(&place, at) >= end;
    for (at = piece_end(&place, at); at < end; at = piece_end(&place, at)) {
        stepaf_gpu_classify((const void *)at, &place); /* NOLINT(performance-no-int-to-ptr) */
        if (!place.is_device)
            return stepaf_error_set(
                STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                "the range begins in GPU memory, but byte %zu is not in GPU memory",
                (size_t)(at - (uintptr_t)region->mem.base));
        status = check_gpu(ctx, &place);
        if (status)
            return status;
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_ctx_place(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    struct stepaf_gpu_place first, last;

    stepaf_gpu_classify(region->mem.base, &first);
    stepaf_gpu_classify(region->mem.base + region->mem.bytes - 1, &last);
    if (first.managed || last.managed)
        return stepaf_error_set(
            STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
            "managed memory cannot be registered: it moves between host and GPU, so neither a "
            "network nor another process can access it reliably");
    if (first.is_device)
        return place_cuda(ctx, region, first);
    if (last.is_device)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "the range begins in host memory and ends in GPU memory");
    return stepaf_device_check_host(region->mem.base, region->mem.bytes);
}
