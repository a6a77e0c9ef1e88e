/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: what posts of operations cost, whichever way they take. */
#include <stdlib.h>

#include "unit.h"
#include "verbs_side.h"

enum { PIECE = 1024 };

static struct vside a, b, c;
static struct stepaf_rmem *at_b, *at_c;
static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];

static void begin(size_t bytes)
{
    struct stepaf_pack pack;

    verbs_device_reset();
    vside_settings = "";
    vside_open(&a, 2);
    vside_open(&b, 1);
    vside_open(&c, 1);
    vside_join(&a, &b);
    pack = vside_pack(&a);
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&a, 1, &c, 0, NULL));
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&c, 0, &a, 1, &pack));
    free(pack.data);
    vside_memory(&a, bytes);
    for (size_t i = 0; i < bytes; i++)
        a.regions[0].base[i] = (uint8_t)(i * 7 + i / 251);
    at_b = vside_import(&a, 0, &b, vside_memory(&b, bytes));
    at_c = vside_import(&a, 1, &c, vside_memory(&c, bytes));
}

static void end(void)
{
    CU_ASSERT_EQUAL(verbs_device.n_unready, 0);
    CU_ASSERT_EQUAL(verbs_device.n_overflow, 0);
    stepaf_verbs_ops.release_mem(a.links[0], at_b);
    stepaf_verbs_ops.release_mem(a.links[1], at_c);
    vside_close(&a);
    vside_close(&b);
    vside_close(&c);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static bool is_at(const struct vside *side, size_t bytes)
{
    return !memcmp(a.regions[0].base, side->regions[0].base, bytes);
}

/* How an engine may hand over the posts of an operation. */
enum manner { LONG, SHORT, PREPARED, MANNERS };

static void hand_over(struct stepaf_post *one, struct stepaf_post *two, enum manner manner)
{
    struct stepaf_post *posts[] = {one, two};
    size_t bytes = 0;

    for (int i = 0; i < 2 && manner != LONG; i++)
        posts[i]->is_short = stepaf_msg_to_imm(&posts[i]->msg, &posts[i]->imm);
    if (manner == PREPARED) {
        one->template = two->template = stepaf_verbs_ops.make_template(one, &bytes);
        CU_ASSERT_PTR_NOT_NULL(one->template);
        CU_ASSERT(bytes >= one->n_xfer * sizeof(struct ibv_send_wr));
    }
    verbs_device.n_requests = verbs_device.n_doorbells = verbs_device.n_imms = 0;
    verbs_device.n_signaled = verbs_device.n_inline = 0;
    unsigned n_queued = stepaf_verbs_ops.post(posts, 2);
    CU_ASSERT_EQUAL(n_queued,
                    (one->state == STEPAF_POST_QUEUED) + (two->state == STEPAF_POST_QUEUED));
    free(one->template);
    one->template = two->template = NULL;
}

/* n tensors to F peers: n*F work requests, F calls; none beyond for the notification. Whichever way
 * the posts take, the same comes of it. */
static void a_push_costs_as_many_requests_as_tensors(void)
{
    static const uint32_t sizes[] = {8, PIECE}; /* inline, and not */

    begin(STEPAF_MAX_TENSORS * PIECE);
    for (unsigned round = 0; round < 2 * STEPAF_MAX_TENSORS * MANNERS; round++) {
        unsigned n = round / 2 % STEPAF_MAX_TENSORS + 1, before = b.n_messages;
        uint32_t bytes = sizes[round % 2];
        struct stepaf_xfer more[STEPAF_MAX_TENSORS];
        struct stepaf_post one = vside_post(&a, 0, xfers, n, bytes, at_b);
        struct stepaf_post two = vside_post(&a, 1, more, n, bytes, at_c);
        memset(b.regions[0].base, 0, n * bytes);
        memset(c.regions[0].base, 0, n * bytes);
        one.msg.seq = two.msg.seq = round;
        hand_over(&one, &two, (enum manner)(round / 2 / STEPAF_MAX_TENSORS));
        CU_ASSERT_EQUAL(verbs_device.n_requests, 2 * n);
        CU_ASSERT_EQUAL(verbs_device.n_doorbells, 2);
        CU_ASSERT_EQUAL(verbs_device.n_imms, 2);
        CU_ASSERT_EQUAL(verbs_device.n_inline, bytes == PIECE ? 0 : 2 * n);
        CU_ASSERT_EQUAL(one.state, bytes == PIECE ? STEPAF_POST_POSTED : STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(two.state, one.state);
        vside_progress(&a);
        CU_ASSERT_EQUAL(one.state, STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(two.state, STEPAF_POST_SENT);
        vside_progress(&b);
        vside_progress(&c);
        CU_ASSERT_EQUAL(b.n_messages, before + 1);
        CU_ASSERT_EQUAL(c.n_messages, before + 1);
        CU_ASSERT_EQUAL(b.last_imm, stepaf_imm_make(STEPAF_IMM_START, 3, round, 1));
        CU_ASSERT_EQUAL(c.last_imm, b.last_imm);
        CU_ASSERT(is_at(&b, n * bytes));
        CU_ASSERT(is_at(&c, n * bytes));
    }
    end();
}

/* Of two posts with the same form the first may have no room. */
static void a_post_follows_one_without_room(void)
{
    begin(2 * PIECE);
    verbs_device.holds = true;
    struct stepaf_post filler = vside_post(&a, 0, xfers, 1, 8, at_b);
    while (vside_send(&filler) != STEPAF_POST_QUEUED)
        ;
    struct stepaf_xfer more[2], others[2];
    struct stepaf_post before = vside_post(&a, 1, others, 1, 8, at_c);
    CU_ASSERT_EQUAL(vside_send(&before), STEPAF_POST_SENT);
    struct stepaf_post one = vside_post(&a, 0, xfers, 2, PIECE, at_b);
    struct stepaf_post two = vside_post(&a, 1, more, 2, PIECE, at_c);
    hand_over(&one, &two, PREPARED);
    CU_ASSERT_EQUAL(one.state, STEPAF_POST_QUEUED);
    CU_ASSERT_EQUAL(two.state, STEPAF_POST_POSTED);
    verbs_device_go();
    vside_progress(&c);
    CU_ASSERT(is_at(&c, 2 * PIECE));
    do {
        vside_progress(&b);
        vside_progress(&a);
    } while (vside_send(&one) == STEPAF_POST_QUEUED);
    vside_progress(&b);
    vside_progress(&a);
    CU_ASSERT(is_at(&b, 2 * PIECE));
    end();
}

/* As many posts as can be held, then one that is over at once: the next one that would have to be
 * held waits until a place is free. */
static void no_more_is_held_than_there_is_room_for(void)
{
    struct stepaf_post posts[STEPAF_VERBS_HELD_POSTS + 1];
    struct stepaf_xfer writes[STEPAF_VERBS_HELD_POSTS + 1][1], little[1];
    unsigned n = 0;

    begin(PIECE);
    verbs_device.holds = true;
    for (; n < STEPAF_VERBS_HELD_POSTS; n++) {
        posts[n] = vside_post(&a, 0, writes[n], 1, PIECE, at_b);
        CU_ASSERT_EQUAL(vside_send(&posts[n]), STEPAF_POST_POSTED);
    }
    for (int i = 0; i < 3; i++) {
        struct stepaf_post small = vside_post(&a, 0, little, 1, 8, at_b);
        CU_ASSERT_EQUAL(vside_send(&small), STEPAF_POST_SENT);
        posts[n] = vside_post(&a, 0, writes[n], 1, PIECE, at_b);
        CU_ASSERT_EQUAL(vside_send(&posts[n]), STEPAF_POST_QUEUED);
    }
    CU_ASSERT_EQUAL(vside_link(&a, 0)->n_held, STEPAF_VERBS_HELD_POSTS);
    verbs_device_go();
    while (vside_progress(&a))
        ;
    for (unsigned i = 0; i < STEPAF_VERBS_HELD_POSTS; i++)
        CU_ASSERT_EQUAL(posts[i].state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(vside_send(&posts[n]), STEPAF_POST_POSTED);
    verbs_device_go();
    vside_progress(&a);
    CU_ASSERT_EQUAL(posts[n].state, STEPAF_POST_SENT);
    while (vside_progress(&b))
        ;
    CU_ASSERT_EQUAL(b.n_messages, STEPAF_VERBS_HELD_POSTS + 4);
    end();
}

/* What is no chain of whole writes is not prepared. */
static void an_empty_tensor_has_no_form(void)
{
    size_t bytes = 1;

    begin(PIECE);
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, 8, at_b);
    xfers[1].bytes = 0;
    CU_ASSERT_PTR_NULL(stepaf_verbs_ops.make_template(&post, &bytes));
    CU_ASSERT_EQUAL(bytes, 0);
    post.n_xfer = 0;
    CU_ASSERT_PTR_NULL(stepaf_verbs_ops.make_template(&post, &bytes));
    end();
}

/* An answer as planned: n and 1, and its times are not told. */
static void an_answer_costs_as_little(void)
{
    begin(4 * PIECE);
    verbs_device.n_requests = verbs_device.n_doorbells = 0;
    struct stepaf_post post = vside_post(&a, 0, xfers, 4, PIECE, at_b);
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_RESPONSE,
                                   .flags = STEPAF_MSG_RELEASED,
                                   .epoch = 0x1235,
                                   .plan = 0x8001,
                                   .seq = 0x12345,
                                   .n_words = STEPAF_MSG_SIZES};
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_POSTED);
    CU_ASSERT_EQUAL(verbs_device.n_requests, 4);
    CU_ASSERT_EQUAL(verbs_device.n_doorbells, 1);
    vside_progress(&b);
    CU_ASSERT_EQUAL(b.last_imm, stepaf_imm_make(STEPAF_IMM_RELEASED, 0x8001, 0x345, 5));
    vside_progress(&a);
    end();
}

/* As where a peer has disconnected during a commit: what the others have sent is not read. */
static void messages_of_one_link_can_be_taken(void)
{
    struct stepaf_verbs *verbs;

    begin(PIECE);
    verbs = (struct stepaf_verbs *)a.transport;
    for (int i = 0; i < 4; i++) {
        struct stepaf_post post = vside_post(i % 2 ? &b : &c, 0, xfers, 0, 0, NULL);
        post.msg.seq = (uint32_t)i;
        post.msg.n = i % 2; /* some by the ring */
        (void)vside_send(&post);
    }
    stepaf_verbs_sends_note(verbs);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    stepaf_verbs_aside_take_of(vside_link(&a, 0));
    CU_ASSERT_EQUAL_FATAL(a.n_messages, 2);
    CU_ASSERT(a.messages[0].seq == 1 && a.messages[1].seq == 3);
    vside_progress(&a);
    CU_ASSERT_EQUAL_FATAL(a.n_messages, 4);
    CU_ASSERT(a.messages[2].seq == 0 && a.messages[3].seq == 2);
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a push costs as many requests as tensors", a_push_costs_as_many_requests_as_tensors},
        {"no more is held than there is room for", no_more_is_held_than_there_is_room_for},
        {"an empty tensor has no form", an_empty_tensor_has_no_form},
        {"a post follows one without room", a_post_follows_one_without_room},
        {"an answer costs as little", an_answer_costs_as_little},
        {"messages of one link can be taken", messages_of_one_link_can_be_taken},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
