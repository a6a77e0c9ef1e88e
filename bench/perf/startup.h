/* SPDX-License-Identifier: Apache-2.0 */
/* What starting costs: init and commit, beside MPI_Init in the same processes. */
#ifndef PERF_STARTUP_H
#define PERF_STARTUP_H

#include <jansson.h>

#include "job.h"
#include "options.h"
#include "place.h"

/* Durations are the longest of all ranks'. */
struct perf_startup {
    double mpi_init_us; /* negative without MPI */
    double init_us;
    double declare_us; /* keys and plans: no communication */
    double commit_us;
    int init_exchanges, commit_exchanges;
};

/* Measure. To be called before anything else has used the library, so that what is paid only once
 * is in it. Collective; -1 with a sentence on every rank. */
int perf_startup_measure(struct perf_job *job, const struct perf_options *options,
                         struct perf_startup *startup_p);

/* What rank 0 tells. */
void perf_startup_print(const struct perf_options *options, const struct perf_startup *startup);
json_t *perf_startup_json(const struct perf_options *options, const struct perf_place *place,
                          const struct perf_startup *startup);

#endif
