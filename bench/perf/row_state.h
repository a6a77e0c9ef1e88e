/* SPDX-License-Identifier: Apache-2.0 */
/* A row while it is measured: shared by row.c, which measures, and row_merge.c, which makes a
 * result of all ranks' measurements. */
#ifndef PERF_ROW_STATE_H
#define PERF_ROW_STATE_H

#include "contender.h"
#include "floor.h"
#include "lib.h"
#include "ofi.h"
#include "row.h"
#include "tcp.h"
#include "ucx.h"
#include "verbs.h"

struct perf_mpi;

/* The state of a row while it is measured. */
struct perf_row {
    struct perf_job *job;
    const struct perf_options *options;
    const struct perf_place *place;
    struct perf_case c;
    struct perf_lib lib;
    struct perf_buffers own; /* without the library: the floor's own test */
    struct perf_mpi *mpi;
    struct perf_floor floor;
    struct perf_tcp tcp;      /* the floor where links are TCP */
    struct perf_verbs *verbs; /* and where they are RDMA */
    struct perf_ofi *ofi;     /* or libfabric's */
    struct perf_ucx *ucx;     /* or UCX's */
    char transport[PERF_LINKS_MAX];
    struct perf_contender contenders[PERF_WHO_LAST]; /* run is NULL where there is none */
    double *samples[PERF_WHO_LAST]; /* in ticks; perf_row_merge converts them to microseconds */
    uint64_t n_samples;
    double elapsed_ticks[PERF_WHO_LAST];
    double op_us; /* of the slowest contender, when last measured; 0: unknown */
    struct perf_schedule schedule;
    uint64_t checked_ops;
};

/* Gather what all ranks have measured. Collective; -1 with a sentence. */
int perf_row_merge(struct perf_row *row, struct perf_result *r);

#endif
