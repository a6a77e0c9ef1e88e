/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a link and its connections: up, broken, lost, closed. */
#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"
#include "transport/tcp/tcp.h"

void stepaf_tcp_connection_close(struct stepaf_tcp_connection *connection)
{
    if (connection->fd >= 0)
        stepaf_tcp_socket_drop(stepaf_tcp_of(connection->link), connection->fd);
    connection->fd = -1;
    connection->state = STEPAF_TCP_CLOSED;
}

/* If there are few connections, polling each costs less than polling epoll. Peers that other
 * transports reach may still come, until all ranks have agreed on their links. */
void stepaf_tcp_all_opened(struct stepaf_tcp *tcp)
{
    if (tcp->count.links < tcp->n_peers && !tcp->agreed)
        return;
    stepaf_tcp_unlisten(tcp);
    tcp->n_direct = 0;
    if (tcp->count.links * tcp->n_connections > STEPAF_TCP_DIRECT)
        return;
    for (unsigned p = 0; p < tcp->n_peers; p++)
        for (unsigned i = 0; tcp->links[p] && i < tcp->n_connections; i++)
            tcp->direct[tcp->n_direct++] = &tcp->links[p]->connections[i];
}

/* Stop tracking a link that is up, or will never be. */
static void opened(struct stepaf_tcp_link *link)
{
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);

    free(link->dial.theirs);
    link->dial.theirs = NULL;
    if (!link->opening)
        return;
    link->opening = false;
    if (!--tcp->count.opening)
        stepaf_tcp_all_opened(tcp);
}

void stepaf_tcp_link_close(struct stepaf_tcp_link *link)
{
    for (unsigned i = 0; i < stepaf_tcp_of(link)->n_connections; i++)
        stepaf_tcp_connection_close(&link->connections[i]);
    link->up = false;
    stepaf_tcp_zerocopy_drop(link);
    stepaf_tcp_of(link)->count.tails -= link->tail.bytes > 0;
    link->tail.at = link->tail.bytes = 0;
    stepaf_tcp_of(link)->count.broken -= link->broken;
    link->broken = false;
    opened(link);
}

/* Start the copier threads now that there is work for them: once, as many as possible. */
static void start_threads(struct stepaf_tcp *tcp)
{
    if (tcp->copiers.wanted)
        tcp->copiers.it = stepaf_tcp_copiers_start(tcp->copiers.wanted, tcp->ticks_per_us);
    tcp->copiers.wanted = 0;
}

void stepaf_tcp_connection_up(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);

    connection->state = STEPAF_TCP_UP;
    stepaf_tcp_socket_tune(tcp->base.up->env, connection->fd);
    if (link->same_host)
        stepaf_tcp_socket_near(connection->fd);
    link->zerocopy = stepaf_tcp_zerocopy_enable(tcp->base.up->env, connection->fd) &&
                     (link->zerocopy || !link->n_up);
    if (++link->n_up < tcp->n_connections)
        return;
    snprintf(link->base.name, sizeof(link->base.name), "tcp;%s",
             stepaf_tcp_interface_of(link->connections[0].fd, &tcp->own));
    stepaf_tcp_address_own(link->connections[0].fd, link->base.address, sizeof(link->base.address));
    link->up = true;
    start_threads(tcp);
    opened(link);
}

void stepaf_tcp_lost(struct stepaf_tcp_link *link, const char *reason)
{
    struct stepaf_upcalls *up = link->base.transport->up;

    up->lost(up, &link->base, link->unwritable ? link->trouble : reason);
    stepaf_tcp_link_close(link);
}

void stepaf_tcp_break(struct stepaf_tcp_link *link, const char *reason)
{
    if (link->broken)
        return;
    link->broken = true;
    link->heard = stepaf_ticks();
    stepaf_tcp_of(link)->count.broken++;
    snprintf(link->trouble, sizeof(link->trouble), "%s", reason);
}
