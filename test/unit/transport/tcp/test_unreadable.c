/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: this rank's own tensors are not mapped any more. The peer has nothing to do with it, and is
 * written to as before. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tcp_side.h"
#include "unit.h"

enum { PAGE = 4096, LARGE = 1 << 20, SMALL = 300 };

static struct side a, b;
static struct stepaf_mem *region;
static struct stepaf_rmem *place;
static unsigned n_refused;
static const char *tcp_threads = "0";

static void refused(struct stepaf_upcalls *up, struct stepaf_post *post)
{
    (void)up;
    n_refused++;
    CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT);
}

static void begin(const char *n_connections)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", n_connections);
    tcp_set("STEPAF_TCP_THREADS", tcp_threads);
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    tcp_join(&a, 0, &b, 0);
    region = side_memory(&b, 2 * LARGE, true);
    place = side_import(&a, 0, &b, region);
    a.up.refused = refused;
    n_refused = 0;
}

static void end(void)
{
    CU_ASSERT(!a.n_lost && !b.n_lost && !b.up.dropped_malformed);
    side_ops->release_mem(a.links[0], place);
    side_close(&a);
    side_close(&b);
}

/* Offer a post of two tensors until it is through; the peer goes on meanwhile. */
static void send_two(const uint8_t *first, uint32_t first_bytes, const uint8_t *second,
                     uint32_t second_bytes, uint32_t seq)
{
    struct stepaf_xfer xfers[] = {
        {.src = first, .dst = place, .bytes = first_bytes},
        {.src = second, .dst = place, .dst_offset = LARGE, .bytes = second_bytes}};
    struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = 2}, *posts[] = {&post};

    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = seq};
    for (int i = 0; i < 1000000 && side_ops->post(posts, 1); i++)
        (void)side_progress(&b);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
}

/* What comes behind it is whole, and goes behind it, since zeros may be on their way to the same
 * place. */
static void check_goes_on(const uint8_t *good, uint32_t seq)
{
    uint32_t n_parts = tcp_link(&a, 0)->tx_parts;
    unsigned n = b.n_messages;

    memset(region->base, 1, 2 * LARGE);
    uint64_t bytes = a.links[0]->bytes_sent, messages = a.links[0]->messages_sent;
    send_two(good, LARGE, good, SMALL, seq);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, n + 1));
    CU_ASSERT(b.n_messages == n + 1 && b.messages[n].seq == seq);
    CU_ASSERT_EQUAL(tcp_link(&a, 0)->tx_parts, n_parts);
    CU_ASSERT_EQUAL(tcp_link(&b, 0)->n_held, 0);
    CU_ASSERT(a.links[0]->bytes_sent == bytes + LARGE + SMALL &&
              a.links[0]->messages_sent == messages + 1);
    for (size_t i = 0; i < LARGE + SMALL; i++)
        if (region->base[i] != 7)
            CU_FAIL_FATAL("a byte that is not as it was sent");
}

/* From its beginning, its middle or its last page on, alone or behind others, small and large. */
static void lose_sources(const char *n_connections)
{
    static const size_t from[] = {0, PAGE, LARGE / 2, LARGE - PAGE};
    uint8_t *good = tcp_map(LARGE);
    uint32_t seq = 0;

    begin(n_connections);
    for (unsigned i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        uint8_t *bad = tcp_map(LARGE);
        CU_ASSERT_EQUAL(munmap(bad + from[i], LARGE - from[i]), 0);
        send_two(good, LARGE, bad, LARGE, 99);
        CU_ASSERT_EQUAL(n_refused, 3 * i + 1);
        send_two(bad, LARGE, good, SMALL, 99);
        CU_ASSERT_EQUAL(n_refused, 3 * i + 2);
        send_two(good, SMALL, bad + from[i] - (from[i] ? 100 : 0), SMALL, 99);
        CU_ASSERT_EQUAL(n_refused, 3 * i + 3);
        check_goes_on(good, ++seq);
        CU_ASSERT(b.n_messages == seq && !a.n_lost);
        if (from[i])
            munmap(bad, from[i]);
    }
    munmap(good, LARGE);
    end();
}

static void a_source_that_is_gone_is_refused(void)
{
    lose_sources("1");
}

static void also_where_it_goes_in_parts(void)
{
    uint8_t *good = tcp_map(LARGE);

    begin("3");
    send_two(good, LARGE, good, LARGE, 1);
    CU_ASSERT_EQUAL(tcp_link(&a, 0)->tx_parts, 2);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
    munmap(good, LARGE);
    end();
    lose_sources("3");
}

static void also_where_threads_help(void)
{
    tcp_threads = "2";
    also_where_it_goes_in_parts();
    tcp_threads = "0";
}

static void also_without_a_copy(void)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_ZEROCOPY", "on");
    lose_sources("2");
    tcp_set("STEPAF_TCP_ZEROCOPY", NULL);
}

/* The link ends while zeros are on their way. */
static void the_end_may_come_before(void)
{
    uint8_t *bad = tcp_map(LARGE);

    begin("1");
    tcp_squeeze(&a, &b);
    munmap(bad + PAGE, LARGE - PAGE);
    struct stepaf_xfer xfer = {.src = bad, .dst = place, .bytes = LARGE};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 1);
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 1);
    CU_ASSERT_EQUAL(n_refused, 0);
    munmap(bad, PAGE);
    end();
}

/* What a stranger may say as well: no message, and nothing else is one. */
static void nothing_else_is_no_message(void)
{
    static uint8_t frame[256];
    size_t bytes;

    tcp_set_defaults();
    tcp_open(&b, false, 1);
    tcp_expect_bare(&b, 0);
    int fd = tcp_bare(&b, 0, 0);
    bytes = tcp_frame(frame, 0, 0, NULL, 0, 0, 1);
    frame[24] = STEPAF_TCP_VOID; /* head and descriptor go before */
    tcp_bare_send(fd, frame, bytes);
    bytes = tcp_frame(frame, 0, 0, NULL, 0, 0, 2);
    tcp_bare_send(fd, frame, bytes);
    CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, 1));
    CU_ASSERT(b.n_messages == 1 && b.messages[0].seq == 2 && !b.n_lost);
    bytes = tcp_frame(frame, 0, 0, NULL, 0, 0, 3);
    frame[24] = STEPAF_TCP_VOID + 1;
    tcp_bare_send(fd, frame, bytes);
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    UNIT_CONTAINS(b.lost_reason, "it has sent a malformed message");
    close(fd);
    side_close(&b);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a source that is gone is refused", a_source_that_is_gone_is_refused},
        {"also where it goes in parts", also_where_it_goes_in_parts},
        {"also where threads help", also_where_threads_help},
        {"also without a copy", also_without_a_copy},
        {"the end may come before", the_end_may_come_before},
        {"nothing else is no message", nothing_else_is_no_message},
        CU_TEST_INFO_NULL,
    };
    side_ops = &stepaf_tcp_ops;
    return unit_run(tests);
}
