/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: how many operations a row has, and in how many blocks. */
#include "bench/perf/row.h"
#include "unit.h"

static struct perf_schedule make(uint64_t iters, uint64_t rounds, unsigned window, double op_us)
{
    struct perf_options options = {.run.iters = iters, .run.rounds = rounds, .run.max_time_s = 1};
    struct perf_schedule schedule;

    perf_schedule_make(&options, window, op_us, &schedule);
    return schedule;
}

static void whole_windows(void)
{
    CU_ASSERT_EQUAL(perf_schedule_whole(0, 3), 3);
    CU_ASSERT_EQUAL(perf_schedule_whole(3, 3), 3);
    CU_ASSERT_EQUAL(perf_schedule_whole(4, 3), 6);
}

static void as_asked(void)
{
    struct perf_options unbounded = {.run.iters = 10000, .run.rounds = 20};
    struct perf_schedule s = make(10000, 20, 1, 0.5);

    CU_ASSERT_EQUAL(s.rounds, 20);
    CU_ASSERT_EQUAL(s.timed_ops, 500);
    CU_ASSERT_EQUAL(s.lead_ops, 50);
    s = make(60, 2, 6, 0.5);
    CU_ASSERT_EQUAL(s.rounds, 2);
    CU_ASSERT_EQUAL(s.timed_ops, 30);
    s = make(3, 10000, 1, 0.5);
    CU_ASSERT_EQUAL(s.rounds, 3);
    CU_ASSERT_EQUAL(s.timed_ops, 1);
    /* Time for 250 of them. */
    s = make(10000, 20, 1, 4000.0);
    CU_ASSERT_EQUAL(s.rounds * s.timed_ops, 247);
    s = make(10000, 20, 3, 1000.0); /* for 1,000 */
    CU_ASSERT_EQUAL(s.rounds, 19);
    CU_ASSERT_EQUAL(s.timed_ops, 51);
    CU_ASSERT_EQUAL(s.lead_ops % 3, 0);
    perf_schedule_make(&unbounded, 1, 1e9, &s);
    CU_ASSERT_EQUAL(s.rounds * s.timed_ops, 10000);
    /* No time for one, and less than a window: there is one all the same. */
    s = make(10000, 20, 1, 1e9);
    CU_ASSERT_EQUAL(s.rounds * s.timed_ops, 1);
    s = make(5, 20, 16, 0.5);
    CU_ASSERT_EQUAL(s.rounds, 1);
    CU_ASSERT_EQUAL(s.timed_ops, 16);
}

/* What is asked for is the most, and is reached but for what makes no whole block. */
static void at_most(void)
{
    int wrong = 0;

    for (uint64_t iters = 1; iters <= 300; iters++) {
        for (uint64_t rounds = 1; rounds <= 40; rounds++) {
            for (unsigned window = 1; window <= 20; window++) {
                struct perf_schedule s = make(iters, rounds, window, 0.5);
                uint64_t ops = s.rounds * s.timed_ops;

                wrong += s.rounds < 1 || s.rounds > rounds || s.timed_ops % window != 0;
                wrong += s.lead_ops % window != 0 || s.lead_ops == 0;
                wrong += ops > (iters > window ? iters : window);
                wrong += ops + s.timed_ops + window <= iters;
            }
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* A fifth of the time, if there is a bound. */
static void warm_up(void)
{
    struct perf_options options = {.run.warmup = 1000, .run.max_time_s = 1};

    CU_ASSERT_EQUAL(perf_schedule_warmup(&options, 0.5), 1000);
    CU_ASSERT_EQUAL(perf_schedule_warmup(&options, 1000.0), 200);
    CU_ASSERT_EQUAL(perf_schedule_warmup(&options, 1e9), 0);
    options.run.max_time_s = 0;
    CU_ASSERT_EQUAL(perf_schedule_warmup(&options, 1e9), 1000);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"whole windows", whole_windows},
        {"as asked", as_asked},
        {"at most", at_most},
        {"warm up", warm_up},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
