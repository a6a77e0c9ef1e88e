/* SPDX-License-Identifier: Apache-2.0 */
/* Find the driver, translate its errors, and make contexts current. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

const struct stepaf_cuda_driver *stepaf_cuda_driver_fake;

static struct stepaf_cuda_driver real;
static bool real_usable;
static char real_reason[STEPAF_REASON_MAX];

#define LIBRARY "libcuda.so.1"
#define TEXT_OF(entry_) #entry_
#define NAME_OF(entry_) TEXT_OF(entry_)

static const struct {
    const char *name;
    size_t at;
} entries[] = {
#define ENTRY(field_, entry_) {NAME_OF(entry_), offsetof(struct stepaf_cuda_driver, field_)},
    STEPAF_CUDA_ENTRIES(ENTRY)
#undef ENTRY
};

static void set_entry(size_t at, void *function)
{
    memcpy((char *)&real + at, &function, sizeof(function));
}

static void driver_load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* never closed */

    if (!library) {
        snprintf(real_reason, sizeof(real_reason), "no CUDA driver: %.150s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *function = dlsym(library, entries[i].name);
        if (!function) {
            snprintf(real_reason, sizeof(real_reason),
                     "the CUDA driver is too old: it has no %s (12.0 has)", entries[i].name);
            return;
        }
        set_entry(entries[i].at, function);
    }
    set_entry(offsetof(struct stepaf_cuda_driver, range_handle),
              dlsym(library, NAME_OF(cuMemGetHandleForAddressRange)));
    set_entry(offsetof(struct stepaf_cuda_driver, flush_writes),
              dlsym(library, NAME_OF(cuFlushGPUDirectRDMAWrites)));
    set_entry(offsetof(struct stepaf_cuda_driver, function_load), dlsym(library, "cuFuncLoad"));
    set_entry(offsetof(struct stepaf_cuda_driver, stream_device),
              dlsym(library, "cuStreamGetDevice"));
    real_usable = true;
}

static const struct stepaf_cuda_driver *driver_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (stepaf_cuda_driver_fake)
        return stepaf_cuda_driver_fake;
    (void)pthread_once(&once, driver_load);
    return real_usable ? &real : NULL;
}

/* Count how many libraries have ever been loaded into this process. */
static int note_loaded(struct dl_phdr_info *info, size_t bytes, void *n_p)
{
    (void)bytes;
    *(unsigned long long *)n_p = info->dlpi_adds;
    return 1;
}

/* Return whether the program has loaded the driver. Asking for a library that is not loaded
 * searches all library folders, so ask again only after another library has been loaded. */
static bool driver_is_there(void)
{
    static _Atomic unsigned long long loaded_without;
    unsigned long long loaded = 0;

    (void)dl_iterate_phdr(note_loaded, &loaded);
    if (loaded && loaded == atomic_load_explicit(&loaded_without, memory_order_relaxed))
        return false;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    if (library)
        (void)dlclose(library); /* drops one reference: it stays loaded */
    else
        atomic_store_explicit(&loaded_without, loaded, memory_order_relaxed);
    return library;
}

const struct stepaf_cuda_driver *stepaf_cuda_driver_if_there(void)
{
    return stepaf_cuda_driver_fake || driver_is_there() ? driver_get() : NULL;
}

/* Initialize @a cuda; harmless if it is initialized. */
static bool driver_init(const struct stepaf_cuda_driver *cuda, char *reason)
{
    CUresult result = cuda->init(0);
    const char *text = NULL;

    if (result == CUDA_SUCCESS)
        return true;
    if (reason) {
        if (cuda->error_string(result, &text) != CUDA_SUCCESS || !text)
            text = "?";
        snprintf(reason, STEPAF_REASON_MAX, "the CUDA driver cannot start: %.120s (%d)", text,
                 (int)result);
    }
    return false;
}

const struct stepaf_cuda_driver *stepaf_cuda_driver(char *reason)
{
    const struct stepaf_cuda_driver *cuda = driver_get();

    if (!cuda && reason)
        snprintf(reason, STEPAF_REASON_MAX, "%s", real_reason);
    return cuda && driver_init(cuda, reason) ? cuda : NULL;
}

/* Return the library's status for a result of the driver. */
static stepaf_status_t status_of(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return STEPAF_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return STEPAF_ERR_NO_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
        return STEPAF_ERR_UNSUPPORTED;
    default:
        return STEPAF_ERR_TRANSPORT;
    }
}

stepaf_status_t stepaf_cuda_check(const struct stepaf_cuda_driver *cuda, CUresult result,
                                  const char *format, ...)
{
    const char *name = NULL, *text = NULL;
    char what[STEPAF_REASON_MAX];
    va_list args;

    if (__builtin_expect(result == CUDA_SUCCESS, 1))
        return STEPAF_OK;
    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (cuda->error_name(result, &name) != CUDA_SUCCESS || !name)
        name = "an unknown error";
    if (cuda->error_string(result, &text) != CUDA_SUCCESS || !text)
        text = "?";
    return stepaf_error_set(status_of(result), STEPAF_PHASE_NONE, "%s: %s (%s)", what, text, name);
}

stepaf_status_t stepaf_cuda_enter(struct stepaf_cuda_gpu *gpu, struct stepaf_cuda_scope *scope_p)
{
    CUcontext current = NULL;

    *scope_p = (struct stepaf_cuda_scope){0};
    if (__builtin_expect(gpu->cuda->ctx_current(&current) == CUDA_SUCCESS, 1) &&
        current == gpu->context)
        return STEPAF_OK;
    CUresult result = gpu->cuda->ctx_push(gpu->context);
    scope_p->pushed = result == CUDA_SUCCESS;
    return stepaf_cuda_check(gpu->cuda, result, "cannot enter the context of GPU %d",
                             gpu->base.facts.ordinal);
}

stepaf_status_t stepaf_cuda_enter_setup(struct stepaf_cuda_gpu *gpu,
                                        struct stepaf_cuda_scope *scope_p)
{
    stepaf_status_t status = stepaf_cuda_enter(gpu, scope_p);

    if (status)
        return status;
    scope_p->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    scope_p->relaxed = gpu->cuda->capture_mode(&scope_p->mode) == CUDA_SUCCESS;
    return STEPAF_OK;
}

void stepaf_cuda_leave(struct stepaf_cuda_gpu *gpu, const struct stepaf_cuda_scope *scope)
{
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped;

    if (scope->relaxed)
        (void)gpu->cuda->capture_mode(&mode);
    if (__builtin_expect(scope->pushed, 0))
        (void)gpu->cuda->ctx_pop(&popped);
}
