/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: posts of one tensor whose only write says the message as well. What they leave behind
 * where the write is refused, fails, or has no room, and up to which length they are such. Most
 * of it with one rail, and with two. */
#include "three.h"

enum {
    RAILS = 2,
    POSTS = 4,
    AHEAD = STEPAF_FABRIC_RING,
    AREA = 1024,
    ROOM = (AHEAD + 1) * AREA,
    SHARE = 256,
    PIECE = 300
};

static struct stepaf_mem *source, *target;
static struct stepaf_rmem *there;
static struct stepaf_xfer xfers[AHEAD + 1];
static struct stepaf_post made[AHEAD + 1];

/* Three sides of so many rails, and memory that the first writes from and to. */
static void begin_rails(int n)
{
    static const char *const domains[] = {"d0", "d1", NULL};
    static const char *const settings[RAILS][5] = {
        {"STEPAF_TRANSPORTS", "ofi", "STEPAF_OFI_DOMAINS", "d0"},
        {"STEPAF_TRANSPORTS", "ofi", "STEPAF_OFI_DOMAINS", "d0,d1"}};

    ofi_fabric_reset(61);
    ofi_fabric.domains = domains;
    ofi_fabric.cq_data_size = 8;
    side_settings = settings[n - 1];
    fabric_open_three(all);
    side_settings = NULL;
    ofi_of(&a)->share_min = SHARE;
    source = fabric_memory(&a, ROOM);
    target = fabric_memory(&b, ROOM);
    there = side_import(&a, 0, &b, target);
}

static void end_rails(void)
{
    side_ops->release_mem(a.links[0], there);
    CU_ASSERT_EQUAL(ofi_fabric.n_foreign, 0);
    end();
}

static uint8_t byte_of(unsigned i, uint32_t at)
{
    return (uint8_t)(7 * at + i + 1);
}

/* The n-th post, of a tensor of so many bytes in an area of its own: a START of this number. */
static void compose(unsigned i, uint32_t bytes)
{
    for (uint32_t at = 0; at < AREA; at++) {
        source->base[i * AREA + at] = byte_of(i, at);
        target->base[i * AREA + at] = 0;
    }
    xfers[i] =
        (struct stepaf_xfer){source->base + (size_t)i * AREA, source, there, i * AREA, bytes};
    made[i] = (struct stepaf_post){.link = a.links[0], .xfer = &xfers[i], .n_xfer = 1};
    made[i].msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = i};
    made[i].is_short = stepaf_msg_to_imm(&made[i].msg, &made[i].imm);
}

/* Offer the n-th post; its state. */
static enum stepaf_post_state offer(unsigned i)
{
    struct stepaf_post *post = &made[i];
    unsigned n_queued = side_ops->post(&post, 1);

    CU_ASSERT_EQUAL(n_queued, post->state == STEPAF_POST_QUEUED);
    return (enum stepaf_post_state)post->state;
}

static enum stepaf_post_state send_tensor(unsigned i, uint32_t bytes)
{
    compose(i, bytes);
    return offer(i);
}

/* The n-th post has arrived: these bytes, and no other. */
static void check_bytes(unsigned i, uint32_t bytes)
{
    uint32_t n_wrong = 0;

    for (uint32_t at = 0; at < AREA; at++)
        n_wrong += target->base[i * AREA + at] != (at < bytes ? byte_of(i, at) : 0);
    CU_ASSERT_EQUAL(n_wrong, 0);
}

/* The n-th post comes, as the n-th message and by one message of 32 bits, and its end is told. */
static void check_arrival(unsigned i, uint32_t bytes)
{
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, i + 1));
    check_bytes(i, bytes);
    take_in_all();
    CU_ASSERT_EQUAL(made[i].state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_messages, i + 1);
    CU_ASSERT_EQUAL(b.n_by_imm, i + 1);
    CU_ASSERT_EQUAL(b.messages[i].seq, i);
}

