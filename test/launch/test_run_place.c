/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks belong on machines that are there as XML. gpus.xml: two packages of four cores with
 * two threads each, 0-7 and 8-15. On the first, GPUs 1 and 2 of the bus and a card with RDMA; on
 * the second, GPU 0 and a card without. */
#include <stdio.h>
#include <stdlib.h>

#include "fail.h"
#include "place.h"
#include "unit.h"

static const char gpus[] = "test/launch/gpus.xml";
static const char packages[] = "test/unit/topo/two_packages.xml";
static const char part[] = "test/unit/topo/part_allowed.xml";
static const char vm[] = "test/unit/topo/two_cores_vm.xml";

struct row {
    const char *xml;
    struct run_place_query query;
    const char *cores;
    const char *progress;
    const char *device;
    const char *warning; /* "": none */
};

static int find(const char *xml, struct run_place_query query, struct run_place *place_p)
{
    const char *top = getenv("top_srcdir");
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", top ? top : ".", xml);
    query.xml = path;
    return run_place_find(&query, place_p);
}

static void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct run_place place;
        CU_ASSERT_EQUAL_FATAL(find(rows[i].xml, rows[i].query, &place), 0);
        UNIT_STRING(place.cores, rows[i].cores);
        UNIT_STRING(place.progress, rows[i].progress);
        UNIT_STRING(place.device, rows[i].device);
        CU_ASSERT_EQUAL(place.n_warnings, *rows[i].warning != '\0');
        UNIT_CONTAINS(place.n_warnings ? place.warning[0] : "", rows[i].warning);
    }
}

#define CHECK_ROWS(rows_) check_rows(rows_, sizeof(rows_) / sizeof(*(rows_)))
#define QUERY(bind_, local_, ranks_, ...)                                             \
    {                                                                                 \
        .bind = RUN_BIND_##bind_, .local = local_, .local_ranks = ranks_, __VA_ARGS__ \
    }

static void cores(void)
{
    static const struct row rows[] = {
        {packages, QUERY(CORE, 0, 1), "0-31", "", "", ""},
        {packages, QUERY(CORE, 0, 2), "0-15", "", "", ""},
        {packages, QUERY(AUTO, 1, 2), "16-31", "", "", ""},
        {packages, QUERY(CORE, 15, 16), "30-31", "", "", ""},
        /* 16 cores for 3: 5, 5 and 6. */
        {packages, QUERY(CORE, 0, 3), "0-9", "", "", ""},
        {packages, QUERY(CORE, 1, 3), "10-19", "", "", ""},
        {packages, QUERY(CORE, 2, 3), "20-31", "", "", ""},
        /* More than cores, not more than threads. */
        {packages, QUERY(CORE, 16, 32), "16", "", "", ""},
        {packages, QUERY(CORE, 5, 33), "", "", "", "33 ranks share 32 processors here"},
        {packages, QUERY(AUTO, 5, 33), "", "", "", ""},
        /* What the control group leaves: units 4-7,16-17; and a quota. */
        {part, QUERY(CORE, 0, 3), "4-5", "", "", ""},
        {part, QUERY(CORE, 2, 3), "16-17", "", "", ""},
        {part, QUERY(CORE, 0, 2), "4-5", "", "", ""},
        {part, QUERY(CORE, 1, 2), "6-7,16-17", "", "", ""},
        {part, QUERY(CORE, 3, 7), "", "", "", "7 ranks share 6 processors here"},
        {packages, QUERY(CORE, 1, 4, .quota = 3), "", "", "", "4 ranks share 3 processors here"},
        {packages, QUERY(CORE, 1, 4, .quota = 4), "8-15", "", "", ""},
        {vm, QUERY(CORE, 1, 2), "1", "", "", ""},
        {packages, QUERY(NONE, 1, 2), "", "", "", ""},
    };
    CHECK_ROWS(rows);
}

static void nodes(void)
{
    static const struct row rows[] = {
        {packages, QUERY(NUMA, 0, 4), "0-15", "", "", ""},
        {packages, QUERY(NUMA, 1, 4), "16-31", "", "", ""},
        {packages, QUERY(NUMA, 2, 4), "0-15", "", "", ""},
        {part, QUERY(NUMA, 1, 2), "16-17", "", "", ""},
        {vm, QUERY(NUMA, 1, 2), "0-1", "", "", ""},
    };
    CHECK_ROWS(rows);
}

