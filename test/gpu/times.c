/* SPDX-License-Identifier: Apache-2.0 */
/* With STEPAF_STREAM_TIMES=on: what timestamps say of operations, one by one and replayed as graphs, is there
 * for each, in an order that can be, and as long as CUDA's own events say.
 *
 * --replays N: of the graph. --any 1: FFN ranks, of one attention rank each, take any. */
#include "gpu/exchange.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 2, RECORDS = 1 << 20, EAGER = 50, SLACK_NS = 50000 };

static const struct gx_shape shape = {
    .depth = DEPTH, .n_push = 2, .push = {917504, 64}, .n_pull = 1, .pull = {70001}};

static struct gx_plan plan;
static stepaf_trace_record_t *records;

/* When each operation was where; of several peers the last. */
struct seen {
    int64_t at[STEPAF_EVENT_LAST];
};
static struct seen *seen;

static bool enqueue(struct hs_job *job)
{
    bool attention = job->role == STEPAF_ATTENTION;

    for (int k = 0; k < DEPTH; k++)
        if (!HS_OK(attention ? gx_start(&plan, NULL, NULL) : gx_recv(&plan, NULL)))
            return false;
    for (int k = 0; k < DEPTH; k++)
        if (!HS_OK(attention ? gx_wait(&plan, NULL) : gx_respond(&plan, NULL)))
            return false;
    return true;
}

static bool capture(struct hs_job *job, cudaGraphExec_t *graph_p)
{
    cudaGraph_t graph = NULL;
    bool good;

    if (!GX_CUDA(cudaStreamBeginCapture(plan.stream, cudaStreamCaptureModeGlobal)))
        return false;
    good = enqueue(job);
    good &= GX_CUDA(cudaStreamEndCapture(plan.stream, &graph));
    good = good && GX_CUDA(cudaGraphInstantiate(graph_p, graph, 0));
    if (graph != NULL)
        GX_CUDA(cudaGraphDestroy(graph));
    return good;
}

/* Whether the events of an operation are in their order. */
static bool check_one(const struct hs_job *job, const struct seen *one, long long n)
{
    static const int attention[] = {STEPAF_EVENT_START, STEPAF_EVENT_NOTIFIED, STEPAF_EVENT_WAITED,
                                    STEPAF_EVENT_ANSWERED, STEPAF_EVENT_COMPLETED};
    static const int ffn[] = {STEPAF_EVENT_ARRIVED, STEPAF_EVENT_HANDLED, STEPAF_EVENT_RESPONDED,
                              STEPAF_EVENT_RELEASED};
    const int *order = job->role == STEPAF_ATTENTION ? attention : ffn;
    int n_order = job->role == STEPAF_ATTENTION ? 5 : 4;

    for (int i = 0; i < n_order; i++)
        if (!one->at[order[i]] || (i && one->at[order[i]] < one->at[order[i - 1]]))
            return HS_FAILED("operation %lld: \"%s\" at %lld ns, before it %lld", n,
                             stepaf_event_name(order[i]), (long long)one->at[order[i]],
                             (long long)(i ? one->at[order[i - 1]] : 0));
    return true;
}

