/* SPDX-License-Identifier: Apache-2.0 */
/* What the made-up UCX knows of GPU memory, and that memory: whoever touches it where it is, ends. It
 * is mapped a second time, where UCX's copies and the test reach it. */
#ifndef STEPAF_TEST_UCX_GPU_H
#define STEPAF_TEST_UCX_GPU_H

#include "transport/side.h"
#include "transport/ucx/library.h"

struct ucx_gpu {
    bool has_cuda;           /* UCX's memory types have it */
    ucs_status_t refuse;     /* registrations of it end by this */
    bool (*is_inside)(void); /* whether the GPU is current to the thread; NULL: it need not be */
    bool helps;              /* what is fetched from it to host memory takes the own GPU */
    /* of the last that was registered */
    uint8_t *base;
    size_t bytes;
    /* counts */
    int n_mapped;       /* registered, and not ended */
    unsigned n_sent;    /* from it */
    unsigned n_fetched; /* to it */
    unsigned n_outside; /* calls for it where the GPU is not current, and progress */
};
extern struct ucx_gpu ucx_gpu; /* ucx_fabric_reset sets all to zero */

/* Memory of a side's on @a gpu, not registered yet. ucx_gpu_end unmaps all. */
struct stepaf_mem *ucx_gpu_memory(struct side *side, struct stepaf_gpu *gpu, size_t bytes);
void ucx_gpu_end(void);
/* Where what is at @a at can be touched: there, if it is host memory. */
uint8_t *ucx_gpu_view(const void *at);

/* ---- inside ---- */

bool ucx_gpu_owns(const void *at);
/* A call for GPU memory, or a progress while such is under way. */
void ucx_gpu_called(void);
/* Something is to be registered: UCS_OK, or the error. */
ucs_status_t ucx_gpu_map(const ucp_mem_map_params_t *params);
/* Whether a call is for GPU memory; *good_p: and says so rightly. */
bool ucx_gpu_is_meant(const void *at, const ucp_request_param_t *param, bool *good_p);

#endif
