/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: what strangers and broken peers may send, and what UCX may say, changes nothing but what it
 * must. Three sides: the first has two peers, and what becomes of one link leaves the other as it
 * is. */
#include <unistd.h>

#include "ucx_fabric.h"
#include "unit.h"

static struct side a, b, c;
static struct side *const all[] = {&a, &b, &c};

enum { FLOOD = 10000, ROOM = 65536 };

static void begin(void)
{
    ucx_fabric_reset(21);
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
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
}

static void take_in_all(void)
{
    fabric_take_in(all, 3);
}

/* A message as the first peer of a would send it, with one place of 8 bytes. */
struct sent {
    struct stepaf_ucx_head head;
    struct stepaf_ucx_place place;
    uint8_t msg[offsetof(struct stepaf_msg, word)];
};

static struct sent good_one(void)
{
    struct stepaf_msg msg = {.type = STEPAF_MSG_START, .seq = 5};
    struct sent sent = {.head = {.token = fabric_of(&a)->token,
                                 .number = fabric_link(&a, 0)->taken,
                                 .kind = STEPAF_FABRIC_MESSAGE,
                                 .n_places = 1},
                        .place = {0, a.regions[0].id, 8}};

    memcpy(sent.msg, &msg, sizeof(sent.msg));
    return sent;
}

static void say(const struct sent *sent, size_t bytes)
{
    static const uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};

    ucx_fabric_say(&a, sent, sizeof(*sent), data, bytes);
}

static void what_nobody_sends_is_dropped(void)
{
    enum { WAYS = 10 };

    begin();
    (void)fabric_memory(&a, ROOM);
    for (int i = 0; i < 20; i++)
        check_link(&b, 0);
    struct sent bad[WAYS];
    for (int i = 0; i < WAYS; i++)
        bad[i] = good_one();
    bad[0].head.token++;
    bad[1].head.peer = 2; /* the first that does not exist */
    bad[2].head.peer = UINT32_MAX;
    bad[3].head.kind = STEPAF_FABRIC_HELLO + 1;
    bad[4].head.n_places = STEPAF_UCX_PLACES + 1;
    bad[5].head.n_places = 2;
    bad[6].head.kind = STEPAF_FABRIC_PIECE; /* which has no message */
    bad[7].head.kind = STEPAF_FABRIC_CREDIT;
    bad[8].msg[offsetof(struct stepaf_msg, n_words)] = STEPAF_MSG_WORDS + 1;
    bad[9].head.is_short = 1;
    bad[9].head.imm = (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT;
    for (unsigned i = 0; i < WAYS; i++) {
        say(&bad[i], 8);
        CU_ASSERT_EQUAL(a.up.dropped_malformed, i + 1);
    }
    for (size_t bytes = 0; bytes < sizeof(bad[0]); bytes++)
        ucx_fabric_say(&a, &bad[0], bytes, bad, 0);
    uint8_t long_one[2 * STEPAF_UCX_HEAD_MAX] = {0};
    ucx_fabric_say(&a, long_one, sizeof(long_one), bad, 0);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, WAYS + sizeof(bad[0]) + 1);
    for (int i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(a.regions[0].base[i], 0);
    take_in_all();
    CU_ASSERT_EQUAL(a.n_messages, 20);
    check_link(&b, 0);
    check_link(&c, 1);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    struct sent good = good_one();
    say(&good, 8);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.messages[a.n_messages - 1].seq, 5);
    CU_ASSERT_EQUAL(a.regions[0].base[7], 8);
    end();
}

/* The short form, with 8 bytes behind it. */
struct quick {
    struct stepaf_ucx_quick head;
    uint8_t data[8];
};

static struct quick good_quick(void)
{
    return (struct quick){.head = {.token = fabric_of(&a)->token >> 32,
                                   .whose = a.regions[0].id << STEPAF_UCX_ID_SHIFT,
                                   .offset = 16,
                                   .imm = stepaf_imm_make(STEPAF_IMM_START, 0, 5, 0),
                                   .number = (uint16_t)fabric_link(&a, 0)->taken,
                                   .taken = (uint16_t)fabric_link(&a, 0)->sent},
                          .data = {1, 2, 3, 4, 5, 6, 7, 8}};
}

