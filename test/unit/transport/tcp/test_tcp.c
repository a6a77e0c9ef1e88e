/* SPDX-License-Identifier: Apache-2.0 */
/* TCP, both ends in one process: what is posted lands whole, wherever sends and receives are
 * cut. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/time.h"
#include "tcp_side.h"
#include "unit.h"

enum { ROOM = 1100000, SMALL = 160 };

static struct side a, b; /* a: attention, dials */

/* The kernel takes and gives as much as it likes; here, as much as the test likes. */
static _Atomic size_t send_budget = SIZE_MAX;  /* bytes until the socket is full */
static size_t send_most = SIZE_MAX, recv_most; /* in one call; 0: as it is */
static _Thread_local uint32_t random_state = 1;

/* Calls of threads that help. */
static pthread_t own_thread;
static _Atomic unsigned n_sent_by_others, n_read_by_others;

static size_t random_below(size_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

/* Take @a most bytes of the budget, or what there is. */
static size_t take_budget(size_t most)
{
    size_t budget = send_budget, taken;

    do {
        if (budget == SIZE_MAX)
            return most;
        taken = most < budget ? most : budget;
    } while (!atomic_compare_exchange_weak(&send_budget, &budget, budget - taken));
    return taken;
}

/* The first @a most bytes of what @a message is about. */
static struct msghdr cut(const struct msghdr *message, size_t most, struct iovec *iov)
{
    struct msghdr shorter = *message;
    size_t n = 0;

    for (; n < message->msg_iovlen && most; n++) {
        iov[n] = message->msg_iov[n];
        iov[n].iov_len = iov[n].iov_len < most ? iov[n].iov_len : most;
        most -= iov[n].iov_len;
    }
    shorter.msg_iov = iov;
    shorter.msg_iovlen = n;
    return shorter;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec iov[STEPAF_TCP_IOVECS];
    size_t most = send_most == SIZE_MAX ? SIZE_MAX : 1 + random_below(send_most), all = 0;

    for (size_t i = 0; i < message->msg_iovlen; i++)
        all += message->msg_iov[i].iov_len;
    most = take_budget(most < all ? most : all);
    n_sent_by_others += !pthread_equal(pthread_self(), own_thread);
    if (!most) {
        errno = EAGAIN;
        return -1;
    }
    struct msghdr shorter = cut(message, most, iov);
    ssize_t sent = syscall(SYS_sendmsg, fd, &shorter, flags);
    if (send_budget != SIZE_MAX)
        send_budget += most - (sent > 0 ? (size_t)sent : 0);
    return sent;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    struct iovec iov = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    return sendmsg(fd, &message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    struct iovec iov[STEPAF_TCP_IOVECS];
    struct msghdr shorter = cut(message, recv_most ? 1 + random_below(recv_most) : SIZE_MAX, iov);
    ssize_t got = syscall(SYS_recvmsg, fd, &shorter, flags);

    n_read_by_others += !pthread_equal(pthread_self(), own_thread);
    message->msg_controllen = shorter.msg_controllen;
    message->msg_flags = shorter.msg_flags;
    return got;
}

static void as_the_kernel_likes(void)
{
    send_budget = send_most = SIZE_MAX;
    recv_most = 0;
}

static const char *tcp_zerocopy = "off", *tcp_threads = "0";

static void begin(const char *n_connections)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", n_connections);
    tcp_set("STEPAF_TCP_THREADS", tcp_threads);
    tcp_set("STEPAF_TCP_ZEROCOPY", tcp_zerocopy);
    tcp_set("STEPAF_TCP_ZEROCOPY_BYTES", "4096");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    tcp_join(&a, 0, &b, 0);
}

static void end(void)
{
    as_the_kernel_likes();
    side_close(&a);
    side_close(&b);
}

static void fill(uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)random_below(256);
}

