/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on streams that note when they come to each point (STEPAF_STREAM_TIMES=on): what becomes
 * of it in traces, timelines, counters and verdicts. Ranks are processes, whose GPUs are made of memory and
 * have clocks of their own. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/handles.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "fake.h"
#include "gpu/times_clock.h"
#include "plans.h"
#include "proxy_rank.h"
#include "unit.h"

enum { OPS = 100, RECORDS = 8192, PATIENCE_MS = 5000, LATE_US = 60000 };

static const struct proxy_job small = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .proxy = "auto",
    .progress = "inline",
    .depth = 2,
    .n_push = 3,
    .n_pull = 2,
    .push = {85, 4096, 8},
    .pull = {70001, 64},
    .ops = OPS,
};

/* What ranks tell each other: when each operation was where, by attention and FFN rank. */
struct seen {
    int64_t at[STEPAF_EVENT_LAST];
};
static struct seen (*seen)[2][PROXY_PEERS][PROXY_PEERS]; /* by operation, role, rank, peer */
static int64_t (*off_ns)[PROXY_PEERS]; /* by role and rank: what its clock is off by, at most */

static int open_rank(struct proxy_rank *rank, const struct proxy_job *job,
                     const stepaf_boot_t *boot)
{
    (void)setenv("STEPAF_STREAM_TIMES", "on", 1);
    (void)setenv("STEPAF_TRACE_RECORDS", "8192", 1);
    if (proxy_rank_open(rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank->ctx) == STEPAF_OK);
    return 0;
}

