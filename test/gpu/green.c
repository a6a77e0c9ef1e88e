/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of a green context: some of a GPU's multiprocessors, which a user may keep for the
 * exchange. */
#include <cuda.h>

#include "gpu/exchange.h"

#if CUDA_VERSION >= 12050

static struct {
    CUresult (*ask)(CUdevice, CUdevResource *, CUdevResourceType);
    CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned,
                      unsigned);
    CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned);
    CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
    CUresult (*create_stream)(CUstream *, CUgreenCtx, unsigned, int);
} driver;
static CUgreenCtx context;

static bool find(const char *name, void *entry_p)
{
    enum cudaDriverEntryPointQueryResult result;

    if (!GX_CUDA(
            cudaGetDriverEntryPointByVersion(name, entry_p, 12050, cudaEnableDefault, &result)))
        return false;
    if (result != cudaDriverEntryPointSuccess)
        hs_skip("this driver has no %s", name);
    return result == cudaDriverEntryPointSuccess;
}

bool gx_green(int n_sms)
{
    CUdevResourceDesc description;
    CUdevResource all, some, rest;
    unsigned n_groups = 1;
    int device;

    if (!find("cuDeviceGetDevResource", (void *)&driver.ask) ||
        !find("cuDevSmResourceSplitByCount", (void *)&driver.split) ||
        !find("cuDevResourceGenerateDesc", (void *)&driver.describe) ||
        !find("cuGreenCtxCreate", (void *)&driver.create) ||
        !find("cuGreenCtxStreamCreate", (void *)&driver.create_stream))
        return false;
    return GX_CUDA(cudaGetDevice(&device)) &&
           HS_INT(driver.ask(device, &all, CU_DEV_RESOURCE_TYPE_SM), ==, 0) &&
           HS_INT(driver.split(&some, &n_groups, &all, &rest, 0, (unsigned)n_sms), ==, 0) &&
           HS_INT(n_groups, ==, 1) && HS_INT(driver.describe(&description, &some, 1), ==, 0) &&
           HS_INT(driver.create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), ==, 0);
}

cudaStream_t gx_green_stream(void)
{
    cudaStream_t stream = NULL;

    if (context != NULL)
        HS_INT(driver.create_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0), ==, 0);
    return stream;
}

#else

bool gx_green(int n_sms)
{
    hs_skip("a stream on %d multiprocessors takes CUDA 12.5 or later", n_sms);
    return false;
}

cudaStream_t gx_green_stream(void)
{
    return NULL;
}

#endif
