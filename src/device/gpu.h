/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as its users see it: calls through the table of the open device (device_ops.h describes
 * each operation). */
#ifndef STEPAF_DEVICE_GPU_H
#define STEPAF_DEVICE_GPU_H

#include "device/device_ops.h"

/* Return whether this process can use a GPU at all. If not, @a reason (STEPAF_REASON_MAX) says
 * why. */
bool stepaf_gpu_probe(char *reason);

/* Return whether there may be a GPU, without asking a driver, which takes long to start. Returns
 * false if this process surely has none. */
bool stepaf_gpu_likely(void);

/* Open a GPU of the first device in the registry that has one: the GPU that is current to the
 * calling thread, or the first. Returns STEPAF_ERR_UNSUPPORTED with the reason if there is none. */
stepaf_status_t stepaf_gpu_open(struct stepaf_gpu **gpu_p);

/* Classify @a ptr. Works without an open GPU. Pointers that no device knows are host memory. */
void stepaf_gpu_classify(const void *ptr, struct stepaf_gpu_place *place_p);

static inline void stepaf_gpu_close(struct stepaf_gpu *gpu)
{
    if (gpu)
        gpu->ops.close(gpu);
}

static inline const struct stepaf_gpu_facts *stepaf_gpu_facts(const struct stepaf_gpu *gpu)
{
    return &gpu->facts;
}

/* Return whether the classified memory is @a gpu's. */
static inline bool stepaf_gpu_owns(const struct stepaf_gpu *gpu,
                                   const struct stepaf_gpu_place *place)
{
    return place->device == gpu->ops.name && place->ordinal == gpu->facts.ordinal;
}

/* ---- memory: set-up only ---- */

static inline stepaf_status_t stepaf_gpu_alloc(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p)
{
    return gpu->ops.alloc(gpu, bytes, ptr_p);
}

static inline void stepaf_gpu_free(struct stepaf_gpu *gpu, void *ptr)
{
    gpu->ops.free(gpu, ptr);
}

static inline stepaf_status_t stepaf_gpu_alloc_host(struct stepaf_gpu *gpu, size_t bytes,
                                                    void **ptr_p)
{
    return gpu->ops.alloc_host(gpu, bytes, ptr_p);
}

static inline void stepaf_gpu_free_host(struct stepaf_gpu *gpu, void *ptr)
{
    gpu->ops.free_host(gpu, ptr);
}

static inline stepaf_status_t stepaf_gpu_pin(struct stepaf_gpu *gpu, void *ptr, size_t bytes,
                                             bool *own_p)
{
    return gpu->ops.pin(gpu, ptr, bytes, own_p);
}

static inline void stepaf_gpu_unpin(struct stepaf_gpu *gpu, void *ptr)
{
    gpu->ops.unpin(gpu, ptr);
}

static inline stepaf_status_t stepaf_gpu_write(struct stepaf_gpu *gpu, void *dst, const void *src,
                                               size_t bytes)
{
    return gpu->ops.write(gpu, dst, src, bytes);
}

/* ---- memory of other processes: set-up only ---- */

static inline stepaf_status_t stepaf_gpu_export(struct stepaf_gpu *gpu, const void *ptr,
                                                struct stepaf_gpu_export *export_p)
{
    return gpu->ops.export(gpu, ptr, export_p);
}

static inline stepaf_status_t stepaf_gpu_import(struct stepaf_gpu *gpu,
                                                const struct stepaf_gpu_export *exported,
                                                void **ptr_p)
{
    return gpu->ops.import(gpu, exported, ptr_p);
}

static inline void stepaf_gpu_unimport(struct stepaf_gpu *gpu, void *ptr)
{
    gpu->ops.unimport(gpu, ptr);
}

/* ---- NICs that read and write the GPU's memory themselves ---- */

static inline const struct stepaf_gpu_rdma *stepaf_gpu_rdma(struct stepaf_gpu *gpu)
{
    return gpu->ops.rdma(gpu);
}

static inline stepaf_status_t stepaf_gpu_dmabuf(struct stepaf_gpu *gpu, const void *ptr,
                                                size_t bytes, bool by_pcie, int *fd_p,
                                                uint64_t *offset_p)
{
    return gpu->ops.dmabuf(gpu, ptr, bytes, by_pcie, fd_p, offset_p);
}

