/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of this build, and the first of them that can be used. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "device/gpu.h"

#define DEVICE(name) extern const struct stepaf_device_ops stepaf_##name##_ops;
#include "device/registry.def"
#undef DEVICE

static const struct stepaf_device_ops *const built_in[] = {
#define DEVICE(name) &stepaf_##name##_ops,
#include "device/registry.def"
#undef DEVICE
    NULL,
};

const struct stepaf_device_ops *const *stepaf_devices = built_in;

static const char no_device[] = "this build has no GPU support (CUDA)";

/* ---- replacements for operations that a device lacks ---- */

static stepaf_status_t refuse_unsupported(const struct stepaf_gpu *gpu, const char *what)
{
    return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE, "%s (device %s) %s",
                            gpu->facts.name, gpu->ops.name, what);
}

static stepaf_status_t no_export(struct stepaf_gpu *gpu, const void *ptr,
                                 struct stepaf_gpu_export *export_p)
{
    (void)ptr, (void)export_p;
    return refuse_unsupported(gpu, "shares no memory with other processes");
}

static stepaf_status_t no_import(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                                 void **ptr_p)
{
    (void)exported, (void)ptr_p;
    return refuse_unsupported(gpu, "maps no memory of other processes");
}

static void no_unimport(struct stepaf_gpu *gpu, void *ptr)
{
    (void)gpu, (void)ptr;
}

static const struct stepaf_gpu_rdma *no_rdma(struct stepaf_gpu *gpu)
{
    static const struct stepaf_gpu_rdma none = {
        .no_dmabuf = "this kind of device exports no memory as dma-buf",
        .no_peermem = "this kind of device has no peer memory",
    };

    (void)gpu;
    return &none;
}

static stepaf_status_t no_dmabuf(struct stepaf_gpu *gpu, const void *ptr, size_t bytes,
                                 bool by_pcie, int *fd_p, uint64_t *offset_p)
{
    (void)ptr, (void)bytes, (void)by_pcie, (void)fd_p, (void)offset_p;
    return refuse_unsupported(gpu, "exports no memory as dma-buf");
}

static stepaf_status_t synchronous_already(struct stepaf_gpu *gpu, const void *ptr)
{
    (void)gpu, (void)ptr;
    return STEPAF_OK;
}

static stepaf_status_t inside_already(struct stepaf_gpu *gpu, void (*job)(void *arg), void *arg)
{
    (void)gpu;
    job(arg);
    return STEPAF_OK;
}

static stepaf_status_t flushed_already(struct stepaf_gpu *gpu)
{
    (void)gpu;
    return STEPAF_OK;
}

static stepaf_status_t never_capturing(struct stepaf_gpu *gpu, void *stream, bool *capturing_p)
{
    (void)gpu, (void)stream;
    *capturing_p = false;
    return STEPAF_OK;
}

static stepaf_status_t no_timestamp(struct stepaf_gpu *gpu, enum stepaf_times_kernel kernel,
                                    const struct stepaf_timestamp_args *args, void *stream)
{
    (void)kernel, (void)args, (void)stream;
    return refuse_unsupported(gpu, "takes no timestamps on streams");
}

static stepaf_status_t no_time(struct stepaf_gpu *gpu, const struct stepaf_clock_args *args,
                               void *stream)
{
    (void)args, (void)stream;
    return refuse_unsupported(gpu, "tells no time");
}

/* ---- completing a table ---- */

typedef void (*function_t)(void);

#define OPERATION(field_)                                   \
    {                                                       \
#field_, offsetof(struct stepaf_device_ops, field_) \
    }
static const struct {
    const char *name;
    size_t at;
} required[] = {
    OPERATION(probe),          OPERATION(open),          OPERATION(close),
    OPERATION(classify),       OPERATION(alloc),         OPERATION(free),
    OPERATION(alloc_host),     OPERATION(free_host),     OPERATION(pin),
    OPERATION(unpin),          OPERATION(write),         OPERATION(launch),
    OPERATION(launch_any),     OPERATION(copy),          OPERATION(store),
    OPERATION(event_create),   OPERATION(event_destroy), OPERATION(event_record),
    OPERATION(event_await),    OPERATION(event_test),    OPERATION(stream_create),
    OPERATION(stream_destroy), OPERATION(stream_sync),
};
#undef OPERATION

