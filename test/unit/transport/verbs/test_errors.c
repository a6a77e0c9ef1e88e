/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: what cannot be set up, what fails under way, and what a peer should not have sent. */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/time.h"
#include "unit.h"
#include "verbs_side.h"

static struct vside a, b;
static struct stepaf_rmem *at_b;
static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];

static void begin(const char *settings)
{
    verbs_device_reset();
    vside_settings = settings;
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
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

static void expect_refused(const char *settings, stepaf_status_t status, const char *words)
{
    vside_settings = settings;
    CU_ASSERT_EQUAL(vside_try(&a, 2), status);
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void bad_settings_say_what_to_do(void)
{
    verbs_device_reset();
    expect_refused("NET_DEVICES=mlx5_9", STEPAF_ERR_SETTING, "there are: fake0, fake1");
    expect_refused("NET_DEVICES=fake0:x", STEPAF_ERR_SETTING, "is not device[:port]");
    expect_refused("NET_DEVICES=fake0:2", STEPAF_ERR_SETTING, "has 1 ports");
    expect_refused("NET_DEVICES=fake0,fake0,fake0,fake0,fake0", STEPAF_ERR_SETTING, "more than 4");
    expect_refused("VERBS_GID_INDEX=2", STEPAF_ERR_SETTING, "has GIDs 0 to 1");
    expect_refused("VERBS_RECEIVES=2048", STEPAF_ERR_NO_TRANSPORT, "lower STEPAF_VERBS_SEND_DEPTH");
    verbs_device.max_cqe = 300;
    expect_refused("", STEPAF_ERR_NO_TRANSPORT, "STEPAF_MESH=lane");
}

static void what_is_not_there_is_named(void)
{
    char reason[STEPAF_REASON_MAX];
    struct stepaf_env env = {.net_devices = (char *)""};

    verbs_device_reset();
    CU_ASSERT_TRUE(stepaf_verbs_ops.probe(&env, reason));
    UNIT_STRING(reason, "over fake0:1");
    verbs_device.no_port = true;
    CU_ASSERT_FALSE(stepaf_verbs_ops.probe(&env, reason));
    UNIT_CONTAINS(reason, "active port");
    verbs_device.no_access = true;
    CU_ASSERT_FALSE(stepaf_verbs_ops.probe(&env, reason));
    UNIT_CONTAINS(reason, "read and write access");
    expect_refused("NET_DEVICES=fake0", STEPAF_ERR_NO_TRANSPORT, "read and write access");
    verbs_device.n_devices = 0;
    CU_ASSERT_FALSE(stepaf_verbs_ops.probe(&env, reason));
    UNIT_CONTAINS(reason, "no RDMA device");
    verbs_device_reset();
    verbs_device.is_iwarp = true;
    CU_ASSERT_TRUE(stepaf_verbs_ops.probe(&env, reason));
    verbs_device.no_cm = true;
    verbs_device_take_place();
    CU_ASSERT_FALSE(stepaf_verbs_ops.probe(&env, reason));
    UNIT_CONTAINS(reason, "iWARP");
    expect_refused("NET_DEVICES=fake1", STEPAF_ERR_UNSUPPORTED, "librdmacm");
    verbs_device_reset();
    verbs_device.n_gids = 0;
    verbs_device.no_cm = true;
    verbs_device_take_place();
    expect_refused("", STEPAF_ERR_NO_TRANSPORT, "no GID");
}

/* Each of the objects made at open refused in turn: nothing is left behind. */
static void a_refusal_halfway_leaves_nothing(void)
{
    for (int n = 1; n <= 8; n++) {
        verbs_device_reset();
        verbs_device.refuse_qp = n;
        vside_settings = "NET_DEVICES=fake0,fake1 VERBS_QPS=2";
        /* the first of a rail is tried again with less inline */
        CU_ASSERT_EQUAL(vside_try(&a, 2), n == 1 || n == 3 ? STEPAF_OK : STEPAF_ERR_NO_TRANSPORT);
        if (n == 1 || n == 3)
            vside_close(&a);
        else
            UNIT_CONTAINS(stepaf_last_error()->text, "lower STEPAF_VERBS_QPS");
        CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    }
    verbs_device_reset();
    verbs_device.refuse_mr = 2;
    expect_refused("NET_DEVICES=fake0,fake1", STEPAF_ERR_NO_TRANSPORT, "cannot register");
}

/* What may be locked is named where it is limited. */
static void too_little_locked_memory_is_named(void)
{
    struct rlimit limit, little;

    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    little = (struct rlimit){.rlim_cur = 8192, .rlim_max = limit.rlim_max};
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    verbs_device_reset();
    verbs_device.refuse_mr = 1;
    expect_refused("", STEPAF_ERR_NO_TRANSPORT,
                   "at most 8 KiB may be locked: raise this limit (ulimit -l unlimited)");
    verbs_device_reset();
    verbs_device.refuse_cq = 1;
    expect_refused("NET_DEVICES=fake0", STEPAF_ERR_NO_TRANSPORT,
                   "entries: Cannot allocate memory: at most 8 KiB");
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

/* Memory that the second of two devices refuses. */
static void registering_fails_halfway(void)
{
    static uint8_t bytes[4096];
    struct stepaf_mem region = {.base = bytes, .bytes = sizeof(bytes)};

    verbs_device_reset();
    vside_settings = "NET_DEVICES=fake0,fake1";
    vside_open(&a, 1);
    int open = verbs_device.n_open;
    verbs_device.refuse_mr = 2;
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reg_mem(a.transport, &region), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "fake1:1 cannot register 4096 bytes");
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    CU_ASSERT_EQUAL(verbs_device.n_open, open);
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reg_mem(a.transport, &region), STEPAF_OK);
    vside_close(&a); /* takes it back by itself */
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void a_peer_out_of_reach_is_no_error(void)
{
    verbs_device_reset();
    vside_settings = "";
    vside_open(&a, 1);
    vside_open(&b, 1);
    verbs_device.refuse_rtr = ETIMEDOUT;
    const char *reason = vside_connect(&a, 0, &b, 0, NULL);
    UNIT_CONTAINS(reason ? reason : "", "finding the path");
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->n_links, 0);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Cut off anywhere, or with any bit turned: refused, or connected to something that holds. */
static void bad_announcements_do_no_harm(void)
{
    verbs_device_reset();
    vside_settings = "VERBS_QPS=2";
    vside_open(&b, 2);
    struct stepaf_pack pack = vside_pack(&b);
    size_t bytes = pack.bytes;
    for (pack.bytes = 0; pack.bytes < bytes; pack.bytes++) {
        vside_open(&a, 1);
        const char *reason = vside_connect(&a, 0, &b, 0, &pack);
        CU_ASSERT_PTR_NOT_NULL(reason);
        vside_close(&a);
    }
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        vside_open(&a, 1);
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)vside_connect(&a, 0, &b, 1, &pack);
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        vside_close(&a);
    }
    free(pack.data);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* An error in the middle of what is posted: told once, with rail and queue pair; the flushed rest
 * is quiet, and every post is over. */
static void a_failed_request_loses_the_peer_once(void)
{
    struct stepaf_post posts[6];
    struct stepaf_xfer writes[6][2];
    char number[24];

    begin("");
    verbs_device.holds = true;
    for (int i = 0; i < 6; i++) {
        posts[i] = vside_post(&a, 0, writes[i], 2, 4096, at_b);
        CU_ASSERT_EQUAL(vside_send(&posts[i]), STEPAF_POST_POSTED);
    }
    verbs_device.fail_after = 6;
    verbs_device.fail_status = IBV_WC_REM_ACCESS_ERR;
    snprintf(number, sizeof(number), "queue pair 0x%x", vside_link(&a, 0)->paths[0].qp->qp_num);
    verbs_device_go();
    while (vside_progress(&a))
        ;
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "remote access error");
    UNIT_CONTAINS(a.lost_reason, "fake0:1");
    UNIT_CONTAINS(a.lost_reason, number);
    for (int i = 0; i < 6; i++)
        CU_ASSERT_EQUAL(posts[i].state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(vside_send(&posts[0]), STEPAF_POST_SENT); /* into nowhere */
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, 2); /* those before it */
    end();
}

