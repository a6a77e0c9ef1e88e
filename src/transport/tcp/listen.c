/* SPDX-License-Identifier: Apache-2.0 */
/* The listening side. A connection is from a stranger until a complete hello has arrived that only
 * a peer can have made. Strangers are few, have little time, and change nothing. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/env_text.h"
#include "base/error.h"
#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "transport/tcp/tcp.h"

enum {
    STRANGER_US = 2000000,
    STRANGERS_MORE = 32 /* more than peers may come at a time, before the oldest is closed */
};

/* Find the address to listen on: the one address that the setting admits, else all addresses. */
static socklen_t listening_address(struct stepaf_tcp *tcp, uint16_t port, bool with_ipv6,
                                   struct sockaddr_storage *storage_p)
{
    struct stepaf_net_address any = {.family = with_ipv6 ? AF_INET6 : AF_INET};
    bool is_one = tcp->base.up->env->net_if[0];

    return stepaf_tcp_address_socket(is_one ? &tcp->own.list[0] : &any, port, storage_p);
}

/* Bind to the first free port. Return 0 or an errno. */
static int bind_to_one(struct stepaf_tcp *tcp, uint16_t first, uint16_t last, bool with_ipv6)
{
    struct sockaddr_storage address;
    int no = 0, yes = 1;

    for (uint32_t port = first; port <= last; port++) {
        socklen_t length = listening_address(tcp, (uint16_t)port, with_ipv6, &address);
        int fd = stepaf_tcp_socket(address.ss_family);
        if (fd < 0)
            return errno;
        /* Connections left over from an ended job must not keep a range of ports in use. */
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        if (address.ss_family == AF_INET6)
            (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
        if (!bind(fd, (struct sockaddr *)&address, length) && !listen(fd, SOMAXCONN)) {
            tcp->listener.fd = fd;
            return 0;
        }
        int error = errno;
        stepaf_tcp_socket_close(fd);
        if (error != EADDRINUSE && error != EACCES)
            return error;
    }
    return EADDRINUSE;
}

/* Limit the announced addresses to those that the socket listens on. */
static void narrow_addresses(struct stepaf_tcp *tcp, bool with_ipv6)
{
    unsigned n = 0;

    if (tcp->base.up->env->net_if[0]) {
        tcp->own.n = 1;
        return;
    }
    for (unsigned i = 0; i < tcp->own.n; i++)
        if (with_ipv6 || tcp->own.list[i].family == AF_INET)
            tcp->own.list[n++] = tcp->own.list[i];
    tcp->own.n = n;
}

static bool watch(struct stepaf_tcp *tcp, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};

    return !epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

stepaf_status_t stepaf_tcp_listen(struct stepaf_tcp *tcp)
{
    const char *ports = tcp->base.up->env->net_ports;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    bool with_ipv6 = true;
    uint16_t first, last;

    if (!stepaf_env_ports(ports, &first, &last))
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_PORTS: \"%.32s\" is not first-last, such as "
                                "20000-20999",
                                ports);
    tcp->n_strangers = tcp->n_peers * tcp->n_connections + STRANGERS_MORE;
    int error = bind_to_one(tcp, first, last, with_ipv6);
    if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) { /* a kernel without IPv6 */
        with_ipv6 = false;
        error = bind_to_one(tcp, first, last, with_ipv6);
    }
    if (error == EADDRINUSE && first)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "tcp: no free port in STEPAF_NET_PORTS=%.32s", ports);
    if (error)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT, "tcp: cannot listen: %s",
                                stepaf_why(error));
    narrow_addresses(tcp, with_ipv6);
    free(tcp->strangers); /* from the previous time, if it has listened before */
    tcp->at_stranger = 0;
    tcp->strangers = calloc(tcp->n_strangers, sizeof(tcp->strangers[0]));
    if (!tcp->strangers)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (unsigned i = 0; i < tcp->n_strangers; i++)
        tcp->strangers[i].fd = -1;
    if (!watch(tcp, tcp->listener.fd, &tcp->listener) ||
        getsockname(tcp->listener.fd, (struct sockaddr *)&address, &length))
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT, "tcp: cannot listen: %s",
                                stepaf_why(errno));
    tcp->listener.port =
        ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                           : ((struct sockaddr_in6 *)&address)->sin6_port);
    return STEPAF_OK;
}

