/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: which posts are quick messages, and which are not: of what length, to which memory, and to
 * which place in it. Of each is looked at what is handed to UCX, and at what arrives. And what
 * quick messages leave behind where they are refused, or fail. */
#include <sys/mman.h>

#include "ucx_fabric.h"
#include "unit.h"

enum { ROOM = 4096, AT = 64, SEQ = 5, INDEX = 1, PAGE = 65536, LONGEST = STEPAF_UCX_STAGE + 1 };

/* The second peer of a writes, so that its index there is not 0. */
static struct side a, b, c;
static struct side *const all[] = {&a, &b, &c};

static struct stepaf_ucx_library library;
static unsigned n_sent; /* by c, since this was set to 0 */
static struct {         /* the first of them */
    unsigned id;
    size_t header_bytes, bytes;
    uint8_t header[STEPAF_UCX_HEAD_MAX];
} sent;

static ucs_status_ptr_t note_sent(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                  const void *buffer, size_t count,
                                  const ucp_request_param_t *param)
{
    if (ep == ucx_link(&c, 0)->ep && !n_sent++) {
        sent.id = id;
        sent.header_bytes = header_bytes;
        sent.bytes = count;
        side_must(header_bytes <= sizeof(sent.header), "a header");
        memcpy(sent.header, header, header_bytes);
    }
    return ucx_fabric_library.am_send_nbx(ep, id, header, header_bytes, buffer, count, param);
}

static void begin_headers(size_t header_max)
{
    ucx_fabric_reset(41);
    ucx_fabric.header_max = header_max;
    library = ucx_fabric_library;
    library.am_send_nbx = note_sent;
    stepaf_ucx_library_fake = &library;
    fabric_open_three(all);
}

static void begin(void)
{
    begin_headers(STEPAF_UCX_HEAD_MAX);
}

static void end(void)
{
    for (int s = 0; s < 3; s++)
        side_close(all[s]);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_foreign, 0);
}

static struct stepaf_mem *source;
static struct stepaf_rmem *there;

static void begin_to(const struct stepaf_mem *target)
{
    source = fabric_memory(&c, ROOM);
    for (int i = 0; i < ROOM; i++)
        source->base[i] = (uint8_t)(3 * i + 1);
    there = side_import(&c, 0, &a, target);
}

static void end_to(void)
{
    side_ops->release_mem(c.links[0], there);
    end();
}

/* A START with a tensor of so many bytes. */
static struct stepaf_post *compose(uint64_t offset, uint32_t bytes)
{
    static struct stepaf_xfer xfers[2];
    static struct stepaf_post post;

    xfers[0] = (struct stepaf_xfer){source->base, source, there, offset, bytes};
    xfers[1] = (struct stepaf_xfer){source->base + ROOM / 2, source, there, offset + bytes, 8};
    post = (struct stepaf_post){.link = c.links[0], .xfer = xfers, .n_xfer = 1};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = SEQ};
    post.is_short = stepaf_msg_to_imm(&post.msg, &post.imm);
    return &post;
}

/* Post it: it is one active message, and arrives. */
static void send_one(struct stepaf_post *post)
{
    unsigned arrived = a.n_messages;

    n_sent = 0;
    CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
    CU_ASSERT_EQUAL(n_sent, 1);
    CU_ASSERT_TRUE(fabric_until_messages(&a, &c, arrived + 1));
    CU_ASSERT_EQUAL(a.messages[arrived].seq, SEQ);
    for (int i = 0; i < 1000 && post->state != STEPAF_POST_SENT; i++)
        (void)side_progress(&c);
    CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT);
}

/* What was sent is a quick message for this place. */
static void check_quick(const struct stepaf_post *post, uint32_t id, uint64_t offset,
                        uint32_t bytes)
{
    struct stepaf_ucx_quick head;

    memcpy(&head, sent.header, sizeof(head));
    CU_ASSERT_EQUAL(sent.id, STEPAF_UCX_QUICK);
    CU_ASSERT(sent.header_bytes == sizeof(head) + bytes && !sent.bytes);
    CU_ASSERT_EQUAL(head.token, fabric_of(&a)->token >> 32);
    CU_ASSERT_EQUAL(head.whose, id << STEPAF_UCX_ID_SHIFT | INDEX);
    CU_ASSERT_EQUAL(head.offset, offset);
    CU_ASSERT_EQUAL(head.imm, post->imm);
    CU_ASSERT_EQUAL(head.number, (uint16_t)(fabric_link(&c, 0)->sent - 1));
    CU_ASSERT_EQUAL(memcmp(sent.header + sizeof(head), source->base, bytes), 0);
}

