/* SPDX-License-Identifier: Apache-2.0 */
/* What an attention rank shows of itself; test_respond has the times of FFN ranks. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/time.h"
#include "core/deliver.h"
#include "core/metrics.h"
#include "core/op.h"
#include "core/plan.h"
#include "starts.h"

static void every_bucket_begins_where_the_last_one_ends(void)
{
    uint32_t last = 0;

    CU_ASSERT_EQUAL(stepaf_histogram_bucket(0), 0);
    CU_ASSERT_EQUAL(stepaf_histogram_bucket(255), 0);
    for (uint64_t octave = 256; octave < 1ull << STEPAF_HISTOGRAM_HIGH_BITS; octave *= 2)
        for (uint64_t step = 4; step < 8; step++) {
            uint64_t begin = octave * step / 4;
            CU_ASSERT_EQUAL(stepaf_histogram_bucket(begin - 1), last);
            CU_ASSERT_EQUAL(stepaf_histogram_bucket(begin), ++last);
        }
    CU_ASSERT_EQUAL(last + 1, STEPAF_HISTOGRAM_BUCKETS - 1);
    CU_ASSERT_EQUAL(stepaf_histogram_bucket(1ull << STEPAF_HISTOGRAM_HIGH_BITS), last + 1);
    CU_ASSERT_EQUAL(stepaf_histogram_bucket(UINT64_MAX), last + 1);
}

static stepaf_plan_h make_pulling(void)
{
    stepaf_tensor_t push = {PUSHED, memory, BYTES}, pull[PEERS];
    stepaf_plan_h made = NULL;

    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, memory + 2048 + (size_t)p * 1024, BYTES};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, pull, PEERS, 0, &made), 0);
    return made;
}

/* What a tool reads, by the descriptor. */
static size_t read_file(void *data, size_t bytes, uint32_t at)
{
    ssize_t n = pread(job->ctx->polling.metrics->fd, data, bytes, at);

    return n < 0 ? 0 : (size_t)n;
}

static struct stepaf_metrics_head read_head(void)
{
    struct stepaf_metrics_head head = {0};

    CU_ASSERT_EQUAL(read_file(&head, sizeof head, 0), sizeof head);
    return head;
}

static uint64_t count_of(uint32_t peer, uint32_t time)
{
    const struct stepaf_histogram *times =
        &job->ctx->polling.metrics->histograms[peer * STEPAF_TIMES];
    uint64_t n = 0;

    for (int i = 0; i < STEPAF_HISTOGRAM_BUCKETS; i++)
        n += times[time].buckets[i];
    return n;
}

/* An operation that all answer. @a timed: they tell their times. */
static void exchange(stepaf_plan_h made, uint32_t seq, bool timed)
{
    stepaf_request_h request = start(made);

    for (uint32_t p = 0; p < PEERS; p++) {
        struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RESPONSE, 0, seq % DEPTH, seq);
        job->ctx->up.polled = stepaf_ticks(); /* as transports have it */
        msg.flags = STEPAF_MSG_RELEASED;
        msg.word[STEPAF_MSG_QUEUE] = msg.word[STEPAF_MSG_WORK] = timed ? 0 : UINT32_MAX;
        if (timed)
            EXPECT_TAKEN(job, p, &msg);
        else
            job->ctx->up.deliver_imm(&job->ctx->up, job->ctx->peers[p].link,
                                     stepaf_imm_make(STEPAF_IMM_RELEASED, 0, seq, job->ctx->epoch));
    }
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
}

