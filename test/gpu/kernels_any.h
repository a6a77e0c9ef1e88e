/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of plans with STEPAF_PLAN_ANY: whose batch it is, and so which bytes it should have, is
 * known on the GPU only. See kernels.h. */
#ifndef STEPAF_TEST_GPU_KERNELS_ANY_H
#define STEPAF_TEST_GPU_KERNELS_ANY_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GX_ANY_PEERS = 4, GX_ANY_DEPTH = 3 };

/* A tensor of one worker. */
struct gx_any_piece {
    unsigned char *data; /* of slot 0 */
    uint64_t place;
    uint32_t pitch; /* from slot to slot */
    uint32_t bytes;
    uint32_t room; /* fill: nothing; check: see gx_piece */
};

/* In GPU memory: batches of each worker so far, and those that came in the wrong slot. */
struct gx_any_counts {
    unsigned long long seen[GX_ANY_PEERS];
    unsigned long long answered[GX_ANY_PEERS];
    unsigned long long misplaced;
};

struct gx_any_work {
    struct gx_tally *tally;
    struct gx_any_counts *counts;
    const uint32_t *origin; /* peer and slot of the batch */
    const uint32_t *landed[GX_ANY_DEPTH];
    const uint32_t
        *sizes; /* of the tensors of operation n of worker p, at ((p * period) + n % period)
                            * * n_each; NULL: as the pieces have it */
    uint32_t period;
    uint32_t depth, n_each;
    struct gx_any_piece pieces[GX_PIECES]; /* peer by peer */
};

/* Enqueue: compare the bytes of a batch with what its worker has made for it, or make the answer's.
 * Both count afterwards. */
cudaError_t gx_launch_check_any(const struct gx_any_work *work, cudaStream_t stream);
cudaError_t gx_launch_fill_any(const struct gx_any_work *work, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