/* Nothing is under way to b, and no post is in use. */
static void check_unused(void)
{
    const struct stepaf_fabric_link *link = fabric_link(&a, 0);
    uint32_t peer;

    for (int i = 0; i < STEPAF_FABRIC_RING; i++)
        CU_ASSERT(!link->flight[i].post && !link->flight[i].pending);
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, true, &peer));
}

static ssize_t (*writes)(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags);
static unsigned n_calls;

static ssize_t refuse_one(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    return n_calls++ ? writes(ep, msg, flags) : -FI_ECONNRESET;
}

/* Only the first write is refused: a second one would get through. */
static void a_refusal_loses_the_peer_once(void)
{
    for (int n = 1; n <= RAILS; n++) {
        begin_rails(n);
        check_link(&b, 0); /* the next goes by the second rail, if there is one */
        compose(0, 64);
        compose(1, 64);
        writes = ofi_fabric_rma.writemsg;
        ofi_fabric_rma.writemsg = refuse_one;
        n_calls = 0;
        CU_ASSERT_EQUAL(side_ops->post((struct stepaf_post *[]){&made[0], &made[1]}, 2), 0);
        CU_ASSERT_EQUAL(send_tensor(2, 64), STEPAF_POST_SENT);
        take_in_all();
        CU_ASSERT_EQUAL(n_calls, 1);
        ofi_fabric_rma.writemsg = writes;
        CU_ASSERT(made[0].state == STEPAF_POST_SENT && made[1].state == STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "efa: the connection was reset");
        check_unused();
        CU_ASSERT_EQUAL(b.n_messages, 1);
        check_bytes(0, 0);
        check_link(&c, 1);
        end_rails();
    }
}

/* What ends by an error is not said to be sent, and its place does not wait for it any more. */
static void an_error_later_loses_the_peer_once(void)
{
    for (int n = 1; n <= RAILS; n++) {
        begin_rails(n);
        for (unsigned r = 0; r < ofi_of(&b)->n_rails; r++)
            ofi_fabric.dead |= 1u << ofi_fabric_number_of(&b, r);
        compose(0, 64);
        compose(1, 64);
        CU_ASSERT_EQUAL(side_ops->post((struct stepaf_post *[]){&made[0], &made[1]}, 2), 0);
        CU_ASSERT(made[0].state == STEPAF_POST_POSTED && made[1].state == STEPAF_POST_POSTED);
        take_in_all();
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "efa: the connection was reset");
        CU_ASSERT(made[0].state == STEPAF_POST_POSTED && made[1].state == STEPAF_POST_POSTED);
        check_unused();
        unsigned before = ofi_fabric.n_writes;
        CU_ASSERT_EQUAL(send_tensor(2, 64), STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(ofi_fabric.n_writes, before);
        CU_ASSERT_EQUAL(b.n_messages, 0);
        check_link(&c, 1);
        end_rails();
    }
}

/* Whether its write ends well, or by an error. */
static void what_is_retired_is_not_touched(void)
{
    struct stepaf_post before;

    for (int fails = 0; fails < 2; fails++) {
        begin_rails(1);
        ofi_fabric.holds = true;
        ofi_fabric.fail_after = fails;
        CU_ASSERT_EQUAL(send_tensor(0, 64), STEPAF_POST_POSTED);
        side_ops->retire(&made[0]);
        memset(&made[0], 0x5a, sizeof(made[0]));
        before = made[0];
        ofi_fabric.holds = false;
        take_in_all();
        CU_ASSERT_EQUAL(memcmp(&made[0], &before, sizeof(before)), 0);
        CU_ASSERT_EQUAL(b.n_messages, !fails);
        CU_ASSERT_EQUAL(a.n_lost, (unsigned)fails);
        check_unused();
        end_rails();
    }
}

