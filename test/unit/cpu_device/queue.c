/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "kernels.h"

enum { STREAMS = 16, WORKS = 1 << 12 };

enum what { LAUNCH, RUN, COPY, STORE, CALL, AWAIT };

struct work {
    enum what what;
    enum stepaf_kernel kernel;
    uint32_t blocks;
    void *args;
    size_t args_bytes;
    void (*program)(const void *args);
    void (*call)(void *arg, uint64_t n);
    void *to;
    const void *from;
    uint64_t n; /* bytes, a word, or of the call */
    struct cpu_mark mark;
};

struct stream {
    void *name; /* NULL: free */
    pthread_t thread;
    struct work works[WORKS];
    uint64_t enqueued, done;
};

struct kept {
    void *stream;
    struct work work;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stream streams[STREAMS];
    bool ending, recording;
    uint64_t room;
    struct kept *kept;
    unsigned n_kept;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .room = WORKS};

static struct stream *find(const void *name)
{
    for (int i = 0; i < STREAMS; i++)
        if (queue.streams[i].name == name)
            return &queue.streams[i];
    return NULL;
}

static bool has_come_by(struct cpu_mark mark)
{
    const struct stream *stream = find(mark.stream);

    return !stream || stream->done >= mark.at;
}

/* With the lock, which is let go of meanwhile. */
static void run(struct work *work)
{
    while (work->what == AWAIT && !has_come_by(work->mark))
        pthread_cond_wait(&queue.changed, &queue.lock);
    pthread_mutex_unlock(&queue.lock);
    switch (work->what) {
    case LAUNCH:
        cpu_kernel_run(work->kernel, work->args, work->blocks);
        break;
    case RUN:
        work->program(work->args);
        break;
    case COPY:
        memcpy(work->to, work->from, work->n);
        break;
    case STORE:
        __atomic_store_n((uint64_t *)work->to, work->n, __ATOMIC_RELEASE);
        break;
    case CALL:
        work->call(work->to, work->n);
        break;
    case AWAIT:
        break;
    }
    free(work->args);
    pthread_mutex_lock(&queue.lock);
}

