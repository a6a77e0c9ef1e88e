/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_meet.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "net.h"

enum { SECRET_BYTES = 16, DEADLINE_MS = 20000, HELLO_MS = 1000 };

/* What each rank announces before it connects. */
struct offer {
    uint16_t ports[PERF_NET_MAX]; /* FFN: where it listens at its addresses; 0: nowhere */
    uint8_t secret[SECRET_BYTES]; /* the first rank's counts */
};

/* The first bytes of a connection. */
struct hello {
    uint8_t secret[SECRET_BYTES];
    uint32_t index; /* of the attention rank */
};

struct meeting {
    const struct perf_place *place;
    const struct perf_net *nets; /* by world rank */
    const struct offer *offers;
    int listeners[PERF_NET_MAX];
    int64_t deadline_ns;
};

/* The only place where sockets of the floor get options: those of the library's sockets, so that
 * the TCP is the same. Nagle's algorithm would delay a message while the previous one is not
 * acknowledged; the kernel manages buffer sizes, which it grows as needed. */
static int set_options(int fd)
{
    int on = 1;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        return perf_fail("TCP_NODELAY: %s", strerror(errno));
    return 0;
}

static int left_ms(const struct meeting *meeting)
{
    int64_t left_ns = meeting->deadline_ns - perf_now_ns();

    return left_ns > 0 ? (int)(left_ns / 1000000) : 0;
}

/* Choose the address at which attention rank @a a reaches FFN rank @a f: both sides know it. */
static int address_of(const struct meeting *meeting, int a, int f)
{
    const struct perf_place *place = meeting->place;

    return perf_net_choose(&meeting->nets[place->attn_world[a]],
                           &meeting->nets[place->ffn_world[f]]);
}

static int listen_at(const struct perf_net_address *address, int backlog, int *fd_p,
                     uint16_t *port_p)
{
    struct sockaddr_storage name;
    socklen_t length = perf_net_sockaddr(address, 0, &name);
    int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return perf_fail("socket: %s", strerror(errno));
    *fd_p = fd;
    if (bind(fd, (struct sockaddr *)&name, length) != 0 || listen(fd, backlog) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &length) != 0)
        return perf_fail("no socket to listen at: %s", strerror(errno));
    *port_p = ntohs(name.ss_family == AF_INET ? ((struct sockaddr_in *)&name)->sin_port
                                              : ((struct sockaddr_in6 *)&name)->sin6_port);
    return 0;
}

/* FFN: listen at each address that some attention rank uses, and at no other. */
static int listen_all(struct meeting *meeting, struct offer *offer)
{
    const struct perf_place *place = meeting->place;

    for (int a = 0; a < place->attn; a++) {
        int i = address_of(meeting, a, place->index);

        if (i < 0)
            return perf_fail("FFN rank %d and attention rank %d have no kind of address in common",
                             place->index, a);
        if (meeting->listeners[i] < 0 &&
            listen_at(&meeting->nets[place->rank].addresses[i], place->attn + 16,
                      &meeting->listeners[i], &offer->ports[i]) != 0)
            return -1;
    }
    return 0;
}

/* Attention: connect to FFN rank @a f and identify this rank. */
static int connect_to(const struct meeting *meeting, int f, int *fd_p)
{
    const struct perf_place *place = meeting->place;
    const struct offer *offer = &meeting->offers[place->ffn_world[f]];
    struct timeval timeout = {.tv_sec = DEADLINE_MS / 1000};
    struct hello hello = {.index = (uint32_t)place->index};
    int i = address_of(meeting, place->index, f);
    struct sockaddr_storage name;
    socklen_t length =
        perf_net_sockaddr(&meeting->nets[place->ffn_world[f]].addresses[i], offer->ports[i], &name);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return perf_fail("socket: %s", strerror(errno));
    *fd_p = fd;
    if (set_options(fd) != 0)
        return -1;
    /* It bounds connect as well. */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, (struct sockaddr *)&name, length) != 0)
        return perf_fail("no plain TCP connection to FFN rank %d: %s", f, strerror(errno));
    timeout.tv_sec = 0;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    memcpy(hello.secret, meeting->offers[0].secret, SECRET_BYTES);
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
        return perf_fail("FFN rank %d: send: %s", f, strerror(errno));
    return 0;
}

