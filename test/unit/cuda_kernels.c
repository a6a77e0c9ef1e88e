/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_kernels.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"

enum { WORKS = 1 << 14 };

struct work {
    const char *function; /* NULL: not a kernel */
    void (*call)(void *arg, uint64_t n);
    void *to;
    const void *from;
    uint64_t n; /* bytes, a word, or of the call */
    uint32_t blocks;
    struct stepaf_flow *flow;
};

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work works[WORKS];
    uint64_t enqueued, done;
    bool ending, recording;
    uint64_t room;
    struct work *kept;
    unsigned n_kept;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const char *const names[] = {"stepaf_send", "stepaf_gate", "stepaf_unpack"};

const char *cuda_kernels_find(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return names[i];
    return name;
}

/* ---- kernels ---- */

static uint64_t *words_of(uint8_t *head)
{
    return (uint64_t *)(void *)(head + STEPAF_HEAD_TELLS);
}

/* What says that a group of pieces is there. The rest is the tensor's bytes as they are: the two ends
 * agree, which is enough. */
static uint64_t *flag_of(uint8_t *group)
{
    return (uint64_t *)(void *)(group + STEPAF_GROUP_DATA);
}

static uint64_t stamp_of(const struct stepaf_flow *flow, uint32_t n)
{
    return stepaf_stamp(flow->epoch, n);
}

static bool has_failed(const struct stepaf_flow *flow)
{
    return __atomic_load_n(flow->failed, __ATOMIC_ACQUIRE) != 0;
}

static void write_head(const struct stepaf_lane *lane, uint64_t stamp)
{
    uint64_t *words = words_of(lane->head);

    if (lane->way == STEPAF_WAY_HEAD)
        memcpy(lane->head, lane->data, lane->bytes);
    words[0] = lane->bytes;
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

static void send_pieces(const struct stepaf_lane *lane, uint64_t stamp)
{
    uint32_t at = 0;

    write_head(lane, stamp);
    for (uint8_t *group = lane->body; at < lane->bytes; group += STEPAF_GROUP_BYTES) {
        uint32_t left = lane->bytes - at;
        memcpy(group, lane->data + at, left < STEPAF_GROUP_DATA ? left : STEPAF_GROUP_DATA);
        __atomic_store_n(flag_of(group), 1, __ATOMIC_RELEASE);
        at += STEPAF_GROUP_DATA;
    }
}

static void run_send(const struct work *work)
{
    const struct stepaf_flow *flow = work->flow;
    uint32_t n = flow->counts[1] + 1;

    if (has_failed(flow))
        return;
    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        if (lane->copied)
            continue;
        if (lane->way == STEPAF_WAY_PIECES) {
            send_pieces(lane, stamp_of(flow, n));
            continue;
        }
        if (lane->way != STEPAF_WAY_HEAD && lane->bytes)
            memcpy(lane->body, lane->data, lane->bytes);
        write_head(lane, stamp_of(flow, n));
    }
    for (uint32_t b = 0; b < work->blocks; b++)
        flow->counts[1 + b] = n;
}

static void note_fault(const struct stepaf_flow *flow, uint32_t fault, uint32_t peer)
{
    flow->watch->peer = peer;
    flow->watch->slot = flow->slot;
    __atomic_store_n(&flow->watch->fault, fault, __ATOMIC_RELEASE);
    __atomic_store_n(flow->failed, 1, __ATOMIC_RELEASE);
}

static uint64_t word_of(const uint8_t *head)
{
    return __atomic_load_n(&words_of((uint8_t *)head)[1], __ATOMIC_ACQUIRE);
}

/* By its own head, or by that where TOLD_ALL comes to. */
static bool is_told(const struct stepaf_flow *flow, const void *at, uint64_t stamp)
{
    const struct stepaf_lane *lane = at;
    uint64_t its = word_of(lane->head);

    return its == stamp || (uint32_t)its >= STEPAF_TOLD_ALL ||
           (lane->copied &&
            (uint32_t)word_of(flow->lanes[lane->copied - 1].head) == STEPAF_TOLD_ALL);
}