static void messages_arrive_whole_and_in_order(void)
{
    begin("1");
    CU_ASSERT_EQUAL(tcp_of(&a)->n_direct, 1);
    UNIT_STRING(a.links[0]->name, "tcp;lo");
    UNIT_STRING(b.links[0]->name, "tcp;lo");
    for (uint32_t seq = 0; seq < 500; seq++) {
        CU_ASSERT_EQUAL(side_say(&a, 0, seq), STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(side_say(&b, 0, ~seq), STEPAF_POST_SENT);
        CU_ASSERT_TRUE(tcp_until_messages(&a, &b, seq + 1));
        CU_ASSERT_TRUE(tcp_until_messages(&b, &a, seq + 1));
        CU_ASSERT_EQUAL(b.messages[seq].seq, seq);
        CU_ASSERT_EQUAL(b.messages[seq].word[STEPAF_MSG_WORDS - 1], seq * 31 + 9);
        CU_ASSERT_EQUAL(a.messages[seq].seq, ~seq);
        CU_ASSERT(b.messages[seq].flags == 7 && b.messages[seq].plan == 0x5678);
    }
    CU_ASSERT(a.n_messages == 500 && b.n_messages == 500);
    end();
}

/* One poll may take long enough, by what another link has, that the sender began after it. */
static void what_comes_is_stamped_when_it_has_come(void)
{
    begin("1");
    b.up.polled = stepaf_ticks();
    uint64_t sent = stepaf_ticks();
    CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
    CU_ASSERT_TRUE((int64_t)(b.up.polled - sent) > 0);
    end();
}

static void short_messages_are_whole(void)
{
    struct stepaf_post post, *posts[] = {&post};

    begin("1");
    for (uint32_t n = 0; n <= STEPAF_MSG_WORDS; n++) {
        post = (struct stepaf_post){.link = a.links[0]};
        post.msg =
            (struct stepaf_msg){.type = STEPAF_MSG_RELEASE, .slot = 5, .seq = n, .n_words = n};
        for (uint32_t i = 0; i < n; i++)
            post.msg.word[i] = n * 100 + i;
        stepaf_tcp_ops.post(posts, 1);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, n + 1));
        const struct stepaf_msg *msg = &b.messages[n];
        CU_ASSERT(msg->type == STEPAF_MSG_RELEASE && msg->slot == 5 && msg->seq == n);
        for (uint32_t i = 0; i < n; i++)
            CU_ASSERT_EQUAL(msg->word[i], n * 100 + i);
    }
    end();
}

static bool is_sent(void *arg)
{
    return ((const struct stepaf_post *)arg)->state == STEPAF_POST_SENT;
}

/* Post until it is sent; the receiver takes in meanwhile. */
static void post_whole(struct side *from, struct side *to, struct stepaf_post *post)
{
    struct stepaf_post *posts[] = {post};
    unsigned before = to->n_messages;

    do {
        stepaf_tcp_ops.post(posts, 1);
        if (post->state != STEPAF_POST_QUEUED)
            break;
        CU_ASSERT_EQUAL(to->n_messages, before);
        side_progress(to);
    } while (!from->n_lost && !to->n_lost);
    CU_ASSERT_TRUE(tcp_until_messages(from, to, before + 1));
    CU_ASSERT_EQUAL(to->n_messages, before + 1);
    CU_ASSERT_TRUE(tcp_until((struct side *[]){from, to}, 2, is_sent, post));
}

/* Two tensors of each size; each must land as a whole, and not a byte beside it. */
static void check_sizes(struct side *from, struct side *to, const uint32_t *sizes, size_t n)
{
    struct stepaf_mem *region = side_memory(to, 2 * ROOM, false);
    struct stepaf_rmem *rmem = side_import(from, 0, to, region);
    uint8_t *src = malloc(ROOM + 1), *expected = malloc(2 * ROOM);

    side_must(src && expected, "memory");
    fill(src, ROOM + 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t bytes = sizes[i];
        struct stepaf_xfer xfer[] = {
            {.src = src + 1, .dst = rmem, .dst_offset = 13 + i, .bytes = bytes},
            {.src = NULL, .dst = NULL, .bytes = 0},
            {.src = src, .dst = rmem, .dst_offset = ROOM + 2 * i, .bytes = bytes / 2},
        };
        struct stepaf_post post = {.link = from->links[0], .xfer = xfer, .n_xfer = 3};
        memset(region->base, 0x5a, region->bytes);
        memset(expected, 0x5a, region->bytes);
        memcpy(expected + 13 + i, src + 1, bytes);
        memcpy(expected + ROOM + 2 * i, src, bytes / 2);
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = bytes};
        post_whole(from, to, &post);
        CU_ASSERT_EQUAL(to->messages[to->n_messages - 1].seq, bytes);
        CU_ASSERT_EQUAL(memcmp(region->base, expected, region->bytes), 0);
    }
    CU_ASSERT_EQUAL(to->up.dropped_malformed, 0);
    CU_ASSERT(!from->n_lost && !to->n_lost);
    free(src);
    free(expected);
    stepaf_tcp_ops.release_mem(from->links[0], rmem);
}

