/* SPDX-License-Identifier: Apache-2.0 */
/* What takes turns in a row: the library, MPI and the floor, each with the same pattern. */
#ifndef PERF_CONTENDER_H
#define PERF_CONTENDER_H

#include <stdint.h>

/* One block of operations. */
struct perf_block {
    uint64_t lead_ops;  /* not timed: they bring the contender's data back into the caches */
    uint64_t timed_ops; /* of each attention rank; both are multiples of the window */
    double *samples;    /* attention: timed_ops latencies in ticks; FFN: NULL */
    uint64_t elapsed;   /* attention: ticks from the first timed start to the last completion */
};

struct perf_contender {
    void *self;
    /* Run this rank's part of a block; -1 with a sentence. */
    int (*run)(void *self, struct perf_block *block);
};

#endif
