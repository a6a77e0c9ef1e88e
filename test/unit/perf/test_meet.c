/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf --connect: where the two ranks meet, of each way to write an address. */
#include <stdlib.h>

#include "bench/perf/meet.h"
#include "unit.h"

static void addresses_get_ports(void)
{
    static const char *const cases[][2] = {{"host", "host:18516"},
                                           {"host:1", "host:1"},
                                           {"10.0.0.1", "10.0.0.1:18516"},
                                           {"::1", "[::1]:18516"},
                                           {"[::1]", "[::1]:18516"},
                                           {"[::1]:1", "[::1]:1"},
                                           {"[fe80::1%eth0]", "[fe80::1%eth0]:18516"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct perf_options options = {.job.connect = cases[i][0]};

        CU_ASSERT_EQUAL(perf_meet_ask(&options), 1);
        UNIT_STRING(getenv("STEPAF_MEET"), cases[i][1]);
        UNIT_STRING(getenv("STEPAF_RANK"), "1");
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"addresses get ports", addresses_get_ports},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
