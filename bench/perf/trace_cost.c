/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "lib.h"
#include "progress.h"
#include "row.h"
#include "stats.h"

enum { WITH, WITHOUT, BOTH };

/* The difference is below a single block's noise: it is taken between neighbouring blocks, and
 * the median of many such differences counts. */
enum { ROUNDS = 200 };

struct cost {
    struct perf_case c;
    struct perf_lib libs[BOTH];
    double *samples;
    double p50_ns[BOTH][ROUNDS];
    double op_ns[BOTH][ROUNDS];
};

static int open_one(struct perf_job *job, const struct perf_options *options,
                    const struct perf_place *place, struct cost *cost, int which)
{
    const char *before = getenv("STEPAF_TRACE");
    char *kept = before != NULL ? strdup(before) : NULL;
    int rc;

    setenv("STEPAF_TRACE", which == WITH ? "on" : "off", 1);
    rc = perf_lib_open(job, options, &cost->c, place, &cost->libs[which]);
    if (kept != NULL)
        setenv("STEPAF_TRACE", kept, 1);
    else
        unsetenv("STEPAF_TRACE");
    free(kept);
    return rc;
}

static int run_block(struct perf_job *job, struct cost *cost, int which, int round, uint64_t ops)
{
    struct perf_lib *lib = &cost->libs[which];
    struct perf_block block = {.lead_ops = perf_schedule_whole(ops / 10, cost->c.window),
                               .timed_ops = ops,
                               .samples = cost->samples};
    int rc = perf_lib_run(lib, &block);
    struct perf_stats stats;

    if (perf_job_end_block(job, lib->ctx, rc) != 0)
        return -1;
    if (lib->place->role != STEPAF_ATTENTION)
        return 0;
    perf_stats_of(cost->samples, ops, &stats);
    cost->p50_ns[which][round] = stats.p50 * perf_clock_ns_per_tick;
    cost->op_ns[which][round] = (double)block.elapsed * perf_clock_ns_per_tick / (double)ops;
    return 0;
}

/* Return the median over all attention ranks and rounds of @a a, or of @a a - @a b. */
static int median(struct perf_job *job, int attention, const double *a, const double *b,
                  double *median_p)
{
    double differences[ROUNDS];
    struct perf_stats stats;
    size_t *offsets;
    void *all;

    for (int i = 0; i < ROUNDS; i++)
        differences[i] = b != NULL ? a[i] - b[i] : a[i];
    if (perf_job_gather(job, differences, attention ? sizeof(differences) : 0, &all, &offsets) != 0)
        return -1;
    perf_stats_of(all, offsets[job->channel.size] / sizeof(double), &stats);
    *median_p = stats.p50;
    free(all);
    free(offsets);
    return 0;
}

static int report(struct perf_job *job, const struct perf_place *place, struct cost *cost,
                  uint64_t ops)
{
    int attention = place->role == STEPAF_ATTENTION;
    double with, latency, elapsed;

    if (median(job, attention, cost->p50_ns[WITH], NULL, &with) != 0 ||
        median(job, attention, cost->p50_ns[WITH], cost->p50_ns[WITHOUT], &latency) != 0 ||
        median(job, attention, cost->op_ns[WITH], cost->op_ns[WITHOUT], &elapsed) != 0)
        return -1;
    perf_progress_clear();
    if (place->rank == 0)
        printf("%12zu%12zu%14llu%14.3f%16.1f%16.1f%16.1f%16.1f\n", cost->c.push_bytes,
               cost->c.pull_bytes, (unsigned long long)ops * ROUNDS, with / 1e3, latency,
               latency / 2, elapsed, elapsed / 2);
    fflush(stdout);
    return 0;
}

static int run_row(struct perf_job *job, const struct perf_options *options,
                   const struct perf_place *place, int row, struct cost *cost)
{
    uint64_t ops;

    perf_case_make(options, row, place->attn, place->ffn, &cost->c);
    ops = perf_schedule_whole(options->run.iters / ROUNDS, cost->c.window);
    cost->samples = calloc(ops, sizeof(*cost->samples));
    if (perf_job_agree(job, cost->samples != NULL ? 0 : perf_fail("out of memory")) != 0 ||
        open_one(job, options, place, cost, WITH) != 0 ||
        open_one(job, options, place, cost, WITHOUT) != 0)
        return -1;
    for (int round = -2; round < ROUNDS; round++) {
        int first = round & 1;
        int at = round < 0 ? 0 : round; /* the first blocks warm up and are overwritten */

        perf_progress(options, row, (uint64_t)at, ROUNDS);
        if (run_block(job, cost, first, at, ops) != 0 || run_block(job, cost, !first, at, ops) != 0)
            return -1;
    }
    return report(job, place, cost, ops);
}

int perf_trace_cost_run(struct perf_job *job, const struct perf_options *options,
                        const struct perf_place *place)
{
    int rc = 0;

    if (place->rank == 0) {
        printf("# median difference between blocks with and without traces; an operation is "
               "traced on two sides\n");
        printf("%12s%12s%14s%14s%16s%16s%16s%16s\n", "#bytes", "#bytes", "#repetitions", "t_p50",
               "cost in t_p50", "a side", "cost in t/op", "a side");
        printf("%12s%12s%14s%14s%16s%16s%16s%16s\n", "push", "pull", "", "[usec]", "[nsec]",
               "[nsec]", "[nsec]", "[nsec]");
    }
    for (int row = 0; rc == 0 && row < options->n_rows; row++) {
        struct cost cost = {.samples = NULL};

        rc = run_row(job, options, place, row, &cost);
        perf_lib_close(&cost.libs[WITH]);
        perf_lib_close(&cost.libs[WITHOUT]);
        free(cost.samples);
    }
    return rc;
}
