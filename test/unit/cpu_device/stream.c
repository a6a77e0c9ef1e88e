/* SPDX-License-Identifier: Apache-2.0 */
/* The device's streams and events, and what is enqueued. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_device.h"
#include "kernels.h"
#include "queue.h"

enum { OWN_STREAMS = 16 };

/* A mark, and whether it belongs to a graph, so that nobody can ask for it. */
struct event {
    struct cpu_mark mark;
    bool captured;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Streams that were given out. */
static void *own[OWN_STREAMS];

/* Whether a stream is one of these, not the caller's. */
static bool is_own(const void *stream)
{
    for (int i = 0; i < OWN_STREAMS; i++)
        if (__atomic_load_n(&own[i], __ATOMIC_RELAXED) == stream)
            return true;
    return false;
}

stepaf_status_t cpu_capturing(struct stepaf_gpu *gpu, void *stream, bool *capturing_p)
{
    (void)gpu, (void)stream;
    *capturing_p = cpu_device.capturing;
    return cpu_device_step("cannot ask for the stream's state");
}

static void tell_of_launch(void)
{
    if (cpu_device.at_launch)
        cpu_device.at_launch();
}

static void note_launch(uint32_t blocks, uint32_t threads, bool behind, void *stream)
{
    cpu_device.launched = (struct cpu_launch){stream, blocks, threads, behind};
    cpu_device.n_launches++;
}

stepaf_status_t cpu_launch(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                           const struct stepaf_kernel_args *args, uint32_t blocks, uint32_t threads,
                           bool behind, void *stream)
{
    stepaf_status_t status = cpu_device_step("cannot launch");

    (void)gpu;
    tell_of_launch();
    pthread_mutex_lock(&lock);
    note_launch(blocks, threads, behind, stream);
    cpu_device.args = *args;
    pthread_mutex_unlock(&lock);
    if (!status && cpu_device.runs)
        cpu_queue_launch(stream, kernel, args, blocks);
    return status;
}

stepaf_status_t cpu_launch_any(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                               const struct stepaf_any_args *args, uint32_t blocks,
                               uint32_t threads, bool behind, void *stream)
{
    stepaf_status_t status = cpu_device_step("cannot launch");

    (void)gpu, (void)kernel;
    if (!status && cpu_device.runs)
        status = stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                  "the CPU device has no kernels that take any batch");
    tell_of_launch();
    pthread_mutex_lock(&lock);
    note_launch(blocks, threads, behind, stream);
    cpu_device.any_args = *args;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Whether a range ends in the piece that it begins in, if it begins in one. */
static bool is_whole(const void *ptr, size_t bytes)
{
    const struct cpu_piece *piece = cpu_device_find(ptr);

    return !piece || bytes <= piece->bytes - (size_t)((const uint8_t *)ptr - piece->base);
}

stepaf_status_t cpu_copy(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                         void *stream)
{
    stepaf_status_t status = cpu_device_step("cannot copy on a stream");

    (void)gpu;
    __atomic_add_fetch(&cpu_device.n_copies, 1, __ATOMIC_RELAXED);
    if (status)
        return status;
    if (!is_whole(dst, bytes) || !is_whole(src, bytes))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "no copy takes more than one allocation");
    if (!cpu_device.runs) {
        memcpy(dst, src, bytes);
        return STEPAF_OK;
    }
    if (!is_own(stream) && !cpu_device_find(dst) && !cpu_device_find(src))
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "a driver would copy host memory with the calling thread");
    cpu_queue_copy(stream, dst, src, bytes);
    return STEPAF_OK;
}

stepaf_status_t cpu_store(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words, uint32_t n,
                          void *stream)
{
    stepaf_status_t status = cpu_device_step("cannot store by a stream");

    (void)gpu;
    cpu_device.n_words = n;
    for (uint32_t i = 0; i < n && 2 * i < CPU_WORDS; i++) {
        cpu_device.words[2 * i] = (uintptr_t)words[i].at;
        cpu_device.words[2 * i + 1] = words[i].value;
    }
    for (uint32_t i = 0; i < n && !status && cpu_device.runs; i++)
        cpu_queue_store(stream, words[i].at, words[i].value);
    return status;
}

