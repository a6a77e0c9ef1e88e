/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA over several rails of which one dies: at each moment at which it can, nothing is lost, and
 * nothing comes twice. */
#include "verbs_rails.h"

static struct stepaf_xfer back[STEPAF_MAX_TENSORS];

static const char three[] = "NET_DEVICES=fake0,fake1,fake2 VERBS_STRIPE_BYTES=4096";

/* One post of two tensors over rails of which the first dies with its n-th work request; *late*:
 * the peer has it all the same. */
static void die_at(int n, bool late, uint32_t bytes)
{
    begin(two);
    verbs_device.dies_after = n;
    verbs_device.dies_late = late;
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, bytes, at_b);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    settle();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT(is_there(2 * (size_t)bytes));
    CU_ASSERT_EQUAL(a.links[0]->bytes_sent, 2 * (size_t)bytes);
    CU_ASSERT_EQUAL(a.links[0]->messages_sent, 1);
    CU_ASSERT_EQUAL(a.links[0]->messages_again, !(late && n == 2)); /* else it had arrived */
    for (int i = 0; i < 200; i++) { /* and it goes on, for longer than there are receives */
        post = vside_post(&a, 0, xfers, 2, bytes, at_b);
        CU_ASSERT_NOT_EQUAL(vside_send(&post), STEPAF_POST_QUEUED);
        settle();
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    }
    CU_ASSERT_EQUAL(b.n_messages, 201);
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    end();
}

static void a_rail_dies_before_during_and_after_a_post(void)
{
    for (int n = 1; n <= 2; n++)
        for (int late = 0; late < 2; late++) {
            die_at(n, late, 16); /* inline, too */
            die_at(n, late, PIECE);
        }
}

/* Arrived, but its completion is lost: it is known to be there, and not written again. */
static void what_has_arrived_is_not_written_again(void)
{
    begin(two);
    verbs_device.dies_after = 2;
    verbs_device.dies_late = true;
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, PIECE, at_b);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    memset(b.regions[0].base, 0, BYTES); /* its owner goes on to use it */
    settle();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    for (int i = 0; i < BYTES; i++)
        CU_ASSERT_EQUAL_FATAL(b.regions[0].base[i], 0);
    end();
}

/* The rail that only carries pieces; the message is there, and waits. */
static void pieces_on_a_dead_rail_come_again(void)
{
    for (int dies = 0; dies < 3; dies++)
        for (int late = 0; late < 2; late++) {
            begin(three);
            verbs_device.dies = dies;
            verbs_device.dies_after = 1;
            verbs_device.dies_late = late;
            struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
            struct stepaf_post next = vside_post(&a, 0, back, 1, 64, at_b);
            next.msg.plan = 4;
            next.msg.n = 1; /* through the ring */
            next.msg.n_words = 3;
            CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
            while (vside_send(&next) == STEPAF_POST_QUEUED)
                settle();
            settle();
            CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
            CU_ASSERT_EQUAL(next.state, STEPAF_POST_SENT);
            CU_ASSERT_EQUAL_FATAL(b.n_messages, 2);
            CU_ASSERT_EQUAL(b.messages[0].plan, 3);
            CU_ASSERT_EQUAL(b.messages[1].plan, 4);
            CU_ASSERT(is_there(BYTES));
            post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
            memset(b.regions[0].base, 0, BYTES);
            CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED); /* over the two that are left */
            settle();
            CU_ASSERT_EQUAL(b.n_messages, 3);
            CU_ASSERT(is_there(BYTES));
            CU_ASSERT_EQUAL(a.links[0]->bytes_sent, 2 * BYTES + 64);
            struct stepaf_rail_count rails[STEPAF_LINK_RAILS];
            uint64_t sum = 0;
            CU_ASSERT_EQUAL(stepaf_verbs_ops.count_rails(a.links[0], rails), 3);
            for (int r = 0; r < 3; r++) {
                CU_ASSERT(rails[r].is_up == (r != dies) && rails[r].bytes_sent > 0);
                sum += rails[r].bytes_sent;
            }
            bool again = a.links[0]->messages_again > 0;
            CU_ASSERT(again ? sum > 2 * BYTES + 64 : sum == 2 * BYTES + 64);
            CU_ASSERT(again || late);
            end();
        }
}

