/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: what strangers and broken peers may write, and what a fabric may say, changes nothing but what it must.
 * Three sides: the first has two peers, and what becomes of one link leaves the other as it is. */
#define _GNU_SOURCE 1 /* memmem */

#include "ofi_fabric.h"
#include "unit.h"

static struct side a, b, c;
static struct side *const all[] = {&a, &b, &c};

enum { FLOOD = 10000, ROOM = 65536 };

static void begin(void)
{
    ofi_fabric_reset(21);
    fabric_open_three(all);
}

static void begin_wide(void)
{
    ofi_fabric_reset(24);
    ofi_fabric.cq_data_size = 8;
    fabric_open_three(all);
}

/* A link of the first side is as it was. */
static void check_link(struct side *peer, uint32_t index)
{
    fabric_check_link(&a, index, peer);
}

static void end(void)
{
    for (int s = 0; s < 3; s++)
        side_close(all[s]);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

static void take_in_all(void)
{
    fabric_take_in(all, 3);
}

static uint32_t data_of(enum stepaf_fabric_kind kind, uint32_t peer, uint32_t number)
{
    return (uint32_t)kind << STEPAF_OFI_KIND_SHIFT | peer << STEPAF_OFI_PEER_SHIFT |
           (number & STEPAF_FABRIC_NUMBER);
}

static void data_of_nobody_is_dropped(void)
{
    begin();
    check_link(&b, 0);
    ofi_fabric_say(&a, 1ull << 32 | data_of(STEPAF_FABRIC_PIECE, 0, 1));
    ofi_fabric_say(&a, UINT64_MAX);
    for (uint32_t kind = STEPAF_FABRIC_PIECE; kind <= STEPAF_FABRIC_HELLO; kind++) {
        ofi_fabric_say(&a, data_of(kind, 2, 1)); /* the first peer that does not exist */
        ofi_fabric_say(&a, data_of(kind, STEPAF_FABRIC_PEERS - 1, 1));
    }
    take_in_all();
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 10);
    check_link(&b, 0);
    check_link(&c, 1);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 10);
    end();
}

/* Numbers that are not due: of what has been taken, and of what cannot be under way yet. */
static void stale_and_early_numbers_are_dropped(void)
{
    begin();
    for (int i = 0; i < 40; i++)
        check_link(&b, 0);
    uint32_t taken = ofi_link(&a, 0)->shared.taken;
    for (uint32_t n = 1; n <= FLOOD; n++) {
        ofi_fabric_say(&a, data_of(STEPAF_FABRIC_PIECE, 0, taken - n));
        ofi_fabric_say(&a, data_of(STEPAF_FABRIC_MESSAGE, 0, taken - n));
        ofi_fabric_say(&a, data_of(STEPAF_FABRIC_PIECE, 0, taken + STEPAF_FABRIC_RING + n));
        take_in_all();
    }
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 3 * FLOOD);
    CU_ASSERT_EQUAL(a.n_messages, 40);
    for (int i = 0; i < 40; i++)
        check_link(&b, 0);
    check_link(&c, 1);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    end();
}

/* The same of messages that data say; and those of a MESSAGE say whether it is in its slot. */
static void wide_data_of_nobody_are_dropped(void)
{
    const uint32_t good = data_of(STEPAF_FABRIC_MESSAGE, 0, 0);

    begin_wide();
    uint64_t before = a.up.dropped_malformed;
    ofi_fabric_say(&a, 1ull << 32 | data_of(STEPAF_FABRIC_PIECE, 0, 0));
    ofi_fabric_say(&a, 1ull << 32 | data_of(STEPAF_FABRIC_CREDIT, 0, 0));
    ofi_fabric_say(&a, (stepaf_ofi_in_slot + (1ull << 32)) | good);
    ofi_fabric_say(&a, data_of(STEPAF_FABRIC_MESSAGE, 2, 0));
    for (uint32_t low = STEPAF_FABRIC_RING; low <= STEPAF_OFI_LOW_NUMBER; low++)
        ofi_fabric_say(&a, 1ull << 32 | (good + low));
    take_in_all();
    CU_ASSERT_EQUAL(a.up.dropped_malformed - before,
                    4 + STEPAF_OFI_LOW_NUMBER + 1 - STEPAF_FABRIC_RING);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    check_link(&b, 0);
    end();
}

/* A post of tensors is as many writes, which ring together; the last says the message too, unless that is to tell the
 * peer how much has been taken. */