static bool is_there(const struct stepaf_flow *flow, const void *group, uint64_t stamp)
{
    (void)flow;
    (void)stamp;
    return __atomic_load_n(flag_of((uint8_t *)group), __ATOMIC_ACQUIRE) != 0;
}

/* Wait until a head or a group has come. False: given up. */
static bool await(const struct stepaf_flow *flow,
                  bool (*has_come)(const struct stepaf_flow *, const void *, uint64_t),
                  const void *at, uint64_t stamp, uint32_t peer)
{
    int64_t began = stepaf_monotonic_ns();

    while (!has_come(flow, at, stamp)) {
        if (has_failed(flow))
            return false;
        if (__atomic_load_n(&flow->watch->abort, __ATOMIC_ACQUIRE)) {
            note_fault(flow, STEPAF_FAULT_ABORTED, peer);
            return false;
        }
        if (flow->timeout_ns && stepaf_monotonic_ns() - began > (int64_t)flow->timeout_ns) {
            note_fault(flow, STEPAF_FAULT_TIMEOUT, peer);
            return false;
        }
        sched_yield();
    }
    return true;
}

static bool take_pieces(const struct stepaf_flow *flow, const struct stepaf_lane *lane,
                        uint32_t bytes)
{
    uint8_t *group = lane->body;

    for (uint32_t at = 0; at < bytes; at += STEPAF_GROUP_DATA, group += STEPAF_GROUP_BYTES) {
        uint32_t left = bytes - at;
        if (!await(flow, is_there, group, 0, lane->peer))
            return false;
        memcpy(lane->data + at, group, left < STEPAF_GROUP_DATA ? left : STEPAF_GROUP_DATA);
        *flag_of(group) = 0;
    }
    return true;
}

static void run_gate(const struct work *work)
{
    const struct stepaf_flow *flow = work->flow;
    uint32_t n = flow->counts[0] + 1;

    if (has_failed(flow))
        return;
    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        uint64_t stamp = stamp_of(flow, n);
        if (!await(flow, is_told, lane, stamp, lane->peer))
            return;
        uint64_t its = word_of(lane->head), bytes = lane->planned;
        if (its == stamp)
            bytes = words_of(lane->head)[0];
        else if ((uint32_t)its >= STEPAF_TOLD_ALL)
            bytes = its >> 32;
        if (bytes > lane->bytes)
            bytes = lane->bytes;
        flow->landed[i] = (uint32_t)bytes;
        if (lane->way == STEPAF_WAY_HEAD)
            memcpy(lane->data, lane->head, bytes);
        if (lane->way == STEPAF_WAY_PIECES && flow->gate_takes &&
            !take_pieces(flow, lane, (uint32_t)bytes))
            return;
    }
    for (uint32_t i = 0; i < flow->n_lanes; i++)
        if ((uint32_t)word_of(flow->lanes[i].head) >= STEPAF_TOLD_ALL)
            words_of(flow->lanes[i].head)[1] = 0;
    flow->counts[0] = n;
}

static void run_unpack(const struct work *work)
{
    const struct stepaf_flow *flow = work->flow;

    if (has_failed(flow))
        return;
    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        uint32_t bytes = flow->landed[i];
        if (lane->way == STEPAF_WAY_INLET && bytes)
            memcpy(lane->data, lane->body, bytes);
        if (lane->way == STEPAF_WAY_PIECES && !flow->gate_takes && !take_pieces(flow, lane, bytes))
            return;
    }
}

static void run(const struct work *work)
{
    if (work->function == names[STEPAF_KERNEL_SEND])
        run_send(work);
    else if (work->function == names[STEPAF_KERNEL_GATE])
        run_gate(work);
    else if (work->function == names[STEPAF_KERNEL_UNPACK])
        run_unpack(work);
    else if (work->call)
        work->call(work->to, work->n);
    else if (work->from)
        memcpy(work->to, work->from, work->n);
    else
        __atomic_store_n((uint64_t *)work->to, work->n, __ATOMIC_RELEASE);
}

/* ---- the queue ---- */