/* Whichever request of a chain fails, asked for or not: it is this peer's affair and no other's. */
static void a_failed_request_is_of_one_peer(void)
{
    static struct vside c;

    for (int which = 1; which <= 4; which++) {
        verbs_device_reset();
        vside_settings = "";
        vside_open(&a, 2);
        vside_open(&b, 1);
        vside_open(&c, 1);
        struct stepaf_pack pack = vside_pack(&a);
        CU_ASSERT_PTR_NULL_FATAL(vside_connect(&a, 0, &b, 0, NULL));
        CU_ASSERT_PTR_NULL_FATAL(vside_connect(&a, 1, &c, 0, NULL));
        CU_ASSERT_PTR_NULL_FATAL(vside_connect(&b, 0, &a, 0, &pack));
        CU_ASSERT_PTR_NULL_FATAL(vside_connect(&c, 0, &a, 1, &pack));
        free(pack.data);
        vside_memory(&a, 8192);
        struct stepaf_rmem *at_c = vside_import(&a, 1, &c, vside_memory(&c, 8192));
        struct stepaf_post post = vside_post(&a, 1, xfers, 4, 2048, at_c);
        verbs_device.fail_after = which;
        verbs_device.fail_status = IBV_WC_RETRY_EXC_ERR;
        CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
        while (vside_progress(&a))
            ;
        CU_ASSERT_EQUAL(a.n_lost, 1);
        CU_ASSERT_TRUE(a.links[1]->dead);
        CU_ASSERT_FALSE(a.links[0]->dead);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        stepaf_verbs_ops.release_mem(a.links[1], at_c);
        vside_close(&a);
        vside_close(&b);
        vside_close(&c);
        CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    }
}