/* It is one with a whole head, and the tensor behind it or beside it. */
static void check_other(const struct stepaf_post *post, uint32_t id, uint64_t offset,
                        uint32_t bytes)
{
    struct stepaf_ucx_head head;
    struct stepaf_ucx_place place;

    memcpy(&head, sent.header, sizeof(head));
    memcpy(&place, sent.header + sizeof(head), sizeof(place));
    CU_ASSERT_EQUAL(sent.id, STEPAF_UCX_MESSAGE);
    CU_ASSERT_EQUAL(sent.header_bytes + sent.bytes, sizeof(head) + sizeof(place) + bytes);
    CU_ASSERT_EQUAL(head.token, fabric_of(&a)->token);
    CU_ASSERT(head.peer == INDEX && head.kind == STEPAF_FABRIC_MESSAGE);
    CU_ASSERT(head.is_short && head.imm == post->imm);
    CU_ASSERT_EQUAL(head.number, fabric_link(&c, 0)->sent - 1);
    CU_ASSERT(head.n_places == 1 && !head.pieces);
    CU_ASSERT(place.id == id && place.offset == offset && place.bytes == bytes);
}

/* These bytes have come, and none beside them. */
static void check_bytes(const uint8_t *at, uint32_t bytes)
{
    static const uint8_t none[AT];

    CU_ASSERT_EQUAL(memcmp(at, source->base, bytes), 0);
    CU_ASSERT_EQUAL(memcmp(at - AT, none, AT), 0);
    CU_ASSERT_EQUAL(memcmp(at + bytes, none, AT), 0);
}

/* Also those lengths at which they do not fit into a link's own memory any more. */
static void check_lengths(size_t header_max, uint32_t stage)
{
    begin_headers(header_max);
    const struct stepaf_mem *target = fabric_memory(&a, ROOM);
    begin_to(target);
    for (uint32_t bytes = 1; bytes <= LONGEST && a.n_messages == bytes - 1; bytes++) {
        struct stepaf_post *post = compose(AT, bytes);
        memset(target->base, 0, ROOM);
        send_one(post);
        if (bytes <= stage)
            check_quick(post, target->id, AT, bytes);
        else
            check_other(post, target->id, AT, bytes);
        check_bytes(target->base + AT, bytes);
    }
    CU_ASSERT_EQUAL(a.n_messages, LONGEST);
    end_to();
}

static void as_long_as_messages_carry_copies(void)
{
    check_lengths(STEPAF_UCX_HEAD_MAX, STEPAF_UCX_STAGE);
}

static void as_long_as_headers_may_be(void)
{
    check_lengths(700, 700 - (STEPAF_UCX_HEAD_MAX - STEPAF_UCX_STAGE));
    check_lengths(STEPAF_UCX_HEAD_USUAL, 0);
}

static void to_memory_whose_id_has_room(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t id = STEPAF_UCX_QUICK_IDS - 1 + i;
        begin();
        struct stepaf_mem *target = fabric_memory(&a, ROOM);
        target->id = id;
        begin_to(target);
        struct stepaf_post *post = compose(AT, 8);
        send_one(post);
        if (i)
            check_other(post, id, AT, 8);
        else
            check_quick(post, id, AT, 8);
        check_bytes(target->base + AT, 8);
        end_to();
    }
}

/* Memory of which there is none but where it begins, and around one offset. */
static struct stepaf_mem *make_large(uint64_t offset, size_t *bytes_p)
{
    struct stepaf_mem *mem = &a.regions[a.n_regions];

    *bytes_p = (size_t)(offset & -(uint64_t)PAGE) + 2 * (size_t)PAGE;
    uint8_t *base = mmap(NULL, *bytes_p, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    side_must(base != MAP_FAILED, "addresses");
    side_must(
        !mprotect(base, PAGE, PROT_READ | PROT_WRITE) &&
            !mprotect(base + *bytes_p - 3 * (size_t)PAGE, 3 * (size_t)PAGE, PROT_READ | PROT_WRITE),
        "memory");
    *mem = (struct stepaf_mem){
        .id = 100 + a.n_regions++, .base = base, .bytes = *bytes_p, .fd = -1, .lent = true};
    side_must(!side_ops->reg_mem(a.transport, mem), "registration");
    return mem;
}

static void to_a_place_whose_offset_has_room(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t offset = (uint64_t)UINT32_MAX + i;
        size_t mapped;
        begin();
        struct stepaf_mem *target = make_large(offset, &mapped);
        begin_to(target);
        struct stepaf_post *post = compose(offset, 8);
        send_one(post);
        if (i)
            check_other(post, target->id, offset, 8);
        else
            check_quick(post, target->id, offset, 8);
        check_bytes(target->base + offset, 8);
        side_must(!munmap(target->base, mapped), "unmapping");
        target->base = NULL;
        end_to();
    }
}

