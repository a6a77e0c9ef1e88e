/* SPDX-License-Identifier: Apache-2.0 */
/* Links, and the side that opens their connections. Nothing here waits: a link is created
 * immediately and keeps its posts QUEUED until it is up; the commit shows whether it gets there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "transport/tcp/tcp.h"

enum {
    GREETING_TIMES = 9, /* as long again for an address where somebody listens */
    AGAIN_US = 10000,   /* until a listener that has closed is tried again, doubled each time */
    AGAIN_TIMES = 6     /* number of doublings at most */
};

void stepaf_tcp_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    const struct stepaf_tcp *tcp = (const struct stepaf_tcp *)transport;
    static const struct stepaf_net_addresses none;
    bool listens = !transport->up->initiates;

    stepaf_pack_bytes(pack, tcp->secret, sizeof(tcp->secret));
    stepaf_pack_u64(pack, tcp->kernel_id);
    stepaf_pack_u64(pack, tcp->network_id);
    stepaf_pack_u32(pack, tcp->listener.port);
    stepaf_tcp_addresses_pack(listens ? &tcp->own : &none, pack);
}

/* Begin to open a connection to the address being tried. Returns false if that fails
 * immediately. */
static bool dial(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);
    const struct stepaf_net_address *address =
        &link->dial.theirs->addresses.list[link->dial.trying];
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = connection};
    struct sockaddr_storage storage;

    link->base.connects_again += link->dial.calls++ >= tcp->n_connections;
    connection->fd = stepaf_tcp_socket(address->family);
    if (connection->fd < 0)
        return false;
    for (unsigned i = 0; tcp->base.up->env->net_if[0] && i < tcp->own.n; i++)
        /* leave by the interface that the setting names */
        if (tcp->own.list[i].family == address->family) {
            socklen_t length = stepaf_tcp_address_socket(&tcp->own.list[i], 0, &storage);
            if (bind(connection->fd, (struct sockaddr *)&storage, length))
                return false;
            break;
        }
    socklen_t length = stepaf_tcp_address_socket(address, link->dial.port, &storage);
    if (connect(connection->fd, (struct sockaddr *)&storage, length) && errno != EINPROGRESS)
        return false;
    connection->state = STEPAF_TCP_CONNECTING;
    return !epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event);
}

static void note_trouble(struct stepaf_tcp_link *link, const char *what)
{
    char text[STEPAF_TCP_ADDRESS_TEXT];

    stepaf_tcp_address_text(&link->dial.theirs->addresses.list[link->dial.trying], link->dial.port,
                            text);
    snprintf(link->trouble, sizeof(link->trouble), "%s: %.60s", text, what);
    if (link->dial.trying == 0)
        memcpy(link->dial.theirs->trouble, link->trouble, sizeof(link->dial.theirs->trouble));
    stepaf_log_info("tcp: %s", link->trouble);
}

/* Give up a link with no address left. The most likely address explains most; the last one is named
 * if it is another. */
static void give_up_link(struct stepaf_tcp_link *link)
{
    char reason[STEPAF_REASON_MAX];

    if (link->dial.theirs->addresses.n == 1)
        snprintf(reason, sizeof(reason), "%s", link->trouble);
    else
        snprintf(reason, sizeof(reason), "%.75s; %u more were tried, the last %.75s",
                 link->dial.theirs->trouble, link->dial.theirs->addresses.n - 1, link->trouble);
    stepaf_tcp_lost(link, reason);
}

/* Try the addresses from the current one on. */
static void dial_all(struct stepaf_tcp_link *link)
{
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);

    for (; link->dial.trying < link->dial.theirs->addresses.n; link->dial.trying++) {
        unsigned i = 0;
        link->dial.try_until =
            stepaf_ticks() + (uint64_t)tcp->base.up->env->tcp_connect_us * tcp->ticks_per_us;
        link->dial.shown_out = 0;
        while (i < tcp->n_connections && dial(&link->connections[i]))
            i++;
        if (i == tcp->n_connections)
            return;
        int error = errno;
        note_trouble(link, stepaf_why(error));
        for (i = 0; i < tcp->n_connections; i++)
            stepaf_tcp_connection_close(&link->connections[i]);
        if (error == EMFILE || error == ENFILE) { /* no address is to blame for these */
            char reason[STEPAF_REASON_MAX];
            snprintf(reason, sizeof(reason), "this rank cannot connect: %s", stepaf_why(error));
            stepaf_tcp_lost(link, reason);
            return;
        }
    }
    give_up_link(link);
}

