/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: how samples spread over values and rounds. */
#include <math.h>
#include <stdlib.h>

#include "bench/perf/spread.h"
#include "unit.h"

/* Each bin begins where the one before ends, and has what lies in it. */
static void bins_are_next_to_each_other(void)
{
    for (int bin = 0; bin < PERF_SPREAD_BINS; bin++) {
        double from = perf_spread_from(bin);

        CU_ASSERT_EQUAL(perf_spread_bin(from * 1.0001), bin);
        CU_ASSERT_EQUAL(perf_spread_bin(from * 1.04), bin);
        CU_ASSERT_DOUBLE_EQUAL(perf_spread_from(bin + PERF_SPREAD_STEPS), 2 * from, 1e-9 * from);
    }
    CU_ASSERT_EQUAL(perf_spread_from(-PERF_SPREAD_FIRST * PERF_SPREAD_STEPS), 1.0);
}

static void whatever_comes_has_a_bin(void)
{
    CU_ASSERT_EQUAL(perf_spread_bin(0.0), 0);
    CU_ASSERT_EQUAL(perf_spread_bin(-1.0), 0);
    CU_ASSERT_EQUAL(perf_spread_bin(NAN), 0);
    CU_ASSERT_EQUAL(perf_spread_bin(1e-30), 0);
    CU_ASSERT_EQUAL(perf_spread_bin(1e30), PERF_SPREAD_BINS - 1);
    CU_ASSERT_EQUAL(perf_spread_bin(INFINITY), PERF_SPREAD_BINS - 1);
}

/* Two ranks with samples, one without between them, and three rounds of two each. */
static void rounds_are_of_all_ranks(void)
{
    const double samples[] = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};
    const size_t offsets[] = {0, 6 * sizeof(double), 6 * sizeof(double), sizeof(samples)};
    struct perf_spread *spread = perf_spread_make(samples, offsets, 3, 3);
    uint64_t n = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(spread);
    CU_ASSERT_EQUAL(spread->n_rounds, 3);
    for (int bin = 0; bin < PERF_SPREAD_BINS; bin++)
        n += spread->bins[bin];
    CU_ASSERT_EQUAL(n, 12);
    CU_ASSERT_EQUAL(spread->bins[perf_spread_bin(40)], 1);
    CU_ASSERT_EQUAL(spread->p50[0], 2); /* of 1 2 10 20 */
    CU_ASSERT_EQUAL(spread->p50[1], 4); /* of 3 4 30 40 */
    CU_ASSERT_EQUAL(spread->p50[2], 6);
    CU_ASSERT_EQUAL(spread->p99[0], 20);
    CU_ASSERT_EQUAL(spread->p99[2], 60);
    CU_ASSERT_EQUAL(samples[6], 10); /* in their order still */
    perf_spread_free(spread);
    perf_spread_free(NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"bins are next to each other", bins_are_next_to_each_other},
        {"whatever comes has a bin", whatever_comes_has_a_bin},
        {"rounds are of all ranks", rounds_are_of_all_ranks},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