/* A tensor without bytes has no place, wherever it is to lie; and there may be none at all. */
static void without_bytes_wherever_they_were_to_lie(void)
{
    begin();
    struct stepaf_mem *target = fabric_memory(&a, ROOM);
    target->id = STEPAF_UCX_QUICK_IDS;
    begin_to(target);
    struct stepaf_post *post = compose((uint64_t)UINT32_MAX + 1, 0);
    send_one(post);
    check_quick(post, 0, 0, 0);
    post->n_xfer = 0;
    send_one(post);
    check_quick(post, 0, 0, 0);
    end_to();
}

static void others_are_not_quick(void)
{
    begin();
    const struct stepaf_mem *target = fabric_memory(&a, ROOM);
    begin_to(target);
    struct stepaf_post *post = compose(AT, 8);
    post->n_xfer = 2;
    send_one(post);
    CU_ASSERT_EQUAL(sent.id, STEPAF_UCX_MESSAGE);
    CU_ASSERT_EQUAL(memcmp(target->base + AT, source->base, 8), 0);
    CU_ASSERT_EQUAL(memcmp(target->base + AT + 8, source->base + ROOM / 2, 8), 0);
    post = compose(2 * AT, 8);
    post->msg.n_words = 1;
    post->msg.word[0] = 9;
    post->is_short = stepaf_msg_to_imm(&post->msg, &post->imm);
    send_one(post);
    CU_ASSERT_EQUAL(sent.id, STEPAF_UCX_MESSAGE);
    CU_ASSERT_EQUAL(a.messages[a.n_messages - 1].word[0], 9);
    CU_ASSERT_EQUAL(memcmp(target->base + 2 * AT, source->base, 8), 0);
    end_to();
}

static unsigned n_copies(void)
{
    unsigned n = 0;

    for (const struct stepaf_ucx_copy *copy = ucx_of(&c)->free_copy; copy; copy = copy->next)
        n++;
    return n;
}

/* All copies are under way: what needs one goes as it is. */
static void what_has_no_copy_goes_as_it_is(void)
{
    begin();
    const struct stepaf_mem *target = fabric_memory(&a, ROOM);
    begin_to(target);
    struct stepaf_ucx_copy *copies = ucx_of(&c)->free_copy;
    ucx_of(&c)->free_copy = NULL;
    struct stepaf_post *post = compose(AT, STEPAF_UCX_STAGE);
    send_one(post);
    check_other(post, target->id, AT, STEPAF_UCX_STAGE);
    CU_ASSERT_EQUAL(sent.bytes, STEPAF_UCX_STAGE);
    check_bytes(target->base + AT, STEPAF_UCX_STAGE);
    ucx_of(&c)->free_copy = copies;
    end_to();
}

/* Of c nothing is under way, and all copies are back. */
static void check_unused(void)
{
    uint32_t peer;

    CU_ASSERT_TRUE(side_ops->is_quiet(c.transport, true, &peer));
    CU_ASSERT_EQUAL(n_copies(), STEPAF_UCX_COPIES);
}

/* With a copy, and without one. At once; or when it is under way. */
static void an_error_loses_the_peer_once(void)
{
    for (int way = 0; way < 4; way++) {
        uint32_t bytes = way & 1 ? STEPAF_UCX_STAGE : 8;
        begin();
        begin_to(fabric_memory(&a, ROOM));
        ucx_fabric.at_once_in = 0;
        if (way & 2)
            ucx_fabric.fail_after = 1;
        else
            ucx_fabric.refuse = UCS_ERR_CONNECTION_RESET;
        n_sent = 0;
        struct stepaf_post *post = compose(AT, bytes);
        CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
        CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT);
        ucx_fabric.refuse = UCS_OK;
        fabric_take_in(all, 3);
        CU_ASSERT_EQUAL(c.n_lost, 1);
        UNIT_STRING(c.lost_reason, "UCX: the connection was reset");
        CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
        CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT); /* to nobody */
        fabric_take_in(all, 3);
        CU_ASSERT_EQUAL(n_sent, 1);
        CU_ASSERT(c.n_lost == 1 && !a.n_messages);
        check_unused();
        fabric_check_link(&a, 0, &b);
        end_to();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"as long as messages carry copies", as_long_as_messages_carry_copies},
        {"as long as headers may be", as_long_as_headers_may_be},
        {"to memory whose id has room", to_memory_whose_id_has_room},
        {"to a place whose offset has room", to_a_place_whose_offset_has_room},
        {"without bytes, wherever they were to lie", without_bytes_wherever_they_were_to_lie},
        {"others are not quick", others_are_not_quick},
        {"what has no copy goes as it is", what_has_no_copy_goes_as_it_is},
        {"an error loses the peer once", an_error_loses_the_peer_once},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