/* FFN: accept a connection; peers without the secret are rejected. Returns true if it was a
 * missing attention rank. */
static int welcome(const struct meeting *meeting, int fd, int *fds)
{
    struct timeval timeout = {.tv_usec = HELLO_MS * 1000 - 1};
    struct hello hello;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) != (ssize_t)sizeof(hello) ||
        memcmp(hello.secret, meeting->offers[0].secret, SECRET_BYTES) != 0 ||
        hello.index >= (uint32_t)meeting->place->attn || fds[hello.index] >= 0) {
        close(fd);
        return 0;
    }
    timeout.tv_usec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    fds[hello.index] = fd;
    return 1;
}

static int accept_all(const struct meeting *meeting, int *fds)
{
    struct pollfd polls[PERF_NET_MAX];
    int missing = meeting->place->attn;

    while (missing > 0) {
        int n;

        for (int i = 0; i < PERF_NET_MAX; i++)
            polls[i] = (struct pollfd){.fd = meeting->listeners[i], .events = POLLIN};
        n = poll(polls, PERF_NET_MAX, left_ms(meeting));
        if (n == 0)
            return perf_fail("%d attention ranks have not made their plain TCP connections",
                             missing);
        for (int i = 0; i < PERF_NET_MAX && n > 0; i++) {
            int fd = polls[i].revents != 0
                         ? accept4(meeting->listeners[i], NULL, NULL, SOCK_CLOEXEC)
                         : -1;

            if (fd >= 0 && welcome(meeting, fd, fds))
                missing--;
        }
    }
    for (int a = 0; a < meeting->place->attn; a++) {
        if (set_options(fds[a]) != 0)
            return -1;
    }
    return 0;
}

static int make_connections(struct meeting *meeting, int *fds)
{
    const struct perf_place *place = meeting->place;

    meeting->deadline_ns = perf_now_ns() + (int64_t)DEADLINE_MS * 1000000;
    if (place->role == STEPAF_FFN)
        return accept_all(meeting, fds);
    for (int f = 0; f < place->ffn; f++) {
        if (connect_to(meeting, f, &fds[f]) != 0)
            return -1;
    }
    return 0;
}

/* Learn all ranks' addresses, then where they listen, then connect. */
static int meet(struct perf_job *job, struct meeting *meeting, int *fds)
{
    const char *setting = getenv("STEPAF_NET_IF");
    size_t *offsets = NULL;
    struct offer offer = {0};
    struct perf_net net;
    void *all = NULL;
    int rc;

    rc = perf_net_list(setting != NULL ? setting : "", meeting->place->one_node, &net);
    if (perf_job_agree(job, rc) != 0 ||
        perf_job_gather(job, &net, sizeof(net), &all, &offsets) != 0)
        return -1;
    free(offsets);
    meeting->nets = all;
    if (getrandom(offer.secret, sizeof(offer.secret), 0) != (ssize_t)sizeof(offer.secret))
        rc = perf_fail("getrandom: %s", strerror(errno));
    else if (meeting->place->role == STEPAF_FFN)
        rc = listen_all(meeting, &offer);
    if (perf_job_agree(job, rc) != 0 ||
        perf_job_gather(job, &offer, sizeof(offer), &all, &offsets) != 0)
        return -1;
    free(offsets);
    meeting->offers = all;
    return perf_job_agree(job, make_connections(meeting, fds));
}

int perf_tcp_meet(struct perf_job *job, const struct perf_place *place, int *fds_p)
{
    struct meeting meeting = {.place = place};
    int rc;

    for (int i = 0; i < (place->role == STEPAF_FFN ? place->attn : place->ffn); i++)
        fds_p[i] = -1;
    for (int i = 0; i < PERF_NET_MAX; i++)
        meeting.listeners[i] = -1;
    rc = meet(job, &meeting, fds_p);
    for (int i = 0; i < PERF_NET_MAX; i++) {
        if (meeting.listeners[i] >= 0)
            close(meeting.listeners[i]);
    }
    free((void *)meeting.nets);
    free((void *)meeting.offers);
    return rc;
}
