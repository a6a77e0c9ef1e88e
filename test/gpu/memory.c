/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory of every kind that a caller may bring. */
#include "gpu/exchange.h"

#include <stdlib.h>
#include <string.h>

#include <cuda.h>

enum { LINE = 256, PAGE = 4096, ARENA_BYTES = 512 << 20 };

/* The driver's calls, looked up so that nothing but libcudart is linked. */
static struct {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} driver;

static bool look_up(const char *name, void *entry)
{
    enum cudaDriverEntryPointQueryResult found;
    void *symbol = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &symbol, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    *(void **)entry = symbol;
    return true;
}

static bool look_up_all(void)
{
    return look_up("cuMemGetAllocationGranularity", &driver.granularity) &&
           look_up("cuMemAddressReserve", &driver.reserve) &&
           look_up("cuMemCreate", &driver.create) && look_up("cuMemMap", &driver.map) &&
           look_up("cuMemSetAccess", &driver.access);
}

static bool made(CUresult result, const char *what)
{
    return result == CUDA_SUCCESS || HS_FAILED("%s: the driver says %d", what, (int)result);
}

/* Reserve a range of addresses and map it piece by piece, as allocators with expandable segments
 * do: a tensor may lie in several pieces. */
static bool map_pieces(size_t bytes, bool exported, void **ptr_p)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr base = 0;
    size_t piece = 0;

    if (exported)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!HS_TRUE(look_up_all()) || !GX_CUDA(cudaGetDevice(&prop.location.id)) ||
        !made(driver.granularity(&piece, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "granularity"))
        return false;
    bytes = (bytes + piece - 1) / piece * piece;
    if (!made(driver.reserve(&base, bytes, 0, 0, 0), "cuMemAddressReserve"))
        return false;
    for (size_t at = 0; at < bytes; at += piece) {
        CUmemGenericAllocationHandle handle;
        if (!made(driver.create(&handle, piece, &prop, 0), "cuMemCreate") ||
            !made(driver.map(base + at, piece, 0, handle, 0), "cuMemMap"))
            return false;
    }
    access.location = prop.location;
    *ptr_p = (void *)(uintptr_t)base; /* NOLINT(performance-no-int-to-ptr): it is an address */
    return made(driver.access(base, bytes, &access, 1), "cuMemSetAccess");
}

/* From a pool: its memory cannot be opened by other processes. */
static bool take_from_pool(size_t bytes, void **ptr_p)
{
    cudaStream_t stream = gx_stream();

    return stream != NULL && GX_CUDA(cudaMallocAsync(ptr_p, bytes, stream)) &&
           GX_CUDA(cudaStreamSynchronize(stream)) && GX_CUDA(cudaStreamDestroy(stream));
}

bool gx_memory_on_host(enum gx_memory kind)
{
    return kind == GX_HOST || kind == GX_HEAP;
}

const char *gx_memory_name(enum gx_memory kind)
{
    static const char *const names[GX_MEMORIES] = {"library", "malloc", "pool", "vmm",
                                                   "vmm-fd",  "host",   "heap", "arena"};

    return kind < GX_MEMORIES ? names[kind] : "?";
}

bool gx_memory_works(enum gx_memory kind)
{
    int device = 0, is = 1;

    if (cudaGetDevice(&device) != cudaSuccess)
        return false;
    if (kind == GX_POOL)
        (void)cudaDeviceGetAttribute(&is, cudaDevAttrMemoryPoolsSupported, device);
    if (kind == GX_VMM || kind == GX_VMM_FD)
        is = look_up_all();
    return is != 0;
}

/* The next part of the arena, which is registered as one. */
static bool take_from_arena(stepaf_context_h ctx, size_t bytes, unsigned char **ptr_p)
{
    static unsigned char *arena;
    static size_t used;

    if (arena == NULL && (!GX_CUDA(cudaMalloc((void **)&arena, ARENA_BYTES)) ||
                          !HS_OK(stepaf_register(ctx, arena, ARENA_BYTES))))
        return false;
    *ptr_p = arena + used;
    used += (bytes + LINE - 1) / LINE * LINE;
    return HS_INT(used, <=, ARENA_BYTES);
}

bool gx_memory(stepaf_context_h ctx, enum gx_memory kind, size_t bytes, unsigned skew,
               unsigned char **ptr_p)
{
    size_t whole = bytes + skew + 2 * LINE;
    void *base = NULL;

    if (kind == GX_LIBRARY || kind == GX_HOST) {
        if (!HS_OK(stepaf_alloc(ctx, bytes + skew + 1,
                                kind == GX_HOST ? STEPAF_MEM_HOST : STEPAF_MEM_CUDA, &base)))
            return false;
        *ptr_p = (unsigned char *)base + skew;
        return true;
    }
    if (kind == GX_ARENA) {
        bool taken = take_from_arena(ctx, bytes + skew, ptr_p);
        *ptr_p += taken ? skew : 0;
        return taken;
    }
    if (kind == GX_MALLOC && !GX_CUDA(cudaMalloc(&base, whole)))
        return false;
    if (kind ==
        GX_HEAP) { /* pages of its own: what shares one with other memory is pinned with it */
        size_t pages = (whole + PAGE - 1) / PAGE * PAGE;
        if (!HS_TRUE((base = aligned_alloc(PAGE, pages)) != NULL))
            return false;
        memset(base, 0, pages);
    }
    if (kind == GX_POOL && !take_from_pool(whole, &base))
        return false;
    if ((kind == GX_VMM || kind == GX_VMM_FD) && !map_pieces(whole, kind == GX_VMM_FD, &base))
        return false;
    /* Neither the start nor the end of the allocation. */
    *ptr_p = (unsigned char *)base + LINE + skew;
    return HS_OK(stepaf_register(ctx, *ptr_p, bytes > 0 ? bytes : 1));
}
