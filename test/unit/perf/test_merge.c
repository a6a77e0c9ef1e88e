/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: what ranks have measured becomes one result, whatever their clocks count in. */
#include <sys/wait.h>
#include <unistd.h>

#include "bench/perf/clock.h"
#include "bench/perf/row_state.h"
#include "unit.h"

enum { RANKS = 2, OPS = 4 };

/* Of each rank: what a tick takes there, and how many of them an operation. */
static const double ns_per_tick[RANKS] = {1.0, 0.25};
static const double ticks[RANKS] = {3000.0, 4000.0};

static int run_nothing(void *self, struct perf_block *block)
{
    (void)self;
    (void)block;
    return 0;
}

/* Take part as rank @a rank, which attends as all do here. */
static int merge(stepaf_boot_local_t *local, int rank, struct perf_result *r)
{
    struct perf_options options = {.test = PERF_FLOOR, .output.json_file = "asked for"};
    struct perf_place place = {.rank = rank, .size = RANKS, .role = STEPAF_ATTENTION};
    struct perf_job job = {.mpi_init_ns = -1};
    double samples[OPS];
    struct perf_row row = {.job = &job,
                           .options = &options,
                           .place = &place,
                           .contenders[PERF_FLOOR_LOOP] = {NULL, run_nothing},
                           .samples[PERF_FLOOR_LOOP] = samples,
                           .n_samples = OPS,
                           .elapsed_ticks[PERF_FLOOR_LOOP] = OPS * ticks[rank],
                           .schedule = {.rounds = 1, .timed_ops = OPS}};
    int rc;

    if (stepaf_boot_local_attach(local, rank, -1, &job.channel) != STEPAF_OK)
        return -1;
    for (int i = 0; i < OPS; i++)
        samples[i] = ticks[rank];
    perf_clock_ns_per_tick = ns_per_tick[rank];
    rc = perf_row_merge(&row, r);
    if (job.channel.close != NULL)
        job.channel.close(job.channel.self);
    return rc;
}

/* Rank 0's operations take 3 us, rank 1's 1 us, though these are more ticks. */
static void ticks_are_of_each_rank(void)
{
    struct perf_result r = {0};
    const struct perf_stats *stats = &r.stats[PERF_FLOOR_LOOP];
    const struct perf_spread *spread;
    stepaf_boot_local_t *local;
    int status = -1;
    pid_t pid;

    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(RANKS, &local), STEPAF_OK);
    pid = fork();
    CU_ASSERT_NOT_EQUAL_FATAL(pid, -1);
    if (pid == 0) {
        int rc = merge(local, 1, &r);

        perf_result_free(&r);
        _exit(rc != 0);
    }
    CU_ASSERT_EQUAL(merge(local, 0, &r), 0);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT_EQUAL(status, 0);
    CU_ASSERT_EQUAL(stats->n, RANKS * OPS);
    CU_ASSERT_DOUBLE_EQUAL(stats->min, 1.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(stats->max, 3.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(stats->avg, 2.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.us_per_op[PERF_FLOOR_LOOP], 3.0, 1e-9);
    spread = r.spread[PERF_FLOOR_LOOP];
    CU_ASSERT_PTR_NOT_NULL_FATAL(spread);
    CU_ASSERT_EQUAL(spread->bins[perf_spread_bin(1.0)], OPS);
    CU_ASSERT_EQUAL(spread->bins[perf_spread_bin(3.0)], OPS);
    perf_result_free(&r);
    stepaf_boot_local_destroy(local);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"ticks are of each rank", ticks_are_of_each_rank},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