static void a_rank_shows_what_it_is(void)
{
    uint64_t counters[sizeof(stepaf_counters_t) / 8 - 1];
    struct stepaf_metrics_peer peer;
    struct stat info;

    begin();
    commit();
    const struct stepaf_metrics *metrics = job->ctx->polling.metrics;
    CU_ASSERT_PTR_NOT_NULL_FATAL(metrics);
    stepaf_metrics_write(job->ctx);
    struct stepaf_metrics_head head = read_head();
    CU_ASSERT_EQUAL(memcmp(head.magic, STEPAF_METRICS_MAGIC, 8), 0);
    CU_ASSERT_EQUAL(head.version, STEPAF_METRICS_VERSION);
    CU_ASSERT(head.who.pid == (uint32_t)getpid() && head.who.world_rank == 0 &&
              head.who.world_size == 1 + PEERS && head.who.role == STEPAF_ATTENTION);
    CU_ASSERT(head.live.epoch == 1 && head.live.commits == 1 && head.live.life == 1 &&
              head.live.n_alive == PEERS && head.live.sequence % 2 == 0);
    CU_ASSERT(head.counters.n == sizeof(counters) / 8 && head.peers.n == PEERS &&
              head.histograms.n == PEERS * STEPAF_TIMES);
    CU_ASSERT_EQUAL(fstat(metrics->fd, &info), 0);
    CU_ASSERT(head.all_bytes == (uint64_t)info.st_size);
    CU_ASSERT(head.histograms.at + head.histograms.n * sizeof(struct stepaf_histogram) <=
              head.late.at);
    CU_ASSERT(head.late.n == 0 && head.late.at == head.all_bytes);
    /* Nobody can make it shorter under this rank's feet. */
    CU_ASSERT_NOT_EQUAL(ftruncate(metrics->fd, 0), 0);

    (void)start(make_plan(0));
    job->ctx->peers[1].link->connects_again = 3;
    job->ctx->peers[1].link->messages_again = 4;
    stepaf_core_lost(&job->ctx->up, job->ctx->peers[1].link, "it has gone\n");
    stepaf_metrics_write(job->ctx);
    CU_ASSERT_EQUAL(read_file(counters, sizeof counters, head.counters.at), sizeof counters);
    CU_ASSERT_EQUAL(counters[offsetof(stepaf_counters_t, operations_started) / 8 - 1], 1);
    CU_ASSERT_EQUAL(counters[offsetof(stepaf_counters_t, bytes_sent) / 8 - 1],
                    PEERS * (BYTES + 50));
    CU_ASSERT_EQUAL(counters[offsetof(stepaf_counters_t, peers_lost) / 8 - 1], 1);
    CU_ASSERT_EQUAL(read_file(&peer, sizeof peer, head.peers.at + head.peers.bytes), sizeof peer);
    CU_ASSERT(peer.world_rank == 2 && peer.rank == 1 && peer.flags == STEPAF_METRICS_LOST);
    CU_ASSERT_EQUAL(strcmp(peer.reason, "it has gone\n"), 0);
    CU_ASSERT(peer.connects_again == 3 && peer.messages_again == 4 && peer.n_rails == 2);
    CU_ASSERT(peer.rails[0].bytes_sent == BYTES + 50 && peer.rails[1].bytes_sent == 7);
    CU_ASSERT(peer.rails[0].flags == STEPAF_METRICS_RAIL_UP && peer.rails[1].flags == 0);
    UNIT_STRING(peer.rails[0].name, "fake0:1");
    UNIT_STRING(peer.rails[1].name, "a name that is longer than "); /* what has room */
    /* When it was written itself: a rank of many peers writes some at a time. */
    uint32_t now_us = (uint32_t)(stepaf_monotonic_ns() / 1000);
    CU_ASSERT(now_us - peer.written_us < 60 * 1000000);
    CU_ASSERT_EQUAL(read_head().live.n_alive, PEERS - 1);
    end();
}

