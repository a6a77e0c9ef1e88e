/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: in the first commit it is seen whether anything gets through; where nothing does, the link
 * is no lost peer, but takes another transport. */
#include "unit.h"
#include "verbs_side.h"

static struct vside a, b;
static char reason[STEPAF_REASON_MAX];

static void begin(const char *settings)
{
    verbs_device_reset();
    verbs_device.n_devices = 3;
    vside_settings = settings;
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
    reason[0] = '\0';
}

static void end(void)
{
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static stepaf_status_t prove(struct vside *side, bool all_have_connected)
{
    uint32_t peer = 99;
    stepaf_status_t status =
        stepaf_verbs_ops.prove_links(side->transport, all_have_connected, &peer, reason);

    if (status == STEPAF_ERR_NO_TRANSPORT)
        CU_ASSERT_EQUAL(peer, 0);
    return status;
}

static stepaf_status_t prove_long(struct vside *side)
{
    stepaf_status_t status = STEPAF_INPROGRESS;

    for (int i = 0; i < 100000000 && status == STEPAF_INPROGRESS; i++)
        status = prove(side, true);
    return status;
}

static void what_gets_through_is_seen(void)
{
    begin("");
    CU_ASSERT_EQUAL(prove(&a, false), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(vside_link(&a, 0)->paths[0].wr.posted, 0); /* the peer may not be there yet */
    CU_ASSERT_EQUAL(prove_long(&a), STEPAF_OK);
    CU_ASSERT_EQUAL(prove(&a, false), STEPAF_OK);
    CU_ASSERT_EQUAL(prove_long(&b), STEPAF_OK);
    end();
}

static void where_nothing_does_another_transport_is_taken(void)
{
    begin("VERBS_PEER_TIMEOUT_US=20000");
    verbs_device.silent = 1;
    CU_ASSERT_EQUAL(prove(&a, true), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(prove_long(&a), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "no data gets through: check that the network permits RDMA");
    end();
}

/* A device that gives up says so, long before. */
static void what_the_device_gives_up_is_no_lost_peer(void)
{
    begin("VERBS_PEER_TIMEOUT_US=600000000");
    verbs_device.dead = 1;
    CU_ASSERT_EQUAL(prove_long(&a), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "no data gets through");
    end();
}

/* Two queue pairs of one rail report it one after the other. */
static void what_two_queue_pairs_report_is_no_lost_peer(void)
{
    begin("VERBS_QPS=2 VERBS_PEER_TIMEOUT_US=600000000");
    verbs_device.dead = 1;
    CU_ASSERT_EQUAL(prove_long(&a), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "no data gets through");
    end();
}

/* A proof of later links leaves what has come over others to the next progress. */
static void messages_over_other_links_stay(void)
{
    struct stepaf_xfer none;

    begin("");
    CU_ASSERT_EQUAL(prove_long(&a), STEPAF_OK);
    CU_ASSERT_EQUAL(prove_long(&b), STEPAF_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct stepaf_post post = vside_post(&b, 0, &none, 0, 0, NULL);
        post.msg.seq = i;
        post.msg.n = i == 1; /* one of them through the ring */
        (void)vside_send(&post);
        CU_ASSERT_EQUAL(prove(&a, true), STEPAF_OK);
    }
    CU_ASSERT_EQUAL(a.n_messages, 0);
    vside_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, 3);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 0);
    end();
}

static void one_rail_is_enough(void)
{
    begin("NET_DEVICES=fake0,fake1 VERBS_PEER_TIMEOUT_US=600000000");
    verbs_device.silent = 1;
    CU_ASSERT_EQUAL(prove_long(&a), STEPAF_OK);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what gets through is seen", what_gets_through_is_seen},
        {"where nothing does another transport is taken",
         where_nothing_does_another_transport_is_taken},
        {"what the device gives up is no lost peer", what_the_device_gives_up_is_no_lost_peer},
        {"what two queue pairs report is no lost peer",
         what_two_queue_pairs_report_is_no_lost_peer},
        {"messages over other links stay", messages_over_other_links_stay},
        {"one rail is enough", one_rail_is_enough},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
