/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: poll each connection if there are few, else epoll. */
#include <string.h>
#include <sys/epoll.h>

#include "base/time.h"
#include "transport/tcp/tcp.h"

enum {
    EVENTS = 32,
    OPENING_LOOK_US = 10000,
    LAST_WORDS_US = 1000000 /* nothing has arrived for so long: nothing more is in flight */
};

/* Take what has arrived; a message that waits for pieces on this connection may now be complete. */
static unsigned receive(struct stepaf_tcp_connection *connection, bool large)
{
    struct stepaf_tcp_link *link = connection->link;
    unsigned n = stepaf_tcp_receive(connection, large);

    if (connection->index && link->connections[0].frame.phase == STEPAF_TCP_AT_PARTS &&
        !link->base.dead)
        n += stepaf_tcp_receive(&link->connections[0], large);
    return n;
}

/* Return whether the peer of an unwritable link has been notified, and its host has everything that
 * was sent. */
static bool knows_why(const struct stepaf_tcp *tcp, struct stepaf_tcp_link *link)
{
    bool knows = stepaf_tcp_tell_unwritable(link);

    for (unsigned i = 0; i < tcp->n_connections && knows; i++)
        knows = stepaf_tcp_socket_is_through(link->connections[i].fd);
    return knows;
}

/* Take in the rest of a broken link, until all its connections have ended, or nothing has arrived
 * for a long time. For an unwritable link, take in only what makes space for the peer, until the
 * peer knows the reason, or for as long. */
static unsigned hear_last_words(struct stepaf_tcp *tcp, struct stepaf_tcp_link *link)
{
    uint64_t now = stepaf_ticks();
    unsigned n = 0;

    for (unsigned i = tcp->n_connections; i-- && !link->base.dead;)
        if (link->connections[i].fd >= 0)
            n += stepaf_tcp_receive(&link->connections[i], true);
    if (n && !link->unwritable)
        link->heard = now;
    if (!link->base.dead && link->unwritable && knows_why(tcp, link))
        stepaf_tcp_lost(link, link->trouble);
    if (!link->base.dead && now - link->heard >= LAST_WORDS_US * tcp->ticks_per_us)
        stepaf_tcp_lost(link, link->trouble);
    if (link->base.dead) {
        stepaf_tcp_link_close(link);
        n++;
    }
    return n;
}

static unsigned hear_broken(struct stepaf_tcp *tcp)
{
    unsigned happened = 0;

    for (unsigned p = 0; p < tcp->n_peers; p++)
        if (tcp->links[p] && tcp->links[p]->broken)
            happened += hear_last_words(tcp, tcp->links[p]);
    return happened;
}

static unsigned hear(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    unsigned n = 1;

    if (connection->fd < 0)
        return 0;
    if (!link->base.dead) {
        if (connection->state == STEPAF_TCP_UP)
            n = receive(connection, !stepaf_tcp_of(link)->copiers.it);
        else
            stepaf_tcp_connection_advance(connection);
    }
    if (link->base.dead) /* the core has declared the peer lost, now or before */
        stepaf_tcp_link_close(link);
    return n;
}

/* Read the large payloads that this poll has left, and what follows them. The next poll finds what
 * is left then: until that poll, links may be closed. */
static __attribute__((noinline)) unsigned hear_large(struct stepaf_tcp *tcp)
{
    struct stepaf_tcp_connection *large[STEPAF_TCP_COPIES + 1];
    unsigned n = tcp->copiers.n_large, happened = stepaf_tcp_receive_large(tcp);

    memcpy(large, tcp->copiers.large, n * sizeof(large[0])); /* the list restarts meanwhile */
    tcp->copiers.n_large = 0;
    for (unsigned i = 0; i < n; i++)
        happened += hear(large[i]);
    tcp->copiers.n_large = 0;
    return happened;
}

static unsigned by_epoll(struct stepaf_tcp *tcp, int wait_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(tcp->epoll_fd, events, EVENTS, wait_ms);
    unsigned happened = 0;

    for (int i = 0; i < n; i++) {
        switch (*(uint8_t *)events[i].data.ptr) {
        case STEPAF_TCP_CONNECTION:
            happened += hear(events[i].data.ptr);
            break;
        case STEPAF_TCP_STRANGER:
            stepaf_tcp_listen_to(tcp, events[i].data.ptr);
            happened++;
            break;
        default:
            happened += stepaf_tcp_accept(tcp);
        }
    }
    if (__builtin_expect(tcp->copiers.n_large, 0))
        happened += hear_large(tcp);
    return happened;
}