static void times_are_measured_while_somebody_asks(void)
{
    uint32_t seq = 0;

    begin();
    stepaf_plan_h made = make_pulling();
    commit();
    struct stepaf_metrics *metrics = job->ctx->polling.metrics;
    const struct stepaf_metrics_path plain = metrics->plain;
    exchange(made, seq++, true);
    CU_ASSERT_EQUAL(count_of(0, STEPAF_TIME_ROUND), 0);
    CU_ASSERT_PTR_NULL(job->ctx->peers[0].times);

    int64_t until_ns = stepaf_monotonic_ns() + 3600000000000;
    CU_ASSERT_EQUAL(pwrite(metrics->fd, &until_ns, sizeof until_ns,
                           offsetof(struct stepaf_metrics_head, wish.until_ns)),
                    sizeof until_ns);
    metrics->due = stepaf_ticks();
    stepaf_metrics_keep(job->ctx, metrics->due);
    CU_ASSERT_EQUAL(read_head().live.measures, 1);
    exchange(made, seq++, true);
    exchange(made, seq++, false);
    for (uint32_t p = 0; p < PEERS; p++) {
        CU_ASSERT_EQUAL(count_of(p, STEPAF_TIME_ROUND), 2);
        CU_ASSERT_EQUAL(count_of(p, STEPAF_TIME_WAYS), 1);
    }
    /* What is dropped, or comes twice, is no answer. */
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RESPONSE, 0, 0, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = fake_msg(job, STEPAF_MSG_RESPONSE, 7, 200, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    CU_ASSERT_EQUAL(count_of(0, STEPAF_TIME_ROUND), 2);

    atomic_store(&metrics->head->wish.until_ns, 0);
    metrics->due = stepaf_ticks();
    stepaf_metrics_keep(job->ctx, metrics->due);
    CU_ASSERT_PTR_NULL(job->ctx->peers[0].times);
    CU_ASSERT_PTR_EQUAL(job->ctx->up.deliver_imm, plain.deliver_imm);
    exchange(made, seq++, true);
    CU_ASSERT_EQUAL(count_of(0, STEPAF_TIME_ROUND), 2);
    end();
}

static void a_time_is_as_long_as_it_was(void)
{
    begin();
    stepaf_plan_h made = make_pulling();
    commit();
    struct stepaf_metrics *metrics = job->ctx->polling.metrics;
    atomic_store(&metrics->head->wish.until_ns, INT64_MAX);
    metrics->due = stepaf_ticks();
    stepaf_metrics_keep(job->ctx, metrics->due);
    (void)start(made);
    struct stepaf_plan_obj *plan = stepaf_table_get(&job->ctx->tables.plans, 0);
    plan->ops[0].trace.started -= (uint64_t)(3e6 * job->ctx->clock.own.ticks_per_us);
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RESPONSE, 0, 0, 0);
    msg.word[STEPAF_MSG_QUEUE] = 1000000000;
    msg.word[STEPAF_MSG_WORK] = 500000000;
    job->ctx->up.polled = stepaf_ticks();
    EXPECT_TAKEN(job, 0, &msg);
    const struct stepaf_histogram *times = job->ctx->peers[0].times;
    uint64_t round = times[STEPAF_TIME_ROUND].sum_ns, ways = times[STEPAF_TIME_WAYS].sum_ns;
    CU_ASSERT(round >= 2990000000 && round < 60000000000);
    CU_ASSERT_EQUAL(ways, round - 1500000000);
    CU_ASSERT_EQUAL(times[STEPAF_TIME_WAYS].buckets[stepaf_histogram_bucket(ways)], 1);
    end();
}

static void nothing_is_shown_if_it_is_off(void)
{
    setenv("STEPAF_METRICS", "off", 1);
    begin();
    stepaf_plan_h made = make_pulling();
    commit();
    CU_ASSERT_PTR_NULL(job->ctx->polling.metrics);
    stepaf_metrics_keep(job->ctx, stepaf_ticks());
    exchange(made, 0, true);
    end();
    setenv("STEPAF_METRICS", "on", 1);
    begin();
    CU_ASSERT_TRUE(job->ctx->polling.metrics->measures);
    end();
    unsetenv("STEPAF_METRICS");
}

static int n_come;

static void count_line(stepaf_log_level_t level, const char *file, int line, const char *text,
                       void *arg)
{
    (void)file, (void)line, (void)arg;
    n_come += level == STEPAF_LOG_TRACE && strncmp(text, "from FFN rank", 13) == 0 &&
              strstr(text, ": RESPONSE, plan 0, sequence ") != NULL;
}

static void each_message_in_the_log_is_measured_as_well(void)
{
    setenv("STEPAF_LOG_LEVEL", "trace", 1);
    setenv("STEPAF_METRICS", "on", 1);
    stepaf_log_set_callback(count_line, NULL);
    begin();
    stepaf_plan_h made = make_pulling();
    commit();
    exchange(made, 0, true);
    exchange(made, 1, false);
    CU_ASSERT_EQUAL(n_come, 2 * PEERS);
    for (uint32_t p = 0; p < PEERS; p++) {
        CU_ASSERT_EQUAL(count_of(p, STEPAF_TIME_ROUND), 2);
        CU_ASSERT_EQUAL(count_of(p, STEPAF_TIME_WAYS), 1);
    }
    end();
    stepaf_log_set_callback(NULL, NULL);
    unsetenv("STEPAF_METRICS");
    unsetenv("STEPAF_LOG_LEVEL");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"every bucket begins where the last one ends",
         every_bucket_begins_where_the_last_one_ends},
        {"a rank shows what it is", a_rank_shows_what_it_is},
        {"times are measured while somebody asks", times_are_measured_while_somebody_asks},
        {"a time is as long as it was", a_time_is_as_long_as_it_was},
        {"nothing is shown if it is off", nothing_is_shown_if_it_is_off},
        {"each message in the log is measured as well",
         each_message_in_the_log_is_measured_as_well},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
