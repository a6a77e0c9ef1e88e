/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: what strangers and broken peers may write changes nothing but what it must. */
#define _GNU_SOURCE 1 /* memmem */

#include "three.h"

enum { FLOOD = 10000, ROOM = 65536 };

static void data_of_nobody_is_dropped(void)
{
    begin();
    check_link(&b, 0);
    ofi_fabric_say(&a, UINT64_MAX);
    for (uint32_t kind = STEPAF_FABRIC_PIECE; kind <= STEPAF_FABRIC_HELLO; kind++) {
        ofi_fabric_say(&a, data_of(kind, 2, 1)); /* the first peer that does not exist */
        ofi_fabric_say(&a, data_of(kind, STEPAF_FABRIC_PEERS - 1, 1));
    }
    take_in_all();
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 9);
    check_link(&b, 0);
    check_link(&c, 1);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 9);
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
    ofi_fabric_say(&a, 1ull << 32 | good | (STEPAF_OFI_PIECES_MAX + 1) << STEPAF_OFI_PIECES_SHIFT);
    for (uint32_t low = STEPAF_FABRIC_RING; low <= STEPAF_OFI_LOW_NUMBER; low++)
        ofi_fabric_say(&a, 1ull << 32 | (good + low));
    take_in_all();
    CU_ASSERT_EQUAL(a.up.dropped_malformed - before,
                    5 + STEPAF_OFI_LOW_NUMBER + 1 - STEPAF_FABRIC_RING);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    check_link(&b, 0);
    end();
}

/* What would be right, by one who does not know the token: nothing of it is counted, and no place
 * is taken. */
static void who_has_no_token_says_nothing(void)
{
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        unsigned n = 0;
        if (is_wide)
            begin_wide();
        else
            begin();
        uint64_t before = a.up.dropped_malformed;
        for (uint32_t peer = 0; peer < 2; peer++)
            for (uint32_t number = 0; number < STEPAF_FABRIC_RING; number++, n += 2) {
                ofi_fabric_guess(&a, data_of(STEPAF_FABRIC_PIECE, peer, number));
                ofi_fabric_guess(&a, (is_wide ? 1ull << 32 : 0) |
                                         data_of(STEPAF_FABRIC_MESSAGE, peer, number));
            }
        take_in_all();
        CU_ASSERT_EQUAL(a.up.dropped_malformed - before, n);
        for (uint32_t number = 0; number < STEPAF_FABRIC_RING; number++)
            CU_ASSERT(!ofi_link(&a, 0)->shared.due[number].landed &&
                      ofi_link(&a, 0)->shared.due[number].here == STEPAF_FABRIC_NOT_HERE);
        check_link(&b, 0);
        check_link(&c, 1);
        end();
    }
}

/* Who knows the token says a message of pieces that never come: when the peer says its own, the
 * link is lost, and does not wait. */
static void a_message_in_anothers_place_loses_the_link(void)
{
    const uint32_t pieces = STEPAF_OFI_PIECES_MAX << STEPAF_OFI_PIECES_SHIFT;

    for (int in_slot = 0; in_slot < 2; in_slot++) {
        begin_wide();
        uint32_t next = ofi_link(&a, 0)->shared.taken;
        uint64_t own =
            (in_slot ? stepaf_ofi_in_slot : 1ull << 32) | data_of(STEPAF_FABRIC_MESSAGE, 0, next);
        ofi_fabric_say(&a, 1ull << 32 | data_of(STEPAF_FABRIC_MESSAGE, 0, next) | pieces);
        take_in_all();
        CU_ASSERT_EQUAL(a.n_lost, 0);
        ofi_fabric_say(&a, own);
        take_in_all();
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "it has sent two messages with the same number");
        check_link(&c, 1);
        end();
    }
}

