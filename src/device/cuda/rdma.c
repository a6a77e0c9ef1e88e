/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory for NICs that read and write it themselves: facts of the device, export, ordering,
 * flush. */
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "device/cuda/driver.h"

/* Read a device attribute; 0 from an older driver that does not know it. */
static int read_attribute(const struct stepaf_cuda_gpu *gpu, CUdevice_attribute attribute)
{
    int value = 0;

    return gpu->cuda->device_attribute(&value, attribute, gpu->device) == CUDA_SUCCESS ? value : 0;
}

const struct stepaf_gpu_rdma *stepaf_cuda_rdma(struct stepaf_gpu *self)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_gpu_rdma *rdma = &gpu->rdma;

    if (gpu->rdma_known)
        return rdma;
    if (!gpu->cuda->range_handle)
        snprintf(rdma->no_dmabuf, sizeof(rdma->no_dmabuf),
                 "the CUDA driver has no cuMemGetHandleForAddressRange (11.7 has)");
    else if (!read_attribute(gpu, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED))
        snprintf(rdma->no_dmabuf, sizeof(rdma->no_dmabuf), "GPU %d exports no memory as dma-buf",
                 gpu->base.facts.ordinal);
    if (!read_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED))
        snprintf(rdma->no_peermem, sizeof(rdma->no_peermem), "GPU %d offers no GPUDirect RDMA",
                 gpu->base.facts.ordinal);
    /* There the driver says that all is ordered, which is true of only one of the ways. */
    rdma->two_ways =
        read_attribute(gpu, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
    rdma->flush =
        rdma->two_ways || read_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) <
                              CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
    if (rdma->flush && !rdma->two_ways &&
        (!gpu->cuda->flush_writes ||
         !(read_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
           CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST)))
        snprintf(rdma->no_flush, sizeof(rdma->no_flush),
                 "GPU %d does not order the writes of NICs and cannot flush them",
                 gpu->base.facts.ordinal);
    gpu->rdma_known = true;
    return rdma;
}

stepaf_status_t stepaf_cuda_dmabuf(struct stepaf_gpu *self, const void *ptr, size_t bytes,
                                   bool by_pcie, int *fd_p, uint64_t *offset_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    const struct stepaf_gpu_rdma *rdma = stepaf_cuda_rdma(self);
    CUdeviceptr page = (CUdeviceptr)sysconf(_SC_PAGESIZE);
    CUdeviceptr at = (CUdeviceptr)ptr, base = at / page * page;
    size_t whole = (at - base + bytes + page - 1) / page * page;
    struct stepaf_cuda_scope scope;
    int fd = -1;

    if (rdma->no_dmabuf[0])
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE, "%s", rdma->no_dmabuf);
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);
    if (status)
        return status;
    stepaf_fd_begin();
    CUresult result = gpu->cuda->range_handle(&fd, base, whole, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                              by_pcie ? STEPAF_CUDA_DMABUF_BY_PCIE : 0);
    (void)stepaf_fd_end(-1);
    stepaf_cuda_leave(gpu, &scope);
    /* A driver before 12.8 does not know the flag, and a GPU with one way does not need it. */
    if (by_pcie && (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED))
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "GPU %d exports no dma-buf by PCIe", gpu->base.facts.ordinal);
    status = stepaf_cuda_check(gpu->cuda, result, "cannot export %zu bytes of GPU %d as dma-buf",
                               bytes, gpu->base.facts.ordinal);
    if (status)
        return status;
    *fd_p = fd;
    *offset_p = at - base;
    return STEPAF_OK;
}

stepaf_status_t stepaf_cuda_sync_memops(struct stepaf_gpu *self, const void *ptr)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    unsigned yes = 1;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result =
        gpu->cuda->pointer_set(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)ptr);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result,
                             "cannot make copies of memory at %p of GPU %d synchronous", ptr,
                             gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_inside(struct stepaf_gpu *self, void (*job)(void *arg), void *arg)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    job(arg);
    stepaf_cuda_leave(gpu, &scope);
    return STEPAF_OK;
}

stepaf_status_t stepaf_cuda_flush(struct stepaf_gpu *self)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->flush_writes(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                              CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot flush what was written to GPU %d",
                             gpu->base.facts.ordinal);
}