/* Return the name of a required operation that is missing; NULL if there is none. */
static const char *lacks(const struct stepaf_device_ops *ops)
{
    function_t function;

    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        memcpy(&function, (const char *)ops + required[i].at, sizeof(function));
        if (!function)
            return required[i].name;
    }
    if (!ops->export != !ops->import || !ops->export != !ops->unimport)
        return "one of export, import and unimport";
    if (!ops->timestamp != !ops->tell_time)
        return "one of timestamp and tell_time";
    return NULL;
}

static void complete(struct stepaf_device_ops *ops)
{
    if (!ops->export) {
        ops->export = no_export;
        ops->import = no_import;
        ops->unimport = no_unimport;
    }
    ops->rdma = ops->rdma ? ops->rdma : no_rdma;
    ops->dmabuf = ops->dmabuf ? ops->dmabuf : no_dmabuf;
    ops->sync_memops = ops->sync_memops ? ops->sync_memops : synchronous_already;
    ops->inside = ops->inside ? ops->inside : inside_already;
    ops->flush = ops->flush ? ops->flush : flushed_already;
    ops->capturing = ops->capturing ? ops->capturing : never_capturing;
    ops->timestamp = ops->timestamp ? ops->timestamp : no_timestamp;
    ops->tell_time = ops->tell_time ? ops->tell_time : no_time;
}

/* ---- asking all devices ---- */

bool stepaf_gpu_probe(char *reason)
{
    char its[STEPAF_REASON_MAX];
    size_t length = 0;

    snprintf(reason, STEPAF_REASON_MAX, "%s", no_device);
    for (int i = 0; stepaf_devices[i]; i++) {
        if (stepaf_devices[i]->probe(its))
            return true;
        snprintf(reason + length, STEPAF_REASON_MAX - length, "%s%s", length ? "; " : "", its);
        length = strlen(reason);
    }
    return false;
}

bool stepaf_gpu_likely(void)
{
    char reason[STEPAF_REASON_MAX];

    for (int i = 0; stepaf_devices[i]; i++)
        if (stepaf_devices[i]->likely ? stepaf_devices[i]->likely()
                                      : stepaf_devices[i]->probe(reason))
            return true;
    return false;
}

static stepaf_status_t open_one(const struct stepaf_device_ops *ops, struct stepaf_gpu **gpu_p)
{
    const char *missing = lacks(ops);
    struct stepaf_gpu *gpu;
    stepaf_status_t status;

    if (missing)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "the device %s lacks an operation: %s", ops->name, missing);
    stepaf_fd_begin();
    status = ops->open(&gpu);
    (void)stepaf_fd_end(-1);
    if (status)
        return status;
    gpu->ops = *ops;
    complete(&gpu->ops);
    gpu->facts.unshared = !ops->export;
    gpu->facts.untimed = !ops->timestamp;
    *gpu_p = gpu;
    return STEPAF_OK;
}

stepaf_status_t stepaf_gpu_open(struct stepaf_gpu **gpu_p)
{
    stepaf_status_t status = STEPAF_ERR_UNSUPPORTED;

    if (!stepaf_devices[0])
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE, "no GPU: %s", no_device);
    for (int i = 0; stepaf_devices[i] && status == STEPAF_ERR_UNSUPPORTED; i++)
        status = open_one(stepaf_devices[i], gpu_p);
    return status;
}

void stepaf_gpu_classify(const void *ptr, struct stepaf_gpu_place *place_p)
{
    *place_p = (struct stepaf_gpu_place){0};
    for (int i = 0; stepaf_devices[i] && !place_p->is_device && !place_p->managed; i++) {
        place_p->device = stepaf_devices[i]->name;
        stepaf_devices[i]->classify(ptr, place_p);
    }
}
