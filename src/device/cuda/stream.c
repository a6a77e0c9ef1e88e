/* SPDX-License-Identifier: Apache-2.0 */
/* Operations enqueued on streams; streams and events themselves. */
#include "device/cuda/driver.h"

stepaf_status_t stepaf_cuda_capturing(struct stepaf_gpu *self, void *stream, bool *capturing_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    CUdevice device = gpu->device;
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter(gpu, &scope);

    if (status)
        return status;
    CUresult result = cuda->stream_capturing(stream, &state);
    if (!result && state == CU_STREAM_CAPTURE_STATUS_NONE && cuda->stream_device)
        result = cuda->stream_device(stream, &device);
    stepaf_cuda_leave(gpu, &scope);
    if (result) {
        (void)stepaf_cuda_check(cuda, result, "this stream cannot be used");
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "%s",
                                stepaf_last_error()->text);
    }
    if (device != gpu->device)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "the stream belongs to GPU %d, but this rank uses GPU %d", device,
                                gpu->base.facts.ordinal);
    if (state == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "the capture of this stream has failed already");
    *capturing_p = state == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return STEPAF_OK;
}

static stepaf_status_t launch(struct stepaf_cuda_gpu *gpu, CUfunction kernel, const void *args,
                              uint32_t blocks, uint32_t threads, bool behind, void *stream)
{
    CUlaunchAttribute successor = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &successor,
                             .numAttrs = behind && gpu->chains};
    void *params[] = {(void *)args};
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->launch(&config, kernel, params, NULL);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot launch on GPU %d", gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_launch(struct stepaf_gpu *self, enum stepaf_kernel kernel,
                                   const struct stepaf_kernel_args *args, uint32_t blocks,
                                   uint32_t threads, bool behind, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    bool few = args->n_tensors <= STEPAF_ARGS_FEW;

    return launch(gpu, few ? gpu->few[kernel] : gpu->kernels[kernel], args, blocks, threads, behind,
                  stream);
}

stepaf_status_t stepaf_cuda_launch_any(struct stepaf_gpu *self, enum stepaf_any_kernel kernel,
                                       const struct stepaf_any_args *args, uint32_t blocks,
                                       uint32_t threads, bool behind, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    return launch(gpu, gpu->any[kernel], args, blocks, threads, behind, stream);
}

stepaf_status_t stepaf_cuda_timestamp(struct stepaf_gpu *self, enum stepaf_times_kernel kernel,
                                      const struct stepaf_timestamp_args *args, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    uint32_t warps =
        kernel == STEPAF_KERNEL_ARRIVALS ? (args->n_peers + STEPAF_WARP - 1) / STEPAF_WARP : 0;

    return launch(gpu, gpu->times[kernel], args, 1, warps ? warps * STEPAF_WARP : 1, true, stream);
}

stepaf_status_t stepaf_cuda_tell_time(struct stepaf_gpu *self, const struct stepaf_clock_args *args,
                                      void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);

    return launch(gpu, gpu->tell_time, args, 1, 1, false, stream);
}

stepaf_status_t stepaf_cuda_copy(struct stepaf_gpu *self, void *dst, const void *src, size_t bytes,
                                 void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->copy_async((CUdeviceptr)dst, (CUdeviceptr)src, bytes, stream);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot copy %zu bytes on GPU %d", bytes,
                             gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_store(struct stepaf_gpu *self, const struct stepaf_gpu_word *words,
                                  uint32_t n, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    CUstreamBatchMemOpParams operations[STEPAF_GPU_WORDS];
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter(gpu, &scope);

    if (status)
        return status;
    for (uint32_t i = 0; i < n; i++)
        operations[i].writeValue = (struct CUstreamMemOpWriteValueParams_st){
            .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
            .address = (CUdeviceptr)words[i].at,
            .value64 = words[i].value,
        };
    CUresult result = gpu->cuda->stream_operate(stream, n, operations, 0);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot store by a stream of GPU %d",
                             gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_event_create(struct stepaf_gpu *self, void **event_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    CUevent event = NULL;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->event_create(&event, CU_EVENT_DISABLE_TIMING);
    stepaf_cuda_leave(gpu, &scope);
    if (!result)
        *event_p = event;
    return stepaf_cuda_check(gpu->cuda, result, "cannot create an event on GPU %d",
                             gpu->base.facts.ordinal);
}

void stepaf_cuda_event_destroy(struct stepaf_gpu *self, void *event)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;

    if (!event || stepaf_cuda_enter_setup(gpu, &scope))
        return;
    (void)gpu->cuda->event_destroy(event);
    stepaf_cuda_leave(gpu, &scope);
}

stepaf_status_t stepaf_cuda_event_record(struct stepaf_gpu *self, void *event, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->event_record(event, stream);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot record an event on GPU %d",
                             gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_event_await(struct stepaf_gpu *self, void *event, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->stream_wait(stream, event, 0);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "cannot make a stream of GPU %d wait",
                             gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_event_test(struct stepaf_gpu *self, void *event)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope); /* a query can end a capture */

    if (status)
        return status;
    CUresult result = gpu->cuda->event_query(event);
    stepaf_cuda_leave(gpu, &scope);
    if (result == CUDA_ERROR_NOT_READY)
        return STEPAF_INPROGRESS;
    return stepaf_cuda_check(gpu->cuda, result, "GPU %d has failed", gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_stream_create(struct stepaf_gpu *self, void **stream_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    CUstream stream = NULL;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING);
    stepaf_cuda_leave(gpu, &scope);
    if (!result)
        *stream_p = stream;
    return stepaf_cuda_check(gpu->cuda, result, "cannot create a stream on GPU %d",
                             gpu->base.facts.ordinal);
}

void stepaf_cuda_stream_destroy(struct stepaf_gpu *self, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;

    if (!stream || stepaf_cuda_enter_setup(gpu, &scope))
        return;
    (void)gpu->cuda->stream_destroy(stream);
    stepaf_cuda_leave(gpu, &scope);
}

stepaf_status_t stepaf_cuda_stream_sync(struct stepaf_gpu *self, void *stream)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result = gpu->cuda->stream_sync(stream);
    stepaf_cuda_leave(gpu, &scope);
    return stepaf_cuda_check(gpu->cuda, result, "GPU %d has failed", gpu->base.facts.ordinal);
}
