/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that libfabric has opened for this transport. Children of fork() give them up;
 * otherwise a peer on another host would not notice this process's end as long as a child lives.
 * The sockets are known by their addresses, which no other TCP socket can have: the endpoint's own,
 * and peers' endpoints. */
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/fork.h"
#include "transport/ofi/ofi.h"

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    uint8_t bytes[STEPAF_OFI_ADDRESS];
};

static in_port_t port_of(const union address *address)
{
    if (address->any.sa_family == AF_INET)
        return address->in.sin_port;
    return address->any.sa_family == AF_INET6 ? address->in6.sin6_port : 0;
}

static bool has_same_port(const union address *one, const union address *other)
{
    return port_of(one) && one->any.sa_family == other->any.sa_family &&
           port_of(one) == port_of(other);
}

/* Of two addresses of the same family. */
static bool has_same_host(const union address *one, const union address *other)
{
    if (one->any.sa_family == AF_INET)
        return one->in.sin_addr.s_addr == other->in.sin_addr.s_addr;
    return !memcmp(&one->in6.sin6_addr, &other->in6.sin6_addr, sizeof(one->in6.sin6_addr));
}

static bool is_any_host(const union address *address)
{
    return address->any.sa_family == AF_INET ? address->in.sin_addr.s_addr == htonl(INADDR_ANY)
                                             : IN6_IS_ADDR_UNSPECIFIED(&address->in6.sin6_addr);
}

static bool is_a_peers(const struct stepaf_ofi *ofi, const union address *address)
{
    for (uint32_t p = 0; p < ofi->shared.n_peers; p++) {
        const struct stepaf_ofi_link *link = stepaf_ofi_link(ofi, p);
        for (unsigned r = 0; link->shared.used && r < link->n_paths; r++) {
            union address its = {.any = {.sa_family = AF_UNSPEC}};
            size_t bytes = sizeof(its);
            if (!fi_av_lookup(ofi->rails[r].av, link->paths[r].to, &its, &bytes) &&
                has_same_port(&its, address) && has_same_host(&its, address))
                return true;
        }
    }
    return false;
}

/* Return whether the address is that of one of this rank's endpoints. A listener may be bound to
 * all addresses of this host; its port is then taken at each of them. */
static bool is_own_place(const struct stepaf_ofi *ofi, const union address *here)
{
    for (unsigned r = 0; r < ofi->n_rails; r++) {
        union address own = {.any = {.sa_family = AF_UNSPEC}};
        memcpy(&own, ofi->rails[r].address, ofi->rails[r].address_bytes);
        if (has_same_port(&own, here) &&
            (has_same_host(&own, here) || is_any_host(&own) || is_any_host(here)))
            return true;
    }
    return false;
}

/* Return whether a file descriptor is one of these sockets. */
static bool is_libfabrics(const struct stepaf_ofi *ofi, int fd)
{
    union address here = {.any = {.sa_family = AF_UNSPEC}}, there = here;
    socklen_t bytes = sizeof(here), int_bytes = sizeof(int);
    int type;

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_bytes) || type != SOCK_STREAM)
        return false;
    if (getsockname(fd, &here.any, &bytes))
        return false;
    if (is_own_place(ofi, &here))
        return true;
    bytes = sizeof(there);
    return !getpeername(fd, &there.any, &bytes) && is_a_peers(ofi, &there);
}

static bool is_open(const struct stepaf_ofi_socket *it)
{
    struct stat facts;

    return !fstat(it->fd, &facts) && S_ISSOCK(facts.st_mode) && facts.st_ino == it->inode;
}

static bool is_known_socket(const struct stepaf_ofi *ofi, int fd)
{
    for (unsigned i = 0; i < ofi->n_sockets; i++)
        if (ofi->sockets[i].fd == fd)
            return true;
    return false;
}

/* Remove what libfabric has closed since. */
static void drop_closed(struct stepaf_ofi *ofi)
{
    unsigned n = 0;

    for (unsigned i = 0; i < ofi->n_sockets; i++)
        if (is_open(&ofi->sockets[i]))
            ofi->sockets[n++] = ofi->sockets[i];
        else
            stepaf_fork_forget_file(ofi->sockets[i].fd, ofi->sockets[i].inode);
    ofi->n_sockets = n;
}

static void add_socket(struct stepaf_ofi *ofi, int fd)
{
    struct stepaf_ofi_socket *more =
        realloc(ofi->sockets, (ofi->n_sockets + 1) * sizeof(*ofi->sockets));
    struct stat facts;

    if (!more)
        return; /* the only effect: a child keeps the socket */
    ofi->sockets = more;
    if (!fstat(fd, &facts) && !stepaf_fork_add_file(fd))
        ofi->sockets[ofi->n_sockets++] =
            (struct stepaf_ofi_socket){.fd = fd, .inode = facts.st_ino};
}

bool stepaf_ofi_has_sockets(const struct stepaf_ofi *ofi)
{
    uint32_t format = ofi->rails[0].info->addr_format;

    return format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

void stepaf_ofi_sockets_find(struct stepaf_ofi *ofi)
{
    if (!stepaf_ofi_has_sockets(ofi))
        return;
    if (!strcmp(ofi->shared.name, "verbs;ofi_rxm"))
        return; /* no sockets: ports of RDMA-CM are not those of TCP */
    drop_closed(ofi);
    stepaf_fd_begin();
    DIR *dir = opendir("/proc/self/fd");
    (void)stepaf_fd_end(-1);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && !is_known_socket(ofi, fd) && is_libfabrics(ofi, fd))
            add_socket(ofi, fd);
    }
    if (dir)
        (void)closedir(dir);
}

void stepaf_ofi_sockets_forget(struct stepaf_ofi *ofi)
{
    for (unsigned i = 0; i < ofi->n_sockets; i++)
        stepaf_fork_forget_file(ofi->sockets[i].fd, ofi->sockets[i].inode);
    free(ofi->sockets);
    ofi->sockets = NULL;
    ofi->n_sockets = 0;
}

/* A peer may be in the middle of a write, which tcp;ofi_rxm (1.17) cannot cancel: closing the
 * endpoint then ends the process. Therefore the connections are closed first, and libfabric gets
 * time to notice. */
void stepaf_ofi_sockets_cut(struct stepaf_ofi *ofi)
{
    for (unsigned i = 0; i < ofi->n_sockets; i++) {
        struct stepaf_ofi_socket *it = &ofi->sockets[i];
        int listens = 1;
        socklen_t bytes = sizeof(listens);
        /* A connection that was reset is no longer connected, but libfabric may not have
         * noticed. */
        it->cut = is_open(it) && !getsockopt(it->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) &&
                  !listens && (!shutdown(it->fd, SHUT_RDWR) || errno == ENOTCONN);
    }
}

/* Return whether libfabric has not yet closed one of these sockets. */
bool stepaf_ofi_sockets_are_open(const struct stepaf_ofi *ofi)
{
    for (unsigned i = 0; i < ofi->n_sockets; i++)
        if (ofi->sockets[i].cut && is_open(&ofi->sockets[i]))
            return true;
    return false;
}
