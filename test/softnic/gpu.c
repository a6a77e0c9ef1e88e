/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA, if the process has loaded it: what is in GPU memory is copied by copy engines, on a stream
 * of the card's own, between mappings of the ranks' memory. */
#include "softnic.h"

#include <dlfcn.h>
#include <string.h>

typedef uint64_t device_ptr;
typedef struct {
    char bytes[SOFTNIC_HANDLE];
} ipc_handle;

enum {
    MEMORY_TYPE = 2,
    DEVICE_ORDINAL = 9,
    ON_DEVICE = 2,
    LAZY_PEER_ACCESS = 1,
    NON_BLOCKING = 1,
    RELAXED = 2
};

static struct {
    bool tried, there;
    int (*pointer_attribute)(void *, int, device_ptr);
    int (*address_range)(device_ptr *, size_t *, device_ptr);
    int (*ipc_get)(ipc_handle *, device_ptr);
    int (*ipc_open)(device_ptr *, ipc_handle, unsigned);
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*capture_mode)(int *);
    int (*push)(void *);
    int (*pop)(void **);
    int (*stream_priorities)(int *, int *);
    int (*stream_create)(void **, unsigned, int);
    int (*copy)(device_ptr, device_ptr, size_t, void *);
    int (*sync)(void *);
} cuda;
static void *primary, *stream;

static struct mapping {
    uint32_t pid;
    uint8_t handle[SOFTNIC_HANDLE];
    device_ptr at;
} mappings[256];
static unsigned n_mappings;

static bool find(void *library, void *function_p, const char *name)
{
    void *symbol = dlsym(library, name);

    memcpy(function_p, &symbol, sizeof(symbol));
    return symbol;
}

/* Whether the process uses CUDA; or, where @a wanted, can. */
static bool has_cuda(bool wanted)
{
    void *library;

    if (cuda.tried)
        return cuda.there;
    library = dlopen("libcuda.so.1", wanted ? RTLD_LAZY : RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return false; /* it may come */
    cuda.tried = true;
    cuda.there = find(library, &cuda.pointer_attribute, "cuPointerGetAttribute") &&
                 find(library, &cuda.address_range, "cuMemGetAddressRange_v2") &&
                 find(library, &cuda.ipc_get, "cuIpcGetMemHandle") &&
                 find(library, &cuda.ipc_open, "cuIpcOpenMemHandle_v2") &&
                 find(library, &cuda.init, "cuInit") &&
                 find(library, &cuda.retain, "cuDevicePrimaryCtxRetain") &&
                 find(library, &cuda.capture_mode, "cuThreadExchangeStreamCaptureMode") &&
                 find(library, &cuda.push, "cuCtxPushCurrent_v2") &&
                 find(library, &cuda.pop, "cuCtxPopCurrent_v2") &&
                 find(library, &cuda.stream_priorities, "cuCtxGetStreamPriorityRange") &&
                 find(library, &cuda.stream_create, "cuStreamCreateWithPriority") &&
                 find(library, &cuda.copy, "cuMemcpyAsync") &&
                 find(library, &cuda.sync, "cuStreamSynchronize");
    return cuda.there;
}

static int capture_mode; /* the thread's own, between enter and leave */

/* Others may be capturing: a card does not disturb that. */
static bool enter(void)
{
    capture_mode = RELAXED;
    if (!primary || cuda.push(primary))
        return false;
    (void)cuda.capture_mode(&capture_mode);
    return true;
}

static void leave(void)
{
    void *context;

    (void)cuda.capture_mode(&capture_mode);
    (void)cuda.pop(&context);
}

bool softnic_gpu_is(uint64_t addr)
{
    unsigned type = 0;

    return has_cuda(false) && !cuda.pointer_attribute(&type, MEMORY_TYPE, addr) &&
           type == ON_DEVICE;
}

/* The GPU's context, and a stream there. Streams of other priorities have queues of their own: this
 * one must not come behind those that wait for what it brings. */
static bool open_gpu(int ordinal)
{
    int least = 0, greatest = 0;

    if (stream)
        return true;
    if (!has_cuda(true) || cuda.init(0) || (!primary && cuda.retain(&primary, ordinal)) || !enter())
        return false;
    (void)cuda.stream_priorities(&least, &greatest);
    bool ok = !cuda.stream_create(&stream, NON_BLOCKING, greatest);
    leave();
    return ok;
}

bool softnic_gpu_export(uint64_t addr, struct softnic_shared_mr *mr_p)
{
    device_ptr base = 0;
    ipc_handle handle;
    size_t bytes;
    int ordinal = 0;

    if (cuda.pointer_attribute(&ordinal, DEVICE_ORDINAL, addr) || !open_gpu(ordinal) || !enter())
        return false;
    bool ok = !cuda.address_range(&base, &bytes, addr) && !cuda.ipc_get(&handle, base);
    leave();
    if (!ok)
        return false;
    memcpy(mr_p->handle, &handle, sizeof(handle));
    mr_p->offset = addr - base;
    mr_p->ordinal = ordinal;
    return true;
}

uint64_t softnic_gpu_map(uint32_t pid, const struct softnic_shared_mr *mr)
{
    device_ptr at = 0;
    ipc_handle handle;

    if (pid == softnic.pid)
        return mr->addr;
    for (unsigned i = 0; i < n_mappings; i++)
        if (mappings[i].pid == pid && !memcmp(mappings[i].handle, mr->handle, SOFTNIC_HANDLE))
            return mappings[i].at + mr->offset;
    memcpy(&handle, mr->handle, sizeof(handle));
    if (n_mappings == sizeof(mappings) / sizeof(mappings[0]) || !open_gpu(mr->ordinal) || !enter())
        return 0;
    bool ok = !cuda.ipc_open(&at, handle, LAZY_PEER_ACCESS);
    leave();
    if (!ok)
        return 0;
    struct mapping *mapping = &mappings[n_mappings++];
    mapping->pid = pid;
    memcpy(mapping->handle, mr->handle, SOFTNIC_HANDLE);
    mapping->at = at;
    return at + mr->offset;
}

bool softnic_gpu_copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
    if (!enter())
        return false;
    bool ok = !cuda.copy(dst, src, bytes, stream);
    leave();
    return ok;
}

bool softnic_gpu_sync(void)
{
    if (!stream || !enter())
        return !stream;
    bool ok = !cuda.sync(stream);
    leave();
    return ok;
}
