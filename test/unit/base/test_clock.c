/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that is kept: what stamps were on a clock whose rate changes, and the offset to a clock
 * that only probes tell of. All times are made up, so that ten minutes take no time; the network
 * that delays probes is a generator of random numbers with a fixed seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock_filter.h"
#include "base/clock_history.h"
#include "base/time.h"
#include "unit.h"

static const int64_t SECOND = 1000000000;
static struct stepaf_clock_history history;

static uint64_t seed;

static int64_t random_below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* A clock that is slewed: fast and slow by 40 ppm, by turns, in periods of a minute. */
static int64_t slewed_ns(uint64_t ticks)
{
    double seconds = (double)ticks / 3e9;

    return (int64_t)(seconds * 1e9 + 40e-6 * 60e9 / 6.2832 * (1 - cos(seconds / 60 * 6.2832)));
}

static void add(uint64_t ticks)
{
    stepaf_clock_history_add(
        &history, (struct stepaf_clock_point){ticks, slewed_ns(ticks) + random_below(50), 0});
}

/* For ten minutes stamps are right to a microsecond just after they were taken, and old ones, of
 * which less is kept, nearly so. They do not go back. */
static void stamps_follow_a_slewed_clock(void)
{
    enum { STEPS = 6000 };
    const uint64_t step = 300000000; /* a tenth of a second */
    int64_t worst = 0, worst_old = 0, last = INT64_MIN;

    history.n = 0;
    seed = 1;
    add(0);
    add(6000000);
    for (int i = 1; i < STEPS; i++) {
        uint64_t stamp = (uint64_t)i * step + (uint64_t)random_below((int64_t)step);
        int64_t early = stepaf_clock_history_at(&history, stamp).ns; /* beyond the last reading */
        add((uint64_t)(i + 1) * step);
        int64_t ns = stepaf_clock_history_at(&history, stamp).ns;
        worst = llabs(ns - slewed_ns(stamp)) > worst ? llabs(ns - slewed_ns(stamp)) : worst;
        if (i > 1)
            CU_ASSERT(llabs(early - slewed_ns(stamp)) < 1000);
    }
    CU_ASSERT(worst < 1000);
    CU_ASSERT(history.n <= STEPAF_CLOCK_POINTS);
    for (uint64_t stamp = 0; stamp < STEPS * step; stamp += step / 7) {
        int64_t ns = stepaf_clock_history_at(&history, stamp).ns,
                off = llabs(ns - slewed_ns(stamp));
        CU_ASSERT(ns > last);
        last = ns;
        worst_old = off > worst_old ? off : worst_old;
    }
    CU_ASSERT(worst_old < 30000);
    printf("  stamps: at most %lld ns off, %lld when they are old\n", (long long)worst,
           (long long)worst_old);
}

/* The rate of the first 2 ms, kept for ten minutes, is what it must not be: the test would see
 * that. */
static void one_rate_does_not_do(void)
{
    history.n = 0;
    seed = 1;
    add(0);
    add(6000000);
    uint64_t stamp = 600 * 3000000000ull;
    CU_ASSERT(llabs(stepaf_clock_history_at(&history, stamp).ns - slewed_ns(stamp)) > 1000);
}

static void readings_that_go_back_are_left_out(void)
{
    history.n = 0;
    stepaf_clock_history_add(&history, (struct stepaf_clock_point){100, 1000, 5});
    stepaf_clock_history_add(&history, (struct stepaf_clock_point){200, 2000, 7});
    stepaf_clock_history_add(&history, (struct stepaf_clock_point){200, 2001, 7});
    stepaf_clock_history_add(&history, (struct stepaf_clock_point){300, 2000, 7});
    CU_ASSERT_EQUAL(history.n, 2);
    struct stepaf_clock_point point = stepaf_clock_history_at(&history, 150);
    CU_ASSERT(point.ns == 1500 && point.offset_ns == 6);
    point = stepaf_clock_history_at(&history, 0);
    CU_ASSERT(point.ns == 0 && point.offset_ns == 5);
    point = stepaf_clock_history_at(&history, 300);
    CU_ASSERT(point.ns == 3000 && point.offset_ns == 7);
}

/* A network between two clocks that run apart. */
struct net {
    const char *name;
    double drift_ppm;
    double turn_ppm;      /* after 300 s it drifts by so much more */
    int64_t delay_ns;     /* of each way */
    int64_t jitter_ns;    /* up to so much more, each way by itself */
    int rarely;           /* one in so many takes */
    int64_t rare_ns;      /* up to so much more still */
    int64_t its_bound_ns; /* the other clock is off itself, by half of it */
    int64_t settled_ns;   /* the error is at most that after 20 s */
    int64_t jump_ns;      /* the other clock is set in the middle */
};

static int64_t truth_ns(const struct net *net, int64_t ns)
{
    int64_t jumped = ns > 300 * SECOND ? net->jump_ns : 0;

    double more = ns > 300 * SECOND ? net->turn_ppm * 1e-6 * (double)(ns - 300 * SECOND) : 0;

    return 12345678901 + (int64_t)(net->drift_ppm * 1e-6 * (double)ns + more) + jumped;
}

static int64_t way_ns(const struct net *net)
{
    return net->delay_ns + random_below(net->jitter_ns + 1) +
           (random_below(net->rarely) ? 0 : random_below(net->rare_ns + 1));
}

static struct stepaf_clock_probe probe_at(const struct net *net, int64_t ns)
{
    int64_t there = way_ns(net), back = way_ns(net);

