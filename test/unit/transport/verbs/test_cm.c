/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA connected by librdmacm: what has to be so when all goes well, and when it ends. */
#include <stdlib.h>

#include "unit.h"
#include "verbs_call.h"

static struct vside a, b;
static struct stepaf_rmem *at_b;
static char reason[STEPAF_REASON_MAX];

static void begin(const char *settings)
{
    calls_open(&a, &b, settings);
    calls_meet(&a, &b);
    calls_drive(&a, &b);
    CU_ASSERT_EQUAL_FATAL(calls_join(&a, reason), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(calls_join(&b, reason), STEPAF_OK);
    vside_memory(&a, 8192);
    at_b = vside_import(&a, 0, &b, vside_memory(&b, 8192));
}

static void end(void)
{
    stepaf_verbs_ops.release_mem(a.links[0], at_b);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Something large enough to be divided among all paths has to arrive, whole and once. */
static void expect_delivery(void)
{
    static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, 8192, at_b);
    uint8_t *from = a.regions[0].base;

    for (unsigned i = 0; i < 8192; i++)
        from[i] = (uint8_t)(i * 7 + 3);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    vside_progress(&a);
    vside_progress(&b);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT(!memcmp(b.regions[0].base, from, 8192));
}

static void all_queue_pairs_of_all_rails_connect(void)
{
    verbs_device_reset();
    begin("NET_DEVICES=fake0,fake1 VERBS_QPS=4 VERBS_STRIPE_BYTES=4096");
    CU_ASSERT_EQUAL(verbs_cm.n_requests, 8);
    CU_ASSERT_EQUAL(verbs_cm.n_accepted, 8);
    for (unsigned i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(calls_state(&b, i), STEPAF_VERBS_CALL_UP);
    UNIT_STRING(a.links[0]->address, "10.0.0.1");
    expect_delivery();
    CU_ASSERT_EQUAL(verbs_device.n_sends, 0);
    end();
}

/* No immediates; and the side that has connected has to be the first to send. */
static void iwarp_connects_and_waits_for_the_first_word(void)
{
    verbs_device_reset();
    verbs_device.is_iwarp = true;
    verbs_device.holds = true;
    calls_open(&a, &b, "VERBS_CONNECT=auto VERBS_QPS=2 VERBS_STRIPE_BYTES=4096");
    UNIT_CONTAINS(((struct stepaf_verbs *)a.transport)->rails[0].cm ? "cm" : "oob", "cm");
    calls_meet(&a, &b);
    calls_drive(&a, &b);
    for (unsigned i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(calls_state(&a, i), STEPAF_VERBS_CALL_GREETED);
        CU_ASSERT_EQUAL(calls_state(&b, i), STEPAF_VERBS_CALL_UNHEARD);
    }
    verbs_device_go();
    calls_drive(&a, &b);
    CU_ASSERT_EQUAL_FATAL(calls_join(&a, reason), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(calls_join(&b, reason), STEPAF_OK);
    vside_memory(&a, 8192);
    at_b = vside_import(&a, 0, &b, vside_memory(&b, 8192));
    expect_delivery();
    CU_ASSERT_EQUAL(verbs_device.n_imms, 0);
    CU_ASSERT_EQUAL(verbs_device.n_sends, 2); /* the message, and a piece's notification */
    UNIT_STRING(a.links[0]->address, "10.0.7.1");
    end();
}

/* A first word may lie where nobody looks until the next one comes. */
static void iwarp_repeats_the_first_word(void)
{
    const struct stepaf_verbs_path *path;

    verbs_device_reset();
    verbs_device.is_iwarp = true;
    verbs_device.holds = true;
    calls_open(&a, &b, "VERBS_CONNECT=auto");
    calls_meet(&a, &b);
    calls_drive(&a, &b);
    path = &vside_link(&a, 0)->paths[0];
    CU_ASSERT_EQUAL(path->wr.posted, 1);
    while (path->wr.posted < 3)
        calls_drive(&a, &b);
    CU_ASSERT_EQUAL(calls_state(&a, 0), STEPAF_VERBS_CALL_GREETED);
    CU_ASSERT_EQUAL(calls_state(&b, 0), STEPAF_VERBS_CALL_UNHEARD);
    verbs_device_go();
    calls_drive(&a, &b);
    CU_ASSERT_EQUAL(calls_join(&a, reason), STEPAF_OK);
    CU_ASSERT_EQUAL(calls_join(&b, reason), STEPAF_OK);
    CU_ASSERT_EQUAL(vside_link(&b, 0)->paths[0].wr.posted, 1);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Rails of different kinds: each is connected in its own way. */
static void rails_may_differ(void)
{
    verbs_device_reset();
    verbs_device.is_mixed = true;
    begin("VERBS_CONNECT=auto NET_DEVICES=fake0,fake1 VERBS_QPS=2 VERBS_STRIPE_BYTES=4096");
    CU_ASSERT_EQUAL(verbs_cm.n_accepted, 2);
    CU_ASSERT_EQUAL(calls_state(&a, 0), STEPAF_VERBS_CALL_NONE);
    CU_ASSERT_EQUAL(calls_state(&a, 2), STEPAF_VERBS_CALL_UP);
    expect_delivery();
    end();
}

/* A port without a GID has no other way. */
static void no_gid_is_no_obstacle(void)
{
    verbs_device_reset();
    verbs_device.n_gids = 0;
    begin("VERBS_CONNECT=auto");
    CU_ASSERT_EQUAL(verbs_cm.n_accepted, 1);
    end();
}

static void ports_are_those_allowed(void)
{
    verbs_device_reset();
    verbs_cm.busy_ports = 2;
    calls_open(&a, &b, "NET_PORTS=20000-20002");
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)b.transport)->rails[0].listens, 20002);
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->rails[0].listens, 0);
    vside_close(&a);
    vside_close(&b);
    verbs_cm.busy_ports = 2; /* a free one that turns out not to be */
    begin("");
    CU_ASSERT_EQUAL(verbs_cm.busy_ports, 0);
    end();
}

