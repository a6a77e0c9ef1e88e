/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of starting: init and commit, compared with MPI_Init in the same processes. */
#ifndef PERF_STARTUP_H
#define PERF_STARTUP_H

#include <jansson.h>

#include "job.h"
#include "links.h"
#include "options.h"
#include "place.h"

/* Exchanges through the bootstrap. */
struct perf_startup_exchanges {
    int calls;
    double bytes;     /* that a rank contributes, the maximum of all ranks */
    double all_bytes; /* of all ranks together, which each rank receives */
};

/* Durations are the longest of all ranks', numbers the largest. */
struct perf_startup {
    double mpi_init_us; /* negative without MPI */
    double init_us;
    double declare_us; /* keys and plans: no communication */
    double commit_us;
    double register_us;     /* as many regions as keys, after the start: no communication */
    double deregister_us;   /* no communication */
    double withdraw_us;     /* keys and plans: no communication */
    double commit_again_us; /* which ends the peers' knowledge of them */
    struct perf_startup_exchanges init, commit;
    double sockets;        /* of a rank, left open by init and commit */
    double files;          /* file descriptors of a rank, sockets included */
    double fixed_bytes;    /* the library's memory in a rank: independent of the job */
    double per_peer_bytes; /* plus this for each rank of the other role */
    char transport[PERF_LINKS_MAX];
};

/* From this many keys on, an eighth of them is measured too, to show how the times grow. */
enum { PERF_GROWTH_KEYS = 4096, PERF_GROWTH_TIMES = 8 };

/* Measure. *few_p: with the eighth, if there are so many keys. Call before anything else uses
 * the library, so that one-time costs are included. Collective; -1 with a sentence on every
 * rank. */
int perf_startup_measure(struct perf_job *job, const struct perf_options *options,
                         struct perf_startup *startup_p, struct perf_startup *few_p);

/* Print the result, at rank 0. */
void perf_startup_print(const struct perf_options *options, const struct perf_startup *startup,
                        const struct perf_startup *few);
json_t *perf_startup_json(const struct perf_options *options, const struct perf_place *place,
                          const struct perf_startup *startup, const struct perf_startup *few);

#endif
