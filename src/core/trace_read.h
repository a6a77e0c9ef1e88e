/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of trace entries to the caller's records, on the job's common clock. */
#ifndef STEPAF_CORE_TRACE_READ_H
#define STEPAF_CORE_TRACE_READ_H

#include "core/ctx.h"

/* Copy the newest @a capacity records, or as many as exist, oldest first. Return the number copied.
 * The clock is fresh. @a records_p: @a record_size bytes apart, which is the space of each
 * record. */
size_t stepaf_trace_copy(const struct stepaf_ctx *ctx, void *records_p, size_t record_size,
                         size_t capacity);

#endif
