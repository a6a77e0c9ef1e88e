/* SPDX-License-Identifier: Apache-2.0 */
/* A network that can be slow one way: what has come is not there yet, what was sent has not left. The program's
 * recvmsg and sendmsg come before the C library's, so a rank goes on polling meanwhile, as it would. */
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

static bool holds_in, holds_out;
static struct held held[MOST];
static int n_held;

void vd_net_hold_in(bool holds)
{
    holds_in = holds;
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

void vd_net_hold_out(bool holds)
{
    holds_out = holds;
    for (int i = 0; !holds && i < n_held; i++) {
        send_all(&held[i]);
        free(held[i].data);
    }
    if (!holds)
        n_held = 0;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (holds_in && !(flags & MSG_ERRQUEUE)) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    size_t bytes = 0, at = 0;

    if (!holds_out || n_held == MOST)
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
