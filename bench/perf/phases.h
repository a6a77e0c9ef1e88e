/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of an operation goes, peer by peer: by the library's own timelines. */
#ifndef PERF_PHASES_H
#define PERF_PHASES_H

#include "job.h"
#include "lib.h"
#include "place.h"

/* Between an attention and an FFN rank: medians in us. Of what the transport does not tell: -1. */
struct perf_peer {
    uint64_t ops;    /* that were asked for; 0: the two have nothing to do with each other */
    char link[32];   /* its transport */
    double total_us; /* from the start to the answer's arrival, of which: */
    double start_us; /* until the FFN rank was notified */
    double queue_us; /* until its caller had received what arrived there */
    double work_us;  /* until that had answered */
    double way_us;   /* the rest of each operation: under way, there and back */
};

/* Run operations and ask for the timeline of each. At rank 0 *peers_p is an array by attention rank
 * and FFN rank, to be freed; else NULL, as also where an operation has two stages, which share a
 * request's place. Collective; -1 with a sentence. */
int perf_phases_measure(struct perf_job *job, const struct perf_place *place, struct perf_lib *lib,
                        uint64_t most_ops, struct perf_peer **peers_p);

#endif
