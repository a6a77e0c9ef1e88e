/* SPDX-License-Identifier: Apache-2.0 */
/* Streams whose queues are full, between GPUs that reach each other: the call that enqueues waits,
 * and keeps nobody else from anything. Ranks are processes; their GPUs are made of memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/handles.h"
#include "base/time.h"
#include "core/ctx.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "gpu/stream.h"
#include "proxy_rank.h"
#include "stream_job.h"
#include "unit.h"

enum { ROOM = 4, PATIENCE_MS = 5000, LATE_MS = 300, SOON_MS = 20, OTHERS_MS = 10000 };

static const struct proxy_job direct = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .proxy = "auto",
    .progress = "thread",
    .timeout_us = "20000000",
    .depth = 2,
    .n_push = 1,
    .n_pull = 1,
    .push = {64},
    .pull = {64},
};

static void sleep_ms(unsigned ms)
{
    usleep(ms * 1000);
}

static void nothing(void *arg, uint64_t n)
{
    (void)arg, (void)n;
}

/* Fill the rank's stream, which has come to something that waits. */
static void fill_up(struct proxy_rank *rank)
{
    cpu_queue_limit(ROOM);
    while (cpu_queue_left() < ROOM)
        cpu_queue_call(&rank->stream, nothing, NULL, 0);
}

/* ---- other calls ---- */

static struct {
    atomic_bool over; /* the other thread's call */
    bool in_time;     /* before the stream went on */
} other;

/* The stream waits until the other thread's call is over, but not for ever. */
static void hold(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    for (int i = 0; i < PATIENCE_MS && !atomic_load(&other.over); i++)
        sleep_ms(1);
    other.in_time = atomic_load(&other.over);
}

static void *call(void *arg)
{
    const struct proxy_rank *rank = arg;

    sleep_ms(SOON_MS); /* until the launch waits */
    stepaf_status_t status = stepaf_plan_status(rank->plan);
    atomic_store(&other.over, true);
    return status ? (void *)rank : NULL;
}

/* Enqueue a part of an operation while the stream is full, and another thread calls the library. */
static int enqueue(struct proxy_rank *rank, bool first)
{
    const stepaf_boot_t *boot = rank->boot;
    bool attention = rank->role == STEPAF_ATTENTION;
    stepaf_status_t status;
    pthread_t thread;
    void *failed;

    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    atomic_store(&other.over, false);
    other.in_time = false;
    cpu_queue_call(&rank->stream, hold, NULL, 0);
    fill_up(rank);
    RANK_CHECK(boot, pthread_create(&thread, NULL, call, rank) == 0);
    if (attention)
        status = first ? stepaf_start_on_stream(rank->plan, NULL, &rank->stream, NULL)
                       : stepaf_wait_on_stream(rank->plan, &rank->stream);
    else
        status = first ? stepaf_recv_on_stream(rank->plan, &rank->stream)
                       : stepaf_respond_on_stream(rank->plan, NULL, &rank->stream);
    RANK_CHECK(boot, pthread_join(thread, &failed) == 0);
    RANK_CHECK(boot, !failed && status == STEPAF_OK);
    RANK_CHECK(boot, other.in_time);
    return 0;
}

static int go_on(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (int n = 0; n < 3; n++)
        if (enqueue(&rank, true) || enqueue(&rank, false))
            return 1;
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void others_call_the_library(void)
{
    struct proxy_job job = direct;

    ranks_expect_processes(2, go_on, &job);
    job.engine = "ce";
    ranks_expect_processes(2, go_on, &job);
}

/* The lock is free whenever something is launched. */
static struct {
    int n_launches, n_free;
} seen;

static void look_at_lock(void)
{
    struct stepaf_lock *lock = &stream_job.job->ctx->lock;

    seen.n_launches++;
    seen.n_free += atomic_load(&lock->next) == atomic_load(&lock->serving);
}

static void others_may_beside_plans_that_take_any_batch(void)
{
    stream_job.flags = STEPAF_PLAN_ANY;
    stream_job_begin(STEPAF_FFN);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    seen.n_launches = seen.n_free = 0;
    stream_job.job->ctx->lock.used = true;
    cpu_device.at_launch = look_at_lock;
    CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_OK);
    CU_ASSERT_EQUAL(seen.n_launches, 2);
    CU_ASSERT_EQUAL(stream_job_respond(), STEPAF_OK);
    CU_ASSERT_EQUAL(seen.n_launches, 3);
    CU_ASSERT_EQUAL(seen.n_free, 3);
    stream_job.job->ctx->lock.used = false;
    stream_job_end();
    stream_job.flags = 0;
}

