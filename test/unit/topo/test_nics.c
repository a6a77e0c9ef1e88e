/* SPDX-License-Identifier: Apache-2.0 */
/* Which RDMA devices each rank takes, on machines that are there as XML. */
#include <stdio.h>
#include <stdlib.h>

#include "topo/nics.h"
#include "unit.h"

static struct stepaf_topo_nics nics;

/* The names that are chosen, with blanks between. */
static const char *choose(const char *file, struct stepaf_topo_nics_query query)
{
    static char list[STEPAF_TOPO_NICS_MAX * STEPAF_TOPO_NIC_NAME];
    const char *top = getenv("top_srcdir");
    char path[4096];
    size_t used = 0;

    snprintf(path, sizeof(path), "%s/test/unit/topo/%s.xml", top ? top : ".", file);
    query.xml = path;
    stepaf_topo_nics_choose(&query, &nics);
    list[0] = '\0';
    for (unsigned i = 0; i < nics.n; i++)
        used +=
            (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? " " : "", nics.name[i]);
    return list;
}

#define OF_GPU(gpu_) ((struct stepaf_topo_nics_query){.gpu = gpu_, .core = -1})
#define OF_CORE(core_) ((struct stepaf_topo_nics_query){.core = core_})
#define NAMES(...)                               \
    .names = (const char *const[]){__VA_ARGS__}, \
    .n_names = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

struct row {
    const char *gpu;
    const char *nics;
};

static void check(const char *file, const struct row rows[8], const char *why)
{
    for (int i = 0; i < 8 && rows[i].gpu; i++) {
        UNIT_STRING(choose(file, OF_GPU(rows[i].gpu)), rows[i].nics);
        UNIT_CONTAINS(nics.why, why);
        UNIT_CONTAINS(nics.why, rows[i].gpu);
    }
}

/* The cards for storage are nobody's. */
static void dgx_h100(void)
{
    static const struct row rows[8] = {{"0000:1b:00.0", "mlx5_0"},  {"0000:43:00.0", "mlx5_3"},
                                       {"0000:52:00.0", "mlx5_4"},  {"0000:61:00.0", "mlx5_5"},
                                       {"0000:9d:00.0", "mlx5_6"},  {"0000:c3:00.0", "mlx5_9"},
                                       {"0000:d1:00.0", "mlx5_10"}, {"0000:df:00.0", "mlx5_11"}};

    check("dgx_h100", rows, "behind the PCIe switch of GPU");
    /* Ranks without a GPU share out what is on their node, of the same network. */
    for (int core = 0; core < 16; core++)
        UNIT_STRING(choose("dgx_h100", OF_CORE(core)), rows[core / 2].nics);
    /* Unless there is nothing else. */
    UNIT_STRING(choose("dgx_h100", (struct stepaf_topo_nics_query){NAMES("mlx5_1", "mlx5_8")}),
                "mlx5_1");
}

/* Two GPUs and two cards behind each switch: one each. */
static void hgx_switches(void)
{
    static const struct row rows[8] = {{"0000:07:00.0", "mlx5_0"}, {"0000:08:00.0", "mlx5_1"},
                                       {"0000:47:00.0", "mlx5_2"}, {"0000:48:00.0", "mlx5_3"},
                                       {"0000:87:00.0", "mlx5_4"}, {"0000:88:00.0", "mlx5_5"},
                                       {"0000:b7:00.0", "mlx5_6"}, {"0000:b8:00.0", "mlx5_7"}};

    check("hgx_switches", rows, "behind the PCIe switch of GPU");
    UNIT_CONTAINS(nics.why, ", 1 of 2 as near");
    /* What cannot be used does not count, and what is left is shared. */
    UNIT_STRING(choose("hgx_switches", (struct stepaf_topo_nics_query){.gpu = "0000:08:00.0",
                                                                       NAMES("mlx5_0", "mlx5_2")}),
                "mlx5_0");
    UNIT_STRING(choose("hgx_switches", (struct stepaf_topo_nics_query){.gpu = "0000:88:00.0",
                                                                       NAMES("mlx5_0", "mlx5_6")}),
                "mlx5_6");
    UNIT_CONTAINS(nics.why, "on the NUMA node of GPU 0000:88:00.0");
}

/* Two for each GPU. Nobody is told to use them, as they have no connections. */
static void p5en(void)
{
    static const char *const gpus[8] = {"0000:54:00.0", "0000:5c:00.0", "0000:64:00.0",
                                        "0000:6c:00.0", "0000:a4:00.0", "0000:ac:00.0",
                                        "0000:b4:00.0", "0000:bc:00.0"};
    static const int buses[8] = {0x52, 0x5a, 0x62, 0x6a, 0xa2, 0xaa, 0xb2, 0xba};
    char names[16][16], both[512];
    const char *all[16];

    for (int i = 0; i < 16; i++) {
        snprintf(names[i], sizeof(names[i]), "rdmap%ds0", buses[i / 2] + i % 2);
        all[i] = names[i];
    }
    for (int i = 0; i < 8; i++) {
        struct stepaf_topo_nics_query query = {.gpu = gpus[i], .names = all, .n_names = 16};
        snprintf(both, sizeof(both), "%s %s", names[2 * i], names[2 * i + 1]);
        UNIT_STRING(choose("p5en", query), both);
        UNIT_CONTAINS(nics.why, ", 2 of 2 as near");
        UNIT_STRING(choose("p5en", OF_GPU(gpus[i])), "");
    }
}

