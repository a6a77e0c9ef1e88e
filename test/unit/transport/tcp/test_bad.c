/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: a peer that sends what it should not. */
#include "tcp_bare_peer.h"

static void bytes_come_one_by_one(void)
{
    begin(1);
    for (uint32_t seq = 0; seq < 3; seq++) {
        size_t bytes = tcp_frame(frame, REGION, 100 * seq, data, 90, 0, seq);
        for (size_t i = 0; i < bytes; i++) {
            CU_ASSERT_EQUAL(b.n_messages, seq + (i >= 24 + 90 + 16)); /* a space follows */
            tcp_bare_send(fds[0], frame + i, 1);
            while (!side_progress(&b)) {
            }
        }
        CU_ASSERT_EQUAL(b.n_messages, seq + 1);
        CU_ASSERT_EQUAL(memcmp(region->base + (size_t)100 * seq, data, 90), 0);
        CU_ASSERT_EQUAL(region->base[100 * seq + 90], 0x5a);
    }
    end();
}

/* A place is input: what has none is dropped with its message, and what follows is taken. */
static void tensors_without_a_place_are_dropped(void)
{
    static const struct stepaf_tcp_descriptor bad[] = {
        {99, 1, 0},
        {UINT32_MAX, 10, 0},
        {REGION, 1, BYTES},
        {REGION, 2, BYTES - 1},
        {REGION, 1, UINT64_MAX},
        {REGION, 64, UINT64_MAX - 63},
        {REGION, 8, 1ull << 32},
        {REGION, BYTES, 1},
        {0, BYTES, 0},
    };
    uint32_t n = sizeof bad / sizeof *bad;

    begin(1);
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = tcp_frame(frame, bad[i].region, bad[i].offset, data, bad[i].bytes, 0, 0);
        tcp_bare_send(fds[0], frame, bytes);
        bytes = tcp_frame(frame, REGION, 0, NULL, 0, 0, i);
        tcp_bare_send(fds[0], frame, bytes);
        CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, i + 1));
        CU_ASSERT_EQUAL(b.messages[i].seq, i);
        CU_ASSERT_EQUAL(b.up.dropped_malformed, i + 1);
        CU_ASSERT_TRUE(is_untouched());
    }
    CU_ASSERT(b.n_messages == n && !b.n_lost);
    end();
}

/* Where the bytes of frames are in what goes over a connection: payloads that are large, and
 * frames, begin at multiples of 64, for the sake of the kernel's copies. */
static void large_payloads_begin_at_multiples(void)
{
    static uint8_t src[2][4200], stream[20000];
    struct stepaf_rmem rmem = {REGION, BYTES};
    struct stepaf_xfer xfer[] = {{.src = src[0], .dst = &rmem, .bytes = 4100},
                                 {.src = src[1], .dst = &rmem, .dst_offset = 4200, .bytes = 33}};
    struct stepaf_post post = {.xfer = xfer, .n_xfer = 2}, *posts[] = {&post};

    begin(1);
    memset(src[0], 0xaa, sizeof src[0]);
    memset(src[1], 0xbb, sizeof src[1]);
    post.link = b.links[0];
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_RESPONSE, .n_words = 3};
    for (int i = 0; i < 2; i++) {
        size_t whole = 64 + 4160 + 64 + 64;
        stepaf_tcp_ops.post(posts, 1);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        CU_ASSERT_TRUE(tcp_bare_read(&b, fds[0], stream, 1));
        CU_ASSERT_EQUAL(recv(fds[0], stream + 1, sizeof stream - 1, MSG_DONTWAIT),
                        (ssize_t)whole - 1);
        CU_ASSERT(stream[0] == STEPAF_TCP_FRAME && !memcmp(stream + 64, src[0], 4100));
        CU_ASSERT_EQUAL(memcmp(stream + 64 + 4160, src[1], 33), 0);
        CU_ASSERT_EQUAL(stream[64 + 4160 + 64], STEPAF_MSG_RESPONSE);
    }
    CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT); /* small ones keep to it */
    CU_ASSERT_TRUE(tcp_bare_read(&b, fds[0], stream, 64));
    CU_ASSERT(recv(fds[0], stream, 1, MSG_DONTWAIT) < 0);
    end();
}

