/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's GPU: its streams, and waits with a deadline. */
#ifndef PERF_GPU_DEVICE_H
#define PERF_GPU_DEVICE_H

#include <cuda_runtime_api.h>

#include "perf/buffers.h"
#include "perf/gpu/gpu.h"
#include "perf/gpu/kernels.h"

enum { PERF_GPU_STREAMS = 16 }; /* microbatches, at most */

/* Words in pinned host memory, each in a cache line of its own. */
struct perf_gpu_words {
    uint32_t go __attribute__((aligned(128)));
    uint32_t load_started __attribute__((aligned(128)));
    uint32_t load_stop __attribute__((aligned(128)));
};

/* One rank's GPU, as gathered from all ranks. */
struct perf_gpu_rank {
    char name[64];
    char bus[16];
    int visible; /* GPUs that the rank sees */
    int driver;  /* CUDA version of the driver */
};

struct perf_gpu {
    struct perf_job *job;
    const struct perf_options *options;
    const struct perf_place *place;
    int ordinal;
    int n_load_sms; /* multiprocessors that the load fills */
    int n_streams;  /* one per microbatch, of high priority */
    cudaStream_t streams[PERF_GPU_STREAMS];
    cudaEvent_t held; /* after the hold, for all streams but the first */
    struct perf_gpu_words *words;
    uint32_t ticket; /* of the last hold */
    /* what loads the GPU, see load.c; NULL without a load */
    cudaStream_t load_stream; /* of low priority */
    cudaStream_t stop_stream; /* of high priority */
    cudaEvent_t load_done;
    struct perf_gpu_load load;
    struct perf_gpu_rank *ranks;
    int64_t timeout_us;
    int64_t looked_ns; /* for lost peers */
};

/* FFN: return the source of the answer to attention rank @a a's microbatch @a m, of slot 0;
 * those of the other slots follow. */
static inline char *perf_gpu_answer(const struct perf_buffers *buffers, int a, unsigned m)
{
    return perf_buffers_answer(buffers, a, m * buffers->c->depth);
}

/* Whether tensors go to the FFN ranks only: the answer is then the library's own, 8 bytes that
 * say that an operation is complete. */
static inline int perf_gpu_one_way(const struct perf_gpu *gpu)
{
    return gpu->options->test == PERF_BW || gpu->options->test == PERF_PUSH;
}

/* Record CUDA's failure of @a call; return -1. */
int perf_gpu_fail(cudaError_t error, const char *call);

/* Return 0 if @a call succeeded; else as above. */
#define perf_gpu_try(call_) perf_gpu_verdict((call_), #call_)
int perf_gpu_verdict(cudaError_t error, const char *call);

/* Wait for @a event while @a ctx (which may be NULL) advances, at most the run's timeout; -1
 * with a sentence that names @a what. */
int perf_gpu_wait(struct perf_gpu *gpu, cudaEvent_t event, stepaf_context_h ctx, const char *what);

/* The same for all work in a stream. */
int perf_gpu_drain(struct perf_gpu *gpu, cudaStream_t stream, stepaf_context_h ctx,
                   const char *what);

/* Hold all streams until perf_gpu_release, or for some seconds. */
int perf_gpu_hold(struct perf_gpu *gpu);
void perf_gpu_release(struct perf_gpu *gpu);

/* Calls that cannot be given a deadline (NCCL's, captures, launches into a full queue) are made
 * between these two functions: if the calls take longer than any wait may, the process exits
 * with a sentence that names @a what, and the launcher ends the others. Must not be nested. */
void perf_gpu_guard(const struct perf_gpu *gpu, const char *what);
void perf_gpu_unguard(void);

/* Fill the GPU for about @a us microseconds, unless ended earlier; return when it is full. */
int perf_gpu_load_begin(struct perf_gpu *gpu, double us);
/* End the load; *lasted_p: whether it was still running. */
int perf_gpu_load_end(struct perf_gpu *gpu, int *lasted_p);
int perf_gpu_load_open(struct perf_gpu *gpu);
/* Make the streams of the exchange on @a n_sms multiprocessors, and the load's on the others. */
int perf_gpu_share(struct perf_gpu *gpu, unsigned n_sms);
void perf_gpu_load_close(struct perf_gpu *gpu);

#endif