static void *stream_main(void *arg)
{
    struct stream *stream = arg;

    pthread_mutex_lock(&queue.lock);
    while (!queue.ending || stream->done < stream->enqueued) {
        if (stream->done == stream->enqueued) {
            pthread_cond_wait(&queue.changed, &queue.lock);
            continue;
        }
        struct work work = stream->works[stream->done % WORKS];
        run(&work);
        stream->done++;
        pthread_cond_broadcast(&queue.changed);
    }
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

/* The stream of that name, there already or made now. */
static struct stream *stream_of(void *name)
{
    struct stream *stream = find(name);

    if (stream)
        return stream;
    stream = find(NULL);
    if (!stream)
        abort(); /* no test has so many */
    stream->enqueued = stream->done = 0;
    /* All of it is resident from now on: tests look whether a process grows. */
    memset(stream->works, 0, sizeof(stream->works));
    stream->name = name;
    if (pthread_create(&stream->thread, NULL, stream_main, stream))
        abort();
    return stream;
}

void cpu_queue_begin(void)
{
    queue.ending = queue.recording = false;
    queue.room = WORKS;
}

void cpu_queue_limit(unsigned room)
{
    pthread_mutex_lock(&queue.lock);
    queue.room = room < WORKS ? room : WORKS;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
}

void cpu_queue_end(void)
{
    pthread_mutex_lock(&queue.lock);
    queue.ending = true;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    for (int i = 0; i < STREAMS; i++)
        if (queue.streams[i].name)
            pthread_join(queue.streams[i].thread, NULL);
    for (int i = 0; i < STREAMS; i++)
        queue.streams[i].name = NULL;
    for (unsigned i = 0; i < queue.n_kept; i++)
        free(queue.kept[i].work.args);
    free(queue.kept);
    queue.kept = NULL;
    queue.n_kept = 0;
}

static void *copy_of(const void *args, size_t bytes)
{
    void *copy = args ? malloc(bytes) : NULL;

    if (copy)
        memcpy(copy, args, bytes);
    return copy;
}

static void enqueue(void *name, struct work work)
{
    work.args = copy_of(work.args, work.args_bytes);
    pthread_mutex_lock(&queue.lock);
    if (queue.recording) {
        queue.kept = realloc(queue.kept, (queue.n_kept + 1) * sizeof(queue.kept[0]));
        queue.kept[queue.n_kept++] = (struct kept){name, work};
    } else {
        struct stream *stream = stream_of(name);
        while (stream->enqueued - stream->done >= queue.room)
            pthread_cond_wait(&queue.changed, &queue.lock);
        stream->works[stream->enqueued++ % WORKS] = work;
        pthread_cond_broadcast(&queue.changed);
    }
    pthread_mutex_unlock(&queue.lock);
}

void cpu_queue_launch(void *stream, enum stepaf_kernel kernel,
                      const struct stepaf_kernel_args *args, uint32_t blocks)
{
    enqueue(stream, (struct work){.what = LAUNCH,
                                  .kernel = kernel,
                                  .args = (void *)args,
                                  .args_bytes = sizeof(*args),
                                  .blocks = blocks});
}

void cpu_queue_run(void *stream, void (*program)(const void *args), const void *args, size_t bytes)
{
    enqueue(
        stream,
        (struct work){.what = RUN, .program = program, .args = (void *)args, .args_bytes = bytes});
}

void cpu_queue_copy(void *stream, void *dst, const void *src, size_t bytes)
{
    enqueue(stream, (struct work){.what = COPY, .to = dst, .from = src, .n = bytes});
}

void cpu_queue_store(void *stream, uint64_t *at, uint64_t value)
{
    enqueue(stream, (struct work){.what = STORE, .to = at, .n = value});
}

void cpu_queue_call(void *stream, void (*call)(void *arg, uint64_t n), void *arg, uint64_t n)
{
    enqueue(stream, (struct work){.what = CALL, .call = call, .to = arg, .n = n});
}

struct cpu_mark cpu_queue_mark(void *stream)
{
    struct cpu_mark mark = {.stream = stream};

    pthread_mutex_lock(&queue.lock);
    const struct stream *its = find(stream);
    mark.at = its ? its->enqueued : 0;
    pthread_mutex_unlock(&queue.lock);
    return mark;
}

bool cpu_queue_has_come_by(struct cpu_mark mark)
{
    pthread_mutex_lock(&queue.lock);
    bool it_has = has_come_by(mark);
    pthread_mutex_unlock(&queue.lock);
    return it_has;
}

void cpu_queue_await(void *stream, struct cpu_mark mark)
{
    enqueue(stream, (struct work){.what = AWAIT, .mark = mark});
}

void cpu_queue_record(void)
{
    queue.recording = true;
}

void cpu_queue_replay(unsigned times, uint64_t step)
{
    queue.recording = false;
    for (unsigned t = 0; t < times; t++)
        for (unsigned i = 0; i < queue.n_kept; i++) {
            struct work work = queue.kept[i].work;
            work.n += work.what == CALL ? t * step : 0;
            enqueue(queue.kept[i].stream, work);
        }
}

uint64_t cpu_queue_left(void)
{
    uint64_t n = 0;

    pthread_mutex_lock(&queue.lock);
    for (int i = 0; i < STREAMS; i++)
        if (queue.streams[i].name)
            n += queue.streams[i].enqueued - queue.streams[i].done;
    pthread_mutex_unlock(&queue.lock);
    return n;
}

bool cpu_queue_sync(unsigned timeout_ms)
{
    int64_t deadline = stepaf_monotonic_ns() + timeout_ms * INT64_C(1000000);

    while (cpu_queue_left()) {
        if (stepaf_monotonic_ns() > deadline)
            return false;
        sched_yield();
    }
    return true;
}