static void a_key_that_is_gone_is_refused(void)
{
    begin("");
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, 4096, at_b);
    verbs_device_revoke(((struct stepaf_verbs_rmem *)at_b)->key[0]);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    vside_progress(&a);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.regions[0].base[0], 0);
    end();
}

static void posting_can_fail(void)
{
    begin("");
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, 4096, at_b);
    verbs_device.refuse_post = EIO;
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "posting");
    verbs_device.refuse_post = 0;
    end();
}

static void look(struct vside *side)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)side->transport;

    verbs->looked = stepaf_ticks() - 10001 * verbs->ticks_per_us; /* just long enough ago */
    stepaf_verbs_ops.check_peers(side->transport);
}

static void events_lose_what_they_concern(void)
{
    begin("");
    verbs_device_event(IBV_EVENT_PORT_ACTIVE, 0);
    look(&a);
    verbs_device_event(IBV_EVENT_COMM_EST, 0);
    look(&a);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    verbs_device_event(IBV_EVENT_QP_ACCESS_ERR, vside_link(&a, 0)->paths[0].qp->qp_num);
    look(&a);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    verbs_device_event(IBV_EVENT_DEVICE_FATAL, 0);
    look(&b);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    UNIT_CONTAINS(b.lost_reason, "device fatal");
    end();
}

/* A peer that acknowledges nothing is lost within the timeout, one that does is not. */
static void a_silent_peer_is_lost(void)
{
    begin("VERBS_PEER_TIMEOUT_US=1000");
    for (int i = 0; i < 100000 && !a.n_lost; i++) {
        look(&a);
        vside_progress(&a);
        verbs_device.holds = i > 1000;
    }
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "acknowledged nothing");
    CU_ASSERT(((struct stepaf_verbs *)a.transport)->links[0]->paths[0].wr.done > 0);
    end();
}