static inline stepaf_status_t stepaf_gpu_sync_memops(struct stepaf_gpu *gpu, const void *ptr)
{
    return gpu->ops.sync_memops(gpu, ptr);
}

static inline stepaf_status_t stepaf_gpu_inside(struct stepaf_gpu *gpu, void (*job)(void *arg),
                                                void *arg)
{
    return gpu->ops.inside(gpu, job, arg);
}

static inline stepaf_status_t stepaf_gpu_flush(struct stepaf_gpu *gpu)
{
    return gpu->ops.flush(gpu);
}

/* ---- on a stream: never block ---- */

static inline stepaf_status_t stepaf_gpu_capturing(struct stepaf_gpu *gpu, void *stream,
                                                   bool *capturing_p)
{
    return gpu->ops.capturing(gpu, stream, capturing_p);
}

static inline stepaf_status_t stepaf_gpu_launch(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                                                const struct stepaf_kernel_args *args,
                                                uint32_t blocks, uint32_t threads, bool behind,
                                                void *stream)
{
    return gpu->ops.launch(gpu, kernel, args, blocks, threads, behind, stream);
}

static inline stepaf_status_t stepaf_gpu_launch_any(struct stepaf_gpu *gpu,
                                                    enum stepaf_any_kernel kernel,
                                                    const struct stepaf_any_args *args,
                                                    uint32_t blocks, uint32_t threads, bool behind,
                                                    void *stream)
{
    return gpu->ops.launch_any(gpu, kernel, args, blocks, threads, behind, stream);
}

static inline stepaf_status_t stepaf_gpu_copy(struct stepaf_gpu *gpu, void *dst, const void *src,
                                              size_t bytes, void *stream)
{
    return gpu->ops.copy(gpu, dst, src, bytes, stream);
}

static inline stepaf_status_t stepaf_gpu_store(struct stepaf_gpu *gpu,
                                               const struct stepaf_gpu_word *words, uint32_t n,
                                               void *stream)
{
    return gpu->ops.store(gpu, words, n, stream);
}

static inline stepaf_status_t stepaf_gpu_timestamp(struct stepaf_gpu *gpu,
                                                   enum stepaf_times_kernel kernel,
                                                   const struct stepaf_timestamp_args *args,
                                                   void *stream)
{
    return gpu->ops.timestamp(gpu, kernel, args, stream);
}

static inline stepaf_status_t stepaf_gpu_tell_time(struct stepaf_gpu *gpu,
                                                   const struct stepaf_clock_args *args,
                                                   void *stream)
{
    return gpu->ops.tell_time(gpu, args, stream);
}

static inline stepaf_status_t stepaf_gpu_event_create(struct stepaf_gpu *gpu, void **event_p)
{
    return gpu->ops.event_create(gpu, event_p);
}

static inline void stepaf_gpu_event_destroy(struct stepaf_gpu *gpu, void *event)
{
    gpu->ops.event_destroy(gpu, event);
}

static inline stepaf_status_t stepaf_gpu_event_record(struct stepaf_gpu *gpu, void *event,
                                                      void *stream)
{
    return gpu->ops.event_record(gpu, event, stream);
}

static inline stepaf_status_t stepaf_gpu_event_await(struct stepaf_gpu *gpu, void *event,
                                                     void *stream)
{
    return gpu->ops.event_await(gpu, event, stream);
}

static inline stepaf_status_t stepaf_gpu_event_test(struct stepaf_gpu *gpu, void *event)
{
    return gpu->ops.event_test(gpu, event);
}

static inline stepaf_status_t stepaf_gpu_stream_create(struct stepaf_gpu *gpu, void **stream_p)
{
    return gpu->ops.stream_create(gpu, stream_p);
}

static inline void stepaf_gpu_stream_destroy(struct stepaf_gpu *gpu, void *stream)
{
    gpu->ops.stream_destroy(gpu, stream);
}

static inline stepaf_status_t stepaf_gpu_stream_sync(struct stepaf_gpu *gpu, void *stream)
{
    return gpu->ops.stream_sync(gpu, stream);
}

#endif
