/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of a bond: asked for, chosen by turns, and refused. */
#include <errno.h>
#include <stdlib.h>

#include "unit.h"
#include "verbs_side.h"

static struct vside a, b;

static void refused(const char *settings, const char *words)
{
    vside_settings = settings;
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    UNIT_CONTAINS(stepaf_last_error()->text, settings);
    UNIT_CONTAINS(stepaf_last_error()->text, "fake0:1");
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void a_port_that_cannot_be_set_is_refused(void)
{
    verbs_device_reset();
    refused("VERBS_LAG=1", "not an mlx5 device");
    verbs_device.is_mlx5 = true;
    refused("VERBS_LAG=2", "not a bond");
    verbs_device.no_mlx5 = true;
    verbs_device_take_place();
    refused("VERBS_LAG=1", "built without libmlx5");
}

/* Connect by these settings; say on which ports the two ends' queue pairs are. */
static void expect(const char *settings, unsigned first, unsigned second)
{
    vside_settings = settings;
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
    CU_ASSERT_EQUAL(verbs_device.n_on_port[1], first);
    CU_ASSERT_EQUAL(verbs_device.n_on_port[2], second);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void begin(bool is_mlx5, unsigned ports)
{
    verbs_device_reset();
    verbs_device.is_mlx5 = is_mlx5;
    verbs_device.lag_ports = ports;
}

static void queue_pairs_take_turns(void)
{
    begin(true, 2);
    expect("VERBS_QPS=4", 4, 4);
    begin(true, 2);
    expect("VERBS_QPS=4 VERBS_LAG=2", 0, 8);
    begin(true, 2);
    expect("VERBS_QPS=3 VERBS_LAG=1", 6, 0);
    begin(true, 2);
    expect("VERBS_QPS=4 VERBS_LAG=off", 0, 0);
}

/* Where each has one queue pair only. */
static void peers_take_turns(void)
{
    static struct vside peers[2];
    struct stepaf_pack pack;

    begin(true, 2);
    vside_settings = "";
    vside_open(&a, 2);
    pack = vside_pack(&a);
    for (uint32_t p = 0; p < 2; p++) {
        vside_open(&peers[p], 1);
        CU_ASSERT_PTR_NULL(vside_connect(&a, p, &peers[p], 0, NULL));
    }
    CU_ASSERT_EQUAL(verbs_device.n_on_port[1], 1);
    CU_ASSERT_EQUAL(verbs_device.n_on_port[2], 1);
    free(pack.data);
    vside_close(&a);
    vside_close(&peers[0]);
    vside_close(&peers[1]);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Nothing is asked for, so nothing is refused. */
static void auto_does_nothing_elsewhere(void)
{
    begin(false, 2);
    expect("VERBS_QPS=2", 0, 0);
    begin(true, 0);
    expect("VERBS_QPS=2", 0, 0);
    begin(true, 2);
    verbs_device.no_mlx5 = true;
    verbs_device_take_place();
    expect("VERBS_QPS=2", 0, 0);
    begin(true, 2);
    verbs_device.refuse_lag = EPERM;
    expect("VERBS_QPS=2", 0, 0);
}

static void a_device_that_refuses_is_named(void)
{
    begin(true, 2);
    verbs_device.refuse_lag = EPERM;
    vside_settings = "VERBS_LAG=2";
    vside_open(&a, 1);
    vside_open(&b, 1);
    const char *reason = vside_connect(&a, 0, &b, 0, NULL);
    UNIT_CONTAINS(reason ? reason : "", "choosing the bond's port");
    UNIT_CONTAINS(reason ? reason : "", "fake0:1");
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a port that cannot be set is refused", a_port_that_cannot_be_set_is_refused},
        {"queue pairs take turns", queue_pairs_take_turns},
        {"peers take turns", peers_take_turns},
        {"auto does nothing elsewhere", auto_does_nothing_elsewhere},
        {"a device that refuses is named", a_device_that_refuses_is_named},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