/* What is sent after a pause in which nobody has looked has as long as anything else. */
static void a_pause_is_no_silence(void)
{
    struct stepaf_post posts[3];
    struct stepaf_xfer writes[3][1];

    begin("VERBS_PEER_TIMEOUT_US=20000");
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)a.transport;
    struct stepaf_verbs_path *path = &vside_link(&a, 0)->paths[0];
    for (int i = 0; i < 3; i++) {
        look(&a);
        look(&a);
        path->wr.quiet_since -= 30000 * verbs->ticks_per_us;
        verbs_device.holds = true;
        posts[i] = vside_post(&a, 0, writes[i], 1, 4096, at_b);
        CU_ASSERT_EQUAL(vside_send(&posts[i]), STEPAF_POST_POSTED);
        vside_progress(&a);
        look(&a);
        CU_ASSERT_EQUAL(a.n_lost, 0);
        path->wr.quiet_since -= 60000 * verbs->ticks_per_us; /* nor has anybody taken in anything */
        verbs->looked -= 60000 * verbs->ticks_per_us;
        stepaf_verbs_ops.check_peers(a.transport);
        CU_ASSERT_EQUAL(a.n_lost, 0);
        verbs_device.holds = false;
        verbs_device_go();
        vside_progress(&a);
        CU_ASSERT_EQUAL(posts[i].state, STEPAF_POST_SENT);
        vside_progress(&b);
    }
    end();
}

/* What makes no sense is counted, and takes no more than its receive. */
static void stale_notifications_are_dropped(void)
{
    struct stepaf_post post = {.msg = {.type = STEPAF_MSG_RELEASE, .n_words = STEPAF_MSG_WORDS}};
    uint32_t ring = stepaf_verbs_ring_imm(0);

    begin("VERBS_RECEIVES=16");
    uint32_t qpn = vside_link(&b, 0)->paths[0].qp->qp_num;
    b.senseless = true;
    verbs_device_notify(qpn, 0x1234);
    verbs_device_notify(qpn, ring | 1); /* its number is right, but there is no message */
    verbs_device_notify(qpn, ring | 3);
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, 0);
    CU_ASSERT_EQUAL(b.up.dropped_malformed, 2);
    CU_ASSERT_EQUAL(b.n_by_imm, 1);
    vside_link(&a, 0)->paths[0].tx.next = 3; /* the peer counts what was said in its name */
    post.link = a.links[0];
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT);
    verbs_device_notify(qpn, ring | 4); /* the same once more */
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT_EQUAL(b.up.dropped_malformed, 3);
    CU_ASSERT_EQUAL(b.n_lost, 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"bad settings say what to do", bad_settings_say_what_to_do},
        {"what is not there is named", what_is_not_there_is_named},
        {"a refusal halfway leaves nothing", a_refusal_halfway_leaves_nothing},
        {"too little locked memory is named", too_little_locked_memory_is_named},
        {"registering fails halfway", registering_fails_halfway},
        {"a peer out of reach is no error", a_peer_out_of_reach_is_no_error},
        {"bad announcements do no harm", bad_announcements_do_no_harm},
        {"a failed request loses the peer once", a_failed_request_loses_the_peer_once},
        {"a failed request is of one peer", a_failed_request_is_of_one_peer},
        {"a key that is gone is refused", a_key_that_is_gone_is_refused},
        {"posting can fail", posting_can_fail},
        {"events lose what they concern", events_lose_what_they_concern},
        {"a silent peer is lost", a_silent_peer_is_lost},
        {"a pause is no silence", a_pause_is_no_silence},
        {"stale notifications are dropped", stale_notifications_are_dropped},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
