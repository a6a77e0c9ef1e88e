/* SPDX-License-Identifier: Apache-2.0 */
/* Breakdown of the time of an exchange. */
#ifndef DECODE_MEASURE_H
#define DECODE_MEASURE_H

#include <stepaf/timeline.h>

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

/* Return the timeline of the FFN rank that answered last; -1 if none has. Call for every
 * exchange, in the order of their answers. @a busy_until_ns holds for each FFN rank when its
 * last answer arrived, 0 at first: while an FFN rank worked on an earlier exchange, a later one
 * was in its queue. */
int measure_slowest(stepaf_request_h request, int ffn_ranks, int64_t *busy_until_ns,
                    stepaf_timeline_t *slowest_p);

#endif
