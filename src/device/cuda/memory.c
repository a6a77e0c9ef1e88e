/* SPDX-License-Identifier: Apache-2.0 */
/* Classify pointers; allocate GPU memory, and pinned memory for the GPU. Allocation is for set-up
 * only: some calls wait for the GPU. */
#include <string.h>

#include "base/log.h"
#include "device/cuda/driver.h"

enum { PAGE = 2 << 20 };

void stepaf_cuda_classify(const void *ptr, struct stepaf_gpu_place *place_p)
{
    const struct stepaf_cuda_driver *cuda = stepaf_cuda_driver_if_there();
    CUmemorytype type = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    int ordinal = 0, managed = 0, shareable = 0, mapped = 0;
    /* clang-format off */
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    };
    /* clang-format on */
    void *values[] = {&type, &ordinal, &managed, &shareable, &mapped, &base, &bytes};

    /* A pointer that CUDA does not know is no failure: all values are then zero. */
    if (!cuda || cuda->pointer_attributes(sizeof(names) / sizeof(names[0]), names, values,
                                          (CUdeviceptr)ptr) != CUDA_SUCCESS)
        return;
    place_p->managed = managed != 0;
    /* Reserved addresses are nobody's memory until something is mapped there. */
    place_p->is_device = type == CU_MEMORYTYPE_DEVICE && !managed && (shareable || mapped);
    if (!place_p->is_device)
        return;
    place_p->ordinal = ordinal;
    place_p->shareable = shareable != 0;
    place_p->base = (void *)base; /* NOLINT(performance-no-int-to-ptr) */
    place_p->bytes = bytes;
}

static CUdeviceptr device_of(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static void *pointer_of(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

/* Round up to the GPU's largest pages. Other sizes take as much memory, but in smaller pages, which
 * peers write to more slowly. */
static size_t whole_pages(size_t bytes)
{
    return bytes < PAGE ? bytes : (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Wait for what was enqueued for set-up. */
static CUresult await_setup(struct stepaf_cuda_gpu *gpu, CUresult enqueued)
{
    return enqueued ? enqueued : gpu->cuda->stream_sync(gpu->stream);
}

stepaf_status_t stepaf_cuda_alloc(struct stepaf_gpu *self, size_t bytes, void **ptr_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    struct stepaf_cuda_scope scope;
    CUdeviceptr at = 0;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result = cuda->mem_alloc(&at, whole_pages(bytes)); /* aligned to 512 bytes at least */
    if (!result) {
        result = await_setup(gpu, cuda->set_async(at, 0, bytes, gpu->stream));
        if (result)
            (void)cuda->mem_free(at);
    }
    stepaf_cuda_leave(gpu, &scope);
    status = stepaf_cuda_check(cuda, result, "cannot allocate %zu bytes of GPU %d's memory", bytes,
                               gpu->base.facts.ordinal);
    if (!status)
        *ptr_p = pointer_of(at);
    return status;
}

/* Log a failure that nothing can be done about. */
static void log_failure(struct stepaf_cuda_gpu *gpu, CUresult result, const char *what)
{
    if (stepaf_cuda_check(gpu->cuda, result, "%s", what))
        stepaf_log_debug("%s", stepaf_last_error()->text);
}

void stepaf_cuda_free(struct stepaf_gpu *self, void *ptr)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;

    if (!ptr || stepaf_cuda_enter_setup(gpu, &scope))
        return;
    log_failure(gpu, gpu->cuda->mem_free(device_of(ptr)), "freeing GPU memory");
    stepaf_cuda_leave(gpu, &scope);
}

stepaf_status_t stepaf_cuda_alloc_host(struct stepaf_gpu *self, size_t bytes, void **ptr_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    struct stepaf_cuda_scope scope;
    void *ptr = NULL;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result =
        cuda->host_alloc(&ptr, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    stepaf_cuda_leave(gpu, &scope);
    status = stepaf_cuda_check(cuda, result, "cannot allocate %zu bytes of pinned memory", bytes);
    if (status)
        return status;
    memset(ptr, 0, bytes);
    *ptr_p = ptr;
    return STEPAF_OK;
}

void stepaf_cuda_free_host(struct stepaf_gpu *self, void *ptr)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;

    if (!ptr || stepaf_cuda_enter_setup(gpu, &scope))
        return;
    log_failure(gpu, gpu->cuda->host_free(ptr), "freeing pinned memory");
    stepaf_cuda_leave(gpu, &scope);
}

/* Return whether the driver knows the memory as its own host memory, or as pinned already. */
static bool is_pinned(const struct stepaf_cuda_driver *cuda, const void *ptr)
{
    CUmemorytype type = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *values[] = {&type};

    return cuda->pointer_attributes(1, names, values, device_of(ptr)) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_HOST;
}

static CUresult pin(struct stepaf_cuda_gpu *gpu, void *ptr, size_t bytes)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    CUdeviceptr at = 0;
    CUresult result =
        cuda->host_register(ptr, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

    if (result)
        return result;
    result = cuda->host_pointer(&at, ptr, 0);
    if (!result && at != device_of(ptr)) /* no known GPU does so on a 64-bit host */
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result)
        (void)cuda->host_unregister(ptr);
    return result;
}

stepaf_status_t stepaf_cuda_pin(struct stepaf_gpu *self, void *ptr, size_t bytes, bool *own_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    bool already = is_pinned(gpu->cuda, ptr) && is_pinned(gpu->cuda, (uint8_t *)ptr + bytes - 1);
    CUresult result = already ? CUDA_SUCCESS : pin(gpu, ptr, bytes);
    stepaf_cuda_leave(gpu, &scope);
    status = stepaf_cuda_check(gpu->cuda, result, "cannot pin %zu bytes of host memory for GPU %d",
                               bytes, gpu->base.facts.ordinal);
    if (!status)
        *own_p = !already;
    return status;
}

void stepaf_cuda_unpin(struct stepaf_gpu *self, void *ptr)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;

    if (stepaf_cuda_enter_setup(gpu, &scope))
        return;
    log_failure(gpu, gpu->cuda->host_unregister(ptr), "unpinning host memory");
    stepaf_cuda_leave(gpu, &scope);
}

stepaf_status_t stepaf_cuda_write(struct stepaf_gpu *self, void *dst, const void *src, size_t bytes)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result =
        await_setup(gpu, gpu->cuda->copy_async(device_of(dst), device_of(src), bytes, gpu->stream));
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot write %zu bytes to GPU %d", bytes,
                             gpu->base.facts.ordinal);
}