/* ---- a peer that dies ---- */

/* The peer dies while a launch waits for a stream that waits for the peer. That is found at once,
 * and not when the stream gives up. */
static int lose_the_peer(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    (void)stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1); /* the other may be dead by its end */
    if (rank.role == STEPAF_FFN) {
        sleep_ms(LATE_MS);
        _exit(3);
    }
    int64_t began_ns = stepaf_monotonic_ns();
    RANK_CHECK(boot, stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL) == STEPAF_OK);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
    fill_up(&rank);
    (void)stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL); /* or it is found already */
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, stepaf_monotonic_ns() - began_ns < OTHERS_MS * INT64_C(1000000));
    proxy_rank_close(&rank);
    return 0;
}

static void a_peer_that_dies_is_found(void)
{
    struct proxy_job job = direct;
    int statuses[2];

    for (int i = 0; i < 2; i++) {
        job.transports = i ? "tcp" : "shm";
        ranks_run(2, lose_the_peer, &job, statuses);
        CU_ASSERT_EQUAL(statuses[0], 0);
        CU_ASSERT(WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == 3);
    }
}

/* ---- a commit ---- */

static void be_late(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    sleep_ms(LATE_MS);
}

static void *wait_on_stream(void *arg)
{
    struct proxy_rank *rank = arg;

    return stepaf_wait_on_stream(rank->plan, &rank->stream) ? arg : NULL;
}

/* Wait until the other thread has begun to enqueue; it may have ended, too. */
static int await_enqueueing(const struct proxy_rank *rank)
{
    for (bool begun = false; !begun; sleep_ms(1)) {
        struct stepaf_ctx *ctx;
        RANK_CHECK(rank->boot, stepaf_enter_context(rank->ctx, &ctx) == STEPAF_OK);
        const struct stepaf_stream *stream = stepaf_stream_after(ctx, NULL);
        begun = stream->enqueueing || stream->n_received == stream->n_sent;
        stepaf_leave(ctx);
    }
    return 0;
}

/* The last part of an operation is being enqueued when the rank commits: the commit lets it end. */
static int commit_beside(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    pthread_t thread;
    void *failed, *more;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_alloc(rank.ctx, 64, STEPAF_MEM_HOST, &more) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
        cpu_queue_call(&rank.stream, be_late, NULL, 0);
        fill_up(&rank);
        RANK_CHECK(boot, pthread_create(&thread, NULL, wait_on_stream, &rank) == 0);
        if (await_enqueueing(&rank))
            return 1;
    } else {
        RANK_CHECK(boot, stepaf_recv_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_respond_on_stream(rank.plan, NULL, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    }
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION)
        RANK_CHECK(boot, pthread_join(thread, &failed) == 0 && !failed);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_commit_lets_others_enqueue_the_rest(void)
{
    struct proxy_job job = direct;

#ifdef __SANITIZE_THREAD__
    puts("skipped: the commit ends waits while the stream, which nobody has waited for, looks");
    return;
#endif
    ranks_expect_processes(2, commit_beside, &job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"others call the library", others_call_the_library},
        {"also beside plans that take any batch", others_may_beside_plans_that_take_any_batch},
        {"a peer that dies is found", a_peer_that_dies_is_found},
        {"a commit lets others enqueue the rest", a_commit_lets_others_enqueue_the_rest},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
