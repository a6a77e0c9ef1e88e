/* SPDX-License-Identifier: Apache-2.0 */
#include "spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats.h"

int perf_spread_bin(double sample)
{
    double bin;

    if (!(sample > 0.0))
        return 0;
    bin = floor((log2(sample) - PERF_SPREAD_FIRST) * PERF_SPREAD_STEPS);
    if (bin < 0.0)
        return 0;
    return bin < PERF_SPREAD_BINS ? (int)bin : PERF_SPREAD_BINS - 1;
}

double perf_spread_from(int bin)
{
    return exp2((double)bin / PERF_SPREAD_STEPS + PERF_SPREAD_FIRST);
}

/* Gather all ranks' measurements of one round, contiguously. Returns their number. */
static size_t collect_round(const double *samples, const size_t *offsets, int n_ranks,
                            uint64_t n_rounds, uint64_t round, double *all_p)
{
    size_t n = 0;

    for (int rank = 0; rank < n_ranks; rank++) {
        size_t from = offsets[rank] / sizeof(double);
        size_t of_round = (offsets[rank + 1] / sizeof(double) - from) / n_rounds;

        memcpy(all_p + n, samples + from + round * of_round, of_round * sizeof(double));
        n += of_round;
    }
    return n;
}

struct perf_spread *perf_spread_make(const double *samples, const size_t *offsets, int n_ranks,
                                     uint64_t n_rounds)
{
    size_t n = offsets[n_ranks] / sizeof(double);
    struct perf_spread *spread = calloc(1, sizeof(*spread));
    double *scratch = malloc((n / n_rounds + 1) * sizeof(*scratch));

    if (spread != NULL) {
        spread->p50 = calloc(n_rounds, sizeof(*spread->p50));
        spread->p99 = calloc(n_rounds, sizeof(*spread->p99));
    }
    if (spread == NULL || spread->p50 == NULL || spread->p99 == NULL || scratch == NULL) {
        perf_spread_free(spread);
        free(scratch);
        return NULL;
    }
    spread->n_rounds = n_rounds;
    for (size_t i = 0; i < n; i++)
        spread->bins[perf_spread_bin(samples[i])]++;
    for (uint64_t round = 0; round < n_rounds; round++) {
        struct perf_stats stats;

        perf_stats_of(scratch, collect_round(samples, offsets, n_ranks, n_rounds, round, scratch),
                      &stats);
        spread->p50[round] = stats.p50;
        spread->p99[round] = stats.p99;
    }
    free(scratch);
    return spread;
}

void perf_spread_free(struct perf_spread *spread)
{
    if (spread == NULL)
        return;
    free(spread->p50);
    free(spread->p99);
    free(spread);
}
