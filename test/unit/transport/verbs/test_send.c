/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: that nothing runs out, and that what goes several ways is complete when it is told. */
#include <stdlib.h>

#include "unit.h"
#include "verbs_side.h"

enum { PIECE = 1024 };

static struct vside a, b;
static struct stepaf_rmem *at_b;
static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];

static void begin(const char *settings, size_t bytes)
{
    verbs_device_reset();
    vside_settings = settings;
    vside_open(&a, 2);
    vside_open(&b, 1);
    vside_join(&a, &b);
    vside_memory(&a, bytes);
    for (size_t i = 0; i < bytes; i++)
        a.regions[0].base[i] = (uint8_t)(i * 7 + i / 251);
    at_b = vside_import(&a, 0, &b, vside_memory(&b, bytes));
    verbs_device.n_requests = verbs_device.n_doorbells = verbs_device.n_imms = 0;
}

static void end(void)
{
    CU_ASSERT_EQUAL(verbs_device.n_unready, 0);
    CU_ASSERT_EQUAL(verbs_device.n_overflow, 0);
    stepaf_verbs_ops.release_mem(a.links[0], at_b);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static bool is_there(size_t bytes)
{
    return !memcmp(a.regions[0].base, b.regions[0].base, bytes);
}

/* A message that says more takes one request more, and comes as it was. */
static void other_messages_go_through_the_ring(void)
{
    static const uint32_t word[STEPAF_MSG_WORDS] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

    begin("", 2 * PIECE);
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, PIECE, at_b);
    post.msg.n = 2;
    post.msg.n_words = STEPAF_MSG_WORDS;
    memcpy(post.msg.word, word, sizeof(word));
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    CU_ASSERT_EQUAL(verbs_device.n_requests, 3);
    CU_ASSERT_EQUAL(verbs_device.n_doorbells, 1);
    post.msg.n = 0;
    memset(post.msg.word, 0, sizeof(post.msg.word)); /* what is posted does not change any more */
    vside_progress(&b);
    CU_ASSERT_EQUAL_FATAL(b.n_messages, 1);
    CU_ASSERT(b.messages[0].n == 2 && !memcmp(b.messages[0].word, word, sizeof(word)));
    CU_ASSERT_EQUAL(b.n_by_imm, 0);
    vside_progress(&a);
    end();
}

/* What fits into work requests is free at once. */
static void small_tensors_go_inline(void)
{
    begin("", 2 * 256);
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, 256, at_b);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT);
    CU_ASSERT(is_there(512));
    post = vside_post(&a, 0, xfers, 1, 257, at_b);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    vside_progress(&a);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    end();
}

static void exchange_many(unsigned n, uint32_t bytes)
{
    unsigned sent = 0, queued = 0;

    while (b.n_messages < n) {
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, bytes, at_b);
        post.msg.seq = sent;
        post.msg.n = sent % 3 == 0; /* some through the ring */
        post.msg.n_words = 3;
        post.msg.type = STEPAF_MSG_RESPONSE;
        if (sent < n) {
            enum stepaf_post_state state = vside_send(&post);
            sent += state != STEPAF_POST_QUEUED;
            queued += state == STEPAF_POST_QUEUED;
            if (state == STEPAF_POST_QUEUED) {
                vside_progress(&b);
                vside_progress(&a);
                vside_progress(&b);
            } else if (state == STEPAF_POST_POSTED) {
                vside_progress(&a);
            }
        } else {
            vside_progress(&b);
        }
    }
    CU_ASSERT(queued > 0);
    for (unsigned i = 0; i < n; i++)
        CU_ASSERT_EQUAL(b.messages[i].seq & 1023, i & 1023);
    while (vside_progress(&a) + vside_progress(&b))
        ;
}

/* Far more than there are receives, in order; the peer never lacks one. */
static void receives_never_run_out(void)
{
    begin("VERBS_RECEIVES=16", PIECE);
    exchange_many(1000, 8);
    end();
    begin("VERBS_RECEIVES=16 VERBS_NOTIFY=send", PIECE);
    exchange_many(1000, 8);
    CU_ASSERT_EQUAL(verbs_device.n_imms, 0);
    end();
}

