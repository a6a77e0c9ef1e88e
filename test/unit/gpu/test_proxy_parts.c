/* SPDX-License-Identifier: Apache-2.0 */
/* Large tensors that go by way of the host part by part: streams take what has come while the GPU
 * at the other end still writes the rest; and what peers can say of parts that is not so. Ranks are
 * processes; their GPUs are made of memory. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api/handles.h"
#include "base/time.h"
#include "core/ctx.h"
#include "core/peer.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "gpu/proxy.h"
#include "proxy_rank.h"
#include "unit.h"

enum { HELD_PART = 100, WAIT_MS = 10000 };

/* A few operations of the largest sizes. */
static struct proxy_job in_parts(void)
{
    struct proxy_job job = proxy_large;

    job.transports = "tcp";
    job.depth = 2;
    job.fixed = true;
    job.ops = 4;
    return job;
}

/* ---- at once ---- */

/* In memory that both ranks have. */
static struct together {
    int seen[2];     /* by role: something of the first operation is in its tensor */
    int held[2];     /* by role: its GPU has stopped in the middle */
    int too_late[2]; /* by role: its GPU has waited in vain for the other to see it */
} * together;
static int role;

/* This rank's GPU stops in the middle of the first tensor, until the other rank has seen the
 * beginning. */
static void hold(uint32_t part)
{
    int64_t deadline = stepaf_monotonic_ns() + WAIT_MS * INT64_C(1000000);

    if (part != HELD_PART)
        return;
    together->held[role] = 1;
    while (!__atomic_load_n(&together->seen[!role], __ATOMIC_ACQUIRE)) {
        if (stepaf_monotonic_ns() > deadline) {
            together->too_late[role] = 1;
            return;
        }
        sched_yield();
    }
}

/* Whether a tensor has something in it, while the stand-in for a GPU writes it: that is what is
 * asked, and no race to be told of. */
__attribute__((noinline, no_sanitize("thread"))) static bool has_bytes(const uint8_t *data)
{
    const volatile uint8_t *now = data;

    return now[1] || now[2];
}

/* Wait until the first tensor of slot 0 has something in it. */
static bool await_bytes(const struct proxy_rank *rank)
{
    int64_t deadline = stepaf_monotonic_ns() + WAIT_MS * INT64_C(1000000);
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (stepaf_plan_tensor(rank->plan, 0, 0, 0, &info))
        return false;
    const uint8_t *data = info.data;
    while (!has_bytes(data)) {
        if (stepaf_monotonic_ns() > deadline)
            return false;
        sched_yield();
    }
    return true;
}

static int overlap(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    role = rank.role == STEPAF_FFN;
    cpu_device.at_part = hold;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
    if (rank.role == STEPAF_FFN) {
        RANK_CHECK(boot, await_bytes(&rank));
        __atomic_store_n(&together->seen[role], 1, __ATOMIC_RELEASE);
    }
    RANK_CHECK(boot, proxy_rank_end(&rank, 0) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, await_bytes(&rank));
        __atomic_store_n(&together->seen[role], 1, __ATOMIC_RELEASE);
    }
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, together->held[role] && !together->too_late[role]);
    RANK_CHECK(boot, rank.n_looked == 1 && rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void copies_and_wire_at_once(void)
{
    struct proxy_job job = in_parts();

    together =
        mmap(NULL, sizeof(*together), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(together != MAP_FAILED);
    ranks_expect_processes(2, overlap, &job);
    memset(together, 0, sizeof(*together));
    job.transports = "shm";
    ranks_expect_processes(2, overlap, &job);
    (void)munmap(together, sizeof(*together));
}

/* ---- sizes ---- */

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    stepaf_counters_t counters = {.size = sizeof(counters)};
    int64_t began = stepaf_monotonic_ns();
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, job->ops) == 0);
    RANK_CHECK(boot, rank.n_looked == job->ops && rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_counters_query(rank.ctx, &counters) == STEPAF_OK);
    RANK_CHECK(boot, rank.host || counters.thread_busy_ns > 0);
    RANK_CHECK(boot, counters.thread_busy_ns < (uint64_t)(stepaf_monotonic_ns() - began));
    stepaf_link_info_t link = {.size = sizeof(link)};
    RANK_CHECK(boot, stepaf_link_query(rank.ctx, 0, &link) == STEPAF_OK);
    /* Small parts: most of what was sent went ahead of the operations' own messages. */
    RANK_CHECK(boot, rank.host || link.messages_sent > 4 * (uint64_t)job->ops);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.plan)
        RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

/* Parts of the wire that are no multiple of the GPU's; every size of tensors; peers with plans in
 * host memory, who see whole operations; several peers. */
static void every_size_and_kind_of_peer(void)
{
    struct proxy_job job = in_parts();

    setenv("STEPAF_CUDA_AHEAD_BYTES", "3000", 1);
    job.fixed = false;
    job.push[0] = 100001;
    job.push[1] = 30000;
    job.pull[0] = 70000;
    job.depth = 3;
    job.ops = 40;
    for (int i = 0; i < 4; i++) {
        job.host[0] = i == 2;
        job.host[1] = i == 3;
        job.n_ffn = 1 + i % 2;
        job.transports = i % 2 ? "tcp" : "shm";
        ranks_expect_processes(1 + job.n_ffn, exchange, &job);
    }
    unsetenv("STEPAF_CUDA_AHEAD_BYTES");
}

