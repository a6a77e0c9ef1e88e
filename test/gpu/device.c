/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's GPU, and its streams. */
#include "gpu/exchange.h"

#include <sched.h>
#include <stdlib.h>

enum { SYNC_LIMIT_S = 30 };

static int n_devices;

bool gx_check_cuda(const char *file, int line, const char *call, cudaError_t error)
{
    if (error == cudaSuccess)
        return true;
    return hs_report(file, line, "%s: %s: %s", call, cudaGetErrorName(error),
                     cudaGetErrorString(error));
}

bool gx_device(struct hs_job *job)
{
    int want = (int)hs_option_int(job, "--gpus", 1);
    cudaError_t error = cudaGetDeviceCount(&n_devices);

    if (error != cudaSuccess || n_devices < 1) {
        hs_skip("no GPU: %s", cudaGetErrorString(error));
        return false;
    }
    if (n_devices < want) {
        hs_skip("%d GPUs are needed, there are %d", want, n_devices);
        return false;
    }
    hs_step("GPU");
    /* The first call that needs the device makes its context: seconds, before any deadline. */
    return GX_CUDA(cudaSetDevice(job->rank % n_devices)) && GX_CUDA(cudaFree(NULL)) &&
           GX_CUDA(gx_load_kernels());
}

bool gx_shared(const struct hs_job *job)
{
    return job->size > n_devices;
}

long long gx_scaled(const struct hs_job *job, long long n, long long part)
{
    n = gx_shared(job) ? n / part : n;
    n /= hs_slow();
    return n > 0 ? n : 1;
}

bool gx_open(struct hs_job *job)
{
    job->noisy = true;
    return gx_device(job) && hs_open(job) && HS_INT(job->peers, <=, GX_PEERS);
}

cudaStream_t gx_stream(void)
{
    cudaStream_t stream = NULL;

    return GX_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) ? stream : NULL;
}

bool gx_sync_stream(cudaStream_t stream, const char *what)
{
    int64_t deadline = hs_now_ns() + SYNC_LIMIT_S * 1000000000LL * hs_slow();
    cudaError_t error;

    while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        if (hs_now_ns() > deadline)
            return HS_FAILED("%s: the stream has not come to its end in time", what);
        sched_yield();
    }
    return gx_check_cuda(__FILE__, __LINE__, what, error);
}
