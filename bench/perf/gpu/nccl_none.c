/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"
#include "gpu/nccl.h"

int perf_gpu_nccl_open(struct perf_gpu *gpu, struct perf_gpu_nccl **nccl_p)
{
    (void)gpu;
    (void)nccl_p;
    return perf_fail("this build has no NCCL, which --baseline nccl needs");
}

void perf_gpu_nccl_close(struct perf_gpu_nccl *nccl)
{
    (void)nccl;
}

const char *perf_gpu_nccl_version(void)
{
    return "";
}

void perf_gpu_nccl_use(struct perf_gpu_nccl *nccl, const struct perf_case *c,
                       const struct perf_buffers *buffers)
{
    (void)nccl;
    (void)c;
    (void)buffers;
}

int perf_gpu_nccl_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    (void)self;
    (void)m;
    (void)ops;
    (void)stream;
    return perf_fail("this build has no NCCL");
}
