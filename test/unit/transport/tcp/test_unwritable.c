/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: memory of this rank, where the peer's tensors are to go, is not mapped any more or is
 * read-only. Both ends learn why, and neither crashes. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp_side.h"
#include "unit.h"

enum { PAGE = 4096, LARGE = 1 << 20, SMALL = 300 };

static const char own_reason[] = "registered memory of this rank cannot be written";
static const char peers_reason[] = "its registered memory cannot be written";

static struct side a, b; /* b has the memory */
static struct stepaf_mem *region;
static struct stepaf_rmem *place;
static uint8_t *source;
static const char *tcp_threads = "0";

static void begin(const char *n_connections)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", n_connections);
    tcp_set("STEPAF_TCP_THREADS", tcp_threads);
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    tcp_join(&a, 0, &b, 0);
    region = side_memory(&b, LARGE, false);
    free(region->base);
    region->base = tcp_map(LARGE);
    place = side_import(&a, 0, &b, region);
    source = tcp_map(LARGE);
}

static void end(void)
{
    side_ops->release_mem(a.links[0], place);
    munmap(region->base, LARGE);
    munmap(source, LARGE);
    region->base = NULL;
    side_close(&a);
    side_close(&b);
}

static bool both_have_lost(void *arg)
{
    (void)arg;
    return a.n_lost && b.n_lost;
}

static void expect_both_lost(void)
{
    struct side *sides[] = {&a, &b};

    CU_ASSERT_TRUE(tcp_until(sides, 2, both_have_lost, NULL));
    CU_ASSERT(a.n_lost == 1 && b.n_lost == 1);
    UNIT_CONTAINS(a.lost_reason, peers_reason);
    UNIT_CONTAINS(b.lost_reason, own_reason);
    CU_ASSERT_EQUAL(b.up.dropped_malformed, 0);
}

/* Send @a bytes to the region's place @a to, with a whole message before and one behind it. */
static void send_between(size_t to, uint32_t bytes)
{
    struct stepaf_xfer xfers[] = {{.src = source, .dst = place, .bytes = SMALL},
                                  {.src = source, .dst = place, .dst_offset = to, .bytes = bytes},
                                  {.src = source, .dst = place, .bytes = SMALL}};

    for (uint32_t i = 0; i < 3; i++) {
        struct stepaf_post post = {.link = a.links[0], .xfer = &xfers[i], .n_xfer = 1};
        struct stepaf_post *posts[] = {&post};
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = i};
        for (int k = 0; k < 1000000 && side_ops->post(posts, 1); k++)
            (void)side_progress(&b);
    }
}

/* The page at @a to is the bad one; the first is not. */
static void spoil(bool is_read_only, size_t to)
{
    uint8_t *page = region->base + to / PAGE * PAGE;

    CU_ASSERT_FALSE(is_read_only ? mprotect(page, PAGE, PROT_READ) : munmap(page, PAGE));
}

static void lose_by(const char *n_connections, size_t to, uint32_t bytes, size_t bad)
{
    for (int is_read_only = 0; is_read_only < 2; is_read_only++) {
        begin(n_connections);
        spoil(is_read_only, bad);
        send_between(to, bytes);
        expect_both_lost();
        /* What came before it; nothing behind it. */
        CU_ASSERT(b.n_messages == 1 && b.messages[0].seq == 0);
        end();
    }
}

static void a_small_tensor_has_no_pages(void)
{
    lose_by("1", LARGE / 2, SMALL, LARGE / 2);
    lose_by("1", LARGE / 2, 1, LARGE / 2);
    lose_by("1", LARGE / 2 - 100, SMALL, LARGE / 2);
    lose_by("1", LARGE / 2, 8000, LARGE / 2 + PAGE);
}

static void a_large_one_has_none(void)
{
    lose_by("1", PAGE, LARGE - PAGE, PAGE);
    lose_by("1", PAGE, LARGE - PAGE, LARGE / 2);
    lose_by("1", PAGE, LARGE - PAGE, LARGE - PAGE);
}

static void a_piece_of_one_has_none(void)
{
    for (size_t bad = PAGE; bad < LARGE; bad += LARGE / 5 / PAGE * PAGE)
        lose_by("3", PAGE, LARGE - PAGE, bad);
}

static void also_where_threads_help(void)
{
    tcp_threads = "2";
    a_piece_of_one_has_none();
    tcp_threads = "0";
}

/* A tensor of b's own, to a. */
static struct stepaf_mem *at_a;
static struct stepaf_rmem *there;
static struct stepaf_xfer own_xfer;
static struct stepaf_post own_post;

static unsigned post_own(void)
{
    struct stepaf_post *posts[] = {&own_post};

    return side_ops->post(posts, 1);
}

static void begin_post(uint32_t bytes)
{
    at_a = side_memory(&a, LARGE, true);
    there = side_import(&b, 0, &a, at_a);
    own_xfer = (struct stepaf_xfer){.src = source, .dst = there, .bytes = bytes};
    own_post = (struct stepaf_post){.link = b.links[0], .xfer = &own_xfer, .n_xfer = 1};
    own_post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 9};
}

/* It is sent in part, and this rank cannot be written. */
static void begin_own(void)
{
    begin("1");
    tcp_squeeze(&a, &b);
    begin_post(LARGE);
    CU_ASSERT_EQUAL(post_own(), 1);
    spoil(true, LARGE / 2);
    send_between(LARGE / 2, SMALL);
    (void)side_progress(&b);
    CU_ASSERT(!b.n_lost && tcp_link(&b, 0)->unwritable && !tcp_link(&b, 0)->told);
}