/* As long as a write may be, and by one byte longer. */
static void what_is_too_long_for_a_write_is_cut(void)
{
    for (int n = 1; n <= RAILS; n++) {
        begin_rails(n);
        ofi_of(&a)->piece_max = PIECE;
        ofi_fabric.max_msg = PIECE; /* the provider takes no longer one */
        for (unsigned i = 0; i < POSTS; i++) {
            uint32_t bytes = PIECE + i % 2;
            unsigned before = ofi_fabric.n_writes;
            CU_ASSERT_EQUAL(send_tensor(i, bytes), STEPAF_POST_POSTED);
            CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, 1 + i % 2);
            check_arrival(i, bytes);
        }
        CU_ASSERT_EQUAL(a.links[0]->bytes_sent, POSTS * PIECE + POSTS / 2);
        end_rails();
    }
}

/* By each rail in turn, unless it is long enough for shares. */
static void what_is_long_enough_goes_by_all_rails(void)
{
    begin_rails(RAILS);
    const struct stepaf_ofi_path *paths = ofi_link(&a, 0)->paths;
    for (unsigned i = 0; i < POSTS; i++) {
        uint32_t bytes = 2 * SHARE - (i < 2);
        unsigned before = ofi_fabric.n_writes;
        uint64_t by_first = paths[0].bytes_sent, by_second = paths[1].bytes_sent;
        CU_ASSERT_EQUAL(send_tensor(i, bytes), STEPAF_POST_POSTED);
        CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, i < 2 ? 1 : 2);
        CU_ASSERT_EQUAL(paths[0].bytes_sent - by_first, i == 0 ? bytes : i == 1 ? 0 : SHARE);
        CU_ASSERT_EQUAL(paths[1].bytes_sent - by_second, i == 1 ? bytes : i == 0 ? 0 : SHARE);
        check_arrival(i, bytes);
    }
    end_rails();
}

/* It is offered again and again, and goes once. */
static void what_is_refused_for_a_while_arrives_once(void)
{
    for (int n = 1; n <= RAILS; n++) {
        begin_rails(n);
        for (unsigned i = 0; i < POSTS; i++) {
            unsigned before = ofi_fabric.n_writes;
            compose(i, 64);
            ofi_fabric.refuse_write = FI_EAGAIN;
            for (int offers = 0; offers < 3; offers++)
                CU_ASSERT_EQUAL(offer(i), STEPAF_POST_QUEUED);
            ofi_fabric.refuse_write = 0;
            CU_ASSERT_EQUAL(offer(i), STEPAF_POST_POSTED);
            CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, 1);
            check_arrival(i, 64);
            check_unused();
        }
        CU_ASSERT_EQUAL(a.links[0]->messages_sent, POSTS);
        CU_ASSERT_EQUAL(a.links[0]->bytes_sent, 64 * POSTS);
        CU_ASSERT_EQUAL(a.n_lost, 0);
        end_rails();
    }
}

/* A post that has a message of its own, since that is to tell the peer how much has been taken, and
 * of which only the tensor has gone. It stays so when the peer has been told in another way. */
static void what_is_begun_is_not_begun_again(void)
{
    for (int n = 1; n <= RAILS; n++) {
        begin_rails(n);
        for (unsigned i = 0; i < STEPAF_FABRIC_RING / 2 - 1; i++)
            CU_ASSERT_EQUAL(side_say(&b, 0, i), STEPAF_POST_SENT);
        take_in_all();
        CU_ASSERT_FALSE(stepaf_fabric_can_omit_credit(fabric_link(&a, 0)));
        ofi_fabric.depth = 1;
        unsigned before = ofi_fabric.n_writes;
        CU_ASSERT_EQUAL(send_tensor(0, 64), STEPAF_POST_QUEUED);
        CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, 1);
        ofi_fabric.depth = 0;
        CU_ASSERT_TRUE(stepaf_ofi_control(fabric_link(&a, 0), STEPAF_FABRIC_CREDIT));
        take_in_all(); /* the credit rings for the tensor, too; the ends of both are told */
        check_bytes(0, 64);
        check_unused();
        CU_ASSERT_TRUE(stepaf_fabric_can_omit_credit(fabric_link(&a, 0)));
        CU_ASSERT_EQUAL(offer(0), STEPAF_POST_POSTED);
        CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, 3); /* the tensor, the credit, the message */
        CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
        check_bytes(0, 64);
        take_in_all();
        CU_ASSERT(b.n_messages == 1 && !b.n_by_imm && !b.n_lost && !b.up.dropped_malformed);
        CU_ASSERT_EQUAL(made[0].state, STEPAF_POST_SENT);
        check_link(&b, 0);
        end_rails();
    }
}

