/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_fake.h"

#include <stdio.h>
#include <string.h>

enum { N_DEVICES = 2 };

struct cuda_fake cuda_fake;
_Thread_local struct cuda_fake_thread cuda_fake_thread;
static char contexts[N_DEVICES], thing;

CUresult cuda_fake_step(void)
{
    int n = __atomic_add_fetch(&cuda_fake.n_calls, 1, __ATOMIC_RELAXED);

    return n == cuda_fake.fail_at ? cuda_fake.error : CUDA_SUCCESS;
}

static CUcontext context_of(int device)
{
    return (CUcontext)(void *)&contexts[device];
}

CUresult cuda_fake_give(void *handle_p)
{
    void *handle = &thing;
    CUresult result = cuda_fake_step();

    if (result)
        return result;
    memcpy(handle_p, &handle, sizeof(handle));
    __atomic_add_fetch(&cuda_fake.n_held, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuda_fake_take(void)
{
    __atomic_sub_fetch(&cuda_fake.n_held, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult fake_init(unsigned flags)
{
    (void)flags;
    return cuda_fake_step();
}

static CUresult fake_error_name(CUresult error, const char **text_p)
{
    (void)error;
    *text_p = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

static CUresult fake_error_string(CUresult error, const char **text_p)
{
    (void)error;
    *text_p = "told to fail";
    return CUDA_SUCCESS;
}

static CUresult fake_device_count(int *n_p)
{
    *n_p = N_DEVICES;
    return cuda_fake_step();
}

static CUresult fake_device_get(CUdevice *device_p, int ordinal)
{
    *device_p = ordinal;
    return cuda_fake_step();
}

static CUresult fake_device_name(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return cuda_fake_step();
}

static CUresult fake_device_uuid(CUuuid *uuid_p, CUdevice device)
{
    memset(uuid_p, device + 1, sizeof(*uuid_p));
    return cuda_fake_step();
}

static CUresult fake_device_bus(char *bus, int bytes, CUdevice device)
{
    snprintf(bus, (size_t)bytes, "0000:%d%s:00.0", device + 1, "B");
    return cuda_fake_step();
}

static CUresult fake_device_attribute(int *value_p, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    if (!cuda_fake_rdma_attribute(value_p, attribute))
        *value_p = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : 9;
    return cuda_fake_step();
}

static CUresult fake_primary_retain(CUcontext *context_p, CUdevice device)
{
    CUresult result = cuda_fake_step();

    *context_p = context_of(device);
    cuda_fake.n_held += !result;
    return result;
}

static CUresult fake_primary_release(CUdevice device)
{
    (void)device;
    return cuda_fake_take();
}

static CUresult fake_ctx_current(CUcontext *context_p)
{
    *context_p = cuda_fake_thread.current;
    return CUDA_SUCCESS;
}

static CUresult fake_ctx_push(CUcontext context)
{
    CUresult result = cuda_fake_step();

    (void)context;
    cuda_fake_thread.depth += !result;
    return result;
}

static CUresult fake_ctx_pop(CUcontext *context_p)
{
    *context_p = NULL;
    cuda_fake_thread.depth--;
    return CUDA_SUCCESS;
}

static CUresult fake_ctx_device(CUdevice *device_p)
{
    *device_p = cuda_fake_thread.current == context_of(1);
    return cuda_fake_step();
}

static CUresult fake_ctx_enable_peer(CUcontext context, unsigned flags)
{
    (void)flags;
    return context == context_of(1) ? cuda_fake_step() : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_module_load(CUmodule *module_p, const void *image, unsigned n,
                                 CUjit_option *options, void **values)
{
    (void)image, (void)n, (void)options, (void)values;
    return cuda_fake_give(module_p);
}

static CUresult fake_module_unload(CUmodule module)
{
    (void)module;
    return cuda_fake_take();
}

static CUresult fake_function_attribute(int *value_p, CUfunction_attribute attribute,
                                        CUfunction function)
{
    (void)attribute, (void)function;
    *value_p = 32;
    return cuda_fake_step();
}

static struct stepaf_cuda_driver driver = {
    .init = fake_init,
    .error_name = fake_error_name,
    .error_string = fake_error_string,
    .device_count = fake_device_count,
    .device_get = fake_device_get,
    .device_name = fake_device_name,
    .device_uuid = fake_device_uuid,
    .device_bus = fake_device_bus,
    .device_attribute = fake_device_attribute,
    .primary_retain = fake_primary_retain,
    .primary_release = fake_primary_release,
    .ctx_current = fake_ctx_current,
    .ctx_push = fake_ctx_push,
    .ctx_pop = fake_ctx_pop,
    .ctx_device = fake_ctx_device,
    .ctx_enable_peer = fake_ctx_enable_peer,
    .module_load = fake_module_load,
    .module_unload = fake_module_unload,
    .function_attribute = fake_function_attribute,
};

void cuda_fake_begin(void)
{
    cuda_fake = (struct cuda_fake){.error = CUDA_ERROR_UNKNOWN};
    cuda_fake_thread = (struct cuda_fake_thread){0};
    cuda_fake_memory_fill(&driver);
    cuda_fake_rdma_fill(&driver);
    cuda_fake_stream_fill(&driver);
    stepaf_cuda_driver_fake = &driver;
}

void cuda_fake_end(void)
{
    cuda_fake_memory_end();
    stepaf_cuda_driver_fake = NULL;
}

void cuda_fake_grow_old(void)
{
    driver.range_handle = NULL;
    driver.flush_writes = NULL;
}
