/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up driver's part that has to do with network cards. */
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_fake.h"

bool cuda_fake_rdma_attribute(int *value_p, CUdevice_attribute attribute)
{
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        *value_p = cuda_fake.has_dmabuf;
        return true;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        *value_p = cuda_fake.has_rdma;
        return true;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
        *value_p = cuda_fake.ordering;
        return true;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
        *value_p = cuda_fake.flush_options;
        return true;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        *value_p = cuda_fake.two_ways;
        return true;
    default:
        return false;
    }
}

static CUresult range_handle(void *handle_p, CUdeviceptr at, size_t bytes,
                             CUmemRangeHandleType type, unsigned long long flags)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUresult result = at % page || bytes % page || !bytes || flags > cuda_fake.knows_pcie ||
                              type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
                          ? CUDA_ERROR_INVALID_VALUE
                          : cuda_fake_step();

    cuda_fake.last_flags = flags;
    if (result)
        return result;
    cuda_fake.last_fd = memfd_create("dmabuf", MFD_CLOEXEC);
    *(int *)handle_p = cuda_fake.last_fd;
    return CUDA_SUCCESS;
}

static CUresult flush_writes(CUflushGPUDirectRDMAWritesTarget target,
                             CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target;
    if (cuda_fake.bad_flush || scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
        return CUDA_ERROR_INVALID_VALUE;
    cuda_fake.n_flushes++;
    return cuda_fake_step();
}

static CUresult pointer_set(const void *value, CUpointer_attribute attribute, CUdeviceptr at)
{
    (void)at;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || *(const unsigned *)value != 1)
        return CUDA_ERROR_INVALID_VALUE;
    cuda_fake.n_synced++;
    return cuda_fake_step();
}

void cuda_fake_rdma_fill(struct stepaf_cuda_driver *driver)
{
    driver->range_handle = range_handle;
    driver->flush_writes = flush_writes;
    driver->pointer_set = pointer_set;
}