/* A post of tensors is as many writes, which ring together; the last says the message too, unless
 * that is to tell the peer how much has been taken. */
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
        post.is_short = stepaf_msg_to_imm(&post.msg, &post.imm);
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
        take_in_all(); /* without a look, which would tell how much has been taken */
        CU_ASSERT_EQUAL(a.n_messages, i + 1);
    }
    struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = 1}, *posts[] = {&post};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 6};
    post.is_short = stepaf_msg_to_imm(&post.msg, &post.imm);
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
        *stepaf_ofi_slot(stepaf_ofi_link(ofi, 0), false, 0) = bad[i];
        ofi_fabric_say(&a, data_of(STEPAF_FABRIC_MESSAGE, 0, 0));
        take_in_all();
        CU_ASSERT_EQUAL(a.n_messages, 0);
        CU_ASSERT_EQUAL(a.up.dropped_malformed, i + 1);
    }
    *stepaf_ofi_slot(stepaf_ofi_link(ofi, 0), false, 0) = good;
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
    struct stepaf_fabric_slot *slot =
        stepaf_ofi_slot(stepaf_ofi_link(ofi, 0), false, STEPAF_FABRIC_RING);
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

/* Nobody can say which pieces are the message's own: it is not delivered, and the link is of no
 * use. */
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

static void as_it_is(struct stepaf_pack *pack)
{
    (void)pack;
}

static void bad_addresses_are_refused(void)
{
    ofi_fabric_reset(23);
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    UNIT_STRING(connect_to(cut_short), "its address is malformed");
    UNIT_STRING(connect_to(of_another_length), "its address is malformed");
    UNIT_STRING(connect_to(of_nobody), "libfabric rejects its address");
    UNIT_STRING(connect_to(of_another_provider), "its provider is cxi, not efa");
    side_close(&a);
    ofi_fabric.cq_data_size = 8;
    fabric_open(&a, 1);
    UNIT_STRING(connect_to(as_it_is), "its writes carry 32 bits, not 64");
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

/* As by a write of a lost peer's to memory that is no longer registered. */
static void errors_of_no_operation_are_counted(void)
{
    ofi_fabric_reset(24);
    fabric_open_three(all);
    uint64_t before = a.up.dropped_malformed;
    for (int i = 0; i < 20; i++)
        ofi_fabric_say_event(&a, FI_EIO);
    for (int i = 0; i < 2; i++)
        side_ops->check_peers(a.transport);
    CU_ASSERT_EQUAL(a.up.dropped_malformed - before, 20);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    check_link(&b, 0);
    end();
}

/* As those of a domain that is listed with IPv4 and IPv6. */
static void another_kind_of_address_is_said(void)
{
    ofi_fabric_reset(26);
    fabric_open(&a, 1);
    ofi_fabric.addr_format = FI_SOCKADDR_IB;
    fabric_open(&b, 1);
    UNIT_STRING(connect_to(as_it_is), "its addresses are of another kind (STEPAF_OFI_DOMAINS)");
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

/* They have different protocols; other fabrics have names of subnets. */
static void another_fabric_of_efa_is_refused(void)
{
    static const char *const direct[] = {"efa-direct", "efa", NULL};

    ofi_fabric_reset(25);
    fabric_open(&a, 1);
    ofi_fabric.names = direct;
    fabric_open(&b, 1);
    UNIT_STRING(connect_to(as_it_is), "its provider is efa-direct, not efa");
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"data of nobody is dropped", data_of_nobody_is_dropped},
        {"stale and early numbers are dropped", stale_and_early_numbers_are_dropped},
        {"wide data of nobody are dropped", wide_data_of_nobody_are_dropped},
        {"who has no token says nothing", who_has_no_token_says_nothing},
        {"a message in another's place loses the link", a_message_in_anothers_place_loses_the_link},
        {"a tensor is a write", a_tensor_is_a_write},
        {"messages that were not written are dropped", messages_that_were_not_written_are_dropped},
        {"slots are looked at", slots_are_looked_at},
        {"credits of nobody are dropped", credits_of_nobody_are_dropped},
        {"too many pieces lose the link", too_many_pieces_lose_the_link},
        {"another kind of address is said", another_kind_of_address_is_said},
        {"another fabric of efa is refused", another_fabric_of_efa_is_refused},
        {"errors of no operation are counted", errors_of_no_operation_are_counted},
        {"bad addresses are refused", bad_addresses_are_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
