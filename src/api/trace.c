/* SPDX-License-Identifier: Apache-2.0 */
/* The trace in the public interface. */
#include <stepaf/trace.h>

#include "api/fill.h"
#include "api/handles.h"
#include "core/clock_keep.h"
#include "core/feature.h"
#include "core/trace_read.h"

stepaf_status_t stepaf_trace_read(stepaf_context_h handle, stepaf_trace_record_t *records_p,
                                  size_t record_size, size_t capacity, size_t *n_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (!n_p || (capacity && !records_p))
        status =
            stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "records_p or n_p is NULL");
    else if (record_size < STEPAF_FIRST_TRACE_RECORD)
        status = stepaf_error_set(
            STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
            "record_size is %zu, which is less than %d: pass sizeof(stepaf_trace_record_t)",
            record_size, STEPAF_FIRST_TRACE_RECORD);
    else {
        ctx->feature->refresh(ctx);
        stepaf_clock_refresh(ctx);
        *n_p = stepaf_trace_copy(ctx, records_p, record_size, capacity);
    }
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_trace_clear(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    ctx->feature->refresh(ctx);
    ctx->trace.tail = stepaf_trace_head(&ctx->trace);
    stepaf_leave(ctx);
    return STEPAF_OK;
}
