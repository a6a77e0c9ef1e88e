/* SPDX-License-Identifier: Apache-2.0 */
/* Large frames to many that read slowly: what the sender keeps of them, and that all arrives as if
 * each had been sealed as a whole. */
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/control/control.h"
#include "unit.h"

enum { LINKS = 64, LARGE = 1 << 20, SMALL = 100, BUFFER = 4096 };

struct way {
    struct stepaf_control_link *link;
    int fd; /* of the other end */
    uint8_t *got;
    size_t have;
};

static struct stepaf_control control;
static uint8_t large[LARGE];

static void open_ways(struct way *ways, int n)
{
    const int few = BUFFER;
    int fds[2];

    control.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < n; i++) {
        CU_ASSERT_EQUAL_FATAL(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
        ways[i] = (struct way){stepaf_control_link_new(&control, fds[0], STEPAF_CONTROL_STRANGER),
                               fds[1], malloc(2 * LARGE), 0};
        CU_ASSERT_PTR_NOT_NULL_FATAL(ways[i].link);
        CU_ASSERT_PTR_NOT_NULL_FATAL(ways[i].got);
        ways[i].link->state = STEPAF_CONTROL_UP;
        memset(ways[i].link->seal_out.key, i + 1, sizeof ways[i].link->seal_out.key);
    }
}

static void close_ways(struct way *ways, int n)
{
    for (int i = 0; i < n; i++) {
        stepaf_control_link_free(ways[i].link);
        close(ways[i].fd);
        free(ways[i].got);
    }
    close(control.epoll_fd);
}

static void say(struct way *way, const uint8_t *data, size_t bytes)
{
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_CONSENSUS, .bytes = bytes};

    stepaf_control_send(way->link, &frame, data);
}

/* Read at the other end until it has @a bytes. */
static void read_all(struct way *way, size_t bytes)
{
    while (way->have < bytes) {
        ssize_t got = recv(way->fd, way->got + way->have, 2 * LARGE - way->have, 0);
        if (got <= 0)
            CU_ASSERT_EQUAL_FATAL(errno, EAGAIN);
        way->have += got > 0 ? (size_t)got : 0;
        stepaf_control_flush(way->link);
    }
    CU_ASSERT_EQUAL(way->have, bytes);
}

static size_t wire_bytes(size_t bytes)
{
    return sizeof(struct stepaf_control_frame) + bytes + STEPAF_PROOF_MARK_BYTES;
}

/* Expect the frame with this number at this place; return the place behind it. */
static size_t expect_frame(const struct way *way, int i, uint64_t number, size_t at, size_t bytes)
{
    struct stepaf_control_frame frame;
    uint8_t key[STEPAF_PROOF_KEY_BYTES], *text = way->got + at + sizeof frame;

    memcpy(&frame, way->got + at, sizeof frame);
    memset(key, i + 1, sizeof key);
    CU_ASSERT_EQUAL_FATAL(frame.bytes, bytes);
    CU_ASSERT_FATAL(
        stepaf_proof_unseal(key, number, &frame, sizeof frame, text, bytes, text + bytes));
    CU_ASSERT(bytes == 0 || memcmp(text, large, bytes) == 0);
    return at + wire_bytes(bytes);
}

static size_t memory_in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void many_share_what_waits(void)
{
    struct way ways[LINKS];

    open_ways(ways, LINKS);
    size_t before = memory_in_use();
    for (int i = 0; i < LINKS; i++)
        say(&ways[i], large, LARGE);
    CU_ASSERT(memory_in_use() - before < LINKS * (size_t)LARGE / 4);
    for (int i = 0; i < LINKS; i++)
        say(&ways[i], large, SMALL);
    for (int i = 0; i < LINKS / 2; i++) /* they end meanwhile */
        stepaf_control_link_close(ways[2 * i].link, "ended", 0);
    for (int i = 1; i < LINKS; i += 2) {
        read_all(&ways[i], wire_bytes(LARGE) + wire_bytes(SMALL));
        size_t at = expect_frame(&ways[i], i, 0, 0, LARGE);
        (void)expect_frame(&ways[i], i, 1, at, SMALL);
        CU_ASSERT_FALSE(stepaf_control_has_unsent(ways[i].link));
        CU_ASSERT_FALSE(ways[i].link->wants_out);
    }
    CU_ASSERT_PTR_NULL(control.last.load);
    close_ways(ways, LINKS);
}

/* Frames of any size, sealed at once or in pieces. */
static void all_sizes_arrive(void)
{
    static const size_t sizes[] = {STEPAF_CONTROL_PIECE + 1,
                                   0,
                                   1,
                                   63,
                                   64,
                                   65,
                                   STEPAF_CONTROL_PIECE - 1,
                                   STEPAF_CONTROL_PIECE,
                                   2 * STEPAF_CONTROL_PIECE,
                                   3 * STEPAF_CONTROL_PIECE + 7,
                                   5};
    size_t bytes = 0, at = 0;
    struct way way;

    open_ways(&way, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        say(&way, large, sizes[i]);
        bytes += wire_bytes(sizes[i]);
    }
    CU_ASSERT(stepaf_control_has_unsent(way.link));
    read_all(&way, bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        at = expect_frame(&way, 0, i, at, sizes[i]);
    close_ways(&way, 1);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"many share what waits", many_share_what_waits},
        {"all sizes arrive", all_sizes_arrive},
        CU_TEST_INFO_NULL,
    };
    if (!stepaf_proof_ready())
        return 99;
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (uint8_t)(i * 7 + i / 251);
    return unit_run(tests);
}