static unsigned directly(struct stepaf_tcp *tcp)
{
    unsigned happened = 0;

    for (unsigned i = 0; i < tcp->n_direct; i++)
        happened += hear(tcp->direct[i]);
    if (__builtin_expect(tcp->copiers.n_large, 0))
        happened += hear_large(tcp);
    return happened;
}

/* Close connections that take too long to open. */
static void look_at_opening(struct stepaf_tcp *tcp)
{
    uint64_t now = stepaf_ticks();

    if (now - tcp->looked < OPENING_LOOK_US * tcp->ticks_per_us)
        return;
    tcp->looked = now;
    stepaf_tcp_forget_strangers(tcp, now);
    stepaf_tcp_tries_check(tcp, now);
}

unsigned stepaf_tcp_advance(struct stepaf_tcp *tcp, int wait_ms)
{
    look_at_opening(tcp);
    return by_epoll(tcp, wait_ms);
}

static unsigned poll_once(struct stepaf_tcp *tcp)
{
    unsigned happened = 0;

    if (__builtin_expect(tcp->count.tails, 0))
        stepaf_tcp_push_tails(tcp);
    if (__builtin_expect(tcp->count.broken, 0))
        happened = hear_broken(tcp);
    if (tcp->n_direct)
        return happened + directly(tcp);
    if (__builtin_expect(tcp->count.opening || tcp->listener.fd >= 0, 0))
        look_at_opening(tcp);
    return happened + by_epoll(tcp, 0);
}

unsigned stepaf_tcp_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;
    unsigned n = 0;

    while (tcp->count.links) {
        n = poll_once(tcp);
        if (__builtin_expect(tcp->count.held, 0))
            n += stepaf_tcp_zerocopy_reap(tcp);
        if (n || !--polls)
            break;
        transport->up->polled = stepaf_ticks();
    }
    return n;
}

/* Return whether a connection of the link is silent; the previous check was @a ago. @a is_first:
 * that is too long ago to judge. */
static bool is_silent(struct stepaf_tcp_link *link, uint64_t now, uint64_t ago, bool is_first)
{
    const struct stepaf_tcp *tcp = stepaf_tcp_of(link);
    uint64_t ago_ms = ago / tcp->ticks_per_us / 1000;
    struct stepaf_tcp_look look = {
        .now = now,
        .timeout = (uint64_t)tcp->base.up->env->tcp_peer_timeout_us * tcp->ticks_per_us,
        .since_ms = ago_ms < UINT32_MAX ? (uint32_t)ago_ms + 1 : UINT32_MAX,
        .is_first = is_first,
    };
    bool silent = false;

    for (unsigned i = 0; i < tcp->n_connections; i++) {
        struct stepaf_tcp_connection *connection = &link->connections[i];
        silent = stepaf_tcp_watch_is_silent(&connection->watch, connection->fd, &look) || silent;
    }
    return silent;
}

/* While ranks exchange data in a commit, they read no links: messages of peers may stay unread, but
 * the end of a peer must be noticed. The rest of such a link is taken in; its last messages still
 * count. */
static void hear_ended(struct stepaf_tcp *tcp)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(tcp->epoll_fd, events, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct stepaf_tcp_connection *connection = events[i].data.ptr;
        if (!(events[i].events & (EPOLLRDHUP | EPOLLHUP)) ||
            *(uint8_t *)events[i].data.ptr != STEPAF_TCP_CONNECTION)
            continue;
        while (connection->fd >= 0 && connection->state == STEPAF_TCP_UP &&
               !connection->link->base.dead && receive(connection, true))
            ;
    }
    if (tcp->count.broken)
        (void)hear_broken(tcp);
}

void stepaf_tcp_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;
    uint64_t every_us = (uint64_t)transport->up->env->tcp_peer_timeout_us / 8;
    uint64_t now = stepaf_ticks(), ago = now - tcp->listened;
    bool listen = ago >= every_us * tcp->ticks_per_us;
    bool first = ago >= 3 * every_us * tcp->ticks_per_us;

    if (listen)
        tcp->listened = now;
    hear_ended(tcp);
    for (unsigned p = 0; p < tcp->n_peers; p++) {
        struct stepaf_tcp_link *link = tcp->links[p];
        if (link && listen && link->up && !link->base.dead && is_silent(link, now, ago, first))
            stepaf_tcp_lost(link, "its host does not answer");
        if (link && link->base.dead)
            stepaf_tcp_link_close(link);
    }
}
