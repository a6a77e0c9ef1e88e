/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/device.h"

#include <stdio.h>
#include <string.h>

#include "perf/clock.h"
#include "perf/fail.h"
#include "perf/guard.h"

/* A hold ends by itself, so that no failure of the host leaves a GPU waiting. */
#define HOLD_NS ((uint64_t)3 * 1000000000)

enum { LOOK_NS = 2000000 /* polls for lost peers, while waiting for the GPU */ };

int perf_gpu_fail(cudaError_t error, const char *call)
{
    perf_fail_set("%.*s: %s (%s)", (int)strcspn(call, "("), call, cudaGetErrorString(error),
                  cudaGetErrorName(error));
    return -1;
}

int perf_gpu_verdict(cudaError_t error, const char *call)
{
    return error == cudaSuccess ? 0 : perf_gpu_fail(error, call);
}

/* After a poll without a result: yield, and rarely check whether a peer is lost or the time is
 * up. Streams need no call from here: transfers through the host are the work of the library's
 * thread, and calls would alternate with it, so that data would move to and from two cores by
 * turns. */
static int wait_more(struct perf_gpu *gpu, int64_t start_ns, stepaf_context_h ctx, const char *what)
{
    int64_t now_ns = perf_now_ns();

    (void)cudaGetLastError(); /* "not ready" is no error, but a later call would report it as one */
    if (now_ns - gpu->looked_ns < LOOK_NS) {
        perf_job_give_way();
        return 0;
    }
    gpu->looked_ns = now_ns;
    if (perf_job_idle(ctx) != 0)
        return -1;
    if (now_ns - start_ns < gpu->timeout_us * 1000)
        return 0;
    return perf_fail("%s: the GPU has not finished within %lld s", what,
                     (long long)(gpu->timeout_us / 1000000));
}

int perf_gpu_wait(struct perf_gpu *gpu, cudaEvent_t event, stepaf_context_h ctx, const char *what)
{
    int64_t start_ns = perf_now_ns();
    cudaError_t error;

    while ((error = cudaEventQuery(event)) == cudaErrorNotReady) {
        if (wait_more(gpu, start_ns, ctx, what) != 0)
            return -1;
    }
    return perf_gpu_verdict(error, "cudaEventQuery");
}

int perf_gpu_drain(struct perf_gpu *gpu, cudaStream_t stream, stepaf_context_h ctx,
                   const char *what)
{
    int64_t start_ns = perf_now_ns();
    cudaError_t error;

    while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        if (wait_more(gpu, start_ns, ctx, what) != 0)
            return -1;
    }
    return perf_gpu_verdict(error, "cudaStreamQuery");
}

int perf_gpu_hold(struct perf_gpu *gpu)
{
    gpu->ticket++;
    if (perf_gpu_try(
            perf_gpu_launch_hold(&gpu->words->go, gpu->ticket, HOLD_NS, gpu->streams[0])) != 0)
        return -1;
    if (gpu->n_streams == 1)
        return 0;
    if (perf_gpu_try(cudaEventRecord(gpu->held, gpu->streams[0])) != 0)
        return -1;
    for (int i = 1; i < gpu->n_streams; i++) {
        if (perf_gpu_try(cudaStreamWaitEvent(gpu->streams[i], gpu->held, 0)) != 0)
            return -1;
    }
    return 0;
}

void perf_gpu_release(struct perf_gpu *gpu)
{
    __atomic_store_n(&gpu->words->go, gpu->ticket, __ATOMIC_RELEASE);
}

void perf_gpu_guard(const struct perf_gpu *gpu, const char *what)
{
    unsigned seconds = (unsigned)(gpu->timeout_us / 1000000) + 30;
    char text[160];

    snprintf(text, sizeof(text), "rank %d failed: %s has not returned within %u s",
             gpu->place->rank, what, seconds);
    perf_guard(seconds, text);
}

void perf_gpu_unguard(void)
{
    perf_unguard();
}
