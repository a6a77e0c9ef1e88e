/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring's memory. */
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

bool stepaf_trace_open(struct stepaf_trace *trace, uint32_t records)
{
    size_t bytes = (size_t)records * sizeof(trace->ring[0]);

    trace->ring = aligned_alloc(64, bytes);
    if (!trace->ring)
        return false;
    memset(trace->ring, 0, bytes); /* also takes the page faults now */
    trace->end = trace->ring + records;
    trace->next = trace->ring;
    return true;
}

void stepaf_trace_close(struct stepaf_trace *trace)
{
    free(trace->ring);
    trace->next = trace->ring = trace->end = NULL;
}