static void *work_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&gpu.lock);
    while (!gpu.ending || gpu.done < gpu.enqueued) {
        if (gpu.done == gpu.enqueued) {
            pthread_cond_wait(&gpu.changed, &gpu.lock);
            continue;
        }
        struct work work = gpu.works[gpu.done % WORKS];
        pthread_mutex_unlock(&gpu.lock);
        run(&work);
        free(work.flow);
        pthread_mutex_lock(&gpu.lock);
        gpu.done++;
        pthread_cond_broadcast(&gpu.changed);
    }
    pthread_mutex_unlock(&gpu.lock);
    return NULL;
}

void cuda_kernels_begin(void)
{
    gpu.enqueued = gpu.done = 0;
    gpu.ending = gpu.recording = false;
    gpu.room = WORKS;
    pthread_create(&gpu.thread, NULL, work_main, NULL);
}

void cuda_kernels_limit(unsigned room)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.room = room < WORKS ? room : WORKS;
    pthread_cond_broadcast(&gpu.changed);
    pthread_mutex_unlock(&gpu.lock);
}

void cuda_kernels_end(void)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.ending = true;
    pthread_cond_broadcast(&gpu.changed);
    pthread_mutex_unlock(&gpu.lock);
    pthread_join(gpu.thread, NULL);
    for (unsigned i = 0; i < gpu.n_kept; i++)
        free(gpu.kept[i].flow);
    free(gpu.kept);
    gpu.kept = NULL;
    gpu.n_kept = 0;
}

static struct stepaf_flow *copy_of(const struct stepaf_flow *flow)
{
    struct stepaf_flow *copy = flow ? malloc(sizeof(*copy)) : NULL;

    if (copy)
        memcpy(copy, flow, sizeof(*copy));
    return copy;
}

static void enqueue(struct work work)
{
    work.flow = copy_of(work.flow);
    pthread_mutex_lock(&gpu.lock);
    if (gpu.recording) {
        gpu.kept = realloc(gpu.kept, (gpu.n_kept + 1) * sizeof(work));
        gpu.kept[gpu.n_kept++] = work;
    } else {
        while (gpu.enqueued - gpu.done >= gpu.room)
            pthread_cond_wait(&gpu.changed, &gpu.lock);
        gpu.works[gpu.enqueued++ % WORKS] = work;
        pthread_cond_broadcast(&gpu.changed);
    }
    pthread_mutex_unlock(&gpu.lock);
}

void cuda_kernels_launch(const char *function, const void *flow, uint32_t blocks)
{
    enqueue((struct work){.function = function, .flow = (void *)flow, .blocks = blocks});
}

void cuda_kernels_copy(void *dst, const void *src, size_t bytes)
{
    enqueue((struct work){.to = dst, .from = src, .n = bytes});
}

void cuda_kernels_store(uint64_t *at, uint64_t value)
{
    enqueue((struct work){.to = at, .n = value});
}

void cuda_kernels_call(void (*call)(void *arg, uint64_t n), void *arg, uint64_t n)
{
    enqueue((struct work){.call = call, .to = arg, .n = n});
}

void cuda_kernels_record(void)
{
    gpu.recording = true;
}

void cuda_kernels_replay(unsigned times, uint64_t step)
{
    gpu.recording = false;
    for (unsigned t = 0; t < times; t++)
        for (unsigned i = 0; i < gpu.n_kept; i++) {
            struct work work = gpu.kept[i];
            work.n += work.call ? t * step : 0;
            enqueue(work);
        }
}

uint64_t cuda_kernels_enqueued(void)
{
    pthread_mutex_lock(&gpu.lock);
    uint64_t n = gpu.enqueued;
    pthread_mutex_unlock(&gpu.lock);
    return n;
}

uint64_t cuda_kernels_done(void)
{
    pthread_mutex_lock(&gpu.lock);
    uint64_t n = gpu.done;
    pthread_mutex_unlock(&gpu.lock);
    return n;
}

bool cuda_kernels_sync(unsigned timeout_ms)
{
    int64_t deadline = stepaf_monotonic_ns() + timeout_ms * INT64_C(1000000);

    while (cuda_kernels_done() < cuda_kernels_enqueued()) {
        if (stepaf_monotonic_ns() > deadline)
            return false;
        sched_yield();
    }
    return true;
}
