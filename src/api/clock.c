/* SPDX-License-Identifier: Apache-2.0 */
#include <stepaf/clock.h>

#include "api/handles.h"
#include "core/trace_read.h"

int64_t stepaf_clock_ns(stepaf_context_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? stepaf_common_ns(ctx, stepaf_ticks()) : -1;
}
