/* SPDX-License-Identifier: Apache-2.0 */
/* A network that can be slow one way: what has come is not there yet, what was sent has not left.
 * The program's recvmsg and sendmsg come before the C library's, so a rank goes on polling
 * meanwhile, as it would. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verdict.h"

enum { MOST = 64 };

struct held {
    int fd;
    size_t bytes;
    char *data;
};

enum { DESCRIPTORS = 1024, OF_MESSAGES = 0xf1, OF_PIECES = 0xf2 /* tcp/wire.h */ };

static int in_held = VD_NO_RAIL, out_held = VD_NO_RAIL;
static uint8_t kinds[DESCRIPTORS]; /* of connections: what their first frame was */
static struct held held[MOST];
static int n_held;

void vd_net_hold_in(int rail)
{
    in_held = rail;
}

/* Note what the first frame of a connection is; greetings go by other calls. */
static void note_kind(int fd, const struct msghdr *message, ssize_t bytes)
{
    if (fd < DESCRIPTORS && !kinds[fd] && bytes > 0 && message->msg_iov[0].iov_len > 0)
        kinds[fd] = *(const uint8_t *)message->msg_iov[0].iov_base;
}

static bool is_held(int fd, int rail)
{
    uint8_t kind = fd < DESCRIPTORS ? kinds[fd] : 0;

    return rail == VD_ALL_RAILS || (rail == 0 && kind == OF_MESSAGES) ||
           (rail == 1 && kind == OF_PIECES);
}

static void send_all(const struct held *one)
{
    size_t at = 0;

    while (at < one->bytes) {
        long sent =
            syscall(SYS_sendto, one->fd, one->data + at, one->bytes - at, MSG_NOSIGNAL, NULL, 0);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return;
        if (sent < 0)
            (void)poll(&(struct pollfd){.fd = one->fd, .events = POLLOUT}, 1, 100);
        else
            at += (size_t)sent;
    }
}

void vd_net_hold_out(int rail)
{
    out_held = rail;
    if (rail != VD_NO_RAIL)
        return;
    for (int i = 0; i < n_held; i++) {
        send_all(&held[i]);
        free(held[i].data);
    }
    n_held = 0;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (flags & MSG_ERRQUEUE)
        return syscall(SYS_recvmsg, fd, message, flags);
    if (is_held(fd, in_held)) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    note_kind(fd, message, got);
    return got;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    size_t bytes = 0, at = 0;

    note_kind(fd, message, 1);
    if (!is_held(fd, out_held) || n_held == MOST)
        return syscall(SYS_sendmsg, fd, message, flags);
    for (size_t i = 0; i < message->msg_iovlen; i++)
        bytes += message->msg_iov[i].iov_len;
    struct held *one = &held[n_held];
    *one = (struct held){fd, bytes, malloc(bytes)};
    if (!one->data)
        return syscall(SYS_sendmsg, fd, message, flags);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        memcpy(one->data + at, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
        at += message->msg_iov[i].iov_len;
    }
    n_held++;
    return (ssize_t)bytes;
}