static int close_rank(struct proxy_rank *rank)
{
    RANK_CHECK(rank->boot, stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(rank->boot, stepaf_plan_destroy(rank->plan) == STEPAF_OK);
    RANK_CHECK(rank->boot, stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(rank);
    return 0;
}

/* Sort the trace's records into seen; each is there once, and no other is. */
static int read_trace(const struct proxy_rank *rank, unsigned n_ops)
{
    static stepaf_trace_record_t records[RECORDS];
    bool attends = rank->role == STEPAF_ATTENTION;
    size_t n;

    RANK_CHECK(rank->boot,
               stepaf_trace_read(rank->ctx, records, sizeof(records[0]), RECORDS, &n) == STEPAF_OK);
    for (size_t i = 0; i < n; i++) {
        const stepaf_trace_record_t *record = &records[i];
        RANK_CHECK(rank->boot, record->sequence < n_ops && record->tensor == -1);
        RANK_CHECK(rank->boot, record->peer < rank->n_peers);
        for (int p = 0; p < rank->n_peers; p++) {
            if (record->peer >= 0 && record->peer != p)
                continue;
            int64_t *at = &seen[record->sequence][!attends][rank->rank][p].at[record->event];
            RANK_CHECK(rank->boot, !*at);
            *at = record->time_ns;
        }
    }
    return 0;
}

static int64_t at(unsigned n, stepaf_role_t role, int rank, int peer, stepaf_event_t event)
{
    return seen[n][role == STEPAF_FFN][rank][peer].at[event];
}

/* Of one operation, at an attention rank and one FFN rank: what must be before what. */
static int check_order(const struct proxy_rank *rank, unsigned n, int a, int f)
{
#define AT(role_, event_)                                       \
    at(n, STEPAF_##role_, STEPAF_##role_ == STEPAF_FFN ? f : a, \
       STEPAF_##role_ == STEPAF_FFN ? a : f, STEPAF_EVENT_##event_)
    int64_t start = AT(ATTENTION, START), handled = AT(FFN, HANDLED);
    int64_t slack = off_ns[0][a] + off_ns[1][f];

    RANK_CHECK(rank->boot, start && start <= AT(ATTENTION, NOTIFIED));
    RANK_CHECK(rank->boot, AT(ATTENTION, NOTIFIED) <= AT(ATTENTION, WAITED));
    RANK_CHECK(rank->boot, AT(ATTENTION, WAITED) <= AT(ATTENTION, COMPLETED));
    RANK_CHECK(rank->boot, handled && handled <= AT(FFN, RESPONDED));
    RANK_CHECK(rank->boot, AT(FFN, RESPONDED) <= AT(FFN, RELEASED));
    RANK_CHECK(rank->boot, start <= handled + slack);
    RANK_CHECK(rank->boot, AT(FFN, RESPONDED) <= AT(ATTENTION, COMPLETED) + slack);
    RANK_CHECK(rank->boot, AT(FFN, ARRIVED) && AT(FFN, ARRIVED) <= handled);
    RANK_CHECK(rank->boot, start <= AT(FFN, ARRIVED) + slack);
    RANK_CHECK(rank->boot, AT(ATTENTION, WAITED) <= AT(ATTENTION, ANSWERED));
    RANK_CHECK(rank->boot, AT(ATTENTION, ANSWERED) <= AT(ATTENTION, COMPLETED));
    RANK_CHECK(rank->boot, AT(FFN, RESPONDED) <= AT(ATTENTION, ANSWERED) + slack);
#undef AT
    return 0;
}

static int check_counters(const struct proxy_rank *rank, unsigned n)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};
    bool attends = rank->role == STEPAF_ATTENTION;

    RANK_CHECK(rank->boot, stepaf_counters_query(rank->ctx, &counters) == STEPAF_OK);
    RANK_CHECK(rank->boot, counters.operations_started == (attends ? n : 0));
    RANK_CHECK(rank->boot, counters.operations_completed == (attends ? n : 0));
    RANK_CHECK(rank->boot,
               counters.batches_received == (attends ? 0 : n * (unsigned)rank->n_peers));
    RANK_CHECK(rank->boot, counters.responses_sent == (attends ? 0 : n * (unsigned)rank->n_peers));
    return 0;
}

/* What its GPU's clock, as it knows it, is off by. */
static int64_t bound_of(const struct proxy_rank *rank)
{
    struct stepaf_ctx *ctx;
    int64_t bound = 0;

    if (!stepaf_enter_context(rank->ctx, &ctx)) {
        /* And the node's, as it is read; and what the clock may do until it is compared again. */
        bound = stepaf_gpu_clock_bound_ns(ctx) + 100000;
        stepaf_leave(ctx);
    }
    return bound;
}

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;
    unsigned n = job->replays ? job->replays * job->depth : job->ops;

    if (open_rank(&rank, job, boot))
        return 1;
    int64_t off = bound_of(&rank); /* the clock is known better later, but some are read now */
    int64_t began = stepaf_monotonic_ns();
    if (job->replays ? proxy_rank_replay(&rank) : proxy_rank_run(&rank, 0, n))
        return 1;
    int64_t ended = stepaf_monotonic_ns();
    RANK_CHECK(boot, rank.n_wrong == 0 && rank.n_looked == n);
    if (read_trace(&rank, n) || check_counters(&rank, n))
        return 1;
    if (off < bound_of(&rank))
        off = bound_of(&rank);
    RANK_CHECK(boot, off > 0 && off < 1000000000000);
    off_ns[rank.role == STEPAF_FFN][rank.rank] = off;
    for (unsigned k = 0; rank.role == STEPAF_ATTENTION && k < n; k++) {
        RANK_CHECK(boot, at(k, STEPAF_ATTENTION, rank.rank, 0, STEPAF_EVENT_START) > began - off);
        RANK_CHECK(boot,
                   at(k, STEPAF_ATTENTION, rank.rank, 0, STEPAF_EVENT_COMPLETED) < ended + off);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    for (unsigned k = 0; boot->rank == 0 && k < n; k++)
        for (int a = 0; a < job->n_attention; a++)
            for (int f = 0; f < job->n_ffn; f++)
                if (check_order(&rank, k, a, f))
                    return 1;
    return close_rank(&rank);
}

static void run(rank_body_t body, struct proxy_job job)
{
    unsigned n = job.replays ? job.replays * job.depth : job.ops;
    size_t bytes = n * sizeof(*seen) + 2 * sizeof(*off_ns);

    seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(seen, MAP_FAILED);
    off_ns = (void *)(seen + n);
    ranks_expect_processes(job.n_attention + job.n_ffn, body, &job);
    munmap(seen, bytes);
}

/* ---- traces and counters ---- */

static void each_operation_is_in_the_trace(void)
{
    struct proxy_job job = small;

    run(exchange, job);
    job.progress = "thread";
    job.mailbox[0] = job.mailbox[1] = "host";
    run(exchange, job);
    job.engine = "ce";
    job.fixed = true;
    run(exchange, job);
}

static void at_all_ranks(void)
{
    struct proxy_job job = small;

    job.n_attention = 3;
    job.n_ffn = 2;
    job.ops = 50;
    run(exchange, job);
    job.n_attention = 1;
    job.n_ffn = PROXY_PEERS; /* several launches */
    job.n_pull = 3;
    job.pull[0] = 5001;
    job.pull[2] = 700;
    job.ops = 10;
    run(exchange, job);
}

static void of_graphs_that_are_replayed(void)
{
    struct proxy_job job = small;

    job.fixed = true;
    job.replays = 50;
    run(exchange, job);
    job.depth = 3;
    run(exchange, job);
}

/* ---- rings that are too small ---- */

static int overtake(const stepaf_boot_t *boot, void *arg)
{
    static stepaf_trace_record_t records[RECORDS];
    const struct proxy_job *job = arg;
    struct proxy_rank rank;
    uint32_t newest = 0;
    size_t n;

    (void)setenv("STEPAF_STREAM_TIMES_KEPT", "64", 1);
    if (open_rank(&rank, job, boot) || proxy_rank_replay(&rank))
        return 1;
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    /* What is lost is given up now, and not with what comes next. */
    RANK_CHECK(boot,
               stepaf_trace_read(rank.ctx, records, sizeof(records[0]), RECORDS, &n) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 2) == 0);
    RANK_CHECK(boot,
               stepaf_trace_read(rank.ctx, records, sizeof(records[0]), RECORDS, &n) == STEPAF_OK);
    for (size_t i = 0; i < n; i++)
        if (records[i].sequence > newest)
            newest = records[i].sequence;
    RANK_CHECK(boot, newest == job->replays * job->depth + 1);
    RANK_CHECK(boot, n < (size_t)5 * job->replays * job->depth);
    return close_rank(&rank);
}

