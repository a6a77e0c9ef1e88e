/* SPDX-License-Identifier: Apache-2.0 */
/* From trace entries to the caller's records, on the job's common clock. */
#ifndef STEPAF_CORE_TRACE_READ_H
#define STEPAF_CORE_TRACE_READ_H

#include "core/ctx.h"

/* Nanoseconds of the common clock at @a ticks of this rank's. */
static inline int64_t stepaf_common_ns(const struct stepaf_ctx *ctx, uint64_t ticks)
{
    return stepaf_clock_to_ns(&ctx->clock.own, ticks) + ctx->clock.offset_ns;
}

/* Copy the newest @a capacity records, or as many as there are, oldest first; return how many.
 * @a records_p: @a record_size bytes apart, which is the room that each has. */
size_t stepaf_trace_copy(const struct stepaf_ctx *ctx, void *records_p, size_t record_size,
                         size_t capacity);

#endif
