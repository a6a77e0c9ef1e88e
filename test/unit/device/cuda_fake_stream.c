/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up driver's streams and events, and what is enqueued. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fake.h"

static const uint64_t CAPTURED = UINT64_MAX; /* when an event was recorded */

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;
static char kernel, any_kernel;

static CUresult fake_capture_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = cuda_fake_thread.mode;

    cuda_fake_thread.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult fake_module_function(CUfunction *function_p, CUmodule module, const char *name)
{
    (void)module;
    *function_p = (CUfunction)(void *)(strstr(name, "_any") ? &any_kernel : &kernel);
    return strncmp(name, "stepaf_", 7) == 0 ? cuda_fake_step() : CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_launch(const CUlaunchConfig *config, CUfunction function, void **params,
                            void **extra)
{
    CUresult result = cuda_fake_step();

    (void)extra;
    pthread_mutex_lock(&launching);
    cuda_fake.launched = *config;
    cuda_fake.n_launches++;
    bool any = (void *)function == &any_kernel;
    if (any)
        memcpy(&cuda_fake.any_args, params[0], sizeof(cuda_fake.any_args));
    else
        memcpy(&cuda_fake.args, params[0], sizeof(cuda_fake.args));
    pthread_mutex_unlock(&launching);
    return result;
}

static CUresult fake_stream_create(CUstream *stream_p, unsigned flags)
{
    return flags == CU_STREAM_NON_BLOCKING ? cuda_fake_give(stream_p) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_stream_destroy(CUstream stream)
{
    (void)stream;
    return cuda_fake_take();
}

static CUresult fake_stream_sync(CUstream stream)
{
    (void)stream;
    return cuda_fake_step();
}

static CUresult fake_stream_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&launching);
    if (cuda_fake.n_waits < CUDA_FAKE_WAITS)
        cuda_fake.waits[cuda_fake.n_waits++] =
            (struct cuda_wait){stream, event, cuda_fake.n_launches};
    pthread_mutex_unlock(&launching);
    return cuda_fake_step();
}

static CUresult fake_stream_capturing(CUstream stream, CUstreamCaptureStatus *state_p)
{
    (void)stream;
    *state_p = cuda_fake.capture;
    return cuda_fake_step();
}

static CUresult fake_stream_operate(CUstream stream, unsigned n,
                                    CUstreamBatchMemOpParams *operations, unsigned flags)
{
    CUresult result = cuda_fake_step();

    (void)stream, (void)flags;
    cuda_fake.n_words = n;
    for (unsigned i = 0; i < n && 2 * i < CUDA_FAKE_WORDS; i++) {
        cuda_fake.words[2 * i] = operations[i].writeValue.address;
        cuda_fake.words[2 * i + 1] = operations[i].writeValue.value64;
    }
    return result;
}

static CUresult fake_event_create(CUevent *event_p, unsigned flags)
{
    CUresult result = cuda_fake_give(event_p);

    (void)flags;
    if (!result)
        *event_p = calloc(1, sizeof(uint64_t)); /* when it was recorded */
    return result;
}

static CUresult fake_event_destroy(CUevent event)
{
    free(event);
    return cuda_fake_take();
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
    bool captured = cuda_fake.capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    uint64_t now = captured ? CAPTURED : 0;

    (void)stream;
    __atomic_store_n((uint64_t *)(void *)event, now, __ATOMIC_RELEASE);
    return cuda_fake_step();
}

static CUresult fake_event_query(CUevent event)
{
    uint64_t at = __atomic_load_n((const uint64_t *)(const void *)event, __ATOMIC_ACQUIRE);

    if (at == CAPTURED)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (cuda_fake.busy)
        return CUDA_ERROR_NOT_READY;
    if (cuda_fake_thread.mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return cuda_fake_step();
}

void cuda_fake_stream_fill(struct stepaf_cuda_driver *driver)
{
    driver->capture_mode = fake_capture_mode;
    driver->module_function = fake_module_function;
    driver->launch = fake_launch;
    driver->stream_create = fake_stream_create;
    driver->stream_destroy = fake_stream_destroy;
    driver->stream_sync = fake_stream_sync;
    driver->stream_wait = fake_stream_wait;
    driver->stream_capturing = fake_stream_capturing;
    driver->stream_operate = fake_stream_operate;
    driver->event_create = fake_event_create;
    driver->event_destroy = fake_event_destroy;
    driver->event_record = fake_event_record;
    driver->event_query = fake_event_query;
}
