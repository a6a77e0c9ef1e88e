/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fork.h"
#include "transport/tcp/tcp.h"

static void set_option(int fd, int level, int option, int value)
{
    /* Each option makes it faster or notices a loss earlier; it also works without. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

int stepaf_tcp_socket(int family)
{
    stepaf_fork_begin();
    return stepaf_fork_end(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

int stepaf_tcp_socket_accept(int listener)
{
    stepaf_fork_begin();
    return stepaf_fork_end(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void stepaf_tcp_socket_close(int fd)
{
    stepaf_fork_close(fd);
}

void stepaf_tcp_socket_drop(struct stepaf_tcp *tcp, int fd)
{
    (void)epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    stepaf_fork_close(fd);
}

/* Probes of an idle connection share the deadline after which a silent host is lost.
 * stepaf_tcp_check_peers watches sent data that stays unacknowledged. */
void stepaf_tcp_socket_tune(const struct stepaf_env *env, int fd)
{
    enum { PROBES = 3, S_US = 1000000 };
    int seconds = (int)(env->tcp_peer_timeout_us / S_US);
    int every = seconds / (PROBES + 1);

    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, every > 0 ? every : 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, every > 0 ? every : 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
}

/* Query the shortest round trip so far, which the kernel reports since 4.6 after the fields that C
 * libraries know, and the largest packet. */
static bool query_path(int fd, uint32_t *us_p, uint32_t *packet_bytes_p)
{
    enum { MIN_RTT_AT = 148 };
    uint8_t info[MIN_RTT_AT + sizeof(*us_p)];
    socklen_t length = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) || length < sizeof(info))
        return false;
    memcpy(us_p, info + MIN_RTT_AT, sizeof(*us_p));
    memcpy(packet_bytes_p, info + offsetof(struct tcp_info, tcpi_snd_mss), sizeof(*packet_bytes_p));
    return true;
}

void stepaf_tcp_socket_near(int fd)
{
    static const char reno[] = "reno"; /* in every kernel, and allowed to every user */
    enum { NEAR_US = 100, LOOPBACK_PACKET_BYTES = 32 << 10 };
    uint32_t us, packet_bytes;

    /* The kernel continues to pace a connection that has used BBR, by its window in packets: with
     * the small packets of virtual Ethernet that would cost more than it saves. */
    if (query_path(fd, &us, &packet_bytes) && us <= NEAR_US &&
        packet_bytes >= LOOPBACK_PACKET_BYTES)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
}

bool stepaf_tcp_socket_is_through(int fd)
{
    int unsent = 0;

    return ioctl(fd, SIOCOUTQ, &unsent) || !unsent;
}

bool stepaf_tcp_socket_is_drained(int fd)
{
    uint8_t sink[4096];
    ssize_t got;

    if (shutdown(fd, SHUT_WR))
        return true;
    do
        got = recv(fd, sink, sizeof(sink), MSG_DONTWAIT);
    while (got == (ssize_t)sizeof(sink));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        return true;
    return stepaf_tcp_socket_is_through(fd);
}