/* Devices that hold no message in a work request: rings of their own to send from. */
static void nothing_needs_to_fit_inline(void)
{
    verbs_device_reset();
    vside_settings = "VERBS_RECEIVES=16";
    for (uint32_t most = 0; most <= 64; most += 32) {
        verbs_device_reset();
        verbs_device.max_inline = most;
        vside_open(&a, 1);
        vside_open(&b, 1);
        vside_join(&a, &b);
        vside_memory(&a, PIECE);
        at_b = vside_import(&a, 0, &b, vside_memory(&b, PIECE));
        CU_ASSERT_EQUAL(vside_link(&a, 0)->paths[0].send_ring != NULL, most < 64);
        exchange_many(300, PIECE);
        end();
    }
}

/* A full send queue delays, and never fails. */
static void a_full_queue_is_no_error(void)
{
    struct stepaf_post posts[64];
    struct stepaf_xfer writes[64][2];
    unsigned taken = 0;

    begin("VERBS_SEND_DEPTH=32", 2 * PIECE);
    verbs_device.holds = true;
    for (; taken < 64; taken++) {
        posts[taken] = vside_post(&a, 0, writes[taken], 2, PIECE, at_b);
        if (vside_send(&posts[taken]) == STEPAF_POST_QUEUED)
            break;
    }
    CU_ASSERT(taken >= 14 && taken <= 15);
    CU_ASSERT_EQUAL(vside_send(&posts[taken]), STEPAF_POST_QUEUED);
    verbs_device_go();
    CU_ASSERT(vside_progress(&a) > 0);
    CU_ASSERT_EQUAL(vside_send(&posts[taken]), STEPAF_POST_POSTED);
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, taken + 1);
    vside_progress(&a);
    CU_ASSERT_EQUAL(posts[taken].state, STEPAF_POST_SENT);
    end();
}

/* A tensor above what one request may write, in pieces, with less room than it needs. */
static void large_tensors_are_cut(void)
{
    unsigned tries = 0;

    begin("VERBS_SEND_DEPTH=32", 1 << 20);
    vside_close(&a);
    vside_close(&b);
    verbs_device_reset();
    verbs_device.max_msg = 4096 + 63; /* pieces are whole lines */
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
    vside_memory(&a, 1 << 20);
    memset(a.regions[0].base, 0x5a, 1 << 20);
    free(at_b);
    at_b = vside_import(&a, 0, &b, vside_memory(&b, 1 << 20));
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, 1 << 20, at_b);
    verbs_device.n_requests = verbs_device.n_signaled = 0;
    while (vside_send(&post) == STEPAF_POST_QUEUED && ++tries < 100) {
        CU_ASSERT_EQUAL(b.n_messages, 0);
        vside_progress(&a);
        vside_progress(&b);
    }
    CU_ASSERT(tries > 5 && tries < 100);
    CU_ASSERT_EQUAL(verbs_device.n_requests, 256);
    CU_ASSERT_EQUAL(verbs_device.n_signaled, 256); /* each says that the peer is there */
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    CU_ASSERT(is_there(1 << 20));
    vside_progress(&a);
    end();
}

/* Pieces on other queue pairs may come last: the message waits for them, those behind it too. */
static void a_message_waits_for_its_parts(void)
{
    begin("VERBS_QPS=4 VERBS_STRIPE_BYTES=4096", 1 << 16);
    struct stepaf_post small = {.link = a.links[0],
                                .msg = {.type = STEPAF_MSG_START, .epoch = 1, .plan = 4}};
    for (unsigned path = 1; path < 4; path++) {
        unsigned before = b.n_messages;
        verbs_device.holds_qpn = vside_link(&a, 0)->paths[path].qp->qp_num;
        memset(b.regions[0].base, 0, 1 << 16);
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, 1 << 16, at_b);
        CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
        CU_ASSERT_EQUAL(vside_send(&small), STEPAF_POST_SENT);
        vside_progress(&b);
        CU_ASSERT_EQUAL(b.n_messages, before);
        CU_ASSERT(!is_there(1 << 16));
        vside_progress(&a);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
        verbs_device_go();
        vside_progress(&b);
        CU_ASSERT_EQUAL(b.n_messages, before + 2);
        CU_ASSERT_EQUAL(b.messages[b.n_messages - 1].plan, 4);
        CU_ASSERT(is_there(1 << 16));
        vside_progress(&a);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    }
    end();
}

