/* SPDX-License-Identifier: Apache-2.0 */
/* The device's table, and opening it. */
#include "cpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"

#define AS_NEW                                                                         \
    .error = STEPAF_ERR_TRANSPORT, .rdma.no_dmabuf = "no file of memory is a dma-buf", \
    .rdma.no_peermem = "no such module"

/* A build that has this device uses it as it is here; tests begin it, and then say what it does. */
struct cpu_device cpu_device = {AS_NEW, .runs = true};

stepaf_status_t cpu_device_step(const char *what)
{
    int n = __atomic_add_fetch(&cpu_device.n_calls, 1, __ATOMIC_RELAXED);

    if (n != cpu_device.fail_at)
        return STEPAF_OK;
    if (cpu_device.error == STEPAF_INPROGRESS)
        return STEPAF_INPROGRESS;
    return stepaf_error_set(cpu_device.error, STEPAF_PHASE_NONE, "%s: told to fail", what);
}

stepaf_status_t cpu_device_hold(const char *what)
{
    stepaf_status_t status = cpu_device_step(what);

    if (!status)
        __atomic_add_fetch(&cpu_device.n_held, 1, __ATOMIC_RELAXED);
    return status;
}

void cpu_device_let_go(void)
{
    __atomic_sub_fetch(&cpu_device.n_held, 1, __ATOMIC_RELAXED);
}

static bool cpu_probe(char *reason)
{
    (void)reason;
    return true;
}

static stepaf_status_t cpu_open(struct stepaf_gpu **gpu_p)
{
    stepaf_status_t status = cpu_device_step("cannot open the device");

    if (status)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE, "no GPU: told to fail");
    struct stepaf_gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
    gpu->facts = (struct stepaf_gpu_facts){
        .name = "CPU device", .bus = "0000:00:00.0", .ordinal = 0, .n_sms = 132};
    memset(gpu->facts.uuid, 1, sizeof(gpu->facts.uuid));
    __atomic_add_fetch(&cpu_device.n_held, 1, __ATOMIC_RELAXED);
    *gpu_p = gpu;
    return STEPAF_OK;
}

static void cpu_close(struct stepaf_gpu *gpu)
{
    cpu_device_unmap_all(gpu);
    cpu_device_let_go();
    free(gpu);
}

static void cpu_classify(const void *ptr, struct stepaf_gpu_place *place_p)
{
    const struct cpu_piece *piece = cpu_device_find(ptr);

    if (!piece)
        return;
    place_p->managed = piece->managed;
    place_p->is_device = !piece->managed;
    place_p->ordinal = piece->ordinal;
    place_p->base = piece->base;
    place_p->bytes = piece->bytes;
    place_p->shareable = piece->shareable;
}

static const struct stepaf_gpu_rdma *cpu_rdma(struct stepaf_gpu *gpu)
{
    (void)gpu;
    return &cpu_device.rdma;
}

static stepaf_status_t cpu_flush(struct stepaf_gpu *gpu)
{
    (void)gpu;
    if (cpu_device.bad_flush)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE,
                                "cannot flush what was written: told to fail");
    cpu_device.n_flushes++;
    return cpu_device_step("cannot flush what was written");
}

const struct stepaf_device_ops stepaf_cpu_ops = {
    .name = "cpu",
    .mem_kind = STEPAF_MEM_CUDA,
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .classify = cpu_classify,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc_host,
    .free_host = cpu_free_host,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .write = cpu_write,
    .export = cpu_export,
    .import = cpu_import,
    .unimport = cpu_unimport,
    .rdma = cpu_rdma,
    .flush = cpu_flush,
    .capturing = cpu_capturing,
    .launch = cpu_launch,
    .launch_any = cpu_launch_any,
    .copy = cpu_copy,
    .store = cpu_store,
    .timestamp = cpu_timestamp,
    .tell_time = cpu_tell_time,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_await = cpu_event_await,
    .event_test = cpu_event_test,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_sync = cpu_stream_sync,
};

static const struct stepaf_device_ops *const devices[] = {&stepaf_cpu_ops, NULL};
static const struct stepaf_device_ops *const *before;

void cpu_device_begin(void)
{
    cpu_device = (struct cpu_device){AS_NEW};
    before = stepaf_devices;
    stepaf_devices = devices;
}

void cpu_device_end(void)
{
    stepaf_devices = before;
    for (int i = 0; i < CPU_PIECES; i++)
        if (cpu_device.pieces[i].base)
            cpu_device_drop(cpu_device.pieces[i].base);
}
