/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in the public interface. */
#include "api/fill.h"
#include "api/handles.h"
#include "core/memory_use.h"
#include "core/region.h"
#include "core/region_remove.h"

static const size_t BYTES_MAX = (size_t)1 << 40;

static stepaf_status_t check_bytes(size_t bytes)
{
    if (bytes < 1 || bytes > BYTES_MAX)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "bytes must be 1 to 2^40");
    return STEPAF_OK;
}

stepaf_status_t stepaf_alloc(stepaf_context_h handle, size_t bytes, stepaf_mem_kind_t kind,
                             void **ptr_p)
{
    struct stepaf_region *region;
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = ptr_p ? check_bytes(bytes)
                   : stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "ptr_p is NULL");
    if (!status)
        status = stepaf_region_alloc(ctx, bytes, kind, &region);
    if (!status) {
        ctx->commit.changed = true;
        *ptr_p = region->mem.base;
    }
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_free(stepaf_context_h handle, void *ptr)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = stepaf_region_remove(ctx, ptr, true);
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_register(stepaf_context_h handle, void *ptr, size_t bytes)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = ptr && (uintptr_t)ptr + bytes >= bytes
                 ? check_bytes(bytes)
                 : stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                    "the range is NULL or wraps around");
    if (!status)
        status = stepaf_region_register(ctx, ptr, bytes);
    if (!status)
        ctx->commit.changed = true;
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_deregister(stepaf_context_h handle, void *ptr)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = stepaf_region_remove(ctx, ptr, false);
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_memory_query(stepaf_context_h handle, stepaf_memory_use_t *use_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (use_p) {
        stepaf_memory_use_t use = stepaf_memory_count(ctx);
        status =
            stepaf_fill(use_p, "stepaf_memory_use_t", STEPAF_FIRST_MEMORY_USE, &use, sizeof(use));
    } else {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "use_p is NULL");
    }
    stepaf_leave(ctx);
    return status;
}