static void two_packages_and_one_card(void)
{
    static const struct row own[8] = {{"0000:17:00.0", "mlx5_0"}, {"0000:31:00.0", "mlx5_0"}};
    static const struct row other[8] = {{"0000:98:00.0", "mlx5_0"}, {"0000:b1:00.0", "mlx5_0"}};

    check("one_nic", own, "on the NUMA node of GPU");
    check("one_nic", other, "on another NUMA node than GPU");
    for (int core = 0; core < 8; core++)
        UNIT_STRING(choose("one_nic", OF_CORE(core)), "mlx5_0");
}

/* Two GPUs and two cards on each package, whose NUMA nodes are three. */
static void gb200(void)
{
    static const struct row rows[8] = {{"0008:01:00.0", "mlx5_0"},
                                       {"0009:01:00.0", "mlx5_1"},
                                       {"0018:01:00.0", "mlx5_2"},
                                       {"0019:01:00.0", "mlx5_3"}};

    check("gb200", rows, "on the NUMA node of GPU");
    UNIT_STRING(choose("gb200", OF_CORE(3)), "mlx5_0");
    UNIT_STRING(choose("gb200", OF_CORE(12)), "mlx5_3");
    UNIT_STRING(nics.why, "on the NUMA node of core 12, 1 of 2 as near");
}

static void mi300x(void)
{
    static const struct row rows[8] = {{"0000:03:00.0", "bnxt_re0"}, {"0000:23:00.0", "bnxt_re1"},
                                       {"0000:43:00.0", "bnxt_re2"}, {"0000:63:00.0", "bnxt_re3"},
                                       {"0000:83:00.0", "bnxt_re4"}, {"0000:a3:00.0", "bnxt_re5"},
                                       {"0000:c3:00.0", "bnxt_re6"}, {"0000:e3:00.0", "bnxt_re7"}};

    check("mi300x", rows, "behind the PCIe switch of GPU");
}

/* Ranks without a GPU, an equal share of the cores each: they take all of the cards. */
static void cores_share_the_cards_of_their_node(void)
{
    static const char *const of_core[16] = {
        "mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1", "mlx5_2", "mlx5_2", "mlx5_3", "mlx5_3",
        "mlx5_4", "mlx5_4", "mlx5_5", "mlx5_5", "mlx5_6", "mlx5_6", "mlx5_7", "mlx5_7"};

    for (int core = 0; core < 16; core++) {
        UNIT_STRING(choose("eight_nics", OF_CORE(core)), of_core[core]);
        UNIT_CONTAINS(nics.why, "on the NUMA node of core");
        UNIT_CONTAINS(nics.why, ", 1 of 4 as near");
    }
    /* Of a GPU that is not there, the core decides. */
    UNIT_STRING(
        choose("eight_nics", (struct stepaf_topo_nics_query){.gpu = "0000:ff:00.0", .core = 9}),
        "mlx5_4");
    UNIT_STRING(choose("eight_nics", (struct stepaf_topo_nics_query){.gpu = "nonsense", .core = 9}),
                "mlx5_4");
}

/* Devices that the machine's tree does not have, as those made of software: the first. */
static void what_is_unknown_is_taken_in_order(void)
{
    struct stepaf_topo_nics_query query = {.core = 1, NAMES("rxe0", "rxe1")};

    UNIT_STRING(choose("eight_nics", query), "rxe0");
    UNIT_STRING(nics.why, "");
    UNIT_STRING(choose("nonexistent", query), "rxe0");
    UNIT_STRING(choose("nonexistent", OF_CORE(0)), "");
    UNIT_STRING(choose("one_core", OF_CORE(0)), "");
    query.core = 5000;
    UNIT_STRING(choose("one_core", query), "rxe0");
    /* A place that is known goes first. */
    UNIT_STRING(
        choose("eight_nics", (struct stepaf_topo_nics_query){.core = 0, NAMES("rxe0", "mlx5_6")}),
        "mlx5_6");
    /* Nothing is known of the rank. */
    UNIT_STRING(choose("eight_nics", OF_CORE(-1)), "mlx5_0");
    UNIT_STRING(nics.why, "");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"DGX H100", dgx_h100},
        {"HGX with PCIe switches", hgx_switches},
        {"p5en", p5en},
        {"two packages and one card", two_packages_and_one_card},
        {"GB200", gb200},
        {"MI300X", mi300x},
        {"cores share the cards of their node", cores_share_the_cards_of_their_node},
        {"what is unknown is taken in order", what_is_unknown_is_taken_in_order},
        CU_TEST_INFO_NULL,
    };

    unit_with_xml();
    return unit_run(tests);
}