static void what_nobody_sends_is_dropped_of_short_ones_too(void)
{
    enum { WAYS = 6 };

    begin();
    (void)fabric_memory(&a, ROOM);
    for (int i = 0; i < 20; i++)
        check_link(&b, 0);
    struct quick bad[WAYS], good = good_quick();
    for (int i = 0; i < WAYS; i++)
        bad[i] = good;
    bad[0].head.token++;
    bad[1].head.whose += 2; /* the first peer that does not exist */
    bad[2].head.whose |= STEPAF_FABRIC_PEERS - 1;
    bad[3].head.imm = (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT;
    bad[4].head.number--;
    bad[5].head.number += STEPAF_FABRIC_RING;
    for (unsigned i = 0; i < WAYS; i++) {
        ucx_fabric_say_quick(&a, &bad[i], sizeof(bad[i]), 0);
        CU_ASSERT_EQUAL(a.up.dropped_malformed, i + 1);
    }
    for (size_t bytes = 0; bytes < sizeof(good.head); bytes++)
        ucx_fabric_say_quick(&a, &good, bytes, 0);
    ucx_fabric_say_quick(&a, &good, sizeof(good.head), 8); /* it has no data of UCX's */
    uint8_t long_one[sizeof(good.head) + STEPAF_UCX_STAGE + 1] = {0};
    memcpy(long_one, &good, sizeof(good));
    ucx_fabric_say_quick(&a, long_one, sizeof(long_one), 0);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, WAYS + sizeof(good.head) + 2);
    CU_ASSERT_EQUAL(a.regions[0].base[16], 0);
    take_in_all();
    CU_ASSERT_EQUAL(a.n_messages, 20);
    ucx_fabric_say_quick(&a, &good, sizeof(good), 0);
    ucx_fabric_say_quick(&a, &good, sizeof(good), 0); /* once more: it is no longer due */
    CU_ASSERT_EQUAL(a.up.dropped_malformed, WAYS + sizeof(good.head) + 3);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, 21);
    CU_ASSERT_EQUAL(a.messages[20].seq, 5);
    CU_ASSERT_EQUAL(a.regions[0].base[23], 8);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    fabric_link(&a, 0)->taken--; /* b has not sent it */
    check_link(&b, 0);
    check_link(&c, 1);
    end();
}

static void what_has_no_place_loses_the_link_of_short_ones_too(void)
{
    for (int way = 0; way < 2; way++) {
        begin();
        (void)fabric_memory(&a, ROOM);
        struct quick sent = good_quick();
        if (way == 0)
            sent.head.whose += 12345u << STEPAF_UCX_ID_SHIFT;
        else
            sent.head.offset = ROOM - 7;
        ucx_fabric_say_quick(&a, &sent, sizeof(sent), 0);
        (void)side_progress(&a);
        CU_ASSERT_EQUAL(a.n_messages, 0);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "it has sent something that has no place here");
        check_link(&c, 1);
        end();
    }
}

/* Numbers that are not due: of what has been taken, and of what cannot be under way yet. */
static void stale_and_early_numbers_are_dropped(void)
{
    begin();
    (void)fabric_memory(&a, ROOM);
    for (int i = 0; i < 40; i++)
        check_link(&b, 0);
    struct sent sent = good_one();
    uint32_t taken = sent.head.number;
    for (uint32_t n = 1; n <= FLOOD; n++) {
        sent.head.number = taken - n;
        say(&sent, 8);
        sent.head.number = taken + STEPAF_FABRIC_RING - 1 + n;
        say(&sent, 8);
    }
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 2 * FLOOD);
    CU_ASSERT_EQUAL(a.regions[0].base[0], 0);
    take_in_all();
    CU_ASSERT_EQUAL(a.n_messages, 40);
    for (int i = 0; i < 40; i++)
        check_link(&b, 0);
    check_link(&c, 1);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    end();
}

/* Who knows the token, and sends what has no place, can be nobody's peer any more. */
static void what_has_no_place_loses_the_link(void)
{
    for (int way = 0; way < 4; way++) {
        begin();
        (void)fabric_memory(&a, ROOM);
        struct sent sent = good_one();
        size_t bytes = 8;
        if (way == 0)
            sent.place.id = 12345;
        else if (way == 1)
            sent.place.offset = ROOM - 7;
        else if (way == 2)
            sent.place.offset = UINT64_MAX - 3;
        else
            bytes = 7;
        say(&sent, bytes);
        (void)side_progress(&a);
        CU_ASSERT_EQUAL(a.n_messages, 0);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        CU_ASSERT_EQUAL(a.regions[0].base[0], 0);
        UNIT_STRING(a.lost_reason, "it has sent something that has no place here");
        check_link(&c, 1);
        end();
    }
}

