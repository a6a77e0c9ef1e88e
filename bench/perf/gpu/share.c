/* SPDX-License-Identifier: Apache-2.0 */
/* Two shares of a GPU's multiprocessors, as green contexts: one for the exchange, one for the load.
 *
 * A stream of a green context runs only on its multiprocessors (CUDA driver API, "Green Contexts").
 * The contexts live as long as the process. */
#include <cuda.h>

#include "perf/fail.h"
#include "perf/gpu/device.h"

#if CUDA_VERSION >= 12050

/* The driver is not linked: the runtime finds its entry points. */
static int find(const char *name, void *entry_p)
{
    enum cudaDriverEntryPointQueryResult result;

    if (perf_gpu_try(cudaGetDriverEntryPointByVersion(name, entry_p, 12050, cudaEnableDefault,
                                                      &result)) != 0)
        return -1;
    return result == cudaDriverEntryPointSuccess ? 0 : perf_fail("the driver has no %s", name);
}

static int verdict(CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? 0 : perf_fail("%s: CUDA error %d", call, (int)result);
}

/* A stream on the multiprocessors of @a share. */
static int make_stream(int device, CUdevResource *share, int priority, cudaStream_t *stream_p)
{
    CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned);
    CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
    CUresult (*create_stream)(CUstream *, CUgreenCtx, unsigned, int);
    CUdevResourceDesc description;
    CUgreenCtx context;

    if (find("cuDevResourceGenerateDesc", (void *)&describe) != 0 ||
        find("cuGreenCtxCreate", (void *)&create) != 0 ||
        find("cuGreenCtxStreamCreate", (void *)&create_stream) != 0)
        return -1;
    if (verdict(describe(&description, share, 1), "cuDevResourceGenerateDesc") != 0 ||
        verdict(create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                "cuGreenCtxCreate") != 0)
        return -1;
    return verdict(create_stream(stream_p, context, CU_STREAM_NON_BLOCKING, priority),
                   "cuGreenCtxStreamCreate");
}

int perf_gpu_share(struct perf_gpu *gpu, unsigned n_sms)
{
    CUresult (*ask)(CUdevice, CUdevResource *, CUdevResourceType);
    CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned,
                      unsigned);
    CUdevResource all, ours, others;
    unsigned n_groups = 1;
    int lowest, highest;

    if (find("cuDeviceGetDevResource", (void *)&ask) != 0 ||
        find("cuDevSmResourceSplitByCount", (void *)&split) != 0 ||
        perf_gpu_try(cudaDeviceGetStreamPriorityRange(&lowest, &highest)) != 0)
        return -1;
    if (verdict(ask(gpu->ordinal, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource") != 0 ||
        verdict(split(&ours, &n_groups, &all, &others, 0, n_sms), "cuDevSmResourceSplitByCount") !=
            0)
        return -1;
    if (n_groups != 1 || others.sm.smCount == 0)
        return perf_fail("--load=%u leaves no multiprocessor to the load", n_sms);
    gpu->n_load_sms = (int)others.sm.smCount;
    for (int i = 0; i < (int)gpu->options->microbatches; i++, gpu->n_streams++)
        if (make_stream(gpu->ordinal, &ours, highest, &gpu->streams[i]) != 0)
            return -1;
    return make_stream(gpu->ordinal, &others, lowest, &gpu->load_stream);
}

#else

int perf_gpu_share(struct perf_gpu *gpu, unsigned n_sms)
{
    (void)gpu;
    return perf_fail("--load=%u requires CUDA 12.5 or later", n_sms);
}

#endif