static void what_is_not_read_in_time_is_left_out(void)
{
    struct proxy_job job = small;

    job.fixed = true;
    job.replays = 300;
    run(overtake, job);
}

/* ---- timelines ---- */

static int ask_timelines(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;
    stepaf_timeline_t timeline = {.size = sizeof(timeline)};

    if (open_rank(&rank, job, boot))
        return 1;
    for (unsigned n = 0; n < job->ops; n++) {
        stepaf_request_h request = NULL;
        if (rank.role == STEPAF_FFN) {
            if (proxy_rank_run(&rank, n, n + 1))
                return 1;
            continue;
        }
        int64_t before = stepaf_monotonic_ns(), off = bound_of(&rank);
        RANK_CHECK(boot,
                   stepaf_start_on_stream(rank.plan, NULL, &rank.stream, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, -1) == STEPAF_OK);
        int64_t after = stepaf_monotonic_ns();
        if (off < bound_of(&rank))
            off = bound_of(&rank);
        RANK_CHECK(boot, stepaf_timeline_query(request, 0, &timeline) == STEPAF_OK);
        RANK_CHECK(boot, timeline.start_ns > before - off && timeline.start_ns < after + off);
        RANK_CHECK(boot, timeline.notified_ns >= 0 && timeline.answered_ns > 0);
        RANK_CHECK(boot, timeline.answered_ns < after - before + 2 * off);
        if (!strcmp(job->proxy, "auto"))
            RANK_CHECK(boot, timeline.ffn_queue_ns == -1 && timeline.ffn_work_ns == -1);
    }
    return close_rank(&rank);
}

static void requests_have_timelines(void)
{
    struct proxy_job job = small;

    job.ops = 20;
    job.fixed = true;
    run(ask_timelines, job);
}

/* ---- verdicts ---- */

static void sleep_late(void *arg, uint64_t us)
{
    (void)arg;
    usleep((useconds_t)us);
}

enum late { AT_START, IN_QUEUE, AT_WORK };

enum {
    BEFORE = 200, /* operations of the commit before */
    MORE = 777,   /* a key */
    FIRST = 58,   /* operation that is late, */
    EVERY = 12,   /* and each so many behind it */
    TIMES = 5,
    RIGHT = 3 /* a busy machine makes others late as well */
};

