/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: errors, silence and processes that end lose the peers that they are of, and no others;
 * long posts, and when all is quiet. */
#include "base/time.h"
#include "three.h"

enum { ROOM = 65536 };

static void errors_lose_the_peer_and_no_other(void)
{
    for (int when = 1; when <= 2; when++) {
        begin();
        struct stepaf_mem *source = fabric_memory(&a, ROOM);
        (void)fabric_memory(&b, ROOM);
        struct stepaf_rmem *rmem = side_import(&a, 0, &b, &b.regions[0]);
        struct stepaf_xfer xfer = {source->base, source, rmem, 0, 100};
        struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
        struct stepaf_post *posts[] = {&post};
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 5};
        ofi_fabric.fail_after = when; /* the piece; the message */
        CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
        take_in_all();
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "efa: the connection was reset");
        CU_ASSERT_EQUAL(b.n_messages, 0);
        side_ops->retire(&post);
        CU_ASSERT_EQUAL(side_say(&a, 0, 6), STEPAF_POST_SENT); /* to nobody */
        check_link(&c, 1);
        side_ops->release_mem(a.links[0], rmem);
        end();
    }
}

static void a_peer_that_is_gone_is_lost(void)
{
    begin();
    ofi_fabric.dead = 1u << ofi_fabric_number(&b);
    CU_ASSERT_EQUAL(side_say(&a, 0, 6), STEPAF_POST_SENT);
    take_in_all();
    CU_ASSERT_EQUAL(a.n_lost, 1);
    check_link(&c, 1);
    ofi_fabric.refuse_write = FI_ECONNRESET;
    CU_ASSERT_EQUAL(side_say(&a, 1, 6), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(a.n_lost, 2);
    UNIT_STRING(a.lost_reason, "efa: the connection was reset");
    end();
}

/* Of memory that the peer does not have, or not any more. */
static void a_write_that_is_refused_loses_the_peer(void)
{
    begin();
    struct stepaf_mem *source = fabric_memory(&a, ROOM);
    (void)fabric_memory(&b, ROOM);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, &b.regions[0]);
    struct stepaf_xfer xfer = {source->base, source, rmem, 0, 100};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    side_ops->dereg_mem(b.transport, &b.regions[0]);
    side_ops->dereg_mem(b.transport, &b.regions[0]);
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    take_in_all();
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "efa: Permission denied");
    CU_ASSERT_EQUAL(b.n_messages, 0);
    side_ops->release_mem(a.links[0], rmem);
    end();
}

static void errors_of_nobody_are_counted(void)
{
    begin();
    ofi_fabric_say_error(&a, NULL, FI_EIO);
    ofi_fabric_say_error(&a, ofi_of(&a)->pool.ops + STEPAF_OFI_OPS + STEPAF_OFI_RESERVE, FI_EIO);
    take_in_all();
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 2);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    check_link(&b, 0);
    end();
}

static void a_broken_queue_loses_all(void)
{
    begin();
    ofi_fabric.broken = true;
    CU_ASSERT_EQUAL(side_progress(&a), 0);
    CU_ASSERT_EQUAL(a.n_lost, 2);
    UNIT_CONTAINS(a.lost_reason, "efa: ");
    end();
}

/* Neither an error nor an end of what was written. */
static void who_takes_in_nothing_is_lost_in_time(void)
{
    begin();
    a.env.ofi_peer_timeout_us = 20000;
    ofi_fabric.mute = 1u << ofi_fabric_number(&a);
    CU_ASSERT_EQUAL(side_say(&a, 0, 6), STEPAF_POST_SENT);
    fabric_ask_silence_ends(&a, 2);
    end();
}

static void a_process_that_ends_is_lost(void)
{
    ofi_fabric_reset(22);
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    fabric_ask_process_ends(&a, &b);
}

static void who_is_not_read_is_not_lost(void)
{
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        if (is_wide)
            begin_wide();
        else
            begin();
        a.env.ofi_peer_timeout_us = 40000;
        fabric_ask_unread_lives(&a, &b);
        fabric_ask_unseen_lives(&a);
        end();
    }
}