static const uint32_t all_sizes[] = {0,     1,     63,    8191,  8192,   8193,    8194,
                                     65535, 65536, 65537, 65599, 131073, 1000003, 1048575};
static const uint32_t few_sizes[] = {0, 1, 8193, 65536, 65599, 100001};
static const char *const connections[] = {"1", "2", "3", "8"};

static void tensors_land(void)
{
    for (int i = 0; i < 4; i++) {
        begin(connections[i]);
        CU_ASSERT_EQUAL(tcp_of(&b)->n_direct, i < 2 ? 1 + (unsigned)i : 0);
        check_sizes(&a, &b, all_sizes, sizeof all_sizes / sizeof *all_sizes);
        check_sizes(&b, &a, all_sizes, sizeof all_sizes / sizeof *all_sizes);
        end();
    }
}

static void tensors_land_through_small_sockets(void)
{
    for (int i = 0; i < 4; i++) {
        begin(connections[i]);
        tcp_squeeze(&a, &b);
        check_sizes(&a, &b, few_sizes, sizeof few_sizes / sizeof *few_sizes);
        check_sizes(&b, &a, few_sizes, sizeof few_sizes / sizeof *few_sizes);
        end();
    }
}

static void tensors_land_without_a_copy(void)
{
    for (int i = 0; i < 4; i++) {
        tcp_zerocopy = "on";
        begin(connections[i]);
        tcp_zerocopy = "off";
        check_sizes(&a, &b, all_sizes, sizeof all_sizes / sizeof *all_sizes);
        send_most = 40000;
        check_sizes(&b, &a, few_sizes, sizeof few_sizes / sizeof *few_sizes);
        end();
    }
}

static void tensors_land_in_crumbs(void)
{
    static const uint32_t sizes[] = {0, 1, 200, 8193, 65599, 70001};

    for (int i = 0; i < 4; i++)
        for (size_t most = 3; most < 10000; most *= 20) {
            begin(connections[i]);
            send_most = 2 * most;
            recv_most = most;
            check_sizes(&a, &b, sizes, most > 3 ? 6 : 3);
            end();
        }
}

/* A socket that is full after any number of bytes: the post is QUEUED until the first byte of its
 * message is gone, and until then the message may still change. */
static void a_send_is_cut_anywhere(void)
{
    enum { HEAD = 8 + 3 * 16, MESSAGE = 16 + 4 * 4, SAID = HEAD + SMALL + MESSAGE, WHOLE = 256 };
    uint8_t src[SMALL];

    begin("1");
    struct stepaf_mem *region = side_memory(&b, SMALL, false);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
    fill(src, sizeof src);
    for (uint32_t at = 0; at <= WHOLE; at++) {
        struct stepaf_xfer xfer[] = {{.src = src, .dst = rmem, .bytes = 100},
                                     {.src = NULL, .dst = NULL, .bytes = 0},
                                     {src + 100, NULL, rmem, 100, SMALL - 100}};
        struct stepaf_post post = {.link = a.links[0], .xfer = xfer, .n_xfer = 3};
        struct stepaf_post *posts[] = {&post};
        memset(region->base, 0, SMALL);
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_RESPONSE, .seq = at, .n_words = 4};
        send_budget = at;
        stepaf_tcp_ops.post(posts, 1);
        bool queued = post.state == STEPAF_POST_QUEUED;
        CU_ASSERT_EQUAL(queued, at <= HEAD + SMALL);
        CU_ASSERT_EQUAL(tcp_of(&a)->count.tails, !queued && at < WHOLE);
        side_progress(&b);
        CU_ASSERT_EQUAL(b.n_messages, at + (at >= SAID)); /* a space follows */
        post.msg.flags = STEPAF_MSG_RELEASED;             /* the engine may, while it is QUEUED */
        send_budget = SIZE_MAX;
        if (queued)
            stepaf_tcp_ops.post(posts, 1);
        else
            memset(&post, 0xff, sizeof post); /* it is the engine's again */
        CU_ASSERT_TRUE(tcp_until_messages(&a, &b, at + 1));
        side_progress(&a); /* the space, if that was cut */
        CU_ASSERT_EQUAL(b.messages[at].seq, at);
        CU_ASSERT_EQUAL(b.messages[at].flags, queued ? STEPAF_MSG_RELEASED : 0);
        CU_ASSERT_EQUAL(memcmp(region->base, src, SMALL), 0);
        CU_ASSERT_EQUAL(tcp_of(&a)->count.tails, 0);
    }
    stepaf_tcp_ops.release_mem(a.links[0], rmem);
    end();
}

