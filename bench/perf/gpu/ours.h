/* SPDX-License-Identifier: Apache-2.0 */
/* The library as a contender on GPUs: a context, and a stream plan for each microbatch. */
#ifndef PERF_GPU_OURS_H
#define PERF_GPU_OURS_H

#include <stepaf/stepaf.h>
#include <stepaf/stream.h>

#include "perf/buffers.h"
#include "perf/gpu/device.h"

/* What --check enqueues in addition to one microbatch's operations. */
struct perf_gpu_proof {
    struct perf_gpu_pieces out; /* generated before they are sent */
    struct perf_gpu_pieces in;  /* verified when they have arrived */
};

struct perf_gpu_lib {
    struct perf_gpu *gpu;
    const struct perf_case *c;
    stepaf_context_h ctx;
    struct perf_buffers buffers; /* in GPU memory */
    void *own;                   /* cudaMalloc's, where the memory is not the library's */
    stepaf_plan_h plans[PERF_GPU_STREAMS];
    /* In tests with one direction and several slots, a separate stream waits for answers: a
     * kernel between two copies would stop the copy engine. NULL: wait in the stream itself. */
    cudaStream_t waits[PERF_GPU_STREAMS];
    cudaEvent_t began, waited;
    struct perf_gpu_proof *proofs; /* with --check, by microbatch */
    uint64_t *counts;              /* GPU memory: wrong bytes, then the turns of each microbatch */
};

/* Make context, memory, keys and plans of a row, and commit. Collective; -1 with a sentence on
 * every rank. */
int perf_gpu_lib_open(struct perf_gpu *gpu, const struct perf_case *c, struct perf_gpu_lib *lib_p);
void perf_gpu_lib_close(struct perf_gpu_lib *lib);

/* Enqueue this rank's part of @a ops operations, a multiple of the depth. -1 with a sentence. */
int perf_gpu_lib_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream);

/* The same with fresh bytes for each operation, verified where they land. */
int perf_gpu_lib_enqueue_checked(void *self, unsigned m, uint64_t ops, cudaStream_t stream);

/* Whether all plans are still without an error; -1 with the library's sentence. */
int perf_gpu_lib_status(void *self);

/* Set up what is generated and verified, after the commit. -1 with a sentence. */
int perf_gpu_proof_open(struct perf_gpu_lib *lib);
void perf_gpu_proof_close(struct perf_gpu_lib *lib);

/* Read the number of wrong bytes: streams must be empty. -1 with a sentence. */
int perf_gpu_proof_read(const struct perf_gpu_lib *lib, uint64_t *wrong_bytes_p);

#endif
