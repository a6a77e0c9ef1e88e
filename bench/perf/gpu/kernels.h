/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of stepaf_perf, and their launch functions for C. None of the calls blocks; all
 * return CUDA's status of the launch. */
#ifndef PERF_GPU_KERNELS_H
#define PERF_GPU_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PERF_GPU_PIECES = 64 };

/* A tensor whose bytes are generated or verified. */
struct perf_gpu_piece {
    uint8_t *data;  /* of slot 0 */
    uint64_t pitch; /* from slot to slot */
    uint64_t bytes;
    uint64_t seed; /* of all its operations */
};

/* Several tensors of one kind, and the operation they belong to: the GPU counts operations,
 * since a captured graph cannot know the number. */
struct perf_gpu_pieces {
    const uint64_t *turn;   /* GPU memory: operations before this one */
    uint64_t *wrong;        /* GPU memory: counts wrong bytes */
    const uint32_t *landed; /* NULL, or how many bytes have landed: one a piece, of slot 0 */
    uint64_t landed_pitch;  /* from slot to slot, in entries */
    uint64_t corrupt;       /* one byte in so many operations is made wrong; 0: none */
    uint32_t depth;         /* slots are used round-robin */
    uint32_t n;
    struct perf_gpu_piece pieces[PERF_GPU_PIECES];
};

cudaError_t perf_gpu_launch_fill(const struct perf_gpu_pieces *pieces, cudaStream_t stream);
cudaError_t perf_gpu_launch_verify(const struct perf_gpu_pieces *pieces, cudaStream_t stream);
/* The operation is complete. */
cudaError_t perf_gpu_launch_turn(uint64_t *turn, cudaStream_t stream);

/* Hold @a stream until *go reaches @a ticket, or for @a limit_ns: work enqueued meanwhile then
 * runs without waiting for the host. @a go is pinned host memory. */
cudaError_t perf_gpu_launch_hold(const uint32_t *go, uint32_t ticket, uint64_t limit_ns,
                                 cudaStream_t stream);

/* Work that fills the GPU like a large matrix product: one block on each SM, which takes all its
 * registers but those of a single warp of 32 each, and nearly all its shared memory. */
struct perf_gpu_load {
    const float *operand; /* GPU memory: PERF_GPU_LOAD_OPERAND bytes, read over and over */
    float *sink;          /* GPU memory: never written, but the compiler cannot know */
    uint32_t *started;    /* pinned: set to @a ticket by the first block */
    const uint32_t *stop; /* GPU memory: blocks that find @a ticket there end immediately */
    uint32_t ticket;
    uint64_t block_ns; /* that a block takes */
};

/* The floor: bare kernels that store a tensor chunk by chunk, with a flag after each, and
 * kernels that wait for the flags and load. Each block counts operations, so that a captured
 * graph can be replayed. */
struct perf_gpu_leg {
    uint8_t *data;    /* GPU memory */
    uint8_t *box;     /* memory for chunks and flags that both ranks' GPUs reach */
    uint64_t *counts; /* GPU memory: one a block */
    uint64_t bytes;
    uint64_t limit_ns; /* of a wait; then the kernel gives up */
    uint32_t *late;    /* pinned: set to 1 by a kernel that gives up */
};
enum { PERF_GPU_LEG_BLOCKS = 128 };

/* Return the size of such a box in bytes. */
uint64_t perf_gpu_leg_box(uint64_t bytes);
cudaError_t perf_gpu_launch_store(const struct perf_gpu_leg *leg, cudaStream_t stream);
cudaError_t perf_gpu_launch_take(const struct perf_gpu_leg *leg, cudaStream_t stream);

#define PERF_GPU_LOAD_OPERAND ((size_t)32 << 20)

/* Initialize once for each device, before the first launch. */
cudaError_t perf_gpu_prepare_load(void);
cudaError_t perf_gpu_launch_load(const struct perf_gpu_load *load, uint32_t blocks,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