/* The end of a message stays in the way of the next post until it is gone. */
static void what_follows_a_cut_message_waits(void)
{
    begin("1");
    for (uint32_t seq = 0; seq < 50; seq++) {
        send_budget = 30 + seq % 30; /* in the message */
        CU_ASSERT_EQUAL(side_say(&a, 0, 2 * seq), STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(tcp_of(&a)->count.tails, 1);
        CU_ASSERT_EQUAL(side_say(&a, 0, 1000), STEPAF_POST_QUEUED);
        send_budget = SIZE_MAX;
        CU_ASSERT_EQUAL(side_say(&a, 0, 2 * seq + 1), STEPAF_POST_SENT);
        CU_ASSERT_TRUE(tcp_until_messages(NULL, &b, 2 * seq + 2));
        CU_ASSERT(b.messages[2 * seq].seq == 2 * seq && b.messages[2 * seq + 1].seq == 2 * seq + 1);
    }
    end();
}

/* Pieces on several connections, each cut anywhere; the message must wait for the last of them. */
static void stripes_are_cut_anywhere(void)
{
    struct stepaf_rail_count rails[STEPAF_LINK_RAILS];
    uint64_t pieces[3] = {0};
    uint8_t *src = malloc(70000);

    begin("3");
    struct stepaf_mem *region = side_memory(&b, 70000, false);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
    side_must(src != NULL, "memory");
    for (uint32_t round = 0; round < 100; round++) {
        struct stepaf_xfer xfer = {.src = src, .dst = rmem, .bytes = 65536 + round * 41};
        struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
        struct stepaf_post *posts[] = {&post};
        fill(src, xfer.bytes);
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = round};
        recv_most = 20000;
        do {
            CU_ASSERT_EQUAL(b.n_messages, round);
            send_budget = random_below(round % 2 ? 40000 : 15000);
            stepaf_tcp_ops.post(posts, 1);
            side_progress(&b);
        } while (post.state == STEPAF_POST_QUEUED);
        send_budget = SIZE_MAX;
        CU_ASSERT_TRUE(tcp_until_messages(&a, &b, round + 1));
        CU_ASSERT_EQUAL(memcmp(region->base, src, xfer.bytes), 0);
        pieces[0] += xfer.bytes;
        for (unsigned i = 1; i < 3; i++) {
            pieces[i] += xfer.bytes / 3 / 64 * 64;
            pieces[0] -= xfer.bytes / 3 / 64 * 64;
        }
    }
    CU_ASSERT_EQUAL_FATAL(stepaf_tcp_ops.count_rails(a.links[0], rails), 3);
    for (unsigned i = 0; i < 3; i++)
        CU_ASSERT(rails[i].bytes_sent == pieces[i] && rails[i].is_up && !rails[i].name[0]);
    CU_ASSERT_EQUAL(a.links[0]->connects_again, 0);
    stepaf_tcp_ops.release_mem(a.links[0], rmem);
    free(src);
    end();
}

