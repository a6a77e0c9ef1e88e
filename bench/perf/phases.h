/* SPDX-License-Identifier: Apache-2.0 */
/* The time of an operation by phase and peer, from the library's own timelines. */
#ifndef PERF_PHASES_H
#define PERF_PHASES_H

#include "job.h"
#include "lib.h"
#include "place.h"

/* Between an attention and an FFN rank: medians in us. -1 for values that the transport does not
 * report. */
struct perf_peer {
    uint64_t ops;    /* timelines requested; 0: the two ranks do not communicate */
    char link[32];   /* its transport */
    double total_us; /* from the start to the answer's arrival, consisting of: */
    double start_us; /* until the FFN rank was notified */
    double queue_us; /* until its caller had received the batch */
    double work_us;  /* until the caller had answered */
    double way_us;   /* the rest of each operation: in flight, there and back */
};

/* Run operations and get the timeline of each. At rank 0 *peers_p is an array by attention rank
 * and FFN rank, to be freed; else NULL. Also NULL where an operation has two stages, which share
 * a request's place. Collective; -1 with a sentence. */
int perf_phases_measure(struct perf_job *job, const struct perf_place *place, struct perf_lib *lib,
                        uint64_t most_ops, struct perf_peer **peers_p);

#endif
