/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of bandwidth: copy engines with nothing but copies to do. Each attention rank copies
 * its tensors straight into memory of the FFN ranks that CUDA has mapped. */
#ifndef PERF_GPU_FLOOR_H
#define PERF_GPU_FLOOR_H

#include "perf/buffers.h"
#include "perf/gpu/device.h"

struct perf_gpu_floor {
    struct perf_gpu *gpu;
    const struct perf_case *c;
    const struct perf_buffers *buffers; /* sources */
    char *own;                          /* FFN: where the attention ranks write */
    char **peers;                       /* attention: the FFN ranks' */
    size_t share;                       /* of an attention rank */
    size_t offset[PERF_MAX_PUSH];       /* of a tensor in it */
    size_t microbatch;                  /* bytes of one microbatch in it */
};

/* Share memory. Collective; -1 with a sentence on every rank, also where they are not on one
 * node. */
int perf_gpu_floor_open(struct perf_gpu *gpu, const struct perf_case *c,
                        const struct perf_buffers *buffers, struct perf_gpu_floor *floor_p);

/* Collective: memory is freed when no rank has it mapped any more. */
void perf_gpu_floor_close(struct perf_gpu_floor *floor);

/* perf_gpu_enqueue_t. */
int perf_gpu_floor_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream);

#endif
