/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger does: see stranger.h. */
#include "stranger.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "transport/tcp/wire.h"

enum { STEP_US = 20000, FIND_MS = 5000, LEAVE_MS = 6000, GARBAGE_BYTES = 4096, SLOW_STEPS = 5 };

enum kind { SCAN, RESET, SILENT, GARBAGE, SLOW, HALF, PROOF, SLOT, KINDS };
/* They come in turn, so that by then all kinds have. */
enum { FIRST = 2 * KINDS };

struct stranger {
    enum kind kind;
    int fd;    /* -1: none */
    int steps; /* since it came */
    bool connected;
};

static void leave(struct stranger *stranger)
{
    struct linger at_once = {.l_onoff = 1};

    if (stranger->kind == RESET)
        setsockopt(stranger->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(stranger->fd);
    stranger->fd = -1;
}

static void come(struct stranger *stranger, const struct sockaddr_storage *address)
{
    socklen_t bytes =
        address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    stranger->fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    stranger->steps = 0;
    stranger->connected = false;
    if (stranger->fd >= 0 && connect(stranger->fd, (const struct sockaddr *)address, bytes) != 0 &&
        errno != EINPROGRESS)
        leave(stranger);
}

/* A greeting that would be right but for what no stranger can know. */
static struct stepaf_tcp_hello greeting(enum kind kind)
{
    struct stepaf_tcp_hello hello = {.magic = stepaf_tcp_hello_magic,
                                     .nonce = {hs_mix(1), hs_mix(2)}};

    hs_fill(hello.proof, sizeof hello.proof, hs_mix(3));
    if (kind == SLOT) /* a place that there is not */
        hello.slot = hello.connection = UINT32_MAX;
    return hello;
}

/* What it sends now; 0 if nothing any more. */
static size_t words(const struct stranger *stranger, unsigned char *text)
{
    struct stepaf_tcp_hello hello = greeting(stranger->kind);
    size_t at = (size_t)(stranger->steps / SLOW_STEPS);

    switch (stranger->kind) {
    case GARBAGE:
        hs_fill(text, GARBAGE_BYTES, (uint64_t)stranger->steps);
        return GARBAGE_BYTES;
    case SLOW:
        if (stranger->steps % SLOW_STEPS != 0 || at >= sizeof hello)
            return 0;
        memcpy(text, (unsigned char *)&hello + at, 1);
        return 1;
    case HALF:
    case PROOF:
    case SLOT:
        if (stranger->steps > 0)
            return 0;
        memcpy(text, &hello, sizeof hello);
        return stranger->kind == HALF ? sizeof hello / 2 : sizeof hello;
    default:
        return 0;
    }
}

/* Whether the kernel has made the connection; -1: it never will. */
static int is_in(const struct stranger *stranger)
{
    struct pollfd look = {.fd = stranger->fd, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int error = 0;

    if (poll(&look, 1, 0) <= 0)
        return 0;
    getsockopt(stranger->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    return error == 0 ? 1 : -1;
}

/* One step of one stranger that is here. False if it goes, or was shown out. */
static bool act(struct stranger_siege *siege, struct stranger *stranger)
{
    unsigned char text[GARBAGE_BYTES];
    size_t bytes;
    ssize_t got;

    if (!stranger->connected) {
        int in = is_in(stranger);
        if (in <= 0)
            return in == 0;
        stranger->connected = true;
        if (++siege->came == FIRST)
            atomic_fetch_add(siege->begun, 1);
    }
    if (stranger->kind == SCAN || stranger->kind == RESET)
        return false;
    bytes = words(stranger, text);
    if (bytes > 0 && send(stranger->fd, text, bytes, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        return false;
    stranger->steps++;
    got = recv(stranger->fd, text, sizeof text, 0);
    if (got > 0)
        HS_FAILED("a stranger of kind %d was told %zd bytes", (int)stranger->kind, got);
    return got < 0 && errno == EAGAIN;
}

/* One step of all; who has gone is followed by another while the siege lasts. */
static int step(struct stranger_siege *siege, struct stranger *strangers,
                const struct sockaddr_storage *address)
{
    bool over = atomic_load(&siege->over);
    int here = 0;

    for (int i = 0; i < STRANGERS; i++) {
        struct stranger *stranger = &strangers[i];
        if (stranger->fd >= 0 && !act(siege, stranger))
            leave(stranger);
        else if (stranger->fd < 0 && !over)
            come(stranger, address);
        here += stranger->fd >= 0;
    }
    return here;
}

void stranger_siege_run(struct stranger_siege *siege)
{
    int64_t until = hs_now_ns() + FIND_MS * 1000000LL * hs_slow();
    struct stranger strangers[STRANGERS];
    struct sockaddr_storage address;

    for (int i = 0; i < STRANGERS; i++)
        strangers[i] = (struct stranger){.kind = (enum kind)(i % KINDS), .fd = -1};
    while (stranger_listeners(&siege->ports, siege->index, &address) < siege->n) {
        if (hs_now_ns() > until || atomic_load(&siege->over)) {
            HS_FAILED("too few listen on ports %hu-%hu", siege->ports.first, siege->ports.last);
            return;
        }
        hs_sleep_us(STEP_US);
    }
    do {
        siege->stayed = step(siege, strangers, &address);
        hs_sleep_us(STEP_US);
        if (!atomic_load(&siege->over))
            until = hs_now_ns() + LEAVE_MS * 1000000LL * hs_slow();
    } while (!atomic_load(&siege->over) || (siege->stayed > 0 && hs_now_ns() < until));
    for (int i = 0; i < STRANGERS; i++)
        if (strangers[i].fd >= 0)
            leave(&strangers[i]);
}
