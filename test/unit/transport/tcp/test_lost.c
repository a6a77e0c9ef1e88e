/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: a peer that goes in the middle of something, is cut off, or is slow; and congestion control,
 * which goes by the way to it. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/time.h"
#include "tcp_bare_peer.h"

/* A host that is cut off, or slow, as the kernel would tell of it. */
static uint32_t cut_off_ms, sent_ms, unacked;
static unsigned asked; /* with in_turns: two connections are unanswered at every second look each */
static bool in_turns;

/* How long a round trip takes, and what congestion control is asked for. */
static uint32_t round_trip_us;
static char congestion[16];

int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    if (level == IPPROTO_TCP && option == TCP_CONGESTION && length < sizeof congestion)
        memcpy(congestion, value, length);
    return (int)syscall(SYS_setsockopt, fd, level, option, value, length);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *length_p)
{
    struct tcp_info *info = value;

    if (syscall(SYS_getsockopt, fd, level, option, value, length_p))
        return -1;
    if (level == IPPROTO_TCP && option == TCP_INFO && round_trip_us && *length_p >= 152)
        memcpy((uint8_t *)value + 148, &round_trip_us, sizeof round_trip_us);
    if (level == IPPROTO_TCP && option == TCP_INFO && cut_off_ms) {
        info->tcpi_last_ack_recv = cut_off_ms;
        info->tcpi_last_data_sent = sent_ms;
        info->tcpi_unacked = in_turns ? (asked / 2 + asked % 2) % 2 : unacked;
        asked++;
    }
    return 0;
}

/* In every phase: after each byte of a frame, politely and not. */
static void a_peer_that_goes_is_lost(void)
{
    for (int polite = 0; polite < 2; polite++)
        for (size_t at = 0; at < 140; at += at < 30 ? 1 : 13) {
            begin(1);
            int files = tcp_open_files();
            size_t bytes = tcp_frame(frame, REGION, 0, data, 100, 0, 1);
            side_must(bytes == 192, "frame");
            if (at)
                tcp_bare_send(fds[0], frame, at);
            if (at % 2)
                side_progress(&b);
            if (polite)
                close(fds[0]);
            else
                tcp_reset(fds[0]);
            CU_ASSERT_TRUE(tcp_until_lost(&b));
            CU_ASSERT(b.n_lost == 1 && b.n_messages == 0);
            UNIT_CONTAINS(b.lost_reason, polite ? "closed" : "reset");
            CU_ASSERT_EQUAL(tcp_open_files(), files - 2); /* mine and its */
            for (size_t i = at; i < BYTES; i++)
                CU_ASSERT(region->base[i] == 0x5a);
            fds[0] = -1;
            end();
        }
}

/* In the middle of pieces that several threads read. What has come of them is in its place, and no
 * message is. */
static void a_peer_that_goes_amid_pieces_is_lost(void)
{
    enum { PIECE = 400000, SENT = 300000 };
    uint8_t *piece = malloc(PIECE);

    side_must(piece != NULL, "memory");
    memset(piece, 0xa5, PIECE);
    tcp_threads = "2";
    for (int polite = 0; polite < 2; polite++) {
        begin(3);
        side_must(tcp_of(&b)->copiers.it != NULL, "threads");
        struct stepaf_mem *place = side_memory(&b, 3 * PIECE, false);
        for (uint32_t i = 0; i < 3; i++) {
            struct stepaf_tcp_head head = {
                .kind = i ? STEPAF_TCP_PART : STEPAF_TCP_FRAME, .n_xfer = 1, .parts = !i};
            struct stepaf_tcp_descriptor descriptor = {place->id, PIECE, (uint64_t)i * PIECE};
            tcp_bare_send(fds[i], &head, sizeof head);
            tcp_bare_send(fds[i], &descriptor, sizeof descriptor);
            tcp_bare_send(fds[i], piece, SENT);
        }
        settle();
        CU_ASSERT(b.n_lost == 0 && b.n_messages == 0);
        for (size_t i = 0; i < 3; i++)
            CU_ASSERT(!memcmp((uint8_t *)place->base + i * PIECE, piece, SENT));
        for (unsigned i = 0; i < 3; i++) {
            tcp_bare_send(fds[i], piece, PIECE - SENT - 1000);
            if (polite)
                close(fds[i]);
            else
                tcp_reset(fds[i]);
            fds[i] = -1;
        }
        CU_ASSERT_TRUE(tcp_until_lost(&b));
        CU_ASSERT(b.n_lost == 1 && b.n_messages == 0);
        UNIT_CONTAINS(b.lost_reason, polite ? "closed" : "reset");
        end();
    }
    tcp_threads = "0";
    free(piece);
}