static void too_many_pieces_lose_the_link(void)
{
    begin();
    (void)fabric_memory(&a, ROOM);
    struct sent sent = good_one();
    sent.head.kind = STEPAF_FABRIC_PIECE;
    ucx_fabric_say(&a, &sent, offsetof(struct sent, msg), "12345678", 8);
    sent.head.kind = STEPAF_FABRIC_MESSAGE;
    say(&sent, 8);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, "it has written more pieces than its message has");
    check_link(&c, 1);
    end();
}

/* No credit is for more than was sent. */
static void credits_are_looked_at(void)
{
    begin();
    struct stepaf_ucx_head head = {
        .token = fabric_of(&a)->token, .taken = 4, .kind = STEPAF_FABRIC_CREDIT};
    ucx_fabric.mute = 7;
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
    ucx_fabric_say(&a, &head, sizeof(head), &head, 0);
    head.taken = 40000;
    ucx_fabric_say(&a, &head, sizeof(head), &head, 0);
    CU_ASSERT_EQUAL(fabric_link(&a, 0)->credit, 0);
    head.taken = 2;
    ucx_fabric_say(&a, &head, sizeof(head), &head, 0);
    CU_ASSERT_EQUAL(fabric_link(&a, 0)->credit, 2);
    ucx_fabric.mute = 0;
    take_in_all();
    CU_ASSERT_EQUAL(b.n_messages, 3);
    end();
}

/* A post of 3000 bytes, put or sent. */
static struct stepaf_rmem *rmem;

static struct stepaf_post *post_to_b(unsigned n_tensors)
{
    static struct stepaf_xfer xfer[2];
    static struct stepaf_post post;
    struct stepaf_mem *source = fabric_memory(&a, ROOM);

    rmem = side_import(&a, 0, &b, fabric_memory(&b, ROOM));
    memset(source->base, 0x77, 3000);
    for (unsigned i = 0; i < n_tensors; i++)
        xfer[i] = (struct stepaf_xfer){source->base, source, rmem, 3000 * i, 3000};
    post = (struct stepaf_post){.link = a.links[0], .xfer = xfer, .n_xfer = (uint16_t)n_tensors};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 5};
    return &post;
}

static void errors_lose_the_peer_and_no_other(void)
{
    for (unsigned n_tensors = 1; n_tensors <= 2; n_tensors++) {
        begin();
        ucx_fabric.at_once_in = 0;
        struct stepaf_post *post = post_to_b(n_tensors);
        ucx_fabric.fail_after = 1; /* the message with the only tensor, or the first tensor */
        CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
        CU_ASSERT_EQUAL(post->state, STEPAF_POST_POSTED);
        take_in_all();
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "UCX: the connection was reset");
        CU_ASSERT_EQUAL(b.n_messages, 0);
        side_ops->retire(post);
        CU_ASSERT_EQUAL(side_say(&a, 0, 6), STEPAF_POST_SENT); /* to nobody */
        check_link(&c, 1);
        side_ops->release_mem(a.links[0], rmem);
        end();
    }
}

static void a_peer_that_is_gone_is_lost(void)
{
    begin();
    ucx_fabric_break(&a, 0, UCS_ERR_CONNECTION_RESET);
    CU_ASSERT_EQUAL(a.n_lost, 0); /* UCX is not to be called from there */
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, "UCX: the connection was reset");
    check_link(&c, 1);
    ucx_fabric.refuse = UCS_ERR_CONNECTION_RESET;
    CU_ASSERT_EQUAL(side_say(&a, 1, 6), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(a.n_lost, 2);
    ucx_fabric.refuse = UCS_OK;
    end();
}

static void who_takes_in_nothing_is_lost_in_time(void)
{
    begin();
    a.env.ucx_peer_timeout_us = 20000;
    ucx_fabric.mute = 1u << ucx_fabric_number(&a);
    CU_ASSERT_EQUAL(side_say(&a, 0, 6), STEPAF_POST_SENT);
    fabric_ask_silence_ends(&a, 2);
    end();
}

/* Nothing gets through: its endpoint is not closed by force, as others are. */
static void what_connects_is_not_cut(void)
{
    char reason[STEPAF_REASON_MAX];
    uint32_t peer = 9;

    ucx_fabric_reset(36);
    ucx_fabric.at_once_in = 0;
    ucx_fabric.mute = 7;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    a.env.ucx_peer_timeout_us = b.env.ucx_peer_timeout_us = 1000;
    stepaf_status_t status = STEPAF_INPROGRESS;
    for (int i = 0; i < 100000000 && status == STEPAF_INPROGRESS; i++)
        status = side_ops->prove_links(a.transport, true, &peer, reason);
    CU_ASSERT_EQUAL(status, STEPAF_ERR_NO_TRANSPORT);
    CU_ASSERT_EQUAL(peer, 0);
    side_ops->disconnect(a.links[0]);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    ucx_fabric.mute = 0;
    fabric_take_in(all, 2);
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
}

