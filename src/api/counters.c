/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_counters_query. */
#include <stepaf/counters.h>

#include "api/fill.h"
#include "api/handles.h"
#include "core/counters.h"
#include "core/feature.h"

stepaf_status_t stepaf_counters_query(stepaf_context_h handle, stepaf_counters_t *counters_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    ctx->feature->refresh(ctx);
    if (counters_p) {
        stepaf_counters_t counters = stepaf_core_counters(ctx);
        status = stepaf_fill(counters_p, "stepaf_counters_t", STEPAF_FIRST_COUNTERS, &counters,
                             sizeof(counters));
    } else {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "counters_p is NULL");
    }
    stepaf_leave(ctx);
    return status;
}
