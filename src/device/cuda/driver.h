/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver as the files of this directory see it: a table of its entry points, looked up in
 * libcuda.so.1 at run time, so that the library is not linked with CUDA. Tests replace the driver
 * with their own. */
#ifndef STEPAF_DEVICE_CUDA_DRIVER_H
#define STEPAF_DEVICE_CUDA_DRIVER_H

#include <cuda.h>

#include "base/list.h"
#include "device/device_ops.h"

/* Field and entry point. The CUDA header renames some by version ("cuMemAlloc_v2"). The name is
 * expanded before it is made a string, so type and symbol always have the same version. */
#define STEPAF_CUDA_ENTRIES(_)                         \
    _(init, cuInit)                                    \
    _(error_name, cuGetErrorName)                      \
    _(error_string, cuGetErrorString)                  \
    _(device_count, cuDeviceGetCount)                  \
    _(device_get, cuDeviceGet)                         \
    _(device_name, cuDeviceGetName)                    \
    _(device_uuid, cuDeviceGetUuid_v2)                 \
    _(device_bus, cuDeviceGetPCIBusId)                 \
    _(device_attribute, cuDeviceGetAttribute)          \
    _(primary_retain, cuDevicePrimaryCtxRetain)        \
    _(primary_release, cuDevicePrimaryCtxRelease)      \
    _(ctx_current, cuCtxGetCurrent)                    \
    _(ctx_push, cuCtxPushCurrent)                      \
    _(ctx_pop, cuCtxPopCurrent)                        \
    _(ctx_device, cuCtxGetDevice)                      \
    _(ctx_enable_peer, cuCtxEnablePeerAccess)          \
    _(capture_mode, cuThreadExchangeStreamCaptureMode) \
    _(module_load, cuModuleLoadDataEx)                 \
    _(module_unload, cuModuleUnload)                   \
    _(module_function, cuModuleGetFunction)            \
    _(function_attribute, cuFuncGetAttribute)          \
    _(launch, cuLaunchKernelEx)                        \
    _(pointer_attributes, cuPointerGetAttributes)      \
    _(pointer_set, cuPointerSetAttribute)              \
    _(mem_alloc, cuMemAlloc)                           \
    _(mem_free, cuMemFree)                             \
    _(mem_range, cuMemGetAddressRange)                 \
    _(host_alloc, cuMemHostAlloc)                      \
    _(host_free, cuMemFreeHost)                        \
    _(host_register, cuMemHostRegister)                \
    _(host_unregister, cuMemHostUnregister)            \
    _(host_pointer, cuMemHostGetDevicePointer)         \
    _(set_async, cuMemsetD8Async)                      \
    _(copy_async, cuMemcpyAsync)                       \
    _(ipc_get, cuIpcGetMemHandle)                      \
    _(ipc_open, cuIpcOpenMemHandle)                    \
    _(ipc_close, cuIpcCloseMemHandle)                  \
    _(stream_create, cuStreamCreate)                   \
    _(stream_destroy, cuStreamDestroy)                 \
    _(stream_sync, cuStreamSynchronize)                \
    _(stream_wait, cuStreamWaitEvent)                  \
    _(stream_capturing, cuStreamIsCapturing)           \
    _(stream_operate, cuStreamBatchMemOp)              \
    _(event_create, cuEventCreate)                     \
    _(event_destroy, cuEventDestroy)                   \
    _(event_record, cuEventRecord)                     \
    _(event_query, cuEventQuery)

/* CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE, in the headers since 12.8. */
enum { STEPAF_CUDA_DMABUF_BY_PCIE = 1 };

