/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA over several rails: what is no dead rail, what is not sent again, and what a peer should not
 * have said of rails. */
#include <errno.h>

#include "base/time.h"
#include "verbs_rails.h"

/* What the engine has let go of is not read again: its place is taken by nothing. */
static void a_forgotten_post_is_not_sent_again(void)
{
    begin(two);
    verbs_device.holds = true;
    struct stepaf_post one = vside_post(&a, 0, xfers, 1, PIECE, at_b), two_more = one;
    vside_send(&one);
    vside_send(&two_more);
    stepaf_verbs_ops.retire(&one);
    memset(&one, 0xee, sizeof(one));
    verbs_device.dead = 1;
    verbs_device_go();
    settle();
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT_EQUAL(two_more.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.up.dropped_malformed, 0);
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
    vside_send(&post);
    settle();
    CU_ASSERT_EQUAL(b.n_messages, 2);
    end();
}

/* Another rail would not help where one end does wrong. */
static void a_mistake_is_no_dead_rail(void)
{
    begin(two);
    verbs_device_revoke(((struct stepaf_verbs_rmem *)at_b)->key[0]);
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
    vside_send(&post);
    settle();
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "remote access error");
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    end();
}

/* The kernel answers EIO for its queue pairs, which it has destroyed. */
static void a_removed_device_is_a_dead_rail(void)
{
    begin(two);
    verbs_device.refuse_error = EIO;
    verbs_device_event(IBV_EVENT_DEVICE_FATAL, 0);
    look(&a);
    verbs_device.refuse_error = 0;
    CU_ASSERT_EQUAL(a.n_lost, 0);
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
    (void)vside_send(&post);
    settle();
    if (post.state == STEPAF_POST_QUEUED)
        (void)vside_send(&post);
    settle();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    end();
}

/* As long as the device may still write, nothing is sent again over another rail. */
static void a_rail_that_cannot_be_closed_ends_the_link(void)
{
    begin(two);
    verbs_device.refuse_error = EIO;
    verbs_device_event(IBV_EVENT_PORT_ERR, 0);
    look(&a);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "fake0:1 has failed, and its queue pairs cannot be closed");
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT);
    verbs_device.refuse_error = 0;
    end();
}

/* A device that takes no piece: its rail is dead, and all bytes are counted once. */
static void a_refused_piece_goes_another_way(void)
{
    begin(two);
    verbs_device.refuse_post = EIO;
    verbs_device.refuse_qpn = vside_link(&a, 0)->paths[1].qp->qp_num;
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
    (void)vside_send(&post);
    settle();
    if (post.state == STEPAF_POST_QUEUED)
        (void)vside_send(&post);
    settle();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT(is_there(BYTES));
    CU_ASSERT_EQUAL(a.links[0]->bytes_sent, BYTES);
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    end();
}

/* Who closes does not send anything again, and waits only for what goes by rails that are left. */
static void closing_does_not_wait_for_a_peer_to_agree(void)
{
    uint32_t peer;

    begin(two);
    verbs_device_event(IBV_EVENT_PORT_ERR, 0);
    look(&a);
    CU_ASSERT_EQUAL(vside_link(&a, 0)->halt, STEPAF_VERBS_HALTED);
    CU_ASSERT_FALSE(stepaf_verbs_ops.is_quiet(a.transport, true, &peer));
    ((struct stepaf_verbs *)a.transport)->closing = true;
    CU_ASSERT_TRUE(stepaf_verbs_ops.is_quiet(a.transport, true, &peer));
    verbs_device.holds = true;
    CU_ASSERT_TRUE(stepaf_verbs_tell(vside_link(&a, 0), &vside_link(&a, 0)->paths[1], false));
    CU_ASSERT_FALSE(stepaf_verbs_ops.is_quiet(a.transport, true, &peer));
    verbs_device_go();
    vside_progress(&a);
    CU_ASSERT_TRUE(stepaf_verbs_ops.is_quiet(a.transport, false, &peer));
    end();
}

/* With one rail posts of a template, and those that go the long way, are the link's. */
static void each_rail_says_what_it_has_sent(void)
{
    struct stepaf_rail_count rails[STEPAF_LINK_RAILS];

    begin(two);
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
    vside_send(&post);
    settle();
    CU_ASSERT_EQUAL_FATAL(stepaf_verbs_ops.count_rails(a.links[0], rails), 2);
    CU_ASSERT(rails[0].bytes_sent == BYTES / 2 && rails[1].bytes_sent == BYTES / 2);
    CU_ASSERT(rails[0].is_up && rails[1].is_up);
    UNIT_STRING(rails[1].name, "fake1:1");
    post = vside_post(&a, 0, xfers, 1, 64, at_b);
    vside_send(&post);
    settle();
    (void)stepaf_verbs_ops.count_rails(a.links[0], rails);
    CU_ASSERT(rails[0].bytes_sent == BYTES / 2 + 64 && rails[1].bytes_sent == BYTES / 2);
    CU_ASSERT_EQUAL(a.links[0]->messages_again + a.links[0]->connects_again, 0);
    end();
    for (int n_qps = 1; n_qps <= 2; n_qps++) {
        begin(n_qps == 1 ? "NET_DEVICES=fake0" : "NET_DEVICES=fake0 VERBS_QPS=2");
        for (int n = 1; n <= 2; n++) {
            post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
            post.is_short = n == 1 && stepaf_msg_to_imm(&post.msg, &post.imm);
            vside_send(&post);
            settle();
            CU_ASSERT_EQUAL(stepaf_verbs_ops.count_rails(a.links[0], rails), 1);
            CU_ASSERT_EQUAL(rails[0].bytes_sent, (uint64_t)n * BYTES);
        }
        end();
    }
}