/* Both ends have something under way, and find out by themselves. */
static void both_ends_find_out_at_once(void)
{
    begin(two);
    verbs_device.holds = true;
    struct stepaf_post there = vside_post(&a, 0, xfers, 2, PIECE, at_b);
    struct stepaf_post here = vside_post(&b, 0, back, 2, PIECE, at_a);
    back[0].src = b.regions[0].base + 4 * PIECE; /* where nothing comes to */
    memset(b.regions[0].base + 4 * PIECE, 0x5a, PIECE);
    vside_send(&there);
    vside_send(&here);
    verbs_device.dead = 1;
    verbs_device_go();
    vside_progress(&a);
    vside_progress(&b);
    settle();
    CU_ASSERT_EQUAL(a.n_messages, 1);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT_EQUAL(there.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(here.state, STEPAF_POST_SENT);
    CU_ASSERT(!memcmp(a.regions[1].base, b.regions[0].base + 4 * PIECE, PIECE));
    CU_ASSERT(is_there(2 * PIECE));
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    end();
}

/* An event at one end is enough, and one that concerns the last rail changes nothing. */
static void one_end_tells_the_other(void)
{
    static const enum ibv_event_type events[] = {IBV_EVENT_PORT_ERR, IBV_EVENT_DEVICE_FATAL,
                                                 IBV_EVENT_QP_FATAL, IBV_EVENT_PATH_MIG_ERR};

    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        begin(two);
        verbs_device_event(events[i], vside_link(&a, 0)->paths[0].qp->qp_num);
        look(&a);
        CU_ASSERT_EQUAL(vside_link(&a, 0)->halt, STEPAF_VERBS_HALTED);
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
        CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_QUEUED);
        settle();
        CU_ASSERT_TRUE(vside_link(&b, 0)->paths[0].closed);
        CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
        settle();
        CU_ASSERT_EQUAL(b.n_messages, 1);
        CU_ASSERT_PTR_EQUAL(vside_link(&b, 0)->lead, &vside_link(&b, 0)->paths[1]);
        CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
        end();
    }
}

/* One by one, until none is left; then the peer is lost, once. */
static void rails_die_until_none_is_left(void)
{
    for (int first = 0; first < 3; first++) {
        begin(three);
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
        verbs_device.dead = 1u << first;
        vside_send(&post);
        verbs_device.dead |= 1u << (first + 1) % 3; /* before anything was said of the first */
        settle();
        CU_ASSERT_EQUAL(b.n_messages, 1);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        CU_ASSERT(is_there(BYTES));
        CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
        verbs_device.dead = 7;
        post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
        vside_send(&post);
        settle();
        CU_ASSERT_EQUAL(a.n_lost, 1);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        UNIT_CONTAINS(a.lost_reason, "some error");
        end();
    }
}

/* Each end finds another rail dead, and there is a third; or there is none. */
static void each_end_finds_another_rail_dead(void)
{
    for (int n = 2; n <= 3; n++) {
        begin(n == 2 ? two : three);
        verbs_device_event(IBV_EVENT_QP_FATAL, vside_link(&a, 0)->paths[0].qp->qp_num);
        look(&a);
        verbs_device_event(IBV_EVENT_QP_FATAL, vside_link(&b, 0)->paths[1].qp->qp_num);
        look(&b);
        settle();
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, BYTES, at_b);
        vside_send(&post);
        settle();
        CU_ASSERT_EQUAL(b.n_messages, n == 2 ? 0 : 1);
        CU_ASSERT_EQUAL(a.n_lost, n == 2);
        CU_ASSERT_EQUAL(b.n_lost, n == 2);
        end();
    }
}

/* All receives hold messages that wait for a piece on the dead rail: what there is to say of that
 * finds one all the same. A device that never returns them only takes longer. */