/* The same by several threads: of what the tests above do, that is what they have a part in. */
static void threads_may_help(void)
{
    tcp_threads = "2";
    tensors_land();
    tensors_land_through_small_sockets();
    tensors_land_without_a_copy();
    tensors_land_in_crumbs();
    stripes_are_cut_anywhere();
    tcp_threads = "0";
}

/* Whether they do is up to the scheduler, in each single case. */
static void and_they_do(void)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + TCP_WAIT_MS * 1000000LL;
    uint32_t bytes = 1000003;

    tcp_threads = "1";
    n_sent_by_others = n_read_by_others = 0;
    while ((!n_sent_by_others || !n_read_by_others) && stepaf_monotonic_ns() < deadline_ns) {
        begin("2");
        CU_ASSERT(tcp_of(&a)->copiers.it && tcp_of(&b)->copiers.it);
        check_sizes(&a, &b, &bytes, 1);
        end();
    }
    CU_ASSERT(n_sent_by_others && n_read_by_others);
    begin("1"); /* there is nothing for them to do */
    CU_ASSERT(!tcp_of(&a)->copiers.it && !tcp_of(&b)->copiers.it);
    end();
    tcp_threads = "0";
}

/* A peer that reads nothing: the threads are not asked again and again. */
static void a_full_socket_wakes_nobody(void)
{
    enum { BYTES = 1000003, FILL = 100, TRIES = 1000 };
    uint8_t *src = malloc(BYTES);

    tcp_threads = "1";
    begin("2");
    tcp_threads = "0";
    tcp_squeeze(&a, &b);
    struct stepaf_mem *region = side_memory(&b, BYTES, false);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
    side_must(src != NULL, "memory");
    fill(src, BYTES);
    struct stepaf_xfer xfer = {.src = src, .dst = rmem, .bytes = BYTES};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
    struct stepaf_post *posts[] = {&post};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 1};
    for (int i = 0; i < FILL; i++)
        stepaf_tcp_ops.post(posts, 1);
    unsigned before = n_sent_by_others;
    for (int i = 0; i < TRIES; i++)
        stepaf_tcp_ops.post(posts, 1);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_QUEUED);
    CU_ASSERT_EQUAL(n_sent_by_others, before);
    post_whole(&a, &b, &post);
    CU_ASSERT_EQUAL(memcmp(region->base, src, BYTES), 0);
    stepaf_tcp_ops.release_mem(a.links[0], rmem);
    free(src);
    end();
}

static void *take_in(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)tcp_until_messages(NULL, &b, 1);
}

/* Closing is the last chance of a message that was taken in part. */
static void closing_loses_no_message(void)
{
    pthread_t thread;
    void *good;

    begin("1");
    send_budget = 30;
    CU_ASSERT_EQUAL(side_say(&a, 0, 4711), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(tcp_of(&a)->count.tails, 1);
    as_the_kernel_likes();
    side_must(!pthread_create(&thread, NULL, take_in, NULL), "thread");
    side_close(&a);
    pthread_join(thread, &good);
    CU_ASSERT_PTR_NOT_NULL(good);
    CU_ASSERT_EQUAL(b.messages[0].seq, 4711);
    side_close(&b);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"messages arrive whole and in order", messages_arrive_whole_and_in_order},
        {"what comes is stamped when it has come", what_comes_is_stamped_when_it_has_come},
        {"short messages are whole", short_messages_are_whole},
        {"tensors land", tensors_land},
        {"tensors land through small sockets", tensors_land_through_small_sockets},
        {"tensors land without a copy", tensors_land_without_a_copy},
        {"tensors land in crumbs", tensors_land_in_crumbs},
        {"a send is cut anywhere", a_send_is_cut_anywhere},
        {"what follows a cut message waits", what_follows_a_cut_message_waits},
        {"stripes are cut anywhere", stripes_are_cut_anywhere},
        {"threads may help", threads_may_help},
        {"and they do", and_they_do},
        {"a full socket wakes nobody", a_full_socket_wakes_nobody},
        {"closing loses no message", closing_loses_no_message},
        CU_TEST_INFO_NULL,
    };
    own_thread = pthread_self();
    return unit_run(tests);
}