static void last_words_are_delivered(void)
{
    begin();
    fabric_ask_last_words(&a, &b, &c);
    end();
}

static void refuse_all(void)
{
    ofi_fabric.refuse_write = FI_ECONNRESET;
}

static void last_words_come_before_a_refused_credit(void)
{
    begin();
    fabric_ask_words_before_refusal(&a, &b, refuse_all);
    UNIT_STRING(a.lost_reason, "efa: the connection was reset");
    end();
}

/* A look has set them aside. */
static void last_words_come_before_a_refused_post(void)
{
    begin();
    CU_ASSERT_EQUAL(side_say(&b, 0, 2), STEPAF_POST_SENT);
    for (int i = 0; i < 300; i++) {
        (void)side_progress(&b);
        fabric_of(&a)->looked_ns = 0;
        side_ops->check_peers(a.transport);
    }
    refuse_all();
    CU_ASSERT_EQUAL(side_say(&a, 0, 3), STEPAF_POST_QUEUED);
    CU_ASSERT_EQUAL(a.n_messages + a.n_lost, 0);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, 1);
    CU_ASSERT_EQUAL(side_say(&a, 0, 3), STEPAF_POST_SENT); /* to nobody */
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, "efa: the connection was reset");
    end();
}

/* A link that is closed while its peer is to be told how much has been taken, for which there was
 * no room. What comes by the other one is set aside by a look, so that all links are gone through
 * behind it. */
static void a_link_that_is_closed_is_not_written_to(void)
{
    begin();
    for (uint32_t i = 0; i < STEPAF_FABRIC_RING / 2; i++)
        CU_ASSERT_EQUAL(side_say(&b, 0, i), STEPAF_POST_SENT);
    ofi_fabric.refuse_write = FI_EAGAIN;
    take_in_all();
    CU_ASSERT_EQUAL(a.n_messages, STEPAF_FABRIC_RING / 2);
    const struct stepaf_fabric_link *link = fabric_link(&a, 0);
    CU_ASSERT_EQUAL(link->taken - link->told, STEPAF_FABRIC_RING / 2);
    side_ops->disconnect(a.links[0]);
    ofi_fabric.refuse_write = 0;
    CU_ASSERT_EQUAL(side_say(&c, 0, 9), STEPAF_POST_SENT);
    unsigned before = ofi_fabric.n_writes;
    for (int i = 0; i < 300; i++) {
        (void)side_progress(&c);
        fabric_of(&a)->looked_ns = 0;
        side_ops->check_peers(a.transport);
    }
    CU_ASSERT_EQUAL(a.n_messages, STEPAF_FABRIC_RING / 2);
    CU_ASSERT_TRUE(ofi_of(&a)->is_due);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, STEPAF_FABRIC_RING / 2 + 1);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, before);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    check_link(&c, 1);
    end();
}

/* More pieces than writes can be under way, of which none has rung. */
static void a_long_post_goes_through(void)
{
    begin();
    struct stepaf_mem *source = fabric_memory(&a, ROOM);
    (void)fabric_memory(&b, ROOM);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, &b.regions[0]);
    struct stepaf_xfer xfer = {source->base, source, rmem, 0, ROOM};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    ofi_of(&a)->piece_max = 32;
    memset(source->base, 0x77, ROOM);
    for (int i = 0; i < 10000 && side_ops->post(posts, 1); i++)
        take_in_all();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
    CU_ASSERT_EQUAL(b.regions[0].base[ROOM - 1], 0x77);
    take_in_all();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    side_ops->release_mem(a.links[0], rmem);
    end();
}

static void quiet_is_when_all_is_acknowledged(void)
{
    uint32_t peer = 9;

    begin();
    take_in_all();
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, true, &peer));
    ofi_fabric.holds = true;
    CU_ASSERT_EQUAL(side_say(&a, 1, 6), STEPAF_POST_SENT);
    CU_ASSERT_FALSE(side_ops->is_quiet(a.transport, true, &peer));
    CU_ASSERT_EQUAL(peer, 1);
    ofi_fabric.holds = false;
    take_in_all();
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, false, &peer));
    end();
}