/* The address is unusable: try the next one. */
static void try_next(struct stepaf_tcp_link *link, const char *what)
{
    note_trouble(link, what);
    for (unsigned i = 0; i < stepaf_tcp_of(link)->n_connections; i++)
        stepaf_tcp_connection_close(&link->connections[i]);
    link->n_up = 0;
    link->dial.trying++;
    dial_all(link);
}

/* Handle the end of a connection before its link was up: its address is unusable. */
static void connection_failed(struct stepaf_tcp_connection *connection, const char *reason)
{
    struct stepaf_tcp_link *link = connection->link;

    if (link->dial.theirs) {
        try_next(link, reason);
        return;
    }
    link->n_up--; /* the peer will try another address */
    stepaf_tcp_connection_close(connection);
}

/* Connections end one by one, each after the data that was sent over it: the last answer may still
 * arrive over another connection. */
void stepaf_tcp_connection_ended(struct stepaf_tcp_connection *connection, const char *reason)
{
    struct stepaf_tcp_link *link = connection->link;

    if (!link->up) {
        connection_failed(connection, reason);
        return;
    }
    stepaf_tcp_break(link, reason);
    stepaf_tcp_connection_close(connection);
    for (unsigned i = 0; i < stepaf_tcp_of(link)->n_connections; i++)
        if (link->connections[i].fd >= 0)
            return;
    stepaf_tcp_lost(link, link->trouble);
}

/* Return whether to give an address more time. Somebody accepts connections there, perhaps the peer
 * on its way into the commit: such an address gets more time, and the last one gets all the time of
 * the commit. If the other end closes connections, only the last address gets more time. */
static bool is_patient(const struct stepaf_tcp_link *link, uint64_t now)
{
    const struct stepaf_tcp *tcp = stepaf_tcp_of(link);
    uint64_t more = (uint64_t)tcp->base.up->env->tcp_connect_us * GREETING_TIMES;
    bool is_last = link->dial.trying + 1 == link->dial.theirs->addresses.n;

    for (unsigned i = 0; i < tcp->n_connections; i++)
        if (link->connections[i].state == STEPAF_TCP_CONNECTING)
            return false;
    return (is_last && !link->dial.shown_out) ||
           ((is_last || !link->dial.shown_out) &&
            (int64_t)(now - link->dial.try_until - more * tcp->ticks_per_us) < 0);
}

/* Handle a connection that the listener closed: it had no space for it, for example with too many
 * strangers, or it is another program. The connection is tried again, at growing intervals, as long
 * as the address has time. */
static void shown_out(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    uint64_t ticks_per_us = stepaf_tcp_of(link)->ticks_per_us, now = stepaf_ticks();
    uint64_t pause_us = (uint64_t)AGAIN_US << link->dial.shown_out;

    if ((int64_t)(now - link->dial.try_until) >= 0 && !is_patient(link, now)) {
        try_next(link, stepaf_tcp_shown_out);
        return;
    }
    stepaf_tcp_connection_close(connection);
    link->dial.shown_out += link->dial.shown_out < AGAIN_TIMES;
    link->dial.redial_at = now + pause_us * ticks_per_us;
}

/* Begin the greeting if the kernel has made the connection; else handle its error. */
static void begin_greeting(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = connection};
    socklen_t length = sizeof(int);
    int error = 0;

    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &length))
        error = errno;
    if (!error && !stepaf_tcp_greet(connection)) {
        if (errno == EAGAIN) /* stale event, of an address that was tried before */
            return;
        error = errno;
    }
    if (!error && epoll_ctl(stepaf_tcp_of(link)->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event))
        error = errno;
    if (error == ECONNRESET || error == EPIPE)
        shown_out(connection);
    else if (error)
        try_next(link, stepaf_why(error));
    else
        connection->state = STEPAF_TCP_GREETING;
}

void stepaf_tcp_connection_advance(struct stepaf_tcp_connection *connection)
{
    const char *trouble = NULL;

    if (!stepaf_tcp_of(connection->link)->base.up->initiates)
        stepaf_tcp_take_answer(connection);
    else if (connection->state == STEPAF_TCP_CONNECTING)
        begin_greeting(connection);
    else if (connection->state == STEPAF_TCP_GREETING)
        trouble = stepaf_tcp_take_challenge(connection);
    else
        trouble = stepaf_tcp_take_welcome(connection);
    if (trouble == stepaf_tcp_shown_out)
        shown_out(connection);
    else if (trouble)
        try_next(connection->link, trouble);
}

