/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of the tests of test/mpi whose ranks die, return and join: a real one. */
#include "mpi/member_gpu.h"

#include <stdlib.h>

#include <cuda_runtime.h>

#define CUDA_OK(call_) is_ok(__LINE__, #call_, (call_))

static cudaStream_t stream;
static cudaGraphExec_t graph;

static bool is_ok(int line, const char *call, cudaError_t error)
{
    return error == cudaSuccess ||
           hs_report(__FILE__, line, "%s: %s", call, cudaGetErrorString(error));
}

void member_gpu_begin(struct hs_job *job)
{
    int n = 0;

    job->noisy = true;
    if (!CUDA_OK(cudaGetDeviceCount(&n)) || !HS_INT(n, >, 0))
        return;
    hs_step("GPU");
    (void)(CUDA_OK(cudaSetDevice(job->rank % n)) && CUDA_OK(cudaFree(NULL)) &&
           CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
}

void member_gpu_end(struct hs_job *job)
{
    hs_close(job);
    if (graph != NULL)
        CUDA_OK(cudaGraphExecDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
}

void member_gpu_fill(void *at, size_t bytes, uint64_t seed)
{
    unsigned char *host = malloc(bytes);

    if (!HS_TRUE(host != NULL))
        return;
    hs_fill(host, bytes, seed);
    /* A copy from memory that is not pinned may return before it has arrived, and the stream does not wait for it. */
    (void)(CUDA_OK(cudaMemcpy(at, host, bytes, cudaMemcpyHostToDevice)) &&
           CUDA_OK(cudaStreamSynchronize(cudaStreamLegacy)));
    free(host);
}

bool member_gpu_verify(const char *what, const void *at, size_t bytes, uint64_t seed)
{
    unsigned char *host = malloc(bytes);
    bool is_right = HS_TRUE(host != NULL) &&
                    CUDA_OK(cudaMemcpy(host, at, bytes, cudaMemcpyDeviceToHost)) &&
                    hs_verify(what, host, bytes, seed);

    free(host);
    return is_right;
}

uint32_t member_gpu_read(const uint32_t *at)
{
    uint32_t value = 0;

    CUDA_OK(cudaMemcpy(&value, at, sizeof(value), cudaMemcpyDefault));
    return value;
}

int member_gpu_pieces(void)
{
    return 0;
}

void *member_gpu_stream(void)
{
    return stream;
}

bool member_gpu_sync(unsigned timeout_ms)
{
    int64_t until_ns = hs_now_ns() + timeout_ms * 1000000LL;
    cudaError_t error;

    while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady && hs_now_ns() < until_ns)
        hs_sleep_us(20);
    return CUDA_OK(error);
}

void member_gpu_record(void)
{
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

bool member_gpu_record_end(void)
{
    cudaGraph_t captured = NULL;

    if (!CUDA_OK(cudaStreamEndCapture(stream, &captured)) ||
        !CUDA_OK(cudaGraphInstantiateWithFlags(&graph, captured, 0)))
        return false;
    return CUDA_OK(cudaGraphDestroy(captured));
}

void member_gpu_replay(void)
{
    CUDA_OK(cudaGraphLaunch(graph, stream));
}