static void who_is_not_read_is_not_lost(void)
{
    begin();
    a.env.ucx_peer_timeout_us = 40000;
    fabric_ask_unread_lives(&a, &b);
    fabric_ask_unseen_lives(&a);
    end();
}

static void last_words_are_delivered(void)
{
    begin();
    fabric_ask_last_words(&a, &b, &c);
    end();
}

static void refuse_all(void)
{
    ucx_fabric.refuse = UCS_ERR_CONNECTION_RESET;
}

static void last_words_come_before_a_refused_credit(void)
{
    begin();
    fabric_ask_words_before_refusal(&a, &b, refuse_all);
    end();
}

/* An error that UCX tells of while links are not read is noticed by looking. */
static void an_error_is_noticed_unread(void)
{
    begin();
    ucx_fabric_break(&a, 0, UCS_ERR_CONNECTION_RESET);
    fabric_of(&a)->looked_ns = 0;
    side_ops->check_peers(a.transport);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    check_link(&c, 1);
    end();
}

/* Where UCX does not tell of it. */
static void a_process_that_ends_is_lost(void)
{
    ucx_fabric_reset(22);
    ucx_fabric.no_peer_errors = true;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    UNIT_CONTAINS(side_connect(&a, 0, &b, 0, (uint32_t)getpid(), NULL), "UCX: an error");
    fabric_ask_process_ends(&a, &b);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
}

static const char *connect_to(void (*spoil)(struct stepaf_pack *pack))
{
    return fabric_connect_spoilt(&a, &b, spoil);
}

static void cut_short(struct stepaf_pack *pack)
{
    pack->bytes -= 3;
}

static void of_nobody(struct stepaf_pack *pack)
{
    pack->data[pack->bytes - 16] ^= 0xff;
}

static void of_another_version(struct stepaf_pack *pack)
{
    uint8_t *digit = pack->data + 4 + sizeof("UCX 1.1") - 1;

    side_must(*digit == '3', "a version");
    *digit = '4';
}

static void bad_addresses_are_refused(void)
{
    ucx_fabric_reset(23);
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    UNIT_STRING(connect_to(cut_short), "its address is malformed");
    UNIT_STRING(connect_to(of_nobody), "UCX: bad address");
    UNIT_STRING(connect_to(of_another_version), "its UCX 1.14.0 is not this rank's UCX 1.13.0");
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
}

static void quiet_is_when_all_is_acknowledged(void)
{
    uint32_t peer = 9;

    begin();
    take_in_all();
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, true, &peer));
    ucx_fabric.mute = 7;
    ucx_fabric.at_once_in = 0;
    CU_ASSERT_EQUAL(side_say(&a, 1, 6), STEPAF_POST_SENT);
    CU_ASSERT_FALSE(side_ops->is_quiet(a.transport, true, &peer));
    CU_ASSERT_EQUAL(peer, 1);
    ucx_fabric.mute = 0;
    take_in_all();
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, false, &peer));
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what nobody sends is dropped", what_nobody_sends_is_dropped},
        {"what nobody sends is dropped, of short ones too",
         what_nobody_sends_is_dropped_of_short_ones_too},
        {"what has no place loses the link, of short ones too",
         what_has_no_place_loses_the_link_of_short_ones_too},
        {"stale and early numbers are dropped", stale_and_early_numbers_are_dropped},
        {"what has no place loses the link", what_has_no_place_loses_the_link},
        {"too many pieces lose the link", too_many_pieces_lose_the_link},
        {"credits are looked at", credits_are_looked_at},
        {"errors lose the peer, and no other", errors_lose_the_peer_and_no_other},
        {"a peer that is gone is lost", a_peer_that_is_gone_is_lost},
        {"who takes in nothing is lost in time", who_takes_in_nothing_is_lost_in_time},
        {"what connects is not cut", what_connects_is_not_cut},
        {"who is not read is not lost", who_is_not_read_is_not_lost},
        {"last words are delivered", last_words_are_delivered},
        {"last words come before a refused credit", last_words_come_before_a_refused_credit},
        {"an error is noticed unread", an_error_is_noticed_unread},
        {"a process that ends is lost", a_process_that_ends_is_lost},
        {"bad addresses are refused", bad_addresses_are_refused},
        {"quiet is when all is acknowledged", quiet_is_when_all_is_acknowledged},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