static void end_own(void)
{
    side_ops->release_mem(b.links[0], there);
    end();
}

/* It is in the middle of a frame of its own, which the peer has to have whole before. */
static void the_rank_may_be_sending(void)
{
    begin_own();
    for (int i = 0; i < 1000000 && own_post.state == STEPAF_POST_QUEUED; i++) {
        (void)post_own();
        (void)side_progress(&a);
    }
    expect_both_lost();
    CU_ASSERT(a.n_messages == 1 && a.messages[0].seq == 9 && !memcmp(at_a->base, source, LARGE));
    end_own();
}

/* The peer reads late, and sends meanwhile. To close before its host has all would lose the rest of
 * the frame, and the reason with it. */
static void the_peer_may_be_late(void)
{
    struct stepaf_xfer xfer;
    struct stepaf_post post, *posts[] = {&post};
    int little = 65536;

    begin("1");
    CU_ASSERT_FALSE(setsockopt(tcp_link(&a, 0)->connections[0].fd, SOL_SOCKET, SO_RCVBUF, &little,
                               sizeof(little)));
    begin_post(LARGE / 2);
    CU_ASSERT_EQUAL(post_own(), 0);
    spoil(true, LARGE / 2);
    send_between(LARGE / 2, SMALL);
    for (int i = 0; i < 10; i++)
        (void)side_progress(&b);
    CU_ASSERT(tcp_link(&b, 0)->told && !b.n_lost);
    xfer = (struct stepaf_xfer){.src = source, .dst = place, .bytes = SMALL};
    post = (struct stepaf_post){.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    expect_both_lost();
    CU_ASSERT(a.n_messages == 1 && a.messages[0].seq == 9);
    CU_ASSERT_EQUAL(memcmp(at_a->base, source, LARGE / 2), 0);
    end_own();
}

/* A peer that does not read its frame is not waited for. */
static void the_peer_may_not_read(void)
{
    begin_own();
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    UNIT_CONTAINS(b.lost_reason, own_reason);
    CU_ASSERT_TRUE(tcp_until_lost(&a));
    end_own();
}

/* Nor is one that is gone. */
static void the_peer_may_be_gone(void)
{
    begin_own();
    tcp_reset(tcp_link(&a, 0)->connections[0].fd);
    tcp_link(&a, 0)->connections[0].fd = -1;
    for (int i = 0; i < 1000000 && post_own(); i++) {
    }
    CU_ASSERT_EQUAL(b.n_lost, 1);
    UNIT_CONTAINS(b.lost_reason, own_reason);
    end_own();
}

/* The rank knows already that the peer is about to be lost, and takes in what it has said last. */
static void the_link_may_be_broken(void)
{
    begin("2");
    CU_ASSERT_FALSE(shutdown(tcp_link(&a, 0)->connections[1].fd, SHUT_WR));
    for (int i = 0; i < 1000000 && !tcp_link(&b, 0)->broken; i++)
        (void)side_progress(&b);
    CU_ASSERT(tcp_link(&b, 0)->broken && !b.n_lost);
    spoil(true, LARGE / 2);
    send_between(LARGE / 2, SMALL);
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    UNIT_CONTAINS(b.lost_reason, own_reason);
    CU_ASSERT(b.n_messages == 1 && b.messages[0].seq == 0);
    end();
}

/* What is under way to it is not read any more, so that its connection ends with a reset. */
static void the_peer_may_be_sending(void)
{
    begin("1");
    tcp_squeeze(&a, &b);
    struct stepaf_xfer xfers[] = {
        {.src = source, .dst = place, .dst_offset = LARGE / 2, .bytes = SMALL},
        {.src = source, .dst = place, .bytes = LARGE / 2}};
    struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = 2}, *posts[] = {&post};
    spoil(true, LARGE / 2);
    for (int i = 0; i < 3; i++)
        (void)side_ops->post(posts, 1);
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    for (int i = 0; i < 1000000 && side_ops->post(posts, 1); i++) {
    }
    expect_both_lost();
    end();
}

/* So may a stranger who has got in: it is lost, and nothing else happens. */
static void a_bare_peer_says_so(void)
{
    struct stepaf_tcp_head head = {.kind = STEPAF_TCP_UNWRITABLE};

    tcp_set_defaults();
    tcp_open(&b, false, 1);
    tcp_expect_bare(&b, 0);
    int fd = tcp_bare(&b, 0, 0);
    tcp_bare_send(fd, &head, sizeof(head));
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    UNIT_CONTAINS(b.lost_reason, peers_reason);
    CU_ASSERT_TRUE(tcp_bare_is_closed(&b, fd));
    close(fd);
    side_close(&b);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a small tensor has no pages", a_small_tensor_has_no_pages},
        {"a large one has none", a_large_one_has_none},
        {"a piece of one has none", a_piece_of_one_has_none},
        {"also where threads help", also_where_threads_help},
        {"the rank may be sending", the_rank_may_be_sending},
        {"the peer may be late", the_peer_may_be_late},
        {"the peer may not read", the_peer_may_not_read},
        {"the peer may be gone", the_peer_may_be_gone},
        {"the link may be broken", the_link_may_be_broken},
        {"the peer may be sending", the_peer_may_be_sending},
        {"a bare peer says so", a_bare_peer_says_so},
        CU_TEST_INFO_NULL,
    };
    side_ops = &stepaf_tcp_ops;
    return unit_run(tests);
}
