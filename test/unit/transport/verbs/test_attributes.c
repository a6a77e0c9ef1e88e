/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: what the settings make of queue pairs and queues, and what ports say to that. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "unit.h"
#include "verbs_side.h"

static struct vside a, b;
static const uint16_t pkeys[] = {0x7fff, 0x0000, 0x0002, 0x8001, 0x8002};

static void begin(const char *settings)
{
    verbs_device_reset();
    verbs_device.is_infiniband = true;
    verbs_device.pkeys = pkeys;
    verbs_device.n_pkeys = 5;
    vside_settings = settings;
}

static void join(void)
{
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
}

static void end(void)
{
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void expect_refused(const char *settings, const char *words)
{
    vside_settings = settings;
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_SETTING);
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Of the value the lower 15 bits; a full member's entry first, and without settings as well. */
static void a_partition_is_taken_by_value_or_index(void)
{
    static const struct {
        const char *settings;
        int index;
    } cases[] = {
        {"", 3},
        {"VERBS_PKEY=0x8002", 4},
        {"VERBS_PKEY=2", 4},
        {"VERBS_PKEY=0xffff", 0},
        {"VERBS_PKEY_INDEX=2", 2},
        {"VERBS_PKEY_INDEX=2 VERBS_PKEY=0x8002", 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char peer[48];
        begin(cases[i].settings);
        vside_open(&b, 1);
        snprintf(peer, sizeof(peer), "VERBS_PKEY_INDEX=%d", cases[i].index == 2 ? 4 : 3);
        vside_settings = cases[i].index > 2 ? cases[i].settings : peer;
        CU_ASSERT_EQUAL(((struct stepaf_verbs *)b.transport)->rails[0].port.pkey_index,
                        cases[i].index);
        vside_open(&a, 1);
        if (cases[i].index) { /* there is no full member of the default partition to talk to */
            vside_join(&a, &b);
            CU_ASSERT_EQUAL(verbs_device.at_init.pkey_index, cases[i].index); /* b's */
        }
        end();
    }
    begin("");
    verbs_device.pkeys = pkeys + 1;
    verbs_device.n_pkeys = 2; /* none, and a limited member */
    vside_open(&a, 1);
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->rails[0].port.pkey_index, 1);
    vside_close(&a);
}

static void a_partition_that_is_not_there_is_refused(void)
{
    begin("");
    expect_refused("VERBS_PKEY=0x8003",
                   "STEPAF_VERBS_PKEY=0x8003: fake0:1 is not in this partition");
    expect_refused("VERBS_PKEY=mine", "not a P_Key such as 0x8001");
    expect_refused("VERBS_PKEY=0x10000", "not a P_Key");
    expect_refused("VERBS_PKEY=0x8000", "not a P_Key");
    expect_refused("VERBS_PKEY=-1", "not a P_Key");
    expect_refused("VERBS_PKEY_INDEX=5", "has P_Keys 0 to 4");
    expect_refused("VERBS_PKEY_INDEX=1", "has none at this index");
    expect_refused("VERBS_PKEY_INDEX=2 VERBS_PKEY=0x8001", "has 0x0002 at this index");
    verbs_device.is_infiniband = false;
    expect_refused("VERBS_PKEY=0x8001 VERBS_CONNECT=cm", "that of the IP interface");
}

static const char *mismatch(const char *mine, const char *its)
{
    begin(mine);
    vside_open(&a, 1);
    vside_settings = its;
    vside_open(&b, 1);
    const char *reason = vside_connect(&a, 0, &b, 0, NULL);
    end();
    return reason ? reason : "";
}

static void partitions_that_keep_ranks_apart_are_told(void)
{
    UNIT_CONTAINS(mismatch("VERBS_PKEY=1", "VERBS_PKEY=2"),
                  "rail 0 (fake0:1): the two ends are in different partitions");
    UNIT_CONTAINS(mismatch("VERBS_PKEY_INDEX=2", "VERBS_PKEY_INDEX=2"), "limited members");
    UNIT_STRING(mismatch("VERBS_PKEY_INDEX=2", "VERBS_PKEY_INDEX=4"), "");
}

static void service_level_and_traffic_class_are_set(void)
{
    begin("VERBS_SERVICE_LEVEL=12");
    join();
    CU_ASSERT_EQUAL(verbs_device.at_rtr.ah_attr.sl, 12);
    CU_ASSERT_EQUAL(verbs_device.at_rtr.ah_attr.is_global, 0);
    end();
    begin("VERBS_SERVICE_LEVEL=5 VERBS_TRAFFIC_CLASS=106");
    verbs_device.is_infiniband = false;
    join();
    CU_ASSERT_EQUAL(verbs_device.at_rtr.ah_attr.sl, 5);
    CU_ASSERT_EQUAL(verbs_device.at_rtr.ah_attr.grh.traffic_class, 106);
    end();
    expect_refused("VERBS_SERVICE_LEVEL=8", "fake0:1 is on Ethernet, whose priorities are 0 to 7");
}

static void packets_are_no_larger_than_both_ports_take(void)
{
    begin("VERBS_MTU=2048");
    verbs_device.mtu = IBV_MTU_4096;
    vside_open(&a, 1);
    vside_settings = "VERBS_MTU=512";
    vside_open(&b, 1);
    vside_join(&a, &b);
    CU_ASSERT_EQUAL(verbs_device.at_rtr.path_mtu, IBV_MTU_512);
    end();
    begin("");
    join();
    CU_ASSERT_EQUAL(verbs_device.at_rtr.path_mtu, IBV_MTU_1024);
    end();
    expect_refused("VERBS_MTU=2048", "STEPAF_VERBS_MTU=2048: fake0:1 has an active MTU of 1024");
}

/* What is logged on opening; "": nothing. */
static void warns(const char *settings, const char *words)
{
    char path[] = "/tmp/stepaf-attributes-XXXXXX", text[512] = "";
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    stepaf_log_configure(STEPAF_LOG_WARN, path);
    begin(settings);
    vside_open(&a, 1);
    stepaf_log_configure(STEPAF_LOG_WARN, "");
    CU_ASSERT(read(fd, text, sizeof(text) - 1) >= 0);
    if (words[0])
        UNIT_CONTAINS(text, words);
    else
        UNIT_STRING(text, "");
    vside_close(&a);
    close(fd);
    unlink(path);
}

/* A device tries at least as long as the setting promises, and settings that make it give up before
 * are warned of. */
static void a_device_tries_as_long_as_is_promised(void)
{
    static const char *const peer_timeouts[] = {"1000", "5000000", "60000000", "3600000000"};
    static const int retries[] = {7, 0, 3};
    char settings[96];

    for (int t = 0; t < 4; t++)
        for (int r = 0; r < 3; r++) {
            snprintf(settings, sizeof(settings), "VERBS_PEER_TIMEOUT_US=%s VERBS_RETRY=%d",
                     peer_timeouts[t], retries[r]);
            begin(settings);
            join();
            CU_ASSERT_EQUAL(verbs_device.at_rts.retry_cnt, retries[r]);
            double once = 4.096 * (double)(1ull << verbs_device.at_rts.timeout);
            double promised = (double)a.env.verbs_peer_timeout_us;
            CU_ASSERT(once * (retries[r] + 1) >= promised);
            CU_ASSERT(once * (retries[r] + 1) < 2 * promised || verbs_device.at_rts.timeout == 14);
            end();
        }
    begin("");
    join();
    CU_ASSERT_EQUAL(verbs_device.at_rts.timeout, 18); /* 8 times 1.07 s */
    end();
    begin("VERBS_TIMEOUT=20");
    join();
    CU_ASSERT_EQUAL(verbs_device.at_rts.timeout, 20);
    end();
    warns("VERBS_TIMEOUT=14", "after 0.537 s, before the 5 s of STEPAF_VERBS_PEER_TIMEOUT_US");
    warns("VERBS_TIMEOUT=18 VERBS_RETRY=2", "STEPAF_VERBS_RETRY=2 let a device give up a peer");
    warns("VERBS_TIMEOUT=18", "");
    begin("VERBS_TIMEOUT=14 VERBS_PEER_TIMEOUT_US=500000");
    join();
    CU_ASSERT_EQUAL(verbs_device.at_rts.timeout, 14);
    end();
}

/* Ranks on different cores, and rails, are told of completions by different interrupts. */
static void completion_vectors_are_spread(void)
{
    begin("NET_DEVICES=fake0");
    verbs_device.n_vectors = 4;
    for (int core = 0; core < 9; core++) {
        verbs_device.core = core;
        vside_open(&a, 1);
        CU_ASSERT_EQUAL(verbs_device.last_vector, core % 4);
        vside_close(&a);
    }
    vside_settings = "NET_DEVICES=fake0,fake1";
    vside_open(&a, 1);
    CU_ASSERT_EQUAL(verbs_device.last_vector, 1);
    vside_close(&a);
    verbs_device.n_vectors = 1;
    verbs_device.core = -1;
    vside_open(&a, 1);
    CU_ASSERT_EQUAL(verbs_device.last_vector, 0);
    vside_close(&a);
}

/* Before anything is registered; a refusal is warned of, since a rank need not fork. */
static void forks_are_prepared_for(void)
{
    begin("");
    verbs_device.refuse_fork = EINVAL;
    vside_open(&a, 1);
    CU_ASSERT_EQUAL(verbs_device.n_forks, 1);
    vside_close(&a);
}

/* A port whose address has changed is not heard of any more: another rail takes over; over the only
 * one what is under way is tried again, and what is lost in the end says why. */
static void a_changed_address_is_noticed(void)
{
    for (int on_ethernet = 0; on_ethernet < 2; on_ethernet++)
        for (int rails = 1; rails <= 2; rails++) {
            static struct ibv_gid_entry gid = {.gid_type = IBV_GID_TYPE_ROCE_V2};
            gid.gid.raw[10] = gid.gid.raw[11] = 0xff;
            gid.gid.raw[15] = 7;
            begin(rails > 1 ? "NET_DEVICES=fake0,fake1" : "");
            verbs_device.is_infiniband = !on_ethernet;
            verbs_device.gids = on_ethernet ? &gid : NULL;
            verbs_device.n_gids = 1;
            join();
            struct stepaf_verbs *verbs = (struct stepaf_verbs *)a.transport;
            enum ibv_event_type type = on_ethernet ? IBV_EVENT_GID_CHANGE : IBV_EVENT_LID_CHANGE;
            verbs_device_event(type, 0); /* of something else */
            verbs->looked = 0;
            stepaf_verbs_ops.check_peers(a.transport);
            CU_ASSERT_PTR_NULL(verbs->rails[0].trouble);
            CU_ASSERT_EQUAL(vside_link(&a, 0)->paths[0].closed, false);
            verbs_device.lid = 4;
            gid.gid.raw[15] = 8;
            verbs_device_event(type, 0);
            verbs->looked = 0;
            stepaf_verbs_ops.check_peers(a.transport);
            UNIT_CONTAINS(verbs->rails[0].trouble ? verbs->rails[0].trouble : "",
                          on_ethernet ? "the GID that peers send to has changed"
                                      : "the LID that peers send to has changed");
            CU_ASSERT_EQUAL(vside_link(&a, 0)->paths[0].closed, rails > 1);
            CU_ASSERT_EQUAL(a.n_lost, 0);
            if (rails == 1) {
                verbs_device_event(IBV_EVENT_QP_FATAL, vside_link(&a, 0)->paths[0].qp->qp_num);
                verbs->looked = 0;
                stepaf_verbs_ops.check_peers(a.transport);
                CU_ASSERT_EQUAL(a.n_lost, 1);
                UNIT_CONTAINS(a.lost_reason, "; before that: the ");
            }
            end();
        }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a partition is taken by value or index", a_partition_is_taken_by_value_or_index},
        {"a partition that is not there is refused", a_partition_that_is_not_there_is_refused},
        {"partitions that keep ranks apart are told", partitions_that_keep_ranks_apart_are_told},
        {"service level and traffic class are set", service_level_and_traffic_class_are_set},
        {"packets are no larger than both ports take", packets_are_no_larger_than_both_ports_take},
        {"a device tries as long as is promised", a_device_tries_as_long_as_is_promised},
        {"completion vectors are spread", completion_vectors_are_spread},
        {"forks are prepared for", forks_are_prepared_for},
        {"a changed address is noticed", a_changed_address_is_noticed},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