struct stepaf_cuda_driver {
#define STEPAF_CUDA_FIELD(field_, entry_) __typeof__(entry_) *field_;
    STEPAF_CUDA_ENTRIES(STEPAF_CUDA_FIELD)
#undef STEPAF_CUDA_FIELD
    /* NULL if the driver lacks them: cuMemGetHandleForAddressRange (11.7),
     * cuFlushGPUDirectRDMAWrites (11.3), cuFuncLoad (12.4), cuStreamGetDevice (12.8). */
    __typeof__(cuMemGetHandleForAddressRange) *range_handle;
    __typeof__(cuFlushGPUDirectRDMAWrites) *flush_writes;
    CUresult(CUDAAPI *function_load)(CUfunction function);
    CUresult(CUDAAPI *stream_device)(CUstream stream, CUdevice *device_p);
};

/* A test's driver, used instead of libcuda; NULL: libcuda is used. */
extern const struct stepaf_cuda_driver *stepaf_cuda_driver_fake;

/* Return the driver, which the first caller loads and initializes. Any thread may call. Returns
 * NULL if there is none; @a reason (STEPAF_REASON_MAX, or NULL) says why. */
const struct stepaf_cuda_driver *stepaf_cuda_driver(char *reason);

/* Return the driver if this process has it already; NULL if nothing in this process can come from
 * it. Neither loads nor initializes: that takes long in a process that uses no GPU. */
const struct stepaf_cuda_driver *stepaf_cuda_driver_if_there(void);

/* An open GPU. */
struct stepaf_cuda_gpu {
    struct stepaf_gpu base;
    const struct stepaf_cuda_driver *cuda;
    CUdevice device;
    CUcontext context; /* the device's primary context, retained */
    CUmodule module;
    CUfunction kernels[STEPAF_KERNEL_COUNT];
    CUfunction few[STEPAF_KERNEL_COUNT]; /* the kernels for args with few tensors */
    CUfunction any[STEPAF_ANY_KERNEL_COUNT];
    CUfunction times[STEPAF_TIMES_KERNEL_COUNT];
    CUfunction tell_time;
    CUstream stream; /* for set-up: waits for no other, not even the legacy default stream */
    bool chains;     /* kernels may be programmatic successors: compute capability 9.0 */
    struct stepaf_gpu_rdma rdma; /* state of rdma.c */
    bool rdma_known;
    struct stepaf_list mappings; /* of peers' memory; state of share.c */
};

static inline struct stepaf_cuda_gpu *stepaf_cuda_gpu(struct stepaf_gpu *self)
{
    return stepaf_container_of(self, struct stepaf_cuda_gpu, base);
}

/* What leave undoes after calls of the driver. */
struct stepaf_cuda_scope {
    bool pushed;
    bool relaxed;
    CUstreamCaptureMode mode; /* the thread's own */
};

/* Make the GPU's context current to this thread, if it is not. For calls on a stream. */
stepaf_status_t stepaf_cuda_enter(struct stepaf_cuda_gpu *gpu, struct stepaf_cuda_scope *scope_p);
/* Enter for all other calls. Some calls are forbidden to a thread while any thread captures a
 * stream in the usual mode, and would end that capture. None of the library's calls concern what is
 * captured, so this thread may opt out of the check. */
stepaf_status_t stepaf_cuda_enter_setup(struct stepaf_cuda_gpu *gpu,
                                        struct stepaf_cuda_scope *scope_p);
void stepaf_cuda_leave(struct stepaf_cuda_gpu *gpu, const struct stepaf_cuda_scope *scope);

/* Translate a result. Returns STEPAF_OK, or a failure whose sentence says what could not be done,
 * and the driver's reason. */