/* Reopen connections that their listener has closed without an answer. */
static void redial(struct stepaf_tcp_link *link, uint64_t now)
{
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);

    if (!link->dial.shown_out || (int64_t)(now - link->dial.redial_at) < 0)
        return;
    for (unsigned i = 0; i < tcp->n_connections; i++)
        if (link->connections[i].fd < 0 && !dial(&link->connections[i])) {
            try_next(link, stepaf_why(errno));
            return;
        }
}

void stepaf_tcp_tries_check(struct stepaf_tcp *tcp, uint64_t now)
{
    for (unsigned p = 0; p < tcp->n_peers; p++) {
        struct stepaf_tcp_link *link = tcp->links[p];
        if (link && link->opening && link->dial.theirs &&
            (int64_t)(now - link->dial.try_until) >= 0 && !is_patient(link, now))
            try_next(link, "no answer in time");
        if (link && link->opening && link->dial.theirs)
            redial(link, now);
    }
}

/* Read a peer's announcement; returns false if it is malformed. */
static bool tcp_unpack_address(struct stepaf_unpack *unpack, struct stepaf_tcp_link *link,
                               uint64_t *network_id_p, struct stepaf_net_addresses *addresses_p)
{
    const void *secret = stepaf_unpack_bytes(unpack, sizeof(link->secret));
    uint64_t kernel_id = stepaf_unpack_u64(unpack);
    uint64_t network_id = stepaf_unpack_u64(unpack);
    uint32_t port = stepaf_unpack_u32(unpack);

    if (!secret || port > UINT16_MAX || !stepaf_tcp_addresses_unpack(unpack, addresses_p))
        return false;
    memcpy(link->secret, secret, sizeof(link->secret));
    link->dial.port = (uint16_t)port;
    link->same_host = kernel_id && kernel_id == stepaf_tcp_of(link)->kernel_id;
    *network_id_p = network_id;
    return true;
}

static struct stepaf_tcp_link *tcp_link_make(struct stepaf_tcp *tcp,
                                             const struct stepaf_peer_facts *facts)
{
    size_t bytes =
        sizeof(struct stepaf_tcp_link) + tcp->n_connections * sizeof(struct stepaf_tcp_connection);
    struct stepaf_tcp_link *link = calloc(1, bytes);

    if (!link)
        return NULL;
    link->base = (struct stepaf_link){
        .ops = tcp->base.ops, .transport = &tcp->base, .peer = facts->peer, .name = "tcp"};
    link->slot = facts->index_at_peer;
    for (unsigned i = 0; i < tcp->n_connections; i++) {
        struct stepaf_tcp_connection *connection = &link->connections[i];
        connection->watched = STEPAF_TCP_CONNECTION;
        connection->index = (uint8_t)i;
        connection->fd = -1;
        connection->link = link;
    }
    return link;
}

stepaf_status_t stepaf_tcp_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;
    bool initiates = transport->up->initiates;
    struct stepaf_tcp_tries *theirs = calloc(1, sizeof(*theirs));
    struct stepaf_tcp_link *link = tcp_link_make(tcp, facts);

    *link_p = NULL;
    if (!link || !theirs) {
        free(link);
        free(theirs);
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    uint64_t network_id = 0;
    bool good = tcp_unpack_address(unpack, link, &network_id, &theirs->addresses);
    bool has_some = theirs->addresses.n > 0;
    bool same_node = facts->node_id == transport->up->topo->node_id;
    stepaf_tcp_addresses_order(&tcp->own,
                               stepaf_tcp_network_of(tcp->network_id, network_id, same_node),
                               &theirs->addresses);
    if (!good || (initiates && !theirs->addresses.n)) {
        snprintf(reason, STEPAF_REASON_MAX, "%s",
                 !good      ? "its announcement is malformed"
                 : has_some ? "all are this host's own" /* short: the text before it may be long */
                            : "it has no address");
        free(link);
        free(theirs);
        return STEPAF_OK;
    }
    tcp->links[facts->peer] = link;
    tcp->count.links++;
    tcp->count.opening++;
    tcp->n_direct = 0; /* until the link is up, epoll is needed */
    link->opening = true;
    *link_p = &link->base;
    if (!initiates) {
        free(theirs);
        return STEPAF_OK;
    }
    link->dial.theirs = theirs;
    dial_all(link);
    return STEPAF_OK;
}

void stepaf_tcp_disconnect(struct stepaf_link *base)
{
    struct stepaf_tcp_link *link = (struct stepaf_tcp_link *)base;
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);

    stepaf_tcp_link_close(link);
    tcp->n_direct = 0;
    tcp->links[base->peer] = NULL;
    tcp->count.links--;
    stepaf_tcp_end_zeros(link);
    free(link);
}
