/* SPDX-License-Identifier: Apache-2.0 */
/* Semantics of timelines, counters, traces and the common clock. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "semantics.h"

enum {
    WORK_US = 3000,
    RECORDS = 256,
    SLACK_NS = 1000000 /* at full speed */,
    STAMP_CLOCK = 8,
    STAMP_START = 40
};

/* How far clocks of two ranks may seem apart: in an emulator ranks wait for each other's turns. */
static int64_t slack_ns(void)
{
    return (int64_t)SLACK_NS * hs_slow();
}

void sem_timeline(struct hs_job *job)
{
    stepaf_timeline_t line = {.size = sizeof(line)};
    stepaf_request_h request;
    stepaf_batch_h batch;

    if (sem_actor(job)) {
        int64_t before = stepaf_clock_ns(job->ctx);
        request = sem_start(P_ONE);
        int64_t after = stepaf_clock_ns(job->ctx);
        HS_OK(stepaf_timeline_query(request, 1, &line));
        HS_INT(line.answered_ns, ==, -1);
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        int64_t took = stepaf_clock_ns(job->ctx) - before;
        for (int f = 0; f < job->ffn; f++) {
            HS_OK(stepaf_timeline_query(request, f, &line));
            HS_INT(line.start_ns, >=, before - slack_ns());
            HS_INT(line.start_ns, <=, after + slack_ns());
            HS_INT(line.notified_ns, >=, 0);
            HS_INT(line.answered_ns, >=, line.notified_ns);
            HS_INT(line.answered_ns, >=, WORK_US * 1000 - slack_ns());
            HS_INT(line.answered_ns, <=, took + slack_ns());
            if (line.ffn_work_ns != -1)
                HS_INT(line.ffn_work_ns, >=, WORK_US * 1000);
            HS_INT(line.ffn_work_ns, <=, took + slack_ns());
            HS_INT(line.ffn_queue_ns, >=, -1);
            HS_INT(line.ffn_queue_ns, <=, took + slack_ns());
        }
        HS_REFUSED(stepaf_timeline_query(request, job->ffn, &line), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_timeline_query(request, -1, &line), STEPAF_ERR_INVALID);
    } else if (sem_ffn(job)) {
        batch = sem_take(job);
        hs_sleep_us(WORK_US);
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    }
}

void sem_counters(struct hs_job *job)
{
    enum { N = 3 };
    stepaf_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    const char *progress = getenv("STEPAF_PROGRESS");

    HS_OK(stepaf_counters_query(job->ctx, &before));
    hs_sync(job);
    for (int i = 0; i < N && sem_actor(job); i++)
        fx_exchange(&sem_plans[P_ONE]);
    if (sem_ffn(job))
        fx_serve(job, N);
    hs_sync(job);
    HS_OK(stepaf_counters_query(job->ctx, &after));
    if (progress == NULL || strcmp(progress, "thread") != 0)
        HS_INT(after.thread_busy_ns, ==, 0);
    if (sem_actor(job)) {
        HS_INT(after.operations_started - before.operations_started, ==, N);
        HS_INT(after.operations_completed - before.operations_completed, ==, N);
        HS_INT(after.operations_failed, ==, before.operations_failed);
        HS_INT(after.bytes_sent - before.bytes_sent, ==, N * BYTES * job->ffn);
        HS_INT(after.bytes_received - before.bytes_received, ==, N * BYTES * job->ffn);
    } else if (sem_ffn(job)) {
        HS_INT(after.batches_received - before.batches_received, ==, N);
        HS_INT(after.responses_sent - before.responses_sent, ==, N);
        HS_INT(after.bytes_sent - before.bytes_sent, ==, N * BYTES);
        HS_INT(after.bytes_received - before.bytes_received, ==, N * BYTES);
    } else {
        HS_INT(after.operations_started, ==, before.operations_started);
    }
    HS_INT(after.peers_lost, ==, 0);
    HS_INT(after.dropped_malformed, ==, 0);
}

/* How many records of a kind there are, all of the last operation. */
static int count(const stepaf_trace_record_t *records, size_t n, stepaf_event_t event)
{
    int found = 0;

    for (size_t i = 0; i < n; i++)
        found += records[i].event == event;
    return found;
}

