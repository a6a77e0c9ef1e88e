/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_kernels.h"

enum { ALIGNMENT = 512, N_DEVICES = 2 };
static const uint64_t CAPTURED = UINT64_MAX; /* when an event was recorded */

struct cuda_fake cuda_fake;
_Thread_local struct cuda_fake_thread cuda_fake_thread;
static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;
static char contexts[N_DEVICES], thing, any_kernel;

/* One more call that can fail. */
static CUresult step(void)
{
    int n = __atomic_add_fetch(&cuda_fake.n_calls, 1, __ATOMIC_RELAXED);

    return n == cuda_fake.fail_at ? cuda_fake.error : CUDA_SUCCESS;
}

CUresult cuda_fake_step(void)
{
    return step();
}

static CUcontext context_of(int device)
{
    return (CUcontext)(void *)&contexts[device];
}

/* A call that gives out something, and one that takes it back. */
static CUresult give(void *handle_p)
{
    void *handle = &thing;
    CUresult result = step();

    if (result)
        return result;
    memcpy(handle_p, &handle, sizeof(handle));
    __atomic_add_fetch(&cuda_fake.n_held, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult take(void)
{
    __atomic_sub_fetch(&cuda_fake.n_held, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

struct cuda_piece *cuda_fake_piece(size_t bytes, int device, bool shareable)
{
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    for (int i = 0; i < CUDA_FAKE_PIECES; i++) {
        struct cuda_piece *piece = &cuda_fake.pieces[i];
        if (piece->base)
            continue;
        *piece = (struct cuda_piece){
            aligned_alloc(ALIGNMENT, whole), bytes, device, shareable, false, false, false};
        return piece->base ? piece : NULL;
    }
    return NULL;
}

struct cuda_piece *cuda_fake_split(struct cuda_piece *piece, size_t bytes)
{
    struct cuda_piece *second = piece;

    while (second->base)
        second = second == &cuda_fake.pieces[CUDA_FAKE_PIECES - 1] ? cuda_fake.pieces : second + 1;
    *second = *piece;
    second->base += bytes;
    second->bytes -= bytes;
    second->part = true;
    piece->bytes = bytes;
    return second;
}

int cuda_fake_count(void)
{
    int n = 0;

    for (int i = 0; i < CUDA_FAKE_PIECES; i++)
        n += cuda_fake.pieces[i].base != NULL;
    return n;
}

static struct cuda_piece *find(CUdeviceptr at)
{
    for (int i = 0; i < CUDA_FAKE_PIECES; i++) {
        struct cuda_piece *piece = &cuda_fake.pieces[i];
        if (piece->base && at >= (CUdeviceptr)piece->base &&
            at - (CUdeviceptr)piece->base < piece->bytes)
            return piece;
    }
    return NULL;
}

static CUresult drop(CUdeviceptr at)
{
    struct cuda_piece *piece = find(at);

    if (!piece)
        return CUDA_ERROR_INVALID_VALUE;
    if (!piece->part)
        free(piece->base);
    piece->base = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_init(unsigned flags)
{
    (void)flags;
    return step();
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
    return step();
}

static CUresult fake_device_get(CUdevice *device_p, int ordinal)
{
    *device_p = ordinal;
    return step();
}

static CUresult fake_device_name(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return step();
}

static CUresult fake_device_uuid(CUuuid *uuid_p, CUdevice device)
{
    memset(uuid_p, device + 1, sizeof(*uuid_p));
    return step();
}

static CUresult fake_device_bus(char *bus, int bytes, CUdevice device)
{
    snprintf(bus, (size_t)bytes, "0000:%d%s:00.0", device + 1, "B");
    return step();
}

static CUresult fake_device_attribute(int *value_p, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    if (!cuda_fake_rdma_attribute(value_p, attribute))
        *value_p = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : 9;
    return step();
}

static CUresult fake_primary_retain(CUcontext *context_p, CUdevice device)
{
    CUresult result = step();

    *context_p = context_of(device);
    cuda_fake.n_held += !result;
    return result;
}

static CUresult fake_primary_release(CUdevice device)
{
    (void)device;
    return take();
}

static CUresult fake_ctx_current(CUcontext *context_p)
{
    *context_p = cuda_fake_thread.current;
    return CUDA_SUCCESS;
}

static CUresult fake_ctx_push(CUcontext context)
{
    CUresult result = step();

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
    return step();
}

static CUresult fake_ctx_enable_peer(CUcontext context, unsigned flags)
{
    (void)flags;
    return context == context_of(1) ? step() : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_capture_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = cuda_fake_thread.mode;

    cuda_fake_thread.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult fake_module_load(CUmodule *module_p, const void *image, unsigned n,
                                 CUjit_option *options, void **values)
{
    (void)image, (void)n, (void)options, (void)values;
    return give(module_p);
}

static CUresult fake_module_unload(CUmodule module)
{
    (void)module;
    return take();
}

static CUresult fake_module_function(CUfunction *function_p, CUmodule module, const char *name)
{
    (void)module;
    *function_p = (CUfunction)(strstr(name, "_any") ? &any_kernel : cuda_kernels_find(name));
    return strncmp(name, "stepaf_", 7) == 0 ? step() : CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_function_attribute(int *value_p, CUfunction_attribute attribute,
                                        CUfunction function)
{
    (void)attribute, (void)function;
    *value_p = 32;
    return step();
}

static CUresult fake_launch(const CUlaunchConfig *config, CUfunction function, void **params,
                            void **extra)
{
    CUresult result = step();

    (void)extra;
    pthread_mutex_lock(&launching);
    cuda_fake.launched = *config;
    cuda_fake.n_launches++;
    bool any = (void *)function == &any_kernel;
    if (any)
        memcpy(&cuda_fake.any_flow, params[0], sizeof(cuda_fake.any_flow));
    else
        memcpy(&cuda_fake.flow, params[0], sizeof(cuda_fake.flow));
    pthread_mutex_unlock(&launching);
    if (!any && !result && cuda_fake.runs)
        cuda_kernels_launch((const char *)function, params[0], config->gridDimX);
    return result;
}

static CUresult fake_pointer_attributes(unsigned n, CUpointer_attribute *names, void **values,
                                        CUdeviceptr at)
{
    const struct cuda_piece *piece = find(at);

    for (unsigned i = 0; i < n && piece; i++) {
        CUdeviceptr base = (CUdeviceptr)piece->base;
        CUmemorytype type = CU_MEMORYTYPE_DEVICE;
        int mapped = 1, managed = piece->managed, shareable = piece->shareable;
        switch ((int)names[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            memcpy(values[i], &type, sizeof(type));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            memcpy(values[i], &piece->device, sizeof(piece->device));
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            memcpy(values[i], &managed, sizeof(managed));
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            memcpy(values[i], &shareable, sizeof(shareable));
            break;
        case CU_POINTER_ATTRIBUTE_MAPPED:
            memcpy(values[i], &mapped, sizeof(mapped));
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            memcpy(values[i], &base, sizeof(base));
            break;
        default:
            memcpy(values[i], &piece->bytes, sizeof(piece->bytes));
        }
    }
    return CUDA_SUCCESS;
}

static CUresult fake_mem_alloc(CUdeviceptr *at_p, size_t bytes)
{
    CUresult result = step();
    const struct cuda_piece *piece = result ? NULL : cuda_fake_piece(bytes, 0, true);

    if (!piece)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    memset(piece->base, 0xa5, bytes);
    *at_p = (CUdeviceptr)piece->base;
    return CUDA_SUCCESS;
}

static CUresult fake_mem_range(CUdeviceptr *base_p, size_t *bytes_p, CUdeviceptr at)
{
    const struct cuda_piece *piece = find(at);

    if (!piece)
        return CUDA_ERROR_NOT_FOUND;
    *base_p = (CUdeviceptr)piece->base;
    *bytes_p = piece->bytes;
    return step();
}

static CUresult fake_host_alloc(void **ptr_p, size_t bytes, unsigned flags)
{
    CUresult result = flags & CU_MEMHOSTALLOC_DEVICEMAP ? step() : CUDA_ERROR_INVALID_VALUE;

    if (result)
        return result;
    *ptr_p = malloc(bytes);
    cuda_fake.n_held++;
    return *ptr_p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_host_free(void *ptr)
{
    free(ptr);
    return take();
}

static CUresult fake_host_register(void *ptr, size_t bytes, unsigned flags)
{
    CUresult result =
        ptr && bytes && (flags & CU_MEMHOSTREGISTER_DEVICEMAP) ? step() : CUDA_ERROR_INVALID_VALUE;

    cuda_fake.n_held += !result;
    return result;
}

static CUresult fake_host_unregister(void *ptr)
{
    (void)ptr;
    return take();
}

static CUresult fake_host_pointer(CUdeviceptr *at_p, void *ptr, unsigned flags)
{
    (void)flags;
    *at_p = (CUdeviceptr)ptr;
    return step();
}

static CUresult fake_set_async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
    CUresult result = stream ? step() : CUDA_ERROR_INVALID_VALUE; /* never the legacy stream */

    if (!result)
        memset((void *)at, value, bytes); /* NOLINT(performance-no-int-to-ptr) */
    return result;
}

/* Whether a range ends in the piece that it begins in, if it begins in one. */
static bool is_whole(CUdeviceptr at, size_t bytes)
{
    const struct cuda_piece *piece = find(at);

    return !piece || bytes <= piece->bytes - (at - (CUdeviceptr)piece->base);
}

static CUresult fake_copy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = stream ? step() : CUDA_ERROR_INVALID_VALUE;

    cuda_fake.n_copies++;
    if (!is_whole(dst, bytes) || !is_whole(src, bytes))
        result = CUDA_ERROR_INVALID_VALUE; /* no copy takes more than one allocation */
    if (cuda_fake.runs && (void *)stream != &thing && !find(dst) && !find(src))
        result = CUDA_ERROR_NOT_SUPPORTED; /* CUDA would wait until the stream has come there */
    if (!result && cuda_fake.runs && (void *)stream != &thing)    /* no set-up */
        cuda_kernels_copy((void *)dst, (const void *)src, bytes); /* NOLINT */
    else if (!result)
        memcpy((void *)dst, (const void *)src, bytes); /* NOLINT(performance-no-int-to-ptr) */
    return result;
}

/* A handle is the address; opened, it shows the same bytes at another place. */
static CUresult fake_ipc_get(CUipcMemHandle *handle_p, CUdeviceptr at)
{
    memset(handle_p, 0, sizeof(*handle_p));
    memcpy(handle_p, &at, sizeof(at));
    return ++cuda_fake.n_ipc == cuda_fake.fail_ipc_at ? cuda_fake.error : step();
}

static CUresult fake_ipc_open(CUdeviceptr *at_p, CUipcMemHandle handle, unsigned flags)
{
    CUresult result =
        flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? step() : CUDA_ERROR_INVALID_VALUE;
    const struct cuda_piece *piece;
    CUdeviceptr at;

    memcpy(&at, &handle, sizeof(at));
    piece = find(at);
    if (result || !piece)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct cuda_piece *opened = cuda_fake_piece(piece->bytes, 0, false);
    if (!opened)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(opened->base, piece->base, piece->bytes);
    opened->opened = true;
    *at_p = (CUdeviceptr)opened->base;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_create(CUstream *stream_p, unsigned flags)
{
    return flags == CU_STREAM_NON_BLOCKING ? give(stream_p) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_stream_destroy(CUstream stream)
{
    (void)stream;
    return take();
}

static CUresult fake_stream_sync(CUstream stream)
{
    (void)stream;
    return step();
}

static CUresult fake_stream_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&launching);
    if (cuda_fake.n_waits < CUDA_FAKE_WAITS)
        cuda_fake.waits[cuda_fake.n_waits++] =
            (struct cuda_wait){stream, event, cuda_fake.n_launches};
    pthread_mutex_unlock(&launching);
    return step();
}

static CUresult fake_stream_capturing(CUstream stream, CUstreamCaptureStatus *state_p)
{
    (void)stream;
    *state_p = cuda_fake.capture;
    return step();
}

static CUresult fake_stream_operate(CUstream stream, unsigned n,
                                    CUstreamBatchMemOpParams *operations, unsigned flags)
{
    CUresult result = step();

    (void)stream, (void)flags;
    cuda_fake.n_words = n;
    for (unsigned i = 0; i < n && 2 * i < CUDA_FAKE_WORDS; i++) {
        cuda_fake.words[2 * i] = operations[i].writeValue.address;
        cuda_fake.words[2 * i + 1] = operations[i].writeValue.value64;
    }
    for (unsigned i = 0; i < n && !result && cuda_fake.runs; i++)
        cuda_kernels_store((uint64_t *)operations[i].writeValue.address, /* NOLINT */
                           operations[i].writeValue.value64);
    return result;
}

static CUresult fake_event_create(CUevent *event_p, unsigned flags)
{
    CUresult result = give(event_p);

    (void)flags;
    if (!result)
        *event_p = calloc(1, sizeof(uint64_t)); /* when it was recorded */
    return result;
}

static CUresult fake_event_destroy(CUevent event)
{
    free(event);
    return take();
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
    bool captured = cuda_fake.capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    uint64_t now = captured ? CAPTURED : cuda_kernels_enqueued();

    (void)stream;
    __atomic_store_n((uint64_t *)(void *)event, now, __ATOMIC_RELEASE);
    return step();
}

static CUresult fake_event_query(CUevent event)
{
    uint64_t at = __atomic_load_n((const uint64_t *)(const void *)event, __ATOMIC_ACQUIRE);

    if (at == CAPTURED)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (cuda_fake.busy || (cuda_fake.runs && cuda_kernels_done() < at))
        return CUDA_ERROR_NOT_READY;
    if (cuda_fake_thread.mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return step();
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
    .capture_mode = fake_capture_mode,
    .module_load = fake_module_load,
    .module_unload = fake_module_unload,
    .module_function = fake_module_function,
    .function_attribute = fake_function_attribute,
    .launch = fake_launch,
    .pointer_attributes = fake_pointer_attributes,
    .mem_alloc = fake_mem_alloc,
    .mem_free = drop,
    .mem_range = fake_mem_range,
    .host_alloc = fake_host_alloc,
    .host_free = fake_host_free,
    .host_register = fake_host_register,
    .host_unregister = fake_host_unregister,
    .host_pointer = fake_host_pointer,
    .set_async = fake_set_async,
    .copy_async = fake_copy_async,
    .ipc_get = fake_ipc_get,
    .ipc_open = fake_ipc_open,
    .ipc_close = drop,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .stream_sync = fake_stream_sync,
    .stream_wait = fake_stream_wait,
    .stream_capturing = fake_stream_capturing,
    .stream_operate = fake_stream_operate,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_query = fake_event_query,
};

void cuda_fake_begin(void)
{
    cuda_fake = (struct cuda_fake){.error = CUDA_ERROR_UNKNOWN};
    cuda_fake_thread = (struct cuda_fake_thread){0};
    cuda_fake_rdma_fill(&driver);
    stepaf_cuda_driver_fake = &driver;
}

void cuda_fake_end(void)
{
    for (int i = 0; i < CUDA_FAKE_PIECES; i++)
        if (!cuda_fake.pieces[i].part)
            free(cuda_fake.pieces[i].base);
    stepaf_cuda_driver_fake = NULL;
}

void cuda_fake_grow_old(void)
{
    driver.range_handle = NULL;
    driver.flush_writes = NULL;
}