static void what_is_no_frame_ends_the_link(void)
{
    static const struct {
        struct stepaf_tcp_head head;
        struct stepaf_tcp_tail tail;
        unsigned connection;
        const char *reason;
    } bad[] = {
        {{.kind = 0}, {0}, 0, "malformed frame"},
        {{.kind = 0xff}, {0}, 0, "malformed frame"},
        {{.kind = STEPAF_TCP_FRAME, .n_xfer = STEPAF_MAX_TENSORS + 1}, {0}, 0, "malformed frame"},
        {{.kind = STEPAF_TCP_FRAME, .n_xfer = 255}, {0}, 0, "malformed frame"},
        {{.kind = STEPAF_TCP_FRAME, .layout = 2}, {0}, 0, "malformed frame"},
        {{.kind = STEPAF_TCP_FRAME}, {0}, 1, "malformed frame"},
        {{.kind = STEPAF_TCP_PART, .n_xfer = 1}, {0}, 0, "malformed frame"},
        {{.kind = STEPAF_TCP_PART, .n_xfer = 0}, {0}, 1, "malformed frame"},
        {{.kind = STEPAF_TCP_PART, .n_xfer = 2}, {0}, 1, "malformed frame"},
        {{.kind = STEPAF_TCP_FRAME},
         {.head = 1, .n_words = STEPAF_MSG_WORDS + 1},
         0,
         "malformed message"},
        {{.kind = STEPAF_TCP_FRAME}, {.head = 1, .n_words = UINT32_MAX}, 0, "malformed message"},
        {{.kind = STEPAF_TCP_FRAME}, {.head = STEPAF_TCP_VOID + 1}, 0, "malformed message"},
        {{.kind = STEPAF_TCP_FRAME}, {.head = 255}, 0, "malformed message"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(2);
        tcp_bare_send(fds[bad[i].connection], &bad[i].head, sizeof bad[i].head);
        tcp_bare_send(fds[bad[i].connection], &bad[i].tail, sizeof bad[i].tail);
        CU_ASSERT_TRUE(tcp_until_lost(&b));
        CU_ASSERT(b.n_lost == 1 && b.n_messages == 0);
        UNIT_CONTAINS(b.lost_reason, bad[i].reason);
        CU_ASSERT(tcp_bare_is_closed(&b, fds[0]) && tcp_bare_is_closed(&b, fds[1]));
        CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT); /* for nobody */
        CU_ASSERT_TRUE(is_untouched());
        end();
    }
}

static void a_message_waits_for_all_pieces(void)
{
    begin(3);
    send_frame_with_parts(1, 7);
    CU_ASSERT_EQUAL(b.n_messages, 0);
    send_part(1, REGION, 64, 64);
    settle();
    CU_ASSERT_EQUAL(b.n_messages, 0);
    send_part(2, REGION, 128, 64);
    CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, 1));
    CU_ASSERT_EQUAL(memcmp(region->base, data, 192), 0);
    send_part(1, REGION, 64, 0); /* early, and of no bytes */
    send_part(2, REGION, 64, 0);
    settle();
    send_frame_with_parts(2, 8);
    CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, 2));
    CU_ASSERT_EQUAL(b.messages[1].seq, 8);
    CU_ASSERT_FALSE(b.n_lost);
    end();
}

/* A piece without a place spoils the message that it belongs to, and no other. */
static void a_piece_without_a_place_drops_its_message(void)
{
    begin(2);
    send_part(1, REGION, 64, 64);
    send_part(1, REGION, BYTES - 1, 64);
    send_part(1, REGION, 64, 64);
    settle();
    CU_ASSERT_EQUAL(b.up.dropped_malformed, 1);
    for (uint32_t seq = 1; seq <= 3; seq++)
        send_frame_with_parts(seq, seq);
    CU_ASSERT_EQUAL(b.n_messages, 2);
    CU_ASSERT(b.messages[0].seq == 1 && b.messages[1].seq == 3);
    CU_ASSERT_FALSE(b.n_lost);
    end();
}

/* Nothing may follow a message that waits for pieces so closely: who sends so has no large tensor.
 * It must not be lost without a word. */
static void a_striped_frame_too_small_ends_the_link(void)
{
    begin(2);
    size_t bytes = tcp_frame(frame, REGION, 0, data, 64, 1, 1);
    bytes += tcp_frame(frame + bytes, REGION, 0, data, 64, 1, 2);
    tcp_bare_send(fds[0], frame, bytes);
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    CU_ASSERT_EQUAL(b.n_messages, 0);
    end();
}

/* A region can go while a peer still writes to it. */
static void memory_that_goes_is_not_written_any_more(void)
{
    begin(1);
    size_t bytes = tcp_frame(frame, REGION, 0, data, 4000, 0, 1);
    tcp_bare_send(fds[0], frame, 1000);
    settle();
    CU_ASSERT_EQUAL(region->base[0], 0xa5);
    memset(region->base, 0x5a, BYTES);
    region->id = 0;
    tcp_bare_send(fds[0], frame + 1000, bytes - 1000);
    settle();
    CU_ASSERT_TRUE(is_untouched());
    CU_ASSERT(b.n_messages == 0 && b.up.dropped_malformed == 1 && !b.n_lost);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"bytes come one by one", bytes_come_one_by_one},
        {"tensors without a place are dropped", tensors_without_a_place_are_dropped},
        {"large payloads begin at multiples", large_payloads_begin_at_multiples},
        {"what is no frame ends the link", what_is_no_frame_ends_the_link},
        {"a message waits for all pieces", a_message_waits_for_all_pieces},
        {"a piece without a place drops its message", a_piece_without_a_place_drops_its_message},
        {"a striped frame too small ends the link", a_striped_frame_too_small_ends_the_link},
        {"memory that goes is not written any more", memory_that_goes_is_not_written_any_more},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