static void check_attention(struct hs_job *job, const stepaf_trace_record_t *records, size_t n)
{
    HS_INT(count(records, n, STEPAF_EVENT_START), ==, 1);
    HS_INT(count(records, n, STEPAF_EVENT_POSTED), ==, job->ffn);
    HS_INT(count(records, n, STEPAF_EVENT_NOTIFIED), ==, job->ffn);
    HS_INT(count(records, n, STEPAF_EVENT_ANSWERED), ==, job->ffn);
    HS_INT(count(records, n, STEPAF_EVENT_COMPLETED), ==, 1);
    HS_INT(count(records, n, STEPAF_EVENT_ARRIVED), ==, 0);
    for (size_t i = 0; i < n; i++) {
        HS_INT(records[i].sequence, ==, sem_plans[P_ONE].next - 1);
        HS_INT(records[i].peer, <, job->ffn);
        if (records[i].event == STEPAF_EVENT_START)
            atomic_store(&job->shared->stamp[STAMP_START], records[i].time_ns);
    }
}

/* How often this process has given up its processor, or was made to. */
static long count_switches(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw + usage.ru_nvcsw;
}

/* An arrival has the time of the last poll before it, which may be long ago if this rank slept or was
 * preempted in between. */
static void check_ffn(struct hs_job *job, const stepaf_trace_record_t *records, size_t n,
                      bool switched)
{
    HS_INT(count(records, n, STEPAF_EVENT_ARRIVED), ==, 1);
    HS_INT(count(records, n, STEPAF_EVENT_HANDLED), ==, 1);
    HS_INT(count(records, n, STEPAF_EVENT_RESPONDED), ==, 1);
    HS_INT(count(records, n, STEPAF_EVENT_RELEASED), ==, 1);
    HS_INT(count(records, n, STEPAF_EVENT_START), ==, 0);
    for (size_t i = 0; i < n; i++) {
        HS_INT(records[i].peer, ==, 0); /* attention rank 0 */
        if (records[i].event == STEPAF_EVENT_ARRIVED && !switched)
            HS_INT(records[i].time_ns, >=,
                   atomic_load(&job->shared->stamp[STAMP_START]) - slack_ns());
    }
}

void sem_trace(struct hs_job *job)
{
    static stepaf_trace_record_t records[RECORDS];
    stepaf_trace_record_t last[2];
    size_t n = 99, n_last = 0;

    HS_OK(stepaf_trace_clear(job->ctx));
    HS_OK(stepaf_trace_read(job->ctx, records, sizeof(*records), RECORDS, &n));
    HS_INT(n, ==, 0);
    hs_sync(job);
    long switches = count_switches();
    if (sem_actor(job))
        fx_exchange(&sem_plans[P_ONE]);
    else if (sem_ffn(job))
        fx_serve(job, 1);
    bool switched = count_switches() != switches;
    hs_sync(job);
    HS_OK(stepaf_trace_read(job->ctx, records, sizeof(*records), RECORDS, &n));
    if (sem_actor(job))
        check_attention(job, records, n);
    hs_sync(job);
    if (sem_ffn(job))
        check_ffn(job, records, n, switched);
    for (size_t i = 1; i < n; i++)
        HS_INT(records[i].time_ns, >=, records[i - 1].time_ns);
    if (n >= 2) {
        HS_OK(stepaf_trace_read(job->ctx, last, sizeof(*last), 2, &n_last));
        HS_INT(n_last, ==, 2);
        HS_INT(last[0].event, ==, records[n - 2].event);
        HS_INT(last[1].event, ==, records[n - 1].event);
    }
}

void sem_clock(struct hs_job *job)
{
    int64_t mine = stepaf_clock_ns(job->ctx) - hs_now_ns();

    HS_INT(stepaf_clock_ns(job->ctx), >, 0);
    atomic_store(&job->shared->stamp[STAMP_CLOCK + job->rank], mine);
    hs_sync(job);
    for (int rank = 0; rank < job->size; rank++) {
        int64_t other = atomic_load(&job->shared->stamp[STAMP_CLOCK + rank]);
        HS_INT(other - mine, <=, slack_ns());
        HS_INT(mine - other, <=, slack_ns());
    }
}