/* The kernel of a peer that many ask at once turns some away; they are asked again. */
static void no_room_is_tried_again(void)
{
    verbs_device_reset();
    verbs_cm.no_room = 3;
    calls_open(&a, &b, "VERBS_QPS=2");
    calls_meet(&a, &b);
    while (calls_state(&b, 0) != STEPAF_VERBS_CALL_UP || calls_state(&b, 1) != STEPAF_VERBS_CALL_UP)
        calls_drive(&a, &b);
    CU_ASSERT_EQUAL(calls_join(&a, reason), STEPAF_OK);
    CU_ASSERT_EQUAL(verbs_cm.no_room, 0);
    CU_ASSERT(a.links[0]->connects_again == 3 && b.links[0]->connects_again == 0);
    CU_ASSERT_EQUAL(verbs_cm.n_requests, 2);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void look(struct vside *side)
{
    ((struct stepaf_verbs *)side->transport)->looked = 0;
    stepaf_verbs_ops.check_peers(side->transport);
}

/* What ends a connection loses the peer, once, with rail, queue pair and event. */
static void events_lose_the_peer(void)
{
    static const struct {
        enum stepaf_verbs_cm_type type;
        const char *text;
    } ends[] = {
        {STEPAF_VERBS_CM_DISCONNECTED, "disconnected, status 5"},
        {STEPAF_VERBS_CM_REMOVED, "device removal, status 5"},
        {STEPAF_VERBS_CM_TIMEWAIT, "timewait exit, status 5"},
    };

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        char number[24];
        verbs_device_reset();
        begin("VERBS_QPS=2");
        snprintf(number, sizeof(number), "queue pair 0x%x", calls_qpn(&a, 1));
        verbs_cm_event(calls_qpn(&a, 1), STEPAF_VERBS_CM_OTHER, 0);
        look(&a);
        CU_ASSERT_EQUAL(a.n_lost, 0);
        verbs_cm_event(calls_qpn(&a, 1), ends[i].type, 5);
        look(&a);
        look(&a);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_CONTAINS(a.lost_reason, ends[i].text);
        UNIT_CONTAINS(a.lost_reason, "fake0:1");
        UNIT_CONTAINS(a.lost_reason, number);
        end();
    }
}

/* Under load: what had come is taken in, what is under way is over. */
static void a_disconnect_under_load_ends_all_posts(void)
{
    struct stepaf_post posts[6];
    struct stepaf_xfer writes[6][2];

    verbs_device_reset();
    begin("");
    for (int i = 0; i < 6; i++) {
        verbs_device.holds = i >= 3;
        posts[i] = vside_post(&a, 0, writes[i], 2, 4096, at_b);
        CU_ASSERT_EQUAL(vside_send(&posts[i]), STEPAF_POST_POSTED);
    }
    verbs_cm_event(calls_qpn(&b, 0), STEPAF_VERBS_CM_DISCONNECTED, 0);
    look(&b);
    CU_ASSERT_EQUAL(b.n_messages, 3);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    verbs_cm_event(calls_qpn(&a, 0), STEPAF_VERBS_CM_DISCONNECTED, 0);
    look(&a);
    while (vside_progress(&a))
        ;
    CU_ASSERT_EQUAL(a.n_lost, 1);
    for (int i = 0; i < 6; i++)
        CU_ASSERT_EQUAL(posts[i].state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(vside_send(&posts[0]), STEPAF_POST_SENT); /* into nowhere */
    end();
}

/* The other end learns that one is closed. */
static void closing_disconnects(void)
{
    verbs_device_reset();
    begin("VERBS_QPS=4");
    stepaf_verbs_ops.release_mem(a.links[0], at_b);
    vside_close(&a);
    look(&b);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    UNIT_CONTAINS(b.lost_reason, "disconnected");
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"all queue pairs of all rails connect", all_queue_pairs_of_all_rails_connect},
        {"iWARP connects and waits for the first word",
         iwarp_connects_and_waits_for_the_first_word},
        {"iWARP repeats the first word", iwarp_repeats_the_first_word},
        {"rails may differ", rails_may_differ},
        {"no GID is no obstacle", no_gid_is_no_obstacle},
        {"ports are those allowed", ports_are_those_allowed},
        {"no room is tried again", no_room_is_tried_again},
        {"events lose the peer", events_lose_the_peer},
        {"a disconnect under load ends all posts", a_disconnect_under_load_ends_all_posts},
        {"closing disconnects", closing_disconnects},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
