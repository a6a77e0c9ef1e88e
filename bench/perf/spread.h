/* SPDX-License-Identifier: Apache-2.0 */
/* The distribution of samples, over their values and over the rounds in which they were taken.
 * Pure. */
#ifndef PERF_SPREAD_H
#define PERF_SPREAD_H

#include <stddef.h>
#include <stdint.h>

/* A bin is a sixteenth of a factor of two wide, some 4 %. From 1 ns on, where samples are in us. */
enum { PERF_SPREAD_STEPS = 16, PERF_SPREAD_FIRST = -10, PERF_SPREAD_OCTAVES = 48 };
enum { PERF_SPREAD_BINS = PERF_SPREAD_STEPS * PERF_SPREAD_OCTAVES };

struct perf_spread {
    uint64_t n_rounds;
    double *p50, *p99; /* of each round, all ranks' samples together */
    uint64_t bins[PERF_SPREAD_BINS];
};

/* Return the bin of a sample: the first or last bin for values out of range. */
int perf_spread_bin(double sample);

/* Return the lower end of bin @a bin. */
double perf_spread_from(int bin);

/* Make the distribution of the samples of @a n_ranks ranks, those of rank i from offsets[i] (in
 * bytes) on, in @a n_rounds rounds of equal length each. NULL: out of memory. */
struct perf_spread *perf_spread_make(const double *samples, const size_t *offsets, int n_ranks,
                                     uint64_t n_rounds);

void perf_spread_free(struct perf_spread *spread);

#endif
