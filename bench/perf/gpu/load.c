/* SPDX-License-Identifier: Apache-2.0 */
/* The load that fills the GPU like a matrix product while an exchange is measured.
 *
 * Its blocks must not read pinned memory: reads of one host word by all SMs go one by one, about
 * 1 us each, and all other traffic on the same bus waits behind them, launches included. */
#include "perf/clock.h"
#include "perf/fail.h"
#include "perf/gpu/device.h"

#define BLOCK_NS ((uint64_t)75000)

int perf_gpu_load_open(struct perf_gpu *gpu)
{
    int lowest, highest;
    void *memory;

    if (perf_gpu_try(cudaDeviceGetStreamPriorityRange(&lowest, &highest)) != 0 ||
        (gpu->load_stream == NULL && perf_gpu_try(cudaStreamCreateWithPriority(
                                         &gpu->load_stream, cudaStreamNonBlocking, lowest)) != 0) ||
        perf_gpu_try(
            cudaStreamCreateWithPriority(&gpu->stop_stream, cudaStreamNonBlocking, highest)) != 0 ||
        perf_gpu_try(cudaEventCreateWithFlags(&gpu->load_done, cudaEventDisableTiming)) != 0 ||
        perf_gpu_try(cudaMalloc(&memory, PERF_GPU_LOAD_OPERAND + 256)) != 0)
        return -1;
    gpu->load = (struct perf_gpu_load){
        .operand = memory,
        .sink = (float *)((char *)memory + PERF_GPU_LOAD_OPERAND),
        .started = &gpu->words->load_started,
        .stop = (uint32_t *)((char *)memory + PERF_GPU_LOAD_OPERAND + 128),
        .block_ns = BLOCK_NS,
    };
    if (perf_gpu_try(cudaMemset(memory, 0, PERF_GPU_LOAD_OPERAND + 256)) != 0 ||
        perf_gpu_try(cudaDeviceSynchronize()) != 0)
        return -1;
    return perf_gpu_try(perf_gpu_prepare_load());
}

void perf_gpu_load_close(struct perf_gpu *gpu)
{
    cudaFree((void *)gpu->load.operand);
    if (gpu->load_done != NULL)
        cudaEventDestroy(gpu->load_done);
    if (gpu->stop_stream != NULL)
        cudaStreamDestroy(gpu->stop_stream);
    if (gpu->load_stream != NULL)
        cudaStreamDestroy(gpu->load_stream);
}

int perf_gpu_load_begin(struct perf_gpu *gpu, double us)
{
    double blocks = us * 1e3 / (double)BLOCK_NS * gpu->n_load_sms;
    int64_t start_ns = perf_now_ns();

    gpu->load.ticket++;
    if (perf_gpu_try(perf_gpu_launch_load(
            &gpu->load, blocks < 1e9 ? (uint32_t)blocks + 1 : 1000000000, gpu->load_stream)) != 0 ||
        perf_gpu_try(cudaEventRecord(gpu->load_done, gpu->load_stream)) != 0)
        return -1;
    while (__atomic_load_n(&gpu->words->load_started, __ATOMIC_ACQUIRE) != gpu->load.ticket) {
        cudaError_t error = cudaStreamQuery(gpu->load_stream);

        if (error != cudaErrorNotReady && error != cudaSuccess)
            return perf_gpu_fail(error, "cudaStreamQuery");
        (void)cudaGetLastError();
        if (perf_now_ns() - start_ns > gpu->timeout_us * 1000)
            return perf_fail("the load has not begun on the GPU");
    }
    return 0;
}

int perf_gpu_load_end(struct perf_gpu *gpu, int *lasted_p)
{
    *lasted_p = cudaEventQuery(gpu->load_done) == cudaErrorNotReady;
    gpu->words->load_stop = gpu->load.ticket;
    if (perf_gpu_try(cudaMemcpyAsync((void *)(uintptr_t)gpu->load.stop, &gpu->words->load_stop,
                                     sizeof(gpu->words->load_stop), cudaMemcpyHostToDevice,
                                     gpu->stop_stream)) != 0)
        return -1;
    return perf_gpu_wait(gpu, gpu->load_done, NULL, "the load");
}
