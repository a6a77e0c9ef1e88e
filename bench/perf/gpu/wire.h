/* SPDX-License-Identifier: Apache-2.0 */
/* The reference for streams through the host: the same bytes between the same processes over
 * plain TCP, from host memory to host memory, where the library's links use TCP. */
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

/* Run @a ops more operations, as far as there is space for them. Collective; -1 with a sentence
 * on every rank. */
int perf_gpu_wire_run(struct perf_gpu_wire *wire, uint64_t ops);

/* Return the median, us, on rank 0. Collective; -1 with a sentence. */
int perf_gpu_wire_merge(struct perf_gpu_wire *wire, double *us_p);

#endif