/* The same over two devices, for longer than there are receives on any path. */
static void rails_share_large_tensors(void)
{
    begin("NET_DEVICES=fake0,fake1:1 VERBS_QPS=2 VERBS_RECEIVES=16 VERBS_STRIPE_BYTES=4096",
          1 << 16);
    CU_ASSERT_EQUAL(vside_link(&a, 0)->n_paths, 4);
    exchange_many(200, 1 << 16);
    CU_ASSERT(is_there(1 << 16));
    for (int i = 0; i < 4; i++)
        CU_ASSERT(vside_link(&a, 0)->paths[i].tx.next >= 200);
    end();
}

/* However a tensor falls into pieces, none is above what one request may write. */
static void no_piece_is_too_large(void)
{
    enum { MOST = 4096, ALL = 4 * MOST };

    begin("VERBS_QPS=4 VERBS_STRIPE_BYTES=4096", ALL);
    ((struct stepaf_verbs *)a.transport)->qp.max_write = verbs_device.max_msg = MOST;
    for (uint32_t bytes = ALL - 300; bytes <= ALL; bytes++) {
        memset(b.regions[0].base, 0, ALL);
        struct stepaf_post post = vside_post(&a, 0, xfers, 1, bytes, at_b);
        CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
        vside_progress(&a);
        CU_ASSERT_EQUAL_FATAL(a.n_lost, 0);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        while (vside_progress(&b))
            ;
        CU_ASSERT(is_there(bytes));
    }
    CU_ASSERT_EQUAL(b.n_messages, 301);
    CU_ASSERT_EQUAL(a.links[0]->bytes_sent, 301 * ALL - 150 * 301);
    end();
}

/* A post that the engine has let go of is not touched. */
static void a_forgotten_post_is_left_alone(void)
{
    begin("", PIECE);
    verbs_device.holds = true;
    struct stepaf_post one = vside_post(&a, 0, xfers, 1, PIECE, at_b), two = one;
    CU_ASSERT_EQUAL(vside_send(&one), STEPAF_POST_POSTED);
    CU_ASSERT_EQUAL(vside_send(&two), STEPAF_POST_POSTED);
    stepaf_verbs_ops.retire(&one);
    one.state = STEPAF_POST_IDLE;
    verbs_device_go();
    vside_progress(&a);
    CU_ASSERT_EQUAL(one.state, STEPAF_POST_IDLE);
    CU_ASSERT_EQUAL(two.state, STEPAF_POST_SENT);
    vside_progress(&b);
    end();
}

/* Queue pairs of peers that something else reaches do not stay. */
static void what_is_not_used_goes(void)
{
    begin("VERBS_QPS=2", 64);
    int open = verbs_device.n_open;
    stepaf_verbs_ops.shrink(a.transport);
    CU_ASSERT_EQUAL(verbs_device.n_open, open - 2);
    stepaf_verbs_ops.shrink(a.transport);
    CU_ASSERT_EQUAL(verbs_device.n_open, open - 2);
    struct stepaf_pack pack = vside_pack(&a); /* for the next commit */
    free(pack.data);
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, 64, at_b);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT);
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.n_messages, 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"other messages go through the ring", other_messages_go_through_the_ring},
        {"small tensors go inline", small_tensors_go_inline},
        {"receives never run out", receives_never_run_out},
        {"nothing needs to fit inline", nothing_needs_to_fit_inline},
        {"a full queue is no error", a_full_queue_is_no_error},
        {"large tensors are cut", large_tensors_are_cut},
        {"a message waits for its parts", a_message_waits_for_its_parts},
        {"rails share large tensors", rails_share_large_tensors},
        {"no piece is too large", no_piece_is_too_large},
        {"a forgotten post is left alone", a_forgotten_post_is_left_alone},
        {"what is not used goes", what_is_not_used_goes},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
