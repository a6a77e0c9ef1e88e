/* SPDX-License-Identifier: Apache-2.0 */
/* Open and close the transport, its memory, and its table of operations. */
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/proof.h"
#include "base/time.h"
#include "base/why.h"

enum { CLOSE_US = 1000000 };

static bool tcp_probe(const struct stepaf_env *env, char *reason)
{
    int fd = stepaf_tcp_socket(AF_INET);

    if (fd < 0)
        fd = stepaf_tcp_socket(AF_INET6);
    if (fd < 0) {
        snprintf(reason, STEPAF_REASON_MAX, "no sockets: %s", stepaf_why(errno));
        return false;
    }
    stepaf_tcp_socket_close(fd);
    if (env->net_if[0])
        snprintf(reason, STEPAF_REASON_MAX, "by STEPAF_NET_IF=%.100s", env->net_if);
    return true;
}

/* Return whether closing can lose nothing that was posted. */
static bool is_drained(struct stepaf_tcp_link *link)
{
    bool drained = true;

    if (!link->up || (link->broken && !(link->unwritable && stepaf_tcp_tell_unwritable(link))))
        return true;
    if (link->tail.bytes)
        return false;
    for (unsigned i = 0; i < stepaf_tcp_of(link)->n_connections; i++)
        drained = stepaf_tcp_socket_is_drained(link->connections[i].fd) && drained;
    return drained;
}

/* Drain all links in parallel: a link whose peer has stopped must not delay the others. */
static void drain_links(struct stepaf_tcp *tcp)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + CLOSE_US * 1000LL;
    bool drained;

    for (;;) {
        drained = true;
        stepaf_tcp_push_tails(tcp);
        for (unsigned p = 0; p < tcp->n_peers; p++)
            if (tcp->links[p])
                drained = is_drained(tcp->links[p]) && drained;
        if (drained || stepaf_monotonic_ns() > deadline_ns)
            return;
        (void)poll(NULL, 0, 1);
    }
}

static void tcp_close(struct stepaf_transport *transport)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;

    drain_links(tcp);
    for (unsigned p = 0; p < tcp->n_peers; p++)
        if (tcp->links[p])
            stepaf_tcp_disconnect(&tcp->links[p]->base);
    stepaf_tcp_copiers_end(tcp->copiers.it);
    stepaf_tcp_unlisten(tcp);
    if (tcp->epoll_fd >= 0)
        stepaf_fork_close(tcp->epoll_fd);
    free(tcp->strangers);
    free(tcp->links);
    free(tcp);
}

static stepaf_status_t tcp_open(struct stepaf_upcalls *up, unsigned n_peers,
                                struct stepaf_transport **transport_p)
{
    struct stepaf_tcp *tcp = calloc(1, sizeof(*tcp));
    struct stepaf_clock clock;
    stepaf_status_t status;

    if (!tcp)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    tcp->base = (struct stepaf_transport){.ops = &stepaf_tcp_ops, .up = up};
    tcp->epoll_fd = -1;
    tcp->kernel_id = stepaf_net_kernel_id();
    tcp->network_id = stepaf_net_network_id();
    tcp->listener.watched = STEPAF_TCP_LISTENER;
    tcp->listener.fd = -1;
    tcp->n_connections = (unsigned)up->env->tcp_connections;
    tcp->copiers.wanted = tcp->n_connections > 1 ? (unsigned)up->env->tcp_threads : 0;
    tcp->links = calloc(n_peers, sizeof(tcp->links[0]));
    stepaf_clock_calibrate(&clock);
    tcp->ticks_per_us = clock.ticks_per_us > 1 ? (uint64_t)clock.ticks_per_us : 1;
    if (!tcp->links) {
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        goto err_tcp;
    }
    tcp->n_peers = n_peers;
    status = stepaf_net_addresses_own(up->env->net_if, &tcp->own);
    if (status)
        goto err_tcp;
    stepaf_fork_begin();
    tcp->epoll_fd = stepaf_fork_end(epoll_create1(EPOLL_CLOEXEC));
    if (tcp->epoll_fd < 0 || !stepaf_proof_ready() ||
        !stepaf_proof_draw(tcp->secret, sizeof(tcp->secret))) {
        status = stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT, "tcp: cannot open: %s",
                                  stepaf_why(errno));
        goto err_tcp;
    }
    if (!up->initiates && (status = stepaf_tcp_listen(tcp)))
        goto err_tcp;
    if (up->env->tcp_threads && tcp->n_connections == 1)
        stepaf_log_warn(
            "STEPAF_TCP_THREADS=%d has no effect without STEPAF_TCP_CONNECTIONS above 1",
            (int)up->env->tcp_threads);
    *transport_p = &tcp->base;
    return STEPAF_OK;

err_tcp:
    tcp_close(&tcp->base);
    return status;
}

/* The connections reach any address of the peer: there is nothing to announce. */
static void tcp_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    (void)transport;
    (void)mem;
    (void)pack;
}

static stepaf_status_t tcp_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    struct stepaf_rmem *rmem = calloc(1, sizeof(*rmem));

    (void)link;
    (void)unpack;
    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    *rmem = (struct stepaf_rmem){.id = id, .bytes = bytes};
    *rmem_p = rmem;
    return STEPAF_OK;
}

static void tcp_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem)
{
    (void)link;
    free(rmem);
}

static void tcp_query_memory(struct stepaf_transport *transport, size_t *per_link_p,
                             size_t *bounce_p)
{
    const struct stepaf_tcp *tcp = (const struct stepaf_tcp *)transport;

    *per_link_p = sizeof(struct stepaf_tcp_link) + sizeof(struct stepaf_tcp_link *) +
                  tcp->n_connections * sizeof(struct stepaf_tcp_connection);
    *bounce_p = sizeof(tcp->scratch);
}

_Static_assert((int)STEPAF_TCP_CONNECTIONS_MAX <= (int)STEPAF_LINK_RAILS, "each is counted");

static unsigned tcp_count_rails(const struct stepaf_link *base, struct stepaf_rail_count *rails_p)
{
    const struct stepaf_tcp_link *link = (const struct stepaf_tcp_link *)base;
    unsigned n = stepaf_tcp_of(link)->n_connections;
    uint64_t parts_sent = 0;

    for (unsigned i = n; i--;) {
        const struct stepaf_tcp_connection *connection = &link->connections[i];
        rails_p[i] = (struct stepaf_rail_count){.bytes_sent = i ? connection->parts_sent
                                                                : base->bytes_sent - parts_sent,
                                                .name = "",
                                                .is_up = connection->state == STEPAF_TCP_UP};
        parts_sent += connection->parts_sent;
    }
    return n;
}

const struct stepaf_transport_ops stepaf_tcp_ops = {
    .name = "tcp",
    .caps = STEPAF_TRANSPORT_RETURNS,
    .probe = tcp_probe,
    .open = tcp_open,
    .close = tcp_close,
    .pack_address = stepaf_tcp_pack_address,
    .pack_mem = tcp_pack_mem,
    .connect = stepaf_tcp_connect,
    .disconnect = stepaf_tcp_disconnect,
    .finish_connects = stepaf_tcp_finish_connects,
    .reopen = stepaf_tcp_reopen,
    .shrink = stepaf_tcp_shrink,
    .import_mem = tcp_import_mem,
    .release_mem = tcp_release_mem,
    .post = stepaf_tcp_post,
    .retire = stepaf_tcp_retire,
    .progress = stepaf_tcp_progress,
    .check_peers = stepaf_tcp_check_peers,
    .count_rails = tcp_count_rails,
    .query_memory = tcp_query_memory,
};