/* A lost peer's process may return by another transport, which disconnects its link here: the fabric
 * still reads what is under way over it. */
static void quiet_waits_for_links_that_are_gone(void)
{
    uint32_t peer = 9;

    begin();
    struct stepaf_mem *source = fabric_memory(&a, ROOM);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, fabric_memory(&b, ROOM));
    struct stepaf_xfer xfer = {source->base, source, rmem, 0, 5000};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 5};
    take_in_all();
    ofi_fabric.holds = true;
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    a.up.lost(&a.up, a.links[0], "given up");
    side_ops->retire(&post);
    side_ops->release_mem(a.links[0], rmem);
    side_ops->disconnect(a.links[0]);
    CU_ASSERT_FALSE(side_ops->is_quiet(a.transport, true, &peer));
    CU_ASSERT_EQUAL(peer, 0);
    ofi_fabric.holds = false;
    take_in_all();
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, false, &peer));
    end();
}

/* A second hello says that nothing more is to come: it is answered once, where this is needed at
 * all. */
static void ends_are_agreed_upon(void)
{
    begin();
    struct stepaf_ofi *ours = ofi_of(&a), *theirs = ofi_of(&b);
    CU_ASSERT_FALSE(stepaf_ofi_link(ours, 0)->is_over || stepaf_ofi_link(theirs, 0)->is_over);
    unsigned before = ofi_fabric.n_writes;
    CU_ASSERT_TRUE(stepaf_ofi_control(&stepaf_ofi_link(theirs, 0)->shared, STEPAF_FABRIC_HELLO));
    take_in_all();
    CU_ASSERT_TRUE(stepaf_ofi_link(ours, 0)->is_over);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, before + 1);
    stepaf_ofi_end(ours); /* which does nothing */
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, before + 1);
    ours->ends_together = theirs->ends_together = ofi_of(&c)->ends_together = true;
    CU_ASSERT_TRUE(
        stepaf_ofi_control(&stepaf_ofi_link(ofi_of(&c), 0)->shared, STEPAF_FABRIC_HELLO));
    take_in_all();
    CU_ASSERT_TRUE(stepaf_ofi_link(ours, 1)->is_over && stepaf_ofi_link(ours, 1)->says_end);
    CU_ASSERT_TRUE(stepaf_ofi_link(ofi_of(&c), 0)->is_over);
    before = ofi_fabric.n_writes;
    int64_t since = stepaf_monotonic_ns();
    stepaf_ofi_end(
        ours); /* b is told, and waited for no more than a moment, in which it can read that */
    CU_ASSERT(stepaf_monotonic_ns() - since >= 200000000);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, before + 1);
    take_in_all();
    CU_ASSERT_TRUE(stepaf_ofi_link(theirs, 0)->is_over && stepaf_ofi_link(theirs, 0)->says_end);
    ours->ends_together = theirs->ends_together = ofi_of(&c)->ends_together = false;
    check_link(&b, 0);
    check_link(&c, 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"errors lose the peer, and no other", errors_lose_the_peer_and_no_other},
        {"a peer that is gone is lost", a_peer_that_is_gone_is_lost},
        {"a write that is refused loses the peer", a_write_that_is_refused_loses_the_peer},
        {"errors of nobody are counted", errors_of_nobody_are_counted},
        {"a broken queue loses all", a_broken_queue_loses_all},
        {"who takes in nothing is lost in time", who_takes_in_nothing_is_lost_in_time},
        {"a process that ends is lost", a_process_that_ends_is_lost},
        {"who is not read is not lost", who_is_not_read_is_not_lost},
        {"last words are delivered", last_words_are_delivered},
        {"last words come before a refused credit", last_words_come_before_a_refused_credit},
        {"last words come before a refused post", last_words_come_before_a_refused_post},
        {"a link that is closed is not written to", a_link_that_is_closed_is_not_written_to},
        {"a long post goes through", a_long_post_goes_through},
        {"quiet is when all is acknowledged", quiet_is_when_all_is_acknowledged},
        {"quiet waits for links that are gone", quiet_waits_for_links_that_are_gone},
        {"ends are agreed upon", ends_are_agreed_upon},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
