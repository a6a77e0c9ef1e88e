/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* accept4 */

#include "boot/control/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"

enum { KEEPALIVE_IDLE_S = 5, KEEPALIVE_EVERY_S = 5, KEEPALIVE_PROBES = 3 };

static void set_socket_option(int fd, int level, int option, int value)
{
    /* If this fails, everything still works, or the next call reports the error. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static int new_socket(int family)
{
    stepaf_fork_begin();
    return stepaf_fork_end(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/* A connection may be idle for hours; a host that has vanished must be noticed eventually. */
static void tune_connection(int fd)
{
    set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_socket_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_socket_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_socket_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    set_socket_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

void stepaf_control_socket_close(int fd)
{
    stepaf_fork_close(fd);
}

void stepaf_control_end_at_once(int fd)
{
    const struct linger none = {.l_onoff = 1};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

static bool is_mapped(const uint8_t *bytes)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(bytes, prefix, sizeof prefix) == 0;
}

static socklen_t socket_address(const struct stepaf_control_address *address, uint16_t port,
                                struct sockaddr_storage *storage_p)
{
    *storage_p = (struct sockaddr_storage){0};
    if (is_mapped(address->bytes)) {
        struct sockaddr_in *in = (struct sockaddr_in *)storage_p;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes + 12, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)storage_p;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    in6->sin6_scope_id = address->scope;
    memcpy(&in6->sin6_addr, address->bytes, 16);
    return sizeof *in6;
}

bool stepaf_control_address_from(const struct sockaddr *from,
                                 struct stepaf_control_address *address_p)
{
    struct stepaf_control_address address = {.bytes = {[10] = 0xff, [11] = 0xff}};

    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        memcpy(address.bytes + 12, &in->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
        memcpy(address.bytes, &in6->sin6_addr, 16);
        address.scope = in6->sin6_scope_id;
    } else {
        return false;
    }
    *address_p = address;
    return true;
}

/* Return the address to listen at: all addresses, or one that reaches this host only. */
static struct stepaf_control_address own_side(const struct stepaf_place *place, bool with_ipv6)
{
    struct stepaf_control_address address = {.bytes = {[10] = 0xff, [11] = 0xff}};

    if (place->is_loopback && strchr(place->host, ':')) {
        address = (struct stepaf_control_address){.bytes = {[15] = 1}};
    } else if (place->is_loopback) {
        if (inet_pton(AF_INET, place->host, address.bytes + 12) != 1)
            memcpy(address.bytes + 12, (const uint8_t[]){127, 0, 0, 1}, 4);
    } else if (with_ipv6) {
        address = (struct stepaf_control_address){0};
    }
    return address;
}

/* Return whether the port is kept for rank 0, which may come later and needs it. */
static bool is_kept_for_rank_0(const struct stepaf_place *place, uint32_t port)
{
    return place->rank != 0 && port && port == place->port;
}

/* Returns the socket, or -1 with errno. */
static int listen_at_one(const struct stepaf_place *place,
                         const struct stepaf_control_address *side, uint16_t first, uint16_t last)
{
    struct sockaddr_storage storage;

    errno = EADDRINUSE;
    for (uint32_t port = first; port <= last; port++) {
        socklen_t bytes = socket_address(side, (uint16_t)port, &storage);
        if (is_kept_for_rank_0(place, port))
            continue;
        int fd = new_socket(storage.ss_family);
        if (fd < 0)
            return -1;
        set_socket_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (storage.ss_family == AF_INET6)
            set_socket_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        if (bind(fd, (struct sockaddr *)&storage, bytes) == 0 && listen(fd, SOMAXCONN) == 0)
            return fd;
        int error = errno;
        stepaf_control_socket_close(fd);
        errno = error;
        if (error != EADDRINUSE && error != EACCES)
            return -1;
    }
    return -1;
}

static int listen_at_any(const struct stepaf_place *place, const struct stepaf_control_address *own,
                         uint16_t first, uint16_t last)
{
    struct stepaf_control_address side = own_side(place, true);
    int fd = listen_at_one(place, own ? own : &side, first, last);

    if (fd >= 0 || own || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return fd;
    side = own_side(place, false); /* a kernel without IPv6 */
    return listen_at_one(place, &side, first, last);
}

/* Returns 0 with errno. */
static uint16_t own_port(int fd)
{
    struct sockaddr_storage storage = {0};
    socklen_t bytes = sizeof storage;

    if (getsockname(fd, (struct sockaddr *)&storage, &bytes) != 0)
        return 0;
    return ntohs(storage.ss_family == AF_INET ? ((struct sockaddr_in *)&storage)->sin_port
                                              : ((struct sockaddr_in6 *)&storage)->sin6_port);
}

int stepaf_control_listen(const struct stepaf_place *place,
                          const struct stepaf_control_address *own, uint16_t first, uint16_t last,
                          uint16_t *port_p)
{
    int fd = listen_at_any(place, own, first, last);

    *port_p = fd >= 0 ? own_port(fd) : 0;
    if (is_kept_for_rank_0(place, *port_p)) { /* the system has chosen this port: take another */
        int second = listen_at_any(place, own, first, last);
        stepaf_control_socket_close(fd);
        fd = second;
        *port_p = fd >= 0 ? own_port(fd) : 0;
    }
    if (fd < 0 || *port_p)
        return fd;
    stepaf_control_socket_close(fd);
    return -1;
}

int stepaf_control_connect(const struct stepaf_control_address *address, uint16_t port)
{
    struct sockaddr_storage storage;
    socklen_t bytes = socket_address(address, port, &storage);
    int fd = new_socket(storage.ss_family);

    if (fd < 0)
        return -1;
    tune_connection(fd);
    /* If the socket should be connected to itself, the rank that is to listen there can still do
     * so. */
    set_socket_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (connect(fd, (struct sockaddr *)&storage, bytes) == 0 || errno == EINPROGRESS)
        return fd;
    int error = errno;
    stepaf_control_socket_close(fd);
    errno = error;
    return -1;
}

bool stepaf_control_is_to_itself(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;

    return getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_bytes) == 0 &&
           here_bytes == there_bytes && memcmp(&here, &there, here_bytes) == 0;
}

int stepaf_control_accept(int listener)
{
    stepaf_fork_begin();
    int fd = stepaf_fork_end(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

    if (fd >= 0)
        tune_connection(fd);
    return fd;
}

bool stepaf_control_other_end(int fd, struct stepaf_control_address *address_p)
{
    struct sockaddr_storage storage = {0};
    socklen_t bytes = sizeof storage;

    return getpeername(fd, (struct sockaddr *)&storage, &bytes) == 0 &&
           stepaf_control_address_from((struct sockaddr *)&storage, address_p);
}

bool stepaf_control_is_link_local(const struct stepaf_control_address *address)
{
    return address->bytes[0] == 0xfe && (address->bytes[1] & 0xc0) == 0x80;
}

bool stepaf_control_is_loopback(const struct stepaf_control_address *address)
{
    static const uint8_t v6[16] = {[15] = 1};

    return is_mapped(address->bytes) ? address->bytes[12] == 127
                                     : memcmp(address->bytes, v6, sizeof v6) == 0;
}
