/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of round trips: bare kernels that store the bytes of an operation to memory that
 * both GPUs reach, and others that wait for the bytes and load them. The memory is of the kind
 * that the library's streams use: GPU memory of the receiver, or host memory that both ranks
 * have pinned. */
#ifndef PERF_GPU_BARE_H
#define PERF_GPU_BARE_H

#include "perf/case.h"
#include "perf/gpu/device.h"

struct perf_gpu_bare {
    struct perf_gpu *gpu;
    const struct perf_case *c;
    int pinned;       /* through host memory */
    int n_peers;      /* of the other role */
    uint64_t out, in; /* bytes to and from each peer */
    uint8_t *data;    /* GPU memory: outgoing, incoming */
    uint8_t *own;     /* boxes of incoming bytes: by peer, microbatch, slot */
    size_t own_bytes;
    int fd;          /* of host memory; -1 */
    uint8_t **peers; /* those of the peers, as this process sees them */
    size_t *peer_bytes;
    uint64_t *counts; /* GPU memory */
    uint32_t *late;   /* pinned */
};

/* Make and share the memory. Collective; -1 with a sentence on every rank, also where they are
 * not on one node. */
int perf_gpu_bare_open(struct perf_gpu *gpu, const struct perf_case *c, int pinned,
                       struct perf_gpu_bare *bare_p);
/* Collective. */
void perf_gpu_bare_close(struct perf_gpu_bare *bare);

/* perf_gpu_enqueue_t. */
int perf_gpu_bare_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream);
/* Whether all waits ended in time; -1 with a sentence. */
int perf_gpu_bare_status(void *self);

/* Measure how long the copy engines take to bring an operation of each microbatch, in a stream
 * each, to host memory and back to the GPU, there and back; us. */
int perf_gpu_bare_copies(struct perf_gpu_bare *bare, double *us_p);

#endif
