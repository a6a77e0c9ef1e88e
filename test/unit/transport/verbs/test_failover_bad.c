/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA over several rails of which one dies: what the peer says of it may be wrong, and what was
 * acknowledged may be gone. The link is lost then, and says why; nothing is resent that is not
 * held any more. */
#include "verbs_rails.h"

static void send_one(void)
{
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, PIECE, at_b);

    CU_ASSERT_NOT_EQUAL(vside_send(&post), STEPAF_POST_QUEUED);
    settle();
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
}

/* The first rail dies, after the peer has counted @a more messages than it has taken. */
static void miscount(int more, const char *reason)
{
    begin(two);
    for (int i = 0; i < 3; i++)
        send_one();
    CU_ASSERT_EQUAL(b.n_messages, 3);
    vside_link(&b, 0)->failover->rx_aside -= (uint32_t)more;
    CU_ASSERT(stepaf_verbs_failover_close(vside_link(&a, 0), 0, "it was pulled"));
    settle();
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, reason);
    CU_ASSERT(vside_link(&a, 0)->base.dead);
    CU_ASSERT_EQUAL(b.n_messages, 3);
    end();
}

/* The device at the other end has acknowledged the last message, and died before the host could
 * see it; the caller has its source back. */
static void what_was_acknowledged_can_be_gone(void)
{
    miscount(-1, "a dead rail has acknowledged data that the peer does not have");
}

static void the_peer_may_have_counted_more_than_there_are(void)
{
    miscount(1, "it reports that it has received 4 messages, of 3");
}

static void say(uint8_t type, uint8_t rails, uint8_t n_words)
{
    struct stepaf_msg msg = {.type = type, .slot = rails, .n_words = n_words};

    stepaf_verbs_failover_told(vside_link(&a, 0), &msg);
}

static void what_makes_no_sense_is_dropped(void)
{
    const uint8_t n_words = sizeof(uint16_t[STEPAF_VERBS_PATHS_MAX]) / sizeof(uint32_t);

    begin(two);
    say(STEPAF_VERBS_MSG_CLOSED, 0, n_words);
    say(STEPAF_VERBS_MSG_CLOSED, 1 << 2, n_words); /* there are two rails */
    say(STEPAF_VERBS_MSG_CLOSED, 1, n_words - 1);
    say(STEPAF_VERBS_MSG_TAKEN, 0, 0);
    say(STEPAF_VERBS_MSG_TAKEN, 1 << 7, 0);
    say(STEPAF_VERBS_MSG_NOTHING + 1, 1, n_words);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 6);
    CU_ASSERT_EQUAL(vside_link(&a, 0)->failover->closed, 0);
    send_one();
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    end();
}

static void the_peer_may_close_all(void)
{
    begin(two);
    say(STEPAF_VERBS_MSG_CLOSED, 3, sizeof(uint16_t[STEPAF_VERBS_PATHS_MAX]) / sizeof(uint32_t));
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, "all rails are dead, at one end or the other");
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what was acknowledged can be gone", what_was_acknowledged_can_be_gone},
        {"the peer may have counted more than there are",
         the_peer_may_have_counted_more_than_there_are},
        {"what makes no sense is dropped", what_makes_no_sense_is_dropped},
        {"the peer may close all", the_peer_may_close_all},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