/* What has come from a peer is taken, even if it is by a send that its end shows first. */
static void what_a_lost_peer_has_said_is_heard(void)
{
    begin(1);
    for (uint32_t seq = 0; seq < 3; seq++)
        tcp_bare_send(fds[0], frame, tcp_frame(frame, REGION, 64 * seq, data, 64, 0, seq));
    usleep(1000);
    tcp_reset(fds[0]);
    fds[0] = -1;
    for (uint32_t seq = 0; seq < 5; seq++)
        CU_ASSERT_EQUAL(side_say(&b, 0, seq), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    CU_ASSERT(b.n_messages == 3 && b.n_lost == 1);
    CU_ASSERT_EQUAL(memcmp(region->base, data, 192), 0);
    CU_ASSERT_EQUAL(side_say(&b, 0, 9), STEPAF_POST_SENT);
    end();
}

/* In a commit nobody reads links for a while: who has ended is lost all the same, and what it has
 * said is heard; what others say lies where it is. */
static void an_end_is_seen_without_reading(void)
{
    begin(1);
    tcp_bare_send(fds[0], frame, tcp_frame(frame, REGION, 0, data, 64, 0, 1));
    usleep(1000);
    stepaf_tcp_ops.check_peers(b.transport);
    CU_ASSERT(b.n_messages == 0 && b.n_lost == 0);
    close(fds[0]);
    fds[0] = -1;
    for (int i = 0; i < 1000 && !b.n_lost; i++) {
        usleep(1000);
        stepaf_tcp_ops.check_peers(b.transport);
    }
    CU_ASSERT(b.n_messages == 1 && b.n_lost == 1);
    CU_ASSERT_EQUAL(memcmp(region->base, data, 64), 0);
    end();
}

/* Wait until the part of a link that @a connection is has been closed here. */
static bool has_ended(void *arg)
{
    return tcp_link(&b, 0)->connections[*(unsigned *)arg].fd < 0;
}

/* A peer that goes closes its connections one by one, in any order, and the last of its words may
 * be on another one than that which ends first. */
static void the_end_of_one_connection_is_not_the_last_word(void)
{
    for (unsigned first = 0; first < 2; first++) {
        struct side *sides[] = {&b};
        unsigned other = 1 - first;
        begin(2);
        size_t bytes = tcp_frame(frame, REGION, 0, data, 64, 1, 7);
        if (first) {
            send_part(1, REGION, 64, 64);
        } else {
            tcp_bare_send(fds[0], frame, AT_TAIL);
            settle();
            tcp_bare_send(fds[0], frame + AT_TAIL, bytes - AT_TAIL);
        }
        close(fds[first]);
        fds[first] = -1;
        if (first)
            CU_ASSERT_TRUE(tcp_until(sides, 1, has_ended, &first));
        settle();
        CU_ASSERT(b.n_lost == 0 && b.n_messages == 0);
        if (first) {
            tcp_bare_send(fds[0], frame, AT_TAIL);
            settle();
            tcp_bare_send(fds[0], frame + AT_TAIL, bytes - AT_TAIL);
        } else {
            send_part(1, REGION, 64, 64);
        }
        CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, 1));
        CU_ASSERT_EQUAL(b.n_lost, 0);
        CU_ASSERT_EQUAL(memcmp(region->base, data, 128), 0);
        CU_ASSERT_TRUE(tcp_until(sides, 1, has_ended, &first));
        CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT); /* for nobody */
        close(fds[other]);
        fds[other] = -1;
        CU_ASSERT_TRUE(tcp_until_lost(&b));
        UNIT_CONTAINS(b.lost_reason, "closed");
        CU_ASSERT(b.n_messages == 1 && b.n_lost == 1);
        end();
    }
}