    return (struct stepaf_clock_probe){.at_ns = ns + (there + back) / 2,
                                       .offset_ns = ns + there + truth_ns(net, ns + there) +
                                                    net->its_bound_ns / 2 -
                                                    (ns + (there + back) / 2),
                                       .half_ns = (there + back) / 2 + 1};
}

/* Ten minutes of ten probes a second. */
static void keep_up_with(const struct net *net)
{
    struct stepaf_clock_filter filter = {0};
    struct stepaf_clock_line line = {0};
    int64_t worst = 0, widest = 0, last = INT64_MIN;
    int broken = 0, back = 0;

    seed = 7;
    for (int64_t ns = SECOND; ns < 600 * SECOND; ns += SECOND / 10) {
        struct stepaf_clock_probe probe = probe_at(net, ns);
        stepaf_clock_filter_add(&filter, probe, net->its_bound_ns);
        int64_t taken = ns + 2 * (net->delay_ns + net->jitter_ns + net->rare_ns);
        line = stepaf_clock_line_to(&line, &filter, taken);
        for (int i = 0; i < 5; i++) {
            int64_t now = taken + i * SECOND / 50, low, high;
            if (now - taken > SECOND / 10)
                break;
            int64_t offset = stepaf_clock_line_at(&line, now);
            int64_t error = llabs(offset - truth_ns(net, now) - net->its_bound_ns / 2);
            stepaf_clock_filter_range(&filter, now, &low, &high);
            int64_t bound = high - offset > offset - low ? high - offset : offset - low;
            bool jumps = net->jump_ns && llabs(now - 300 * SECOND) < 2 * SECOND;
            if (now > 20 * SECOND && !jumps) {
                worst = error > worst ? error : worst;
                widest = bound > widest ? bound : widest;
            }
            broken += !jumps && llabs(offset - truth_ns(net, now)) > bound;
            back += !jumps && now + offset < last;
            last = now + offset;
        }
    }
    printf("  %-28s error at most %lld ns, bound at most %lld\n", net->name, (long long)worst,
           (long long)widest);
    CU_ASSERT_EQUAL(broken, 0);
    CU_ASSERT_EQUAL(back, 0);
    CU_ASSERT(worst <= net->settled_ns);
    CU_ASSERT(widest <=
              net->delay_ns + net->jitter_ns + net->rare_ns / 4 + 2 * net->its_bound_ns + 300000);
    CU_ASSERT_EQUAL(filter.n_jumps, net->jump_ns ? 1 : 0);
}

static void offsets_are_found_within_the_bound(void)
{
    static const struct net nets[] = {
        {.name = "1 ms, still", .rarely = 20, .delay_ns = 1000000, .settled_ns = 1000},
        {.name = "1 ms, jitter",
         .rarely = 20,
         .delay_ns = 1000000,
         .jitter_ns = 50000,
         .rare_ns = 5000000,
         .settled_ns = 3000},
        {.name = "1 ms, 30 ppm apart",
         .rarely = 20,
         .delay_ns = 1000000,
         .jitter_ns = 50000,
         .rare_ns = 5000000,
         .drift_ppm = 30,
         .settled_ns = 3000},
        {.name = "1 ms, 100 ppm slower",
         .rarely = 20,
         .delay_ns = 1000000,
         .jitter_ns = 20000,
         .rare_ns = 5000000,
         .drift_ppm = -100,
         .settled_ns = 3000},
        {.name = "1 ms, too few cores",
         .rarely = 1,
         .delay_ns = 1000000,
         .jitter_ns = 30000,
         .rare_ns = 3000000,
         .settled_ns = 60000},
        {.name = "1 ms, busy, 30 ppm apart",
         .rarely = 2,
         .delay_ns = 1000000,
         .jitter_ns = 30000,
         .rare_ns = 10000000,
         .drift_ppm = 30,
         .settled_ns = 4000},
        {.name = "5 us, 50 ppm apart",
         .rarely = 20,
         .delay_ns = 5000,
         .jitter_ns = 2000,
         .rare_ns = 100000,
         .drift_ppm = 50,
         .settled_ns = 3000},
        {.name = "5 us, turns by 10 ppm",
         .rarely = 20,
         .delay_ns = 5000,
         .jitter_ns = 2000,
         .rare_ns = 100000,
         .drift_ppm = 3,
         .turn_ppm = 10,
         .settled_ns = 16000},
        {.name = "1 ms, turns by 40 ppm",
         .rarely = 20,
         .delay_ns = 1000000,
         .jitter_ns = 30000,
         .rare_ns = 100000,
         .turn_ppm = 40,
         .settled_ns = 80000},
        {.name = "5 us, off itself",
         .rarely = 20,
         .delay_ns = 5000,
         .jitter_ns = 2000,
         .rare_ns = 100000,
         .its_bound_ns = 30000,
         .settled_ns = 3000},
        {.name = "5 us, set by 150 ms",
         .rarely = 20,
         .delay_ns = 5000,
         .jitter_ns = 2000,
         .rare_ns = 100000,
         .jump_ns = 150000000,
         .settled_ns = 3000},
    };

    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        keep_up_with(&nets[i]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"stamps follow a slewed clock", stamps_follow_a_slewed_clock},
        {"one rate does not do", one_rate_does_not_do},
        {"readings that go back are left out", readings_that_go_back_are_left_out},
        {"offsets are found within the bound", offsets_are_found_within_the_bound},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