static void there_is_room_to_speak_of_it(void)
{
    static struct stepaf_post posts[32];
    static struct stepaf_xfer writes[32];

    for (int lazy = 0; lazy < 2; lazy++) {
        unsigned sent = 0;
        begin("NET_DEVICES=fake0,fake1 VERBS_STRIPE_BYTES=4096 VERBS_RECEIVES=16");
        verbs_device.no_flush = lazy;
        verbs_device.holds_qpn = vside_link(&a, 0)->paths[1].qp->qp_num;
        posts[0] = vside_post(&a, 0, &writes[0], 1, 8192, at_b);
        while (vside_send(&posts[sent]) != STEPAF_POST_QUEUED && ++sent < 32) {
            posts[sent] = vside_post(&a, 0, &writes[sent], 1, 16, at_b);
            posts[sent].msg.seq = sent;
            vside_progress(&a);
            vside_progress(&b);
        }
        CU_ASSERT(sent >= 10 && sent < 16);
        CU_ASSERT_EQUAL(b.n_messages, 0);
        verbs_device.dead = 2;
        verbs_device_go();
        settle();
        CU_ASSERT_EQUAL(b.n_messages, sent);
        for (unsigned i = 0; i < sent; i++) {
            CU_ASSERT_EQUAL(b.messages[i].seq, i);
            CU_ASSERT_EQUAL(posts[i].state, STEPAF_POST_SENT);
        }
        CU_ASSERT(is_there(8192));
        CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
        end();
    }
}

/* Acknowledged, so that its source is used for something else, but not looked at yet when the rail
 * is found dead: it is taken before anything else is said. */
static void what_had_come_is_taken(void)
{
    begin(two);
    for (unsigned i = 0; i < 50; i++) {
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, PIECE, at_b);
        post.msg.seq = i;
        vside_send(&post);
        vside_progress(&a);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    }
    verbs_device_event(IBV_EVENT_PORT_ERR, 0);
    look(&b);
    settle();
    CU_ASSERT_EQUAL_FATAL(b.n_messages, 50);
    for (unsigned i = 0; i < 50; i++)
        CU_ASSERT_EQUAL(b.messages[i].seq, i);
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    end();
}

/* A post that had no room for all of it begins anew. */
static void half_a_post_begins_again(void)
{
    begin("NET_DEVICES=fake0,fake1 VERBS_SEND_DEPTH=32");
    verbs_device.holds = true;
    static struct stepaf_xfer writes[8][8];
    struct stepaf_post posts[8];
    unsigned n = 0;
    do
        posts[n] = vside_post(&a, 0, writes[n], 8, PIECE, at_b);
    while (vside_send(&posts[n]) != STEPAF_POST_QUEUED && ++n < 8);
    CU_ASSERT(n > 1 && n < 8 && posts[n].at > 0);
    memset(b.regions[0].base, 0, BYTES);
    verbs_device.dead = 1;
    verbs_device_go();
    while (vside_send(&posts[n]) == STEPAF_POST_QUEUED) {
        vside_progress(&a);
        vside_progress(&b);
    }
    settle();
    CU_ASSERT_EQUAL(b.n_messages, n + 1);
    CU_ASSERT_EQUAL(posts[n].state, STEPAF_POST_SENT);
    CU_ASSERT(is_there(8 * PIECE));
    CU_ASSERT_EQUAL(a.links[0]->bytes_sent, (n + 1) * 8 * PIECE);
    CU_ASSERT_EQUAL(a.links[0]->messages_again, n + 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a rail dies before, during and after a post", a_rail_dies_before_during_and_after_a_post},
        {"what has arrived is not written again", what_has_arrived_is_not_written_again},
        {"pieces on a dead rail come again", pieces_on_a_dead_rail_come_again},
        {"both ends find out at once", both_ends_find_out_at_once},
        {"one end tells the other", one_end_tells_the_other},
        {"rails die until none is left", rails_die_until_none_is_left},
        {"each end finds another rail dead", each_end_finds_another_rail_dead},
        {"there is room to speak of it", there_is_room_to_speak_of_it},
        {"what had come is taken", what_had_come_is_taken},
        {"half a post begins again", half_a_post_begins_again},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