struct late_job {
    struct proxy_job job;
    enum late late;
};

static int go_late(struct proxy_rank *rank, unsigned n, bool comes_late, enum late late)
{
    bool attends = rank->role == STEPAF_ATTENTION;

    if (comes_late && late == (attends ? AT_START : IN_QUEUE))
        cpu_queue_call(&rank->stream, sleep_late, NULL, LATE_US);
    RANK_CHECK(rank->boot, proxy_rank_begin(rank, n) == STEPAF_OK);
    if (comes_late && !attends && late == AT_WORK)
        cpu_queue_call(&rank->stream, sleep_late, NULL, LATE_US);
    RANK_CHECK(rank->boot, proxy_rank_end(rank, n) == STEPAF_OK);
    RANK_CHECK(rank->boot, cpu_queue_sync(PROXY_SYNC_MS));
    return 0;
}

static bool is_late(unsigned n)
{
    return n >= FIRST && (n - FIRST) % EVERY == 0;
}

/* The verdict on operation @a n of those since then, -1: none. */
static int find_verdict(const struct proxy_rank *rank, unsigned n, int64_t since_ns)
{
    static stepaf_verdict_t verdicts[256];
    size_t found;

    for (int ms = 0; ms < PATIENCE_MS; ms++, usleep(1000)) {
        if (stepaf_verdict_read(rank->ctx, verdicts, sizeof(verdicts[0]), 256, &found))
            return -1;
        for (size_t i = 0; i < found; i++)
            if (verdicts[i].sequence == n && verdicts[i].time_ns >= since_ns)
                return verdicts[i].phase;
    }
    return -1;
}

static int be_late(const stepaf_boot_t *boot, void *arg)
{
    static const int phases[] = {
        [AT_START] = STEPAF_VERDICT_START,
        [IN_QUEUE] = STEPAF_VERDICT_FFN_QUEUE,
        [AT_WORK] = STEPAF_VERDICT_FFN_WORK,
    };
    const struct late_job *job = arg;
    struct proxy_rank rank;

    (void)setenv("STEPAF_VERDICT", "on", 1);
    if (open_rank(&rank, &job->job, boot))
        return 1;
    /* Behind a commit operations are counted anew. */
    for (unsigned n = 0; n < BEFORE; n++)
        if (go_late(&rank, n, false, job->late))
            return 1;
    RANK_CHECK(boot, stepaf_key_declare(rank.ctx, MORE, STEPAF_PUSH, 64, NULL) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    int64_t since_ns = stepaf_clock_ns(rank.ctx);
    for (unsigned n = 0; n < job->job.ops; n++)
        if (go_late(&rank, n, is_late(n), job->late))
            return 1;
    unsigned n_right = 0;
    for (unsigned n = FIRST; rank.role == STEPAF_ATTENTION && n < job->job.ops; n += EVERY)
        n_right += find_verdict(&rank, n, since_ns) == phases[job->late];
    if (rank.role == STEPAF_ATTENTION)
        RANK_CHECK(boot, n_right >= RIGHT);
    return close_rank(&rank);
}

static void who_was_late_is_found(void)
{
    struct late_job job = {.job = small};

    job.job.progress = "thread";
    job.job.fixed = true;
    job.job.ops = FIRST + TIMES * EVERY;
    for (int late = AT_START; late <= AT_WORK; late++) {
        job.late = (enum late)late;
        ranks_expect_processes(2, be_late, &job);
    }
}

/* ---- with others ---- */

/* Peers that the host reaches have its times as well. */
static void by_the_host(void)
{
    struct proxy_job job = small;

    job.progress = "thread";
    job.proxy = "always";
    job.ops = 50;
    run(ask_timelines, job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"each operation is in the trace", each_operation_is_in_the_trace},
        {"at all ranks", at_all_ranks},
        {"of graphs that are replayed", of_graphs_that_are_replayed},
        {"what is not read in time is left out", what_is_not_read_in_time_is_left_out},
        {"requests have timelines", requests_have_timelines},
        {"who was late is found", who_was_late_is_found},
        {"by the host", by_the_host},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
