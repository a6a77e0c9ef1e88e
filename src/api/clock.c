/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_clock_ns. */
#include <stepaf/clock.h>

#include "api/handles.h"
#include "core/clock_keep.h"

int64_t stepaf_clock_ns(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx)
        return -1;
    int64_t ns = stepaf_clock_now(ctx);
    stepaf_handle_unpin(ctx);
    return ns;
}