static ssize_t (*reads)(struct fid_cq *cq, void *entries, size_t n);
static struct fi_cq_data_entry kept[AHEAD];
static unsigned n_kept;
static bool keeps;

/* As long as it keeps the ends of a's writes, nobody is told of these. */
static ssize_t keep_ends(struct fid_cq *cq, void *entries, size_t n)
{
    struct fi_cq_data_entry *entry = entries;

    if (cq != ofi_of(&a)->rails[0].cq)
        return reads(cq, entries, n);
    if (!keeps && n_kept) {
        *entry = kept[--n_kept];
        return 1;
    }
    ssize_t got = reads(cq, entries, 1);
    if (!keeps || got != 1 || !(entry->flags & FI_WRITE))
        return got;
    side_must(n_kept < AHEAD, "ends of writes");
    kept[n_kept++] = *entry;
    return -FI_EAGAIN;
}

/* As many as there are places are under way at most: until b has said that it has taken some, and
 * until a has heard of the end of what was in that place before. */
static void who_is_far_ahead_waits(void)
{
    for (int hears = 0; hears < 2; hears++) {
        begin_rails(1);
        keeps = !hears;
        reads = ofi_fabric_cq.read;
        ofi_fabric_cq.read = keep_ends;
        for (unsigned i = 0; i < AHEAD; i++)
            CU_ASSERT_EQUAL(send_tensor(i, 64), STEPAF_POST_POSTED);
        if (hears)
            fabric_take_in((struct side *[]){&a}, 1); /* b takes nothing */
        else
            take_in_all();
        const struct stepaf_fabric_link *link = fabric_link(&a, 0);
        CU_ASSERT(hears ? !link->credit : link->credit > 0);
        CU_ASSERT_EQUAL(link->flight[0].pending, !hears);
        CU_ASSERT_EQUAL(made[0].state, hears ? STEPAF_POST_SENT : STEPAF_POST_POSTED);
        CU_ASSERT_EQUAL(send_tensor(AHEAD, 64), STEPAF_POST_QUEUED);
        keeps = false;
        take_in_all();
        CU_ASSERT_EQUAL(b.n_messages, AHEAD);
        CU_ASSERT_EQUAL(offer(AHEAD), STEPAF_POST_POSTED);
        check_arrival(AHEAD, 64);
        for (unsigned i = 0; i < AHEAD; i++) {
            CU_ASSERT_EQUAL(made[i].state, STEPAF_POST_SENT);
            check_bytes(i, 64);
        }
        ofi_fabric_cq.read = reads;
        end_rails();
    }
}

/* It is in no memory, and is not written: the message goes alone. */
static void a_tensor_without_bytes_is_no_write(void)
{
    begin_rails(1);
    compose(0, 0);
    xfers[0].src = NULL;
    xfers[0].src_mem = NULL;
    unsigned before = ofi_fabric.n_writes;
    CU_ASSERT_EQUAL(offer(0), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, 1);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
    CU_ASSERT_EQUAL(b.n_by_imm, 0);
    check_bytes(0, 0);
    end_rails();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a refusal loses the peer once", a_refusal_loses_the_peer_once},
        {"an error later loses the peer once", an_error_later_loses_the_peer_once},
        {"what is retired is not touched", what_is_retired_is_not_touched},
        {"what is too long for a write is cut", what_is_too_long_for_a_write_is_cut},
        {"what is long enough goes by all rails", what_is_long_enough_goes_by_all_rails},
        {"what is refused for a while arrives once", what_is_refused_for_a_while_arrives_once},
        {"what is begun is not begun again", what_is_begun_is_not_begun_again},
        {"who is far ahead waits", who_is_far_ahead_waits},
        {"a tensor without bytes is no write", a_tensor_without_bytes_is_no_write},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
