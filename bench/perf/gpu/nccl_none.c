/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "perf/fail.h"
#include "perf/gpu/nccl.h"

static const char reason[] = "--baseline nccl requires NCCL, which this build lacks";

const char *perf_gpu_nccl_version(void)
{
    return NULL;
}

int perf_gpu_nccl_open(struct perf_gpu *gpu, const struct perf_case *c,
                       const struct perf_buffers *buffers, struct perf_gpu_nccl **nccl_p)
{
    (void)gpu;
    (void)c;
    (void)buffers;
    (void)nccl_p;
    return perf_fail("%s", reason);
}

void perf_gpu_nccl_close(struct perf_gpu_nccl *nccl, int all_well)
{
    (void)nccl;
    (void)all_well;
}

int perf_gpu_nccl_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    (void)self;
    (void)m;
    (void)ops;
    (void)stream;
    return perf_fail("%s", reason);
}