stepaf_status_t stepaf_cuda_check(const struct stepaf_cuda_driver *cuda, CUresult result,
                                  const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Unmap what is still imported. */
void stepaf_cuda_unmap_all(struct stepaf_cuda_gpu *gpu);

/* ---- the table's operations (device_ops.h), by file ---- */

/* memory.c */
void stepaf_cuda_classify(const void *ptr, struct stepaf_gpu_place *place_p);
stepaf_status_t stepaf_cuda_alloc(struct stepaf_gpu *self, size_t bytes, void **ptr_p);
void stepaf_cuda_free(struct stepaf_gpu *self, void *ptr);
stepaf_status_t stepaf_cuda_alloc_host(struct stepaf_gpu *self, size_t bytes, void **ptr_p);
void stepaf_cuda_free_host(struct stepaf_gpu *self, void *ptr);
stepaf_status_t stepaf_cuda_pin(struct stepaf_gpu *self, void *ptr, size_t bytes, bool *own_p);
void stepaf_cuda_unpin(struct stepaf_gpu *self, void *ptr);
stepaf_status_t stepaf_cuda_write(struct stepaf_gpu *self, void *dst, const void *src,
                                  size_t bytes);
/* share.c */
stepaf_status_t stepaf_cuda_export(struct stepaf_gpu *self, const void *ptr,
                                   struct stepaf_gpu_export *export_p);
stepaf_status_t stepaf_cuda_import(struct stepaf_gpu *self,
                                   const struct stepaf_gpu_export *exported, void **ptr_p);
void stepaf_cuda_unimport(struct stepaf_gpu *self, void *ptr);
/* rdma.c */
const struct stepaf_gpu_rdma *stepaf_cuda_rdma(struct stepaf_gpu *self);
stepaf_status_t stepaf_cuda_dmabuf(struct stepaf_gpu *self, const void *ptr, size_t bytes,
                                   bool by_pcie, int *fd_p, uint64_t *offset_p);
stepaf_status_t stepaf_cuda_sync_memops(struct stepaf_gpu *self, const void *ptr);
stepaf_status_t stepaf_cuda_inside(struct stepaf_gpu *self, void (*job)(void *arg), void *arg);
stepaf_status_t stepaf_cuda_flush(struct stepaf_gpu *self);
/* stream.c */
stepaf_status_t stepaf_cuda_capturing(struct stepaf_gpu *self, void *stream, bool *capturing_p);
stepaf_status_t stepaf_cuda_launch(struct stepaf_gpu *self, enum stepaf_kernel kernel,
                                   const struct stepaf_kernel_args *args, uint32_t blocks,
                                   uint32_t threads, bool behind, void *stream);
stepaf_status_t stepaf_cuda_launch_any(struct stepaf_gpu *self, enum stepaf_any_kernel kernel,
                                       const struct stepaf_any_args *args, uint32_t blocks,
                                       uint32_t threads, bool behind, void *stream);
stepaf_status_t stepaf_cuda_copy(struct stepaf_gpu *self, void *dst, const void *src, size_t bytes,
                                 void *stream);
stepaf_status_t stepaf_cuda_store(struct stepaf_gpu *self, const struct stepaf_gpu_word *words,
                                  uint32_t n, void *stream);
stepaf_status_t stepaf_cuda_timestamp(struct stepaf_gpu *self, enum stepaf_times_kernel kernel,
                                      const struct stepaf_timestamp_args *args, void *stream);
stepaf_status_t stepaf_cuda_tell_time(struct stepaf_gpu *self, const struct stepaf_clock_args *args,
                                      void *stream);
stepaf_status_t stepaf_cuda_event_create(struct stepaf_gpu *self, void **event_p);
void stepaf_cuda_event_destroy(struct stepaf_gpu *self, void *event);
stepaf_status_t stepaf_cuda_event_record(struct stepaf_gpu *self, void *event, void *stream);
stepaf_status_t stepaf_cuda_event_await(struct stepaf_gpu *self, void *event, void *stream);
stepaf_status_t stepaf_cuda_event_test(struct stepaf_gpu *self, void *event);
stepaf_status_t stepaf_cuda_stream_create(struct stepaf_gpu *self, void **stream_p);
void stepaf_cuda_stream_destroy(struct stepaf_gpu *self, void *stream);
stepaf_status_t stepaf_cuda_stream_sync(struct stepaf_gpu *self, void *stream);

/* The fatbin with the kernels, from kernels.cu. */
extern const unsigned char stepaf_kernels_image[];

#endif
