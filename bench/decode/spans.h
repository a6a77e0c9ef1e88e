/* SPDX-License-Identifier: Apache-2.0 */
/* The newest activities of a rank with their times, for --trace. */
#ifndef DECODE_SPANS_H
#define DECODE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "reason.h"

enum span_kind {
    SPAN_ATTENTION, /* attention rank: computing a layer of a microbatch */
    SPAN_WAIT,      /* attention rank: idle */
    SPAN_EXCHANGE,  /* attention rank: rows are in flight, to the FFN ranks and back */
    SPAN_FFN,       /* FFN rank: computing a batch */
    SPAN_KINDS
};

/* Times are of the job's common clock. */
struct span {
    int64_t begin_ns;
    int64_t end_ns;
    int32_t kind;
    int32_t microbatch;
    int32_t layer;
    int32_t peer; /* SPAN_FFN: the attention rank; else -1 */
};

/* A ring; without entries, and without cost, if --trace is not given. */
struct spans {
    struct span *ring;
    size_t capacity;
    size_t count; /* total number added */
};

int spans_create(size_t capacity, struct spans *spans_p, struct reason *reason);
void spans_destroy(struct spans *spans);

static inline void spans_add(struct spans *spans, struct span span)
{
    if (spans->capacity)
        spans->ring[spans->count++ % spans->capacity] = span;
}

#endif
