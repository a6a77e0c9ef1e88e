/* SPDX-License-Identifier: Apache-2.0 */
/* What streams by way of the host are to be compared with: the same bytes between the same
 * processes by plain TCP, from host memory to host memory, where that is what the library's links
 * go by. */
#ifndef PERF_GPU_WIRE_H
#define PERF_GPU_WIRE_H

#include "perf/buffers.h"
#include "perf/case.h"
#include "perf/gpu/device.h"
#include "perf/tcp.h"

struct perf_gpu_wire {
    struct perf_gpu *gpu; /* NULL: there is none */
    const struct perf_case *c;
    struct perf_buffers buffers;
    struct perf_tcp tcp;
    double *samples; /* attention: ticks */
    size_t n, room;
};

/* Connect, for @a ops operations in all. Collective; -1 with a sentence on every rank. */
int perf_gpu_wire_open(struct perf_gpu *gpu, const struct perf_case *c, uint64_t ops,
                       struct perf_gpu_wire *wire_p);
void perf_gpu_wire_close(struct perf_gpu_wire *wire);

/* @a ops operations more, as far as there is room. Collective; -1 with a sentence on every rank. */
int perf_gpu_wire_run(struct perf_gpu_wire *wire, uint64_t ops);

/* The median, us, on rank 0. Collective; -1 with a sentence. */
int perf_gpu_wire_merge(struct perf_gpu_wire *wire, double *us_p);

#endif
