/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of times: buckets that grow with what they hold. */
#ifndef STEPAF_CORE_HISTOGRAM_H
#define STEPAF_CORE_HISTOGRAM_H

#include "core/metrics_layout.h"

/* In which bucket @a ns counts. */
static inline uint32_t stepaf_histogram_bucket(uint64_t ns)
{
    if (ns < 1ull << STEPAF_HISTOGRAM_LOW_BITS)
        return 0;
    if (__builtin_expect(ns >= 1ull << STEPAF_HISTOGRAM_HIGH_BITS, 0))
        return STEPAF_HISTOGRAM_BUCKETS - 1;
    uint32_t high = 63 - (uint32_t)__builtin_clzll(ns);
    uint32_t step = (uint32_t)(ns >> (high - STEPAF_HISTOGRAM_STEP_BITS)) &
                    ((1u << STEPAF_HISTOGRAM_STEP_BITS) - 1);
    return 1 + ((high - STEPAF_HISTOGRAM_LOW_BITS) << STEPAF_HISTOGRAM_STEP_BITS) + step;
}

/* Plain stores: there is one writer, and who reads takes each word as it is. */
static inline void stepaf_histogram_add(struct stepaf_histogram *histogram, uint64_t ns)
{
    histogram->sum_ns += ns;
    histogram->buckets[stepaf_histogram_bucket(ns)]++;
}

#endif