static void a_tensor_is_a_write(void)
{
    begin_wide();
    struct stepaf_mem *source = fabric_memory(&a, ROOM);
    (void)fabric_memory(&b, ROOM);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, &b.regions[0]);
    struct stepaf_xfer xfers[5] = {{0}};
    for (int i = 0; i < 4; i++) /* the last has no bytes */
        xfers[i] = (struct stepaf_xfer){source->base, source, rmem, 64u * (unsigned)i, 64};
    for (unsigned n = 1; n <= 5; n++) {
        struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = (uint8_t)n};
        struct stepaf_post *posts[] = {&post};
        unsigned before = ofi_fabric.n_writes;
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = n, .epoch = 3};
        CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
        CU_ASSERT_EQUAL(ofi_fabric.n_writes - before, n < 5 ? n : 4);
        CU_ASSERT_TRUE(fabric_until_messages(&b, &a, n));
        CU_ASSERT_EQUAL(b.messages[n - 1].seq, n);
        take_in_all();
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    }
    CU_ASSERT_EQUAL(b.n_by_imm, 5);
    for (unsigned i = 0; i < STEPAF_FABRIC_RING / 2 - 1; i++) {
        CU_ASSERT_EQUAL(side_say(&b, 0, i), STEPAF_POST_SENT);
        CU_ASSERT_TRUE(fabric_until_messages(&a, &b, i + 1));
    }
    struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = 1}, *posts[] = {&post};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 6};
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 6));
    CU_ASSERT_EQUAL(b.n_by_imm, 5);
    CU_ASSERT_EQUAL(ofi_link(&b, 0)->shared.credit, STEPAF_FABRIC_RING / 2 - 1);
    take_in_all();
    side_ops->release_mem(a.links[0], rmem);
    end();
}

/* Data that would be right, if only something had been written. */
static void messages_that_were_not_written_are_dropped(void)
{
    begin();
    for (int i = 0; i < 20; i++) /* slots have old messages */
        check_link(&b, 0);
    uint32_t taken = ofi_link(&a, 0)->shared.taken;
    for (uint32_t n = 0; n < STEPAF_FABRIC_RING; n++)
        ofi_fabric_say(&a, data_of(STEPAF_FABRIC_MESSAGE, 0, taken + n));
    take_in_all();
    CU_ASSERT_EQUAL(a.n_messages, 20);
    CU_ASSERT(a.up.dropped_malformed > 0);
    for (int i = 0; i < 40; i++)
        check_link(&b, 0);
    end();
}

/* A slot that somebody has written to who does not know what a peer knows, or what no peer says. */
static void slots_are_looked_at(void)
{
    begin();
    struct stepaf_ofi *ofi = ofi_of(&a);
    struct stepaf_fabric_slot good = {.token = ofi->shared.token,
                                      .msg = {.type = STEPAF_MSG_START}},
                              bad[4];
    for (int i = 0; i < 4; i++)
        bad[i] = good;
    bad[0].token++;
    bad[1].seq++;
    bad[2].msg.n_words = STEPAF_MSG_WORDS + 1;
    bad[3].msg.type = STEPAF_MSG_TRANSPORT;
    for (unsigned i = 0; i < 4; i++) {
        *stepaf_ofi_slot(ofi, false, 0, 0) = bad[i];
        ofi_fabric_say(&a, data_of(STEPAF_FABRIC_MESSAGE, 0, 0));
        take_in_all();
        CU_ASSERT_EQUAL(a.n_messages, 0);
        CU_ASSERT_EQUAL(a.up.dropped_malformed, i + 1);
    }
    *stepaf_ofi_slot(ofi, false, 0, 0) = good;
    ofi_fabric_say(&a, data_of(STEPAF_FABRIC_MESSAGE, 0, 0));
    take_in_all();
    CU_ASSERT_EQUAL(a.n_messages, 1);
    end();
}

