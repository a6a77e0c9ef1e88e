/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of an exchange went. */
#ifndef DECODE_MEASURE_H
#define DECODE_MEASURE_H

#include <stepaf/trace.h>

#include "stats.h"

/* Stamps of one exchange at its attention rank, ns of the common clock. */
struct exchange_times {
    int64_t attend_begin_ns;
    int64_t start_begin_ns;
    int64_t start_end_ns;
    int64_t wait_begin_ns;
    int64_t wait_end_ns;
};

/* Add an exchange whose slowest FFN rank's timeline is @a slowest to *stats. */
void measure_add(const struct exchange_times *times, const stepaf_timeline_t *slowest,
                 struct layer_stats *stats);

/* The timeline of the FFN rank that answered last; -1 if none has. */
int measure_slowest(stepaf_request_h request, int ffn_ranks, stepaf_timeline_t *slowest_p);

#endif