/* Read the trace so far: it holds all of @a n operations. */
static bool read_seen(struct hs_job *job, long long n)
{
    size_t n_records;

    if (!HS_OK(stepaf_trace_read(job->ctx, records, sizeof(*records), RECORDS, &n_records)))
        return false;
    for (size_t i = 0; i < n_records; i++) {
        const stepaf_trace_record_t *record = &records[i];
        if (record->sequence >= n)
            return HS_FAILED("a record of operation %u of %lld", record->sequence, n);
        int64_t *at = &seen[record->sequence].at[record->event];
        if (record->time_ns > *at)
            *at = record->time_ns;
    }
    for (long long k = 0; k < n; k++)
        if (!check_one(job, &seen[k], k))
            return false;
    return true;
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

/* What takes how long, at an attention rank. */
static void print(const struct hs_job *job, const char *what, long long from, long long to)
{
    int64_t *spans = calloc((size_t)(to - from), sizeof(*spans));

    for (long long k = from; spans && k < to; k++)
        spans[k - from] = seen[k].at[STEPAF_EVENT_COMPLETED] - seen[k].at[STEPAF_EVENT_START];
    if (spans && job->rank == 0) {
        qsort(spans, (size_t)(to - from), sizeof(*spans), compare);
        long long p50 = (to - from) / 2, p99 = (to - from) * 99 / 100;
        printf("times: %s, %lld operations, start to completion: p50 %.1f us, p99 %.1f us\n", what,
               to - from, (double)spans[p50] / 1e3, (double)spans[p99] / 1e3);
    }
    free(spans);
}

/* The GPU's clock, as this rank has it, runs as CUDA's events do. */
static bool compare_with_events(const struct hs_job *job, float ms, long long from, long long to)
{
    bool attention = job->role == STEPAF_ATTENTION;
    int64_t first = seen[from].at[attention ? STEPAF_EVENT_START : STEPAF_EVENT_ARRIVED];
    int64_t last = seen[to - 1].at[attention ? STEPAF_EVENT_COMPLETED : STEPAF_EVENT_RELEASED];
    int64_t off = (int64_t)((double)ms * 1e6) - (last - first);

    if (job->rank == 0)
        printf("times: from the first to the last %.1f us by timestamps, %.1f by events\n",
               (double)(last - first) / 1e3, (double)ms * 1e3);
    /* What an FFN rank's first event waits for is another rank's; and ranks that share a GPU take turns of
     * milliseconds, also between an event and what follows. */
    return !attention || gx_shared(job) || llabs(off) < SLACK_NS + (last - first) / 1000 ||
           HS_FAILED("timestamps and events differ by %lld ns", (long long)off);
}

static bool replay(struct hs_job *job, long long replays, float *ms_p)
{
    cudaGraphExec_t graph = NULL;
    cudaEvent_t begin, end;
    bool good = GX_CUDA(cudaEventCreate(&begin)) && GX_CUDA(cudaEventCreate(&end)) &&
                capture(job, &graph) && hs_sync(job) &&
                GX_CUDA(cudaEventRecord(begin, plan.stream));

    for (long long r = 0; good && r < replays; r++)
        good = GX_CUDA(cudaGraphLaunch(graph, plan.stream));
    good = good && GX_CUDA(cudaEventRecord(end, plan.stream)) && gx_sync(&plan) &&
           GX_CUDA(cudaEventElapsedTime(ms_p, begin, end));
    if (graph)
        GX_CUDA(cudaGraphExecDestroy(graph));
    return good;
}

static void body(struct hs_job *job)
{
    long long replays = hs_option_int(job, "--replays", 100);
    stepaf_counters_t counters = {.size = sizeof(counters)};
    float ms = 0;

    setenv("STEPAF_STREAM_TIMES", "on", 1);
    setenv("STEPAF_STREAM_TIMES_KEPT", "65536", 1);
    setenv("STEPAF_TRACE_RECORDS", "1048576", 1);
    if (!gx_open(job))
        return;
    long long eager = EAGER * DEPTH, n = eager + replays * DEPTH;
    records = malloc(RECORDS * sizeof(*records));
    seen = calloc((size_t)n, sizeof(*seen));
    if (!HS_TRUE(records && seen) || !gx_plan_make(job, job->ctx, 0, &shape, &plan))
        return;
    plan.fixed = true;
    if (!HS_OK(stepaf_commit(job->ctx)) || !gx_plan_ready(&plan) || !hs_sync(job))
        return;
    for (int k = 0; k < EAGER; k++)
        if (!enqueue(job))
            return;
    if (!gx_sync(&plan) || !hs_sync(job) || !replay(job, replays, &ms) || !read_seen(job, n) ||
        !compare_with_events(job, ms, eager, n))
        return;
    if (job->role == STEPAF_ATTENTION) {
        print(job, "one by one", 0, eager);
        print(job, "graph", eager, n);
    }
    HS_OK(stepaf_counters_query(job->ctx, &counters));
    HS_TRUE(counters.operations_completed ==
            (job->role == STEPAF_ATTENTION ? (unsigned long long)n : 0));
    gx_verify(&plan, (unsigned long long)n);
    hs_sync(job);
    gx_plan_end(&plan);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "times", .options = "--replays --any", .limit_s = 120, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
