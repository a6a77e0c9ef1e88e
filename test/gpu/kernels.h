/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that make fresh bytes and look at what has come: shared by C and CUDA C++.
 *
 * Every tensor's bytes follow from its place (plan, direction, ranks, index) and the operation's
 * number. That number is counted on the GPU, so that a captured graph, too, has other bytes in each
 * replay. What a check finds wrong is counted there as well; the host reads it in the end. */
#ifndef STEPAF_TEST_GPU_KERNELS_H
#define STEPAF_TEST_GPU_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GX_PIECES = 96, GX_BEYOND = 256 };

/* One tensor. */
struct gx_piece {
    unsigned char *data;
    uint64_t place;         /* the bytes follow from it */
    const uint32_t *landed; /* check: where its actual size is to be; NULL: not to be looked at */
    uint32_t bytes;
    uint32_t room; /* check: up to here, but GX_BEYOND at most, nothing may have been written */
};

/* In GPU memory, one for each side of a plan. */
struct gx_tally {
    unsigned long long sent; /* operations for which bytes were made */
    unsigned long long seen; /* operations that were looked at */
    unsigned long long bytes;
    unsigned long long wrong;   /* bytes */
    unsigned long long spilled; /* bytes beyond a tensor */
    unsigned long long sizes;   /* tensors that have landed with another size */
    unsigned long long first_op, first_piece, first_at; /* of what was found wrong first */
    unsigned int claimed, is, should;
};

/* What a launch works on: all tensors of one operation. */
struct gx_work {
    struct gx_tally *tally;
    uint32_t n;
    struct gx_piece pieces[GX_PIECES];
};

/* Enqueue: make the bytes of operation tally->sent, or compare with those of tally->seen, and put
 * poison there instead. gx_launch_count adds 1 to a member of a tally. */
cudaError_t gx_launch_fill(const struct gx_work *work, cudaStream_t stream);
cudaError_t gx_launch_check(const struct gx_work *work, cudaStream_t stream);
cudaError_t gx_launch_count(unsigned long long *count, cudaStream_t stream);
/* Keep a multiprocessor busy for @a us: whatever else is in the stream comes late. */
cudaError_t gx_launch_delay(uint32_t us, cudaStream_t stream);
/* Load all of it now: a module that is loaded behind a stream that waits would wait, too. */
cudaError_t gx_load_kernels(void);

#ifdef __cplusplus
}
#endif
#endif