/* Credits and hellos need the token too; and no credit is for more than was sent. */
static void credits_of_nobody_are_dropped(void)
{
    begin();
    struct stepaf_ofi *ofi = ofi_of(&a);
    struct stepaf_fabric_slot *slot = stepaf_ofi_slot(ofi, false, 0, STEPAF_FABRIC_RING);
    uint64_t token = slot->token;
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
    slot->token = ~token;
    ofi_fabric_say(&a, data_of(STEPAF_FABRIC_CREDIT, 0, 2));
    ofi_fabric_say(&a, data_of(STEPAF_FABRIC_HELLO, 0, 2));
    (void)side_progress(&a);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(ofi_link(&a, 0)->shared.credit, 0);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 2);
    slot->token = token;
    ofi_fabric_say(&a, data_of(STEPAF_FABRIC_CREDIT, 0, 4));
    ofi_fabric_say(&a, data_of(STEPAF_FABRIC_CREDIT, 0, 40000));
    for (int i = 0; i < 4; i++)
        (void)side_progress(&a);
    CU_ASSERT(ofi_link(&a, 0)->shared.credit <= 3);
    take_in_all();
    CU_ASSERT_EQUAL(b.n_messages, 3);
    check_link(&b, 0);
    end();
}

/* Nobody can say which pieces are the message's own: it is not delivered, and the link is of no use. */
static void too_many_pieces_lose_the_link(void)
{
    begin();
    (void)fabric_memory(&b, ROOM);
    struct stepaf_mem *source = fabric_memory(&a, ROOM);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, &b.regions[0]);
    struct stepaf_xfer xfer = {source->base, source, rmem, 0, 100};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 5};
    ofi_fabric_say(&b, data_of(STEPAF_FABRIC_PIECE, 0, 0));
    ofi_fabric_say(&b, data_of(STEPAF_FABRIC_PIECE, 0, 0));
    for (int i = 0; i < 4; i++)
        (void)side_progress(&b);
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    take_in_all();
    CU_ASSERT_EQUAL(b.n_messages, 0);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    UNIT_STRING(b.lost_reason, "it has written more pieces than its message has");
    check_link(&c, 1);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    side_ops->release_mem(a.links[0], rmem);
    end();
}

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
    ofi_fabric_say_error(&a, ofi_of(&a)->ops + STEPAF_OFI_OPS, FI_EIO);
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

static const char *connect_to(void (*spoil)(struct stepaf_pack *pack))
{
    return fabric_connect_spoilt(&a, &b, spoil);
}

static void cut_short(struct stepaf_pack *pack)
{
    pack->bytes -= 3;
}

static void of_another_length(struct stepaf_pack *pack)
{
    ((uint8_t *)pack->data)[pack->bytes - 20] -=
        4; /* the address is 16 bytes, its length before it */
    pack->bytes -= 4;
}

static void of_nobody(struct stepaf_pack *pack)
{
    ((uint8_t *)pack->data)[pack->bytes - 16] ^= 0xff;
}

static void of_another_provider(struct stepaf_pack *pack)
{
    char *name = memmem(pack->data, pack->bytes, "efa", 3);

    side_must(name != NULL, "a name");
    name[0] = 'c';
    name[1] = 'x';
    name[2] = 'i';
}

static void bad_addresses_are_refused(void)
{
    ofi_fabric_reset(23);
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    UNIT_STRING(connect_to(cut_short), "its address is malformed");
    UNIT_STRING(connect_to(of_another_length), "its address is malformed");
    UNIT_STRING(connect_to(of_nobody), "libfabric does not take its address");
    UNIT_STRING(connect_to(of_another_provider), "its provider is cxi, not efa");
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
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

int main(void)
{
    CU_TestInfo tests[] = {
        {"data of nobody is dropped", data_of_nobody_is_dropped},
        {"stale and early numbers are dropped", stale_and_early_numbers_are_dropped},
        {"wide data of nobody are dropped", wide_data_of_nobody_are_dropped},
        {"a tensor is a write", a_tensor_is_a_write},
        {"messages that were not written are dropped", messages_that_were_not_written_are_dropped},
        {"slots are looked at", slots_are_looked_at},
        {"credits of nobody are dropped", credits_of_nobody_are_dropped},
        {"too many pieces lose the link", too_many_pieces_lose_the_link},
        {"errors lose the peer, and no other", errors_lose_the_peer_and_no_other},
        {"a peer that is gone is lost", a_peer_that_is_gone_is_lost},
        {"a write that is refused loses the peer", a_write_that_is_refused_loses_the_peer},
        {"errors of nobody are counted", errors_of_nobody_are_counted},
        {"a broken queue loses all", a_broken_queue_loses_all},
        {"who takes in nothing is lost in time", who_takes_in_nothing_is_lost_in_time},
        {"a process that ends is lost", a_process_that_ends_is_lost},
        {"bad addresses are refused", bad_addresses_are_refused},
        {"a long post goes through", a_long_post_goes_through},
        {"quiet is when all is acknowledged", quiet_is_when_all_is_acknowledged},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