/* As a thread that waits in vain does, every 10 ms, but without the time between. */
static void look_again(struct vside *side)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)side->transport;

    verbs->looked = stepaf_ticks() - 10001 * verbs->ticks_per_us;
    stepaf_verbs_ops.check_peers(side->transport);
}

/* Connected, but nothing ever comes through: the other rail takes over what waits for it. */
static void a_rail_that_is_silent_from_the_start_is_left(void)
{
    for (unsigned silent = 0; silent < 2; silent++) {
        begin("NET_DEVICES=fake0,fake1 VERBS_STRIPE_BYTES=4096 VERBS_PEER_TIMEOUT_US=20000");
        verbs_device.silent = 1u << silent;
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
        (void)vside_send(&post);
        for (int i = 0; i < 1000000 && post.state != STEPAF_POST_SENT; i++) {
            look_again(&a);
            look_again(&b);
            vside_progress(&a);
            vside_progress(&b);
            if (post.state == STEPAF_POST_QUEUED)
                (void)vside_send(&post);
        }
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(b.n_messages, 1);
        CU_ASSERT(is_there(BYTES));
        CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
        end();
    }
}

static unsigned n_held_up, last_rail;
static uint64_t last_ticks;

static void note_held_up(struct stepaf_upcalls *up, struct stepaf_link *link,
                         const struct stepaf_msg *msg, uint32_t imm, unsigned rail, uint64_t ticks)
{
    CU_ASSERT(up == &b.up && link == b.links[0] && msg && msg->type == STEPAF_MSG_START && !imm);
    n_held_up++;
    last_rail = rail;
    last_ticks = ticks;
}

/* Take in what one rail has brought, and no other. */
static void poll_rail_alone(struct vside *side, unsigned index)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)side->transport;
    const struct stepaf_verbs_rail *end = verbs->rails_end;
    struct stepaf_verbs_rail first = verbs->rails[0];

    verbs->rails[0] = verbs->rails[index];
    verbs->rails_end = &verbs->rails[1];
    vside_progress(side);
    verbs->rails[0] = first;
    verbs->rails_end = end;
}

/* The message waits for the other rail's pieces, or they for the message's; which it was is told of
 * those that have pieces there. */
static void it_is_told_which_rail_was_late(void)
{
    begin(two);
    b.up.held_up = note_held_up;
    n_held_up = 0;
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
    vside_send(&post);
    uint64_t before = stepaf_ticks();
    settle();
    CU_ASSERT_EQUAL(n_held_up, 1);
    CU_ASSERT_EQUAL(last_rail, 1); /* it is polled behind the first */
    CU_ASSERT(last_ticks <= stepaf_ticks() - before);
    post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
    vside_send(&post);
    settle();
    CU_ASSERT_EQUAL(n_held_up, 1);
    /* The other one's come first. */
    post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
    vside_send(&post);
    poll_rail_alone(&b, 1);
    settle();
    CU_ASSERT_EQUAL(n_held_up, 2);
    CU_ASSERT_EQUAL(last_rail, 0);
    CU_ASSERT_EQUAL(b.n_messages, 3);
    end();
}

/* What a peer says of rails is input. */
static void nonsense_about_rails_is_counted(void)
{
    static const struct stepaf_msg bad[] = {
        {.type = STEPAF_VERBS_MSG_CLOSED, .slot = 0, .n_words = 8},
        {.type = STEPAF_VERBS_MSG_CLOSED, .slot = 4, .n_words = 8},
        {.type = STEPAF_VERBS_MSG_CLOSED, .slot = 1, .n_words = 7},
        {.type = STEPAF_VERBS_MSG_TAKEN, .slot = 9},
        {.type = 200, .slot = 1},
    };

    begin(two);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        stepaf_verbs_failover_told(vside_link(&b, 0), &bad[i]);
    CU_ASSERT_EQUAL(b.up.dropped_malformed, sizeof(bad) / sizeof(bad[0]));
    CU_ASSERT_EQUAL(vside_link(&b, 0)->halt, STEPAF_VERBS_RUNS);
    /* more than was ever sent */
    struct stepaf_msg taken = {.type = STEPAF_VERBS_MSG_TAKEN, .slot = 1, .seq = 1000};
    verbs_device_event(IBV_EVENT_PORT_ERR, 0);
    look(&a);
    vside_progress(&a);
    vside_progress(&b);
    stepaf_verbs_failover_told(vside_link(&a, 0), &taken);
    for (int i = 0; i < 5; i++) {
        vside_progress(&b);
        vside_progress(&a);
        vside_link(&a, 0)->failover->its_taken = taken.seq;
    }
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "1000 messages");
    end();
    begin("");
    stepaf_verbs_failover_told(vside_link(&b, 0), &taken); /* with one rail there is none to lose */
    CU_ASSERT_EQUAL(b.up.dropped_malformed, 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"each rail says what it has sent", each_rail_says_what_it_has_sent},
        {"a forgotten post is not sent again", a_forgotten_post_is_not_sent_again},
        {"a mistake is no dead rail", a_mistake_is_no_dead_rail},
        {"a removed device is a dead rail", a_removed_device_is_a_dead_rail},
        {"a rail that cannot be closed ends the link", a_rail_that_cannot_be_closed_ends_the_link},
        {"a refused piece goes another way", a_refused_piece_goes_another_way},
        {"closing does not wait for a peer to agree", closing_does_not_wait_for_a_peer_to_agree},
        {"a rail that is silent from the start is left",
         a_rail_that_is_silent_from_the_start_is_left},
        {"it is told which rail was late", it_is_told_which_rail_was_late},
        {"nonsense about rails is counted", nonsense_about_rails_is_counted},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
