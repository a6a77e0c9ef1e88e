/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "transport/tcp/tcp.h"

static void set(int fd, int level, int option, int value)
{
    /* Each makes it faster or notices a loss earlier; without it all is right nevertheless. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

int stepaf_tcp_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Probes of an idle connection, and how long sent bytes may stay without an acknowledgement, share
 * the deadline after which a peer that says nothing is lost (RFC 5482; tcp(7)). */
void stepaf_tcp_socket_tune(const struct stepaf_env *env, int fd)
{
    enum { PROBES = 3, S_US = 1000000 };
    int seconds = (int)(env->tcp_peer_timeout_us / S_US);
    int every = seconds / (PROBES + 1);

    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, every > 0 ? every : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, every > 0 ? every : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(env->tcp_peer_timeout_us / 1000));
}

void stepaf_tcp_socket_drain(int fd, int64_t deadline_ns)
{
    uint8_t sink[4096];
    int unsent = 0;

    if (shutdown(fd, SHUT_WR))
        return;
    while (!ioctl(fd, SIOCOUTQ, &unsent) && unsent && stepaf_monotonic_ns() < deadline_ns) {
        ssize_t got = recv(fd, sink, sizeof(sink), 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (got < 0)
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1);
    }
}
