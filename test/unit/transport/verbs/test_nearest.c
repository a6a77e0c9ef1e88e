/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: the rails of each rank where the settings name none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"
#include "verbs_side.h"

static struct vside a, b;
static const char *const mlx5[] = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3",
                                   "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"};

static void begin(const char *topology)
{
    verbs_device_reset();
    vside_settings = "";
    vside_gpu = NULL;
    verbs_device.n_devices = 8;
    verbs_device.names = mlx5;
    verbs_device.topology = topology;
}

/* What a rank opens, in the map's words. */
static const char *rails(void)
{
    static char text[STEPAF_REASON_MAX];

    vside_open(&a, 1);
    stepaf_verbs_ops.describe(a.transport, text);
    vside_close(&a);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    return text;
}

static const char *probed(void)
{
    static char reason[STEPAF_REASON_MAX];
    struct stepaf_env env = {.net_devices = (char *)""};

    reason[0] = '\0';
    CU_ASSERT_TRUE(stepaf_verbs_ops.probe(&env, reason));
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    return reason;
}

/* Eight ranks beside eight cards, four on each NUMA node: each has a card of its own. */
static void eight_ranks_take_eight_cards(void)
{
    char expected[96];

    begin("eight_nics.xml");
    for (int rank = 0; rank < 8; rank++) {
        verbs_device.core = 2 * rank;
        snprintf(expected, sizeof(expected), "mlx5_%d:1 (NUMA node)", rank);
        UNIT_STRING(rails(), expected);
        snprintf(expected, sizeof(expected),
                 "over mlx5_%d:1, on the NUMA node of core %d, 1 of 4 as "
                 "near",
                 rank, 2 * rank);
        UNIT_STRING(probed(), expected);
    }
}

static void a_gpu_decides_before_the_core(void)
{
    begin("hgx_switches.xml");
    vside_gpu = "0000:88:00.0";
    UNIT_STRING(rails(), "mlx5_5:1 (PCIe switch)");
    verbs_device.down = 1 << 5; /* its turn comes to the other card of the switch */
    UNIT_STRING(rails(), "mlx5_4:1 (PCIe switch)");
    verbs_device.down = 1 << 5 | 1 << 4;
    UNIT_STRING(rails(), "mlx5_6:1 (NUMA node)");
    verbs_device.down = 0xfe;
    UNIT_STRING(rails(), "mlx5_0:1 (other node)");
    vside_settings = "NET_DEVICES=mlx5_2,mlx5_3";
    verbs_device.down = 0;
    UNIT_STRING(rails(), "mlx5_2:1,mlx5_3:1 (STEPAF_NET_DEVICES)");
}

/* Two cards behind the switch of a GPU are two rails, and tensors go over both. */
static void two_cards_of_a_gpu_are_two_rails(void)
{
    static const char *const efa[8] = {"rdmap82s0", "rdmap83s0", "rdmap90s0",  "rdmap91s0",
                                       "rdmap98s0", "rdmap99s0", "rdmap106s0", "rdmap107s0"};

    begin("p5en.xml");
    verbs_device.names = efa;
    vside_gpu = "0000:5c:00.0";
    UNIT_STRING(rails(), "rdmap90s0:1,rdmap91s0:1 (PCIe switch)");
    vside_open(&a, 1);
    vside_gpu = NULL;
    verbs_device.core = 4;
    vside_open(&b, 1); /* a rank without a GPU has one rail */
    vside_join(&a, &b);
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->n_rails, 2);
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)b.transport)->n_rails, 1);
    CU_ASSERT_EQUAL(vside_link(&a, 0)->n_paths, 1);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* What cannot be opened in full is no candidate: here the first completion queue is refused. */
static void what_fails_makes_room_for_the_next(void)
{
    begin("eight_nics.xml");
    verbs_device.core = 15;
    verbs_device.refuse_device = 1 << 7;
    UNIT_STRING(rails(), "mlx5_6:1 (NUMA node)");
    verbs_device.refuse_device = 0xff;
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "no protection domain");
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* AWS's devices. */
static void devices_without_connections_are_told_of(void)
{
    struct stepaf_env env = {.net_devices = (char *)""};
    char reason[STEPAF_REASON_MAX];

    begin("p5en.xml");
    verbs_device.is_efa = true;
    CU_ASSERT_FALSE(stepaf_verbs_ops.probe(&env, reason));
    UNIT_CONTAINS(reason, "mlx5_0 has no reliable connections");
    UNIT_CONTAINS(reason, "EFA");
    UNIT_CONTAINS(reason, "STEPAF_TRANSPORTS=tcp");
    vside_settings = "NET_DEVICES=mlx5_3";
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "mlx5_3 has no reliable connections");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"eight ranks take eight cards", eight_ranks_take_eight_cards},
        {"a GPU decides before the core", a_gpu_decides_before_the_core},
        {"two cards of a GPU are two rails", two_cards_of_a_gpu_are_two_rails},
        {"what fails makes room for the next", what_fails_makes_room_for_the_next},
        {"devices without connections are told of", devices_without_connections_are_told_of},
        CU_TEST_INFO_NULL,
    };

    unit_with_xml();
    return unit_run(tests);
}