static void devices(void)
{
    static const struct row rows[] = {
        {gpus, QUERY(GPU, 0, 3, .devices = 1), "8-15", "8-15", "0", ""},
        {gpus, QUERY(GPU, 1, 3, .devices = 1), "0-7", "0-7", "1", ""},
        {gpus, QUERY(GPU, 2, 3), "0-7", "0-7", "", ""},
        {gpus, QUERY(GPU, 3, 4, .devices = 1), "8-15", "8-15", "0", "4 ranks share 3 GPUs here"},
        /* What the user, or Slurm, has made visible is what there is. */
        {gpus, QUERY(GPU, 0, 2, .devices = 1, .visible = "2,0"), "0-7", "0-7", "2", ""},
        {gpus, QUERY(GPU, 1, 2, .devices = 1, .visible = "2,0"), "8-15", "8-15", "0", ""},
        {gpus, QUERY(GPU, 1, 2, .devices = 1, .visible = "1"), "0-7", "0-7", "1",
         "2 ranks share 1 GPU here"},
        {gpus, QUERY(NONE, 1, 2, .devices = 1, .visible = "GPU-aa,GPU-bb"), "", "0-7", "GPU-bb",
         ""},
        {gpus, QUERY(GPU, 1, 2, .visible = "GPU-aa,GPU-bb"), "", "0-7", "", "GPU is not known"},
        {gpus, QUERY(NONE, 0, 1, .devices = 1, .visible = ""), "", "0-7", "", "no NVIDIA GPU"},
        {gpus, QUERY(NONE, 0, 1, .devices = 1, .visible = "7"), "", "0-7", "7", ""},
        {packages, QUERY(NONE, 0, 1, .devices = 1), "", "", "", "no NVIDIA GPU"},
        /* Bound to its share of cores, with a progress thread near its GPU. */
        {gpus, QUERY(CORE, 0, 2, .devices = 1), "0-7", "8-15", "0", ""},
        {gpus, QUERY(CORE, 1, 4, .devices = 1), "4-7", "4-7", "1", "4 ranks share 3 GPUs"},
    };
    CHECK_ROWS(rows);
}

/* Progress threads go near the card with RDMA, on the rank's own cores if it has two there. */
static void progress(void)
{
    static const struct row rows[] = {
        {gpus, QUERY(CORE, 0, 2), "0-7", "0-7", "", ""},
        {gpus, QUERY(CORE, 1, 2), "8-15", "0-7", "", ""},
        {gpus, QUERY(CORE, 1, 8), "2-3", "2-3", "", ""},
        {gpus, QUERY(CORE, 1, 16), "1", "0-7", "", ""},
        {gpus, QUERY(CORE, 1, 17), "", "0-7", "", "17 ranks share 16 processors"},
    };
    CHECK_ROWS(rows);
}

/* Eight cards, four on each of two NUMA nodes: bound by any rule, eight ranks take all of them. */
static void cards(void)
{
    static const char eight[] = "test/unit/topo/eight_nics.xml";
    static const char dgx[] = "test/unit/topo/dgx_h100.xml";
    struct run_place place;
    char expected[32];

    for (int rank = 0; rank < 8; rank++) {
        struct run_place_query core = QUERY(CORE, rank, 8), numa = QUERY(NUMA, rank, 8);
        snprintf(expected, sizeof(expected), "mlx5_%d", rank);
        CU_ASSERT_EQUAL_FATAL(find(eight, core, &place), 0);
        UNIT_STRING(place.nics, expected);
        UNIT_CONTAINS(place.nics_why, "on the NUMA node of core");
        snprintf(expected, sizeof(expected), "mlx5_%d", rank % 2 * 4 + rank / 2);
        CU_ASSERT_EQUAL_FATAL(find(eight, numa, &place), 0);
        UNIT_STRING(place.nics, expected);
    }
    CU_ASSERT_EQUAL_FATAL(find(dgx, (struct run_place_query)QUERY(GPU, 5, 8, .devices = 1), &place),
                          0);
    UNIT_STRING(place.nics, "mlx5_9");
    UNIT_STRING(place.nics_why, "behind the PCIe switch of GPU 0000:c3:00.0");
    /* Not bound, and without a GPU: the library sees when it is there. */
    CU_ASSERT_EQUAL_FATAL(find(eight, (struct run_place_query)QUERY(NONE, 0, 8), &place), 0);
    UNIT_STRING(place.nics, "");
    CU_ASSERT_EQUAL_FATAL(find(packages, (struct run_place_query)QUERY(CORE, 0, 8), &place), 0);
    UNIT_STRING(place.nics, "");
}

static void bad_xml(void)
{
    struct run_place place;
    struct run_place_query query = QUERY(CORE, 0, 1);
    CU_ASSERT_EQUAL(find("test/launch/none.xml", query, &place), -1);
    UNIT_CONTAINS(run_fail_text(), "cannot load");
}

static void this_machine(void)
{
    struct run_place place;
    struct run_place_query query = QUERY(CORE, 0, 1);
    CU_ASSERT(run_place_count_cores() >= 1);
    CU_ASSERT_EQUAL_FATAL(run_place_find(&query, &place), 0);
    CU_ASSERT_NOT_EQUAL(place.cores[0], '\0');
}

int main(void)
{
    CU_TestInfo tests[] = {{"cores", cores},
                           {"NUMA nodes", nodes},
                           {"devices", devices},
                           {"progress", progress},
                           {"cards", cards},
                           {"bad XML", bad_xml},
                           {"this machine", this_machine},
                           CU_TEST_INFO_NULL};

    unit_with_xml();
    return unit_run(tests);
}
