/* SPDX-License-Identifier: Apache-2.0 */
/* A row on GPUs while it is measured. */
#ifndef PERF_GPU_ROW_STATE_H
#define PERF_GPU_ROW_STATE_H

#include "perf/gpu/bare.h"
#include "perf/gpu/floor.h"
#include "perf/gpu/ours.h"
#include "perf/gpu/play.h"
#include "perf/gpu/wire.h"

/* How the library's streams write to peers. */
enum perf_gpu_way { PERF_GPU_DIRECT, PERF_GPU_PINNED, PERF_GPU_PROXY, PERF_GPU_WAYS };

/* Samples of one contender on this rank, us. */
struct perf_gpu_samples {
    double *unit; /* attention: of each unit of each stream, for one operation */
    size_t n_unit;
    double *host; /* the same for the host's time in the calls */
    size_t n_host;
    double elapsed_us;
};

struct perf_gpu_row {
    struct perf_gpu *gpu;
    struct perf_case c;
    int loaded;
    struct perf_gpu_lib lib;
    struct perf_gpu_nccl *nccl;  /* NULL: no baseline */
    unsigned ways;               /* bits of enum perf_gpu_way: of all links */
    struct perf_gpu_floor floor; /* of one of the two floors, gpu is NULL */
    struct perf_gpu_bare bare;
    double copies_us; /* of the bare floor */
    struct perf_gpu_wire wire;
    double wire_us;           /* on rank 0 */
    double busy_ns, busy_ops; /* of this rank's progress thread; and operations meanwhile */
    struct perf_gpu_player player;
    struct perf_gpu_side sides[PERF_WHO_LAST]; /* enqueue is NULL where there is none */
    struct perf_gpu_side checked;
    struct perf_gpu_samples samples[PERF_WHO_LAST];
    double unit_us;         /* about, of the slowest */
    double load_us;         /* duration that a load is started with; 0.0: none */
    int units;              /* timed, of a chunk */
    uint64_t chunks;        /* of each contender */
    uint64_t timed_units;   /* of each stream and contender */
    uint64_t checked_units; /* of each stream */
    uint64_t wrong_bytes;
    char transport[PERF_LINKS_MAX];
};

/* Measure all contenders, after they have been opened. Collective; -1 with a sentence. */
int perf_gpu_row_measure(struct perf_gpu_row *row, int index);

/* Gather what all ranks have measured. Collective; -1 with a sentence. */
int perf_gpu_row_merge(struct perf_gpu_row *row, struct perf_result *result_p);

#endif
