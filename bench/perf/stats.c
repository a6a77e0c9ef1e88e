/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

double perf_percentile(const double *sorted, size_t n, double share)
{
    double rank;

    if (n == 0)
        return 0.0;
    /* The small term keeps shares such as 0.99 of 100, which are not exact in binary, at rank 99
     * instead of 100. */
    rank = ceil(share * (double)n - 1e-9 * (double)n);
    if (rank < 1.0)
        return sorted[0];
    if (rank >= (double)n)
        return sorted[n - 1];
    return sorted[(size_t)rank - 1];
}

void perf_stats_of(double *samples, size_t n, struct perf_stats *stats_p)
{
    double sum = 0.0;
    double squares = 0.0;

    memset(stats_p, 0, sizeof(*stats_p));
    if (n == 0)
        return;
    qsort(samples, n, sizeof(*samples), compare);
    for (size_t i = 0; i < n; i++)
        sum += samples[i];
    stats_p->n = n;
    stats_p->avg = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (samples[i] - stats_p->avg) * (samples[i] - stats_p->avg);
    stats_p->min = samples[0];
    stats_p->max = samples[n - 1];
    stats_p->p50 = perf_percentile(samples, n, 0.5);
    stats_p->p99 = perf_percentile(samples, n, 0.99);
    stats_p->p999 = perf_percentile(samples, n, 0.999);
    if (stats_p->avg > 0.0)
        stats_p->stddev_pct = 100.0 * sqrt(squares / (double)n) / stats_p->avg;
}