/* What is there goes together, up to four parts and half of what is left. */
static void parts_are_merged(void)
{
    enum { EACH = 1000 };
    static const struct {
        uint32_t ready, left, bytes;
    } cases[] = {
        {1000, 1001, 1000}, {1999, 4000, 1000}, {2000, 4000, 2000},        {4000, 4000, 2000},
        {3999, 7999, 3000}, {9000, 9000, 4000}, {90000, UINT32_MAX, 4000}, {2500, 90000, 2000},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_EQUAL(stepaf_proxy_next_part(cases[i].ready, cases[i].left, EACH),
                        cases[i].bytes);
    CU_ASSERT_EQUAL(stepaf_proxy_next_part(UINT32_MAX - 1, UINT32_MAX, 1u << 30), 1u << 30);
}

/* ---- what is not so ---- */

/* Say of the next operation, as its attention rank would, that tensor @a i has @a here of @a
 * bytes. */
static int say(const stepaf_boot_t *boot, struct proxy_rank *rank, uint32_t seq, uint32_t i,
               uint32_t here, uint32_t bytes, uint32_t n)
{
    struct stepaf_msg msg = {.type = STEPAF_MSG_LANDED,
                             .slot = (uint8_t)(seq % rank->job->depth),
                             .seq = seq,
                             .n = (uint8_t)n};
    struct stepaf_ctx *ctx;

    RANK_CHECK(boot, stepaf_enter_context(rank->ctx, &ctx) == STEPAF_OK);
    msg.epoch = (uint16_t)ctx->epoch;
    for (uint32_t k = 0; k < ctx->tables.plans.n; k++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, k);
        if (plan && plan->proxied.is)
            msg.plan = (uint16_t)k;
    }
    msg.word[STEPAF_MSG_TENSOR_INDEX] = i;
    msg.word[STEPAF_MSG_HERE] = here;
    msg.word[STEPAF_MSG_SIZES] = bytes;
    msg.word[STEPAF_MSG_SIZES + 1] = 100;
    bool sent = stepaf_core_send(&ctx->peers[0], &msg);
    stepaf_leave(ctx);
    RANK_CHECK(boot, sent);
    return 0;
}

static uint64_t count_malformed(const struct proxy_rank *rank)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};

    return stepaf_counters_query(rank->ctx, &counters) ? 0 : counters.dropped_malformed;
}

static int tell_lies(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION &&
        (say(boot, &rank, 0, 2, 0, 1 << 20, 2) ||        /* no such tensor */
         say(boot, &rank, 0, 0, 4097, 4096, 2) ||        /* more than there is */
         say(boot, &rank, 0, 0, 10, (3 << 20) + 1, 2) || /* more than there is room for */
         say(boot, &rank, 0, 0, 10, 4096, 1) ||          /* of another plan's kind */
         say(boot, &rank, 1, 0, 10, 4096, 2))) /* of no operation that could come: not counted */
        return 1;
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 3) == 0);
    RANK_CHECK(boot, rank.n_looked == 3 && rank.n_wrong == 0);
    RANK_CHECK(boot, count_malformed(&rank) == (rank.role == STEPAF_FFN ? 4 : 0));
    /* Then of the next operation other sizes than it has: nobody can take it for whole. */
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION && say(boot, &rank, 3, 0, 20000, 50000, 2))
        return 1;
    if (proxy_rank_begin(&rank, 3) == STEPAF_OK) /* else it is found already */
        (void)proxy_rank_end(&rank, 3);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    stepaf_status_t status = stepaf_plan_status(rank.plan);
    RANK_CHECK(boot, rank.role == STEPAF_FFN ? status == STEPAF_ERR_PROTOCOL : status != STEPAF_OK);
    if (rank.role == STEPAF_FFN) {
        RANK_CHECK(boot, stepaf_last_error()->peer_world_rank == 0);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "other sizes than it had announced"));
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void lies_are_found(void)
{
    struct proxy_job job = in_parts();

#ifdef __SANITIZE_THREAD__
    puts("skipped: who says too early that a part has landed makes a race");
    return;
#endif
    ranks_expect_processes(2, tell_lies, &job);
}

/* ---- times ---- */

/* Of what the host carries it knows the times. */
static int take_times(const stepaf_boot_t *boot, void *arg)
{
    stepaf_timeline_t line = {.size = sizeof(line)};
    struct proxy_rank rank;
    stepaf_request_h request;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 3) == 0);
    int64_t before_ns = stepaf_clock_ns(rank.ctx);
    if (rank.role == STEPAF_ATTENTION) {
        cpu_device.at_part = hold;
        role = 0;
        RANK_CHECK(boot,
                   stepaf_start_on_stream(rank.plan, NULL, &rank.stream, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_timeline_query(request, 0, &line) == STEPAF_OK);
        RANK_CHECK(boot, line.start_ns == -1 && line.notified_ns == -1 && line.answered_ns == -1);
        __atomic_store_n(&together->seen[1], 1, __ATOMIC_RELEASE);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_timeline_query(request, 0, &line) == STEPAF_OK);
        RANK_CHECK(boot, line.start_ns >= before_ns && line.notified_ns >= 0);
        RANK_CHECK(boot, line.answered_ns >= line.notified_ns &&
                             line.start_ns + line.answered_ns <= stepaf_clock_ns(rank.ctx));
        RANK_CHECK(boot, line.ffn_queue_ns >= 0 && line.ffn_work_ns >= 0);
    } else {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 3) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_respond_on_stream(rank.plan, NULL, &rank.stream) == STEPAF_OK);
    }
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void timelines_of_what_the_host_carries(void)
{
    struct proxy_job job = in_parts();

    together =
        mmap(NULL, sizeof(*together), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(together != MAP_FAILED);
    ranks_expect_processes(2, take_times, &job);
    (void)munmap(together, sizeof(*together));
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"copies and wire at once", copies_and_wire_at_once},
        {"every size, and every kind of peer", every_size_and_kind_of_peer},
        {"parts are merged", parts_are_merged},
        {"what is not so is found", lies_are_found},
        {"timelines of what the host carries", timelines_of_what_the_host_carries},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
