/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of times, with buckets that grow with the values they hold. */
#ifndef STEPAF_CORE_HISTOGRAM_H
#define STEPAF_CORE_HISTOGRAM_H

#include "core/metrics_layout.h"

/* Return the bucket in which @a ns counts. */
static inline uint32_t stepaf_histogram_bucket(uint64_t ns)
{
    const uint64_t least = (1ull << STEPAF_HISTOGRAM_LOW_BITS) - 1;
    const uint64_t most = 1ull << STEPAF_HISTOGRAM_HIGH_BITS;
    const uint32_t steps = 1u << STEPAF_HISTOGRAM_STEP_BITS;

    /* the bounds are in the first and the last bucket */
    ns = ns < least ? least : ns > most ? most : ns;
    uint32_t high = (uint32_t)__builtin_clzll(ns) ^ 63;
    uint32_t step = (uint32_t)(ns >> (high - STEPAF_HISTOGRAM_STEP_BITS)); /* steps to 2 steps */
    return high * steps + step - (STEPAF_HISTOGRAM_LOW_BITS + 1) * steps + 1;
}

/* Add a value, with plain stores: there is one writer, and readers take each word as it is. */
static inline void stepaf_histogram_add(struct stepaf_histogram *histogram, uint64_t ns)
{
    histogram->sum_ns += ns;
    histogram->buckets[stepaf_histogram_bucket(ns)]++;
}

#endif