/* One that keeps the others, and says nothing more on them, is gone as well. */
static void the_end_of_one_connection_is_the_end_of_all(void)
{
    begin(3);
    close(fds[1]);
    fds[1] = -1;
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    CU_ASSERT(tcp_bare_is_closed(&b, fds[0]) && tcp_bare_is_closed(&b, fds[2]));
    CU_ASSERT(b.n_lost == 1 && b.n_messages == 0);
    end();
}

/* Until all connections are there, the peer may still try them by another address. */
static void a_connection_may_end_before_its_link_is_up(void)
{
    unsigned first = 0;

    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", "2");
    tcp_open(&b, false, 1);
    tcp_expect_bare(&b, 0);
    close(tcp_bare(&b, 0, first));
    CU_ASSERT_TRUE(tcp_until((struct side *[]){&b}, 1, has_ended, &first));
    CU_ASSERT(!b.n_lost && !tcp_link(&b, 0)->up);
    for (unsigned i = 0; i < 2; i++) {
        CU_ASSERT_FALSE(tcp_link(&b, 0)->up);
        fds[i] = tcp_bare(&b, 0, i);
    }
    CU_ASSERT_TRUE(tcp_link(&b, 0)->up);
    end();
}

static bool has_open(void *arg)
{
    (void)arg;
    return b.links[0]->dead && tcp_link(&b, 0)->connections[0].fd >= 0;
}

/* The engine may give a peer up by itself: its sockets are closed soon. */
static void a_dead_link_is_closed(void)
{
    begin(2);
    tcp_bare_send(fds[0], frame, tcp_frame(frame, REGION, 0, data, 64, 0, 1));
    b.links[0]->dead = true;
    CU_ASSERT_TRUE(has_open(NULL));
    CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT);
    CU_ASSERT(tcp_bare_is_closed(&b, fds[0]) && tcp_bare_is_closed(&b, fds[1]));
    CU_ASSERT(!has_open(NULL) && b.n_messages == 0 && b.n_lost == 0);
    CU_ASSERT_TRUE(is_untouched());
    end();
}

/* Only what is sent can be without an answer, and only until one comes. Two looks that are far
 * apart do not tell how it was between them. */
static void a_host_that_does_not_answer_is_lost(void)
{
    struct stepaf_tcp *tcp;

    begin(1);
    tcp = tcp_of(&b);
    uint64_t timeout = (uint64_t)b.env.tcp_peer_timeout_us * tcp->ticks_per_us;
    cut_off_ms = 3600000;
    for (unacked = 0; unacked < 2; unacked++) {
        tcp->listened -= timeout / 8;
        stepaf_tcp_ops.check_peers(b.transport);
        CU_ASSERT_EQUAL(b.n_lost, 0);
        CU_ASSERT_EQUAL(tcp_link(&b, 0)->connections[0].watch.since != 0, unacked);
    }
    unacked = 1;
    sent_ms = cut_off_ms; /* sent again, and answered, but not taken */
    tcp->listened -= timeout / 8;
    stepaf_tcp_ops.check_peers(b.transport);
    CU_ASSERT_EQUAL(tcp_link(&b, 0)->connections[0].watch.since, 0);
    sent_ms = 0;
    tcp_link(&b, 0)->connections[0].watch.since = stepaf_ticks() - timeout;
    tcp->listened -= timeout; /* nobody has looked all the while */
    stepaf_tcp_ops.check_peers(b.transport);
    CU_ASSERT_EQUAL(b.n_lost, 0);
    tcp->listened -= timeout / 8;
    tcp_link(&b, 0)->connections[0].watch.since -= timeout;
    stepaf_tcp_ops.check_peers(b.transport);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    UNIT_CONTAINS(b.lost_reason, "does not answer");
    cut_off_ms = 0;
    end();
}