static void dismiss(struct stepaf_tcp *tcp, struct stepaf_tcp_stranger *stranger)
{
    if (stranger->fd >= 0)
        stepaf_tcp_socket_drop(tcp, stranger->fd);
    stranger->fd = -1;
}

void stepaf_tcp_unlisten(struct stepaf_tcp *tcp)
{
    for (unsigned i = 0; tcp->strangers && i < tcp->n_strangers; i++)
        dismiss(tcp, &tcp->strangers[i]);
    if (tcp->listener.fd >= 0)
        stepaf_tcp_socket_drop(tcp, tcp->listener.fd);
    tcp->listener.fd = -1;
}

void stepaf_tcp_forget_strangers(struct stepaf_tcp *tcp, uint64_t now)
{
    for (unsigned i = 0; tcp->strangers && i < tcp->n_strangers; i++)
        if (tcp->strangers[i].fd >= 0 && (int64_t)(now - tcp->strangers[i].until) >= 0)
            dismiss(tcp, &tcp->strangers[i]);
}

void stepaf_tcp_listen_to(struct stepaf_tcp *tcp, struct stepaf_tcp_stranger *stranger)
{
    ssize_t got;

    if (stranger->fd < 0) /* dismissed since epoll reported it */
        return;
    got = recv(stranger->fd, (uint8_t *)&stranger->hello + stranger->got,
               sizeof(stranger->hello) - stranger->got, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    stranger->got += got > 0 ? (uint32_t)got : 0;
    if (got > 0 && stranger->got < sizeof(stranger->hello))
        return;
    if (got <= 0 || !stepaf_tcp_admit(tcp, &stranger->hello, stranger->fd))
        dismiss(tcp, stranger);
    else
        stranger->fd = -1;
}

/* Note that no file descriptor is available to accept with: peers wait in the kernel's queue. */
static void cannot_accept(struct stepaf_tcp *tcp, int error)
{
    bool passes = error == EAGAIN || error == EINTR || error == ECONNABORTED;

    if (passes || tcp->listener.refused_since)
        return;
    tcp->listener.refused_since = stepaf_ticks();
    tcp->refused_error = error;
    stepaf_log_warn("tcp: cannot accept connections: %s", stepaf_why(error));
}

/* Return a free slot; if all are taken, close the stranger that has waited longest. That may be a
 * peer whose hello is still in flight: the peer tries again. */
static struct stepaf_tcp_stranger *place_for_stranger(struct stepaf_tcp *tcp)
{
    unsigned first = tcp->at_stranger, at = first;

    do {
        if (tcp->strangers[at].fd < 0)
            return &tcp->strangers[at];
        at = (at + 1) % tcp->n_strangers;
    } while (at != first);
    tcp->at_stranger = (first + 1) % tcp->n_strangers;
    return &tcp->strangers[first];
}

unsigned stepaf_tcp_accept(struct stepaf_tcp *tcp)
{
    unsigned n = 0;

    /* A stranger may turn out to be the last awaited peer, and end the listening. */
    for (; n < tcp->n_strangers && tcp->listener.fd >= 0; n++) {
        int fd = stepaf_tcp_socket_accept(tcp->listener.fd);
        if (fd < 0) {
            cannot_accept(tcp, errno);
            break;
        }
        tcp->listener.refused_since = 0;
        struct stepaf_tcp_stranger *stranger = place_for_stranger(tcp);
        dismiss(tcp, stranger);
        *stranger = (struct stepaf_tcp_stranger){
            .watched = STEPAF_TCP_STRANGER,
            .fd = fd,
            .until = stepaf_ticks() + STRANGER_US * tcp->ticks_per_us,
        };
        if (watch(tcp, fd, stranger))
            stepaf_tcp_listen_to(tcp, stranger); /* before others can take its place */
        else
            dismiss(tcp, stranger);
    }
    return n;
}
