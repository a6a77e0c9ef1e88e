/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps against CLOCK_MONOTONIC. Nothing here depends on how fast the machine is: a stamp is
 * compared with readings of the clock on both sides of it. */
#include <math.h>
#include <pthread.h>
#include <time.h>

#include "base/time.h"
#include "unit.h"

/* The rate is good to 20 ppm or so: far below this for the seconds that the test may take. */
enum { TOLERANCE_NS = 100000 };

static int stamp_is_right(const struct stepaf_clock *clock)
{
    int64_t before = stepaf_monotonic_ns();
    uint64_t ticks = stepaf_ticks();
    int64_t after = stepaf_monotonic_ns();
    int64_t ns = stepaf_clock_to_ns(clock, ticks);
    return ns >= before - TOLERANCE_NS && ns <= after + TOLERANCE_NS;
}

static void stamps_are_clock_times(void)
{
    struct stepaf_clock clock;
    stepaf_clock_calibrate(&clock);
    CU_ASSERT(clock.ns_per_tick > 0.01 && clock.ns_per_tick <= 1000.0);
    CU_ASSERT(fabs(clock.ns_per_tick * clock.ticks_per_us - 1000.0) < 1e-6);
    for (int i = 0; i < 20; i++) {
        CU_ASSERT(stamp_is_right(&clock));
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

static void later_calibrations_agree(void)
{
    struct stepaf_clock first;
    struct stepaf_clock second;
    stepaf_clock_calibrate(&first);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    stepaf_clock_calibrate(&second);
    CU_ASSERT(second.base_ticks > first.base_ticks);
    CU_ASSERT(second.base_ns - first.base_ns >= 20000000);
    CU_ASSERT(fabs(second.ns_per_tick / first.ns_per_tick - 1.0) < 1e-3);
    CU_ASSERT(stamp_is_right(&first));
    CU_ASSERT(stamp_is_right(&second));
}

/* Who waits for as long as there is time waits for long. */
static void deadlines_do_not_wrap(void)
{
    int64_t now_ns = stepaf_monotonic_ns();

    CU_ASSERT_EQUAL(stepaf_deadline_ns(INT64_MAX), INT64_MAX);
    CU_ASSERT_EQUAL(stepaf_deadline_ns(INT64_MAX / 1000), INT64_MAX);
    CU_ASSERT_EQUAL(stepaf_deadline_ns(INT64_MAX / 1000 + 1), INT64_MAX);
    CU_ASSERT(stepaf_deadline_ns(INT64_MAX / 2000) >= now_ns + INT64_MAX / 2000 * 1000);
    CU_ASSERT(stepaf_deadline_ns(5) >= now_ns + 5000);
    CU_ASSERT(stepaf_deadline_ns(-5) >= now_ns);
    CU_ASSERT(stepaf_deadline_ns(INT64_MIN) <= stepaf_monotonic_ns());
}

static void times_before_the_base(void)
{
    struct stepaf_clock clock = {
        .base_ticks = 1000, .base_ns = 5000, .ns_per_tick = 2.0, .ticks_per_us = 500.0};
    CU_ASSERT_EQUAL(stepaf_clock_to_ns(&clock, 1000), 5000);
    CU_ASSERT_EQUAL(stepaf_clock_to_ns(&clock, 1500), 6000);
    CU_ASSERT_EQUAL(stepaf_clock_to_ns(&clock, 0), 3000);
}

static void ticks_do_not_go_back(void)
{
    uint64_t last = stepaf_ticks();
    int backward = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t now = stepaf_ticks();
        backward += now < last;
        last = now;
        stepaf_cpu_relax();
    }
    CU_ASSERT_EQUAL(backward, 0);
}

/* Without a counter ticks are the clock itself; no need to have such a machine. */
static void without_a_counter(void)
{
    int from_counter = stepaf_ticks_from_counter;
    stepaf_ticks_from_counter = 0;
    int64_t before = stepaf_monotonic_ns();
    uint64_t ticks = stepaf_ticks();
    int64_t after = stepaf_monotonic_ns();
    CU_ASSERT((int64_t)ticks >= before && (int64_t)ticks <= after);
    stepaf_ticks_from_counter = from_counter;
}

static void *calibrate(void *arg)
{
    stepaf_clock_calibrate(arg);
    return NULL;
}

static void threads_may_calibrate(void)
{
    enum { THREADS = 4 };
    struct stepaf_clock clocks[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, calibrate, &clocks[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT(stamp_is_right(&clocks[i]));
}

int main(void)
{
    CU_TestInfo tests[] = {
        /* First, so that the process's first calibration is one of several at once. */
        {"threads may calibrate", threads_may_calibrate},
        {"stamps are clock times", stamps_are_clock_times},
        {"later calibrations agree", later_calibrations_agree},
        {"deadlines do not wrap", deadlines_do_not_wrap},
        {"times before the base", times_before_the_base},
        {"ticks do not go back", ticks_do_not_go_back},
        {"without a counter", without_a_counter},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