/* As if @a looks had come at the usual intervals. */
static void look_so_often(unsigned n, unsigned looks)
{
    struct stepaf_tcp *tcp = tcp_of(&b);
    uint64_t ago = (uint64_t)b.env.tcp_peer_timeout_us * tcp->ticks_per_us / 8;

    for (; looks > 0; looks--) {
        tcp->listened -= ago;
        for (unsigned i = 0; i < n; i++) {
            struct stepaf_tcp_watch *watch = &tcp_link(&b, 0)->connections[i].watch;
            watch->since -= watch->since ? ago : 0;
        }
        stepaf_tcp_ops.check_peers(b.transport);
    }
}

/* Each look finds bytes that were sent after the last acknowledgement, but that came a moment
 * ago. */
static void a_host_that_answers_between_looks_is_not_lost(void)
{
    begin(1);
    unacked = 1;
    cut_off_ms = 5;
    sent_ms = 1;
    look_so_often(1, 20);
    CU_ASSERT_EQUAL(b.n_lost, 0);
    cut_off_ms = 3600000; /* and then no more */
    look_so_often(1, 10);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    cut_off_ms = sent_ms = 0;
    end();
}

/* Each look finds another connection without an answer. */
static void a_host_that_answers_by_turns_is_not_lost(void)
{
    begin(2);
    in_turns = true;
    asked = 0;
    cut_off_ms = 3600000;
    look_so_often(2, 20);
    CU_ASSERT_EQUAL(b.n_lost, 0);
    in_turns = false;
    cut_off_ms = 0;
    end();
}

/* Only what is near is without the system's congestion control: a long way is shared. */
static void only_what_is_near_has_reno(void)
{
    static const uint32_t us[] = {5, 100, 101, 1000, 5000};

    for (int i = 0; i < 5; i++) {
        memset(congestion, 0, sizeof congestion);
        round_trip_us = us[i];
        begin(1);
        CU_ASSERT_STRING_EQUAL(congestion, us[i] <= 100 ? "reno" : "");
        end();
    }
    round_trip_us = 0;
}

/* A peer that does not read is slow, not dead: its host answers. */
static void a_peer_that_does_not_read_is_not_lost(void)
{
    struct stepaf_post post = {.n_xfer = 1}, *posts[] = {&post};
    struct stepaf_rmem rmem = {1, 1u << 30};
    struct stepaf_xfer xfer = {.dst = &rmem, .bytes = 16u << 20};
    uint8_t *src = calloc(xfer.bytes, 1);

    tcp_set_defaults();
    tcp_set("STEPAF_TCP_PEER_TIMEOUT_US", "1000000");
    tcp_open(&b, false, 1);
    tcp_expect_bare(&b, 0);
    fds[0] = tcp_bare(&b, 0, 0);
    xfer.src = src;
    post.link = b.links[0];
    post.xfer = &xfer;
    for (int i = 0; i < 300; i++) {
        stepaf_tcp_ops.post(posts, 1);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_QUEUED);
        side_progress(&b);
        b.transport->ops->check_peers(b.transport);
        usleep(10000);
    }
    CU_ASSERT_EQUAL(b.n_lost, 0);
    b.links[0]->dead = true;
    end();
    free(src);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a peer that goes is lost", a_peer_that_goes_is_lost},
        {"a peer that goes amid pieces is lost", a_peer_that_goes_amid_pieces_is_lost},
        {"what a lost peer has said is heard", what_a_lost_peer_has_said_is_heard},
        {"an end is seen without reading", an_end_is_seen_without_reading},
        {"the end of one connection is not the last word",
         the_end_of_one_connection_is_not_the_last_word},
        {"the end of one connection is the end of all",
         the_end_of_one_connection_is_the_end_of_all},
        {"a connection may end before its link is up", a_connection_may_end_before_its_link_is_up},
        {"a dead link is closed", a_dead_link_is_closed},
        {"a host that does not answer is lost", a_host_that_does_not_answer_is_lost},
        {"a host that answers between looks is not lost",
         a_host_that_answers_between_looks_is_not_lost},
        {"a host that answers by turns is not lost", a_host_that_answers_by_turns_is_not_lost},
        {"only what is near has Reno", only_what_is_near_has_reno},
        {"a peer that does not read is not lost", a_peer_that_does_not_read_is_not_lost},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
