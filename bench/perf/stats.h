/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of latency samples. Pure. */
#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <stddef.h>

/* In the samples' own unit; all 0 where n is 0. */
struct perf_stats {
    size_t n;
    double min, p50, p99, p999, max;
    double avg;
    double stddev_pct; /* of the population, as a percentage of the average */
};

/* Return the smallest of @a n ascending samples that at least a share @a share of them does not
 * exceed ("nearest rank"); 0 if n is 0. */
double perf_percentile(const double *sorted, size_t n, double share);

/* Sort @a samples in place and describe them. */
void perf_stats_of(double *samples, size_t n, struct perf_stats *stats_p);

#endif