stepaf_status_t cpu_timestamp(struct stepaf_gpu *gpu, enum stepaf_times_kernel kernel,
                              const struct stepaf_timestamp_args *args, void *stream)
{
    stepaf_status_t status = cpu_device_step("cannot launch");

    (void)gpu;
    pthread_mutex_lock(&lock);
    cpu_device.n_timestamps++;
    cpu_device.timestamp = *args;
    pthread_mutex_unlock(&lock);
    if (!status && cpu_device.runs)
        cpu_queue_run(stream,
                      kernel == STEPAF_KERNEL_ARRIVALS ? cpu_kernel_note_arrivals
                                                       : cpu_kernel_take_time,
                      args, sizeof(*args));
    return status;
}

stepaf_status_t cpu_tell_time(struct stepaf_gpu *gpu, const struct stepaf_clock_args *args,
                              void *stream)
{
    (void)gpu;
    if (cpu_device.runs)
        cpu_queue_run(stream, cpu_kernel_tell_time, args, sizeof(*args));
    return STEPAF_OK;
}

stepaf_status_t cpu_event_create(struct stepaf_gpu *gpu, void **event_p)
{
    struct event *event = calloc(1, sizeof(*event));
    stepaf_status_t status;

    (void)gpu;
    if (!event)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
    status = cpu_device_hold("cannot create an event");
    if (status)
        free(event);
    else
        *event_p = event;
    return status;
}

void cpu_event_destroy(struct stepaf_gpu *gpu, void *event)
{
    (void)gpu;
    if (!event)
        return;
    free(event);
    cpu_device_let_go();
}

stepaf_status_t cpu_event_record(struct stepaf_gpu *gpu, void *event, void *stream)
{
    struct event *its = event;
    stepaf_status_t status = cpu_device_step("cannot record an event");

    (void)gpu;
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    its->captured = cpu_device.capturing;
    its->mark = cpu_queue_mark(stream);
    pthread_mutex_unlock(&lock);
    return STEPAF_OK;
}

static struct event read_event(const void *event)
{
    pthread_mutex_lock(&lock);
    struct event now = *(const struct event *)event;
    pthread_mutex_unlock(&lock);
    return now;
}

stepaf_status_t cpu_event_await(struct stepaf_gpu *gpu, void *event, void *stream)
{
    stepaf_status_t status = cpu_device_step("cannot make a stream wait");

    (void)gpu;
    pthread_mutex_lock(&lock);
    if (cpu_device.n_waits < CPU_WAITS)
        cpu_device.waits[cpu_device.n_waits++] =
            (struct cpu_wait){stream, event, cpu_device.n_launches};
    pthread_mutex_unlock(&lock);
    if (!status && cpu_device.runs)
        cpu_queue_await(stream, read_event(event).mark);
    return status;
}

stepaf_status_t cpu_event_test(struct stepaf_gpu *gpu, void *event)
{
    struct event its = read_event(event);

    (void)gpu;
    if (its.captured)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE,
                                "the event was recorded in a graph");
    if (cpu_device.busy || !cpu_queue_has_come_by(its.mark))
        return STEPAF_INPROGRESS;
    return cpu_device_step("GPU 0 has failed");
}

stepaf_status_t cpu_stream_create(struct stepaf_gpu *gpu, void **stream_p)
{
    stepaf_status_t status = cpu_device_hold("cannot create a stream");
    int i = 0;

    (void)gpu;
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    while (i < OWN_STREAMS - 1 && own[i])
        i++;
    own[i] = *stream_p = &own[i];
    pthread_mutex_unlock(&lock);
    return STEPAF_OK;
}

void cpu_stream_destroy(struct stepaf_gpu *gpu, void *stream)
{
    (void)gpu;
    if (!stream)
        return;
    pthread_mutex_lock(&lock);
    *(void **)stream = NULL;
    pthread_mutex_unlock(&lock);
    cpu_device_let_go();
}

stepaf_status_t cpu_stream_sync(struct stepaf_gpu *gpu, void *stream)
{
    struct cpu_mark mark = cpu_queue_mark(stream);

    (void)gpu;
    while (!cpu_queue_has_come_by(mark))
        sched_yield();
    return cpu_device_step("GPU 0 has failed");
}
