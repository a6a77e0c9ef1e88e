/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's GPU, and its streams. */
#include "gpu/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SYNC_LIMIT_S = 30 };

static int n_devices;

bool gx_check_cuda(const char *file, int line, const char *call, cudaError_t error)
{
    if (error == cudaSuccess)
        return true;
    return hs_report(file, line, "%s: %s: %s", call, cudaGetErrorName(error),
                     cudaGetErrorString(error));
}

/* How many GPUs there are, without having asked CUDA in this process. */
static int count_aside(void)
{
    int n = 0, status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 0;
    return WEXITSTATUS(status);
}

/* Entry @a index of CUDA_VISIBLE_DEVICES, or the number itself where it is not set. */
static void name_device(int index, char *name, size_t capacity)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    snprintf(name, capacity, "%d", index);
    if (list == NULL)
        return;
    for (; index > 0 && *list != '\0'; list++)
        index -= *list == ',';
    snprintf(name, capacity, "%.*s", (int)strcspn(list, ","), list);
}

/* Let this process see one GPU only; what was said of them is of no use then. */
static cudaError_t hide_others(const struct hs_job *job)
{
    int all = count_aside(), one = 0;
    char name[64];

    if (all == 0)
        return cudaErrorNoDevice;
    name_device(job->rank % all, name, sizeof name);
    setenv("CUDA_VISIBLE_DEVICES", name, 1);
    n_devices = all;
    return cudaGetDeviceCount(&one);
}

bool gx_device(struct hs_job *job)
{
    bool own = hs_option_int(job, "--own", 0) != 0;
    int want = (int)hs_option_int(job, "--gpus", 1), n_sms = (int)hs_option_int(job, "--sms", 0);
    cudaError_t error = own ? hide_others(job) : cudaGetDeviceCount(&n_devices);

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
    return GX_CUDA(cudaSetDevice(own ? 0 : job->rank % n_devices)) && GX_CUDA(cudaFree(NULL)) &&
           GX_CUDA(gx_load_kernels()) && (n_sms == 0 || gx_green(n_sms));
}

bool gx_shared(const struct hs_job *job)
{
    return job->size > n_devices;
}

long long gx_scaled(const struct hs_job *job, long long n, long long part)
{
    n = gx_shared(job) && getenv("TEST_FULL") == NULL ? n / part : n;
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
    cudaStream_t stream = gx_green_stream();

    if (stream != NULL)
        return stream;
    return GX_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) ? stream : NULL;
}

bool gx_settle(void)
{
    return GX_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

bool gx_sync_stream(cudaStream_t stream, const char *what)
{
    int64_t deadline = hs_now_ns() + SYNC_LIMIT_S * 1000000000LL * hs_slow();
    cudaError_t error;

    while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        if (hs_now_ns() > deadline)
            return HS_FAILED("%s: the stream has not come to its end in time", what);
        hs_yield();
    }
    return gx_check_cuda(__FILE__, __LINE__, what, error);
}
