/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses this rank can be reached at, and in what order to try those of a peer. */
#ifndef STEPAF_TRANSPORT_TCP_ADDRESS_H
#define STEPAF_TRANSPORT_TCP_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <stepaf/types.h>

#include "base/pack.h"

enum { STEPAF_TCP_ADDRESSES = 16, STEPAF_TCP_IF_NAME = 16, STEPAF_TCP_ADDRESS_TEXT = 64 };

/* An address of an interface, or a peer's. */
struct stepaf_tcp_address {
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t prefix; /* bits of the subnet; own addresses only */
    bool loopback;
    char name[STEPAF_TCP_IF_NAME]; /* of the interface; own addresses only */
    uint8_t bytes[16];             /* network order; 4 of them for AF_INET */
};

struct stepaf_tcp_addresses {
    struct stepaf_tcp_address list[STEPAF_TCP_ADDRESSES];
    unsigned n;
};

/* List this host's addresses that @a net_if admits: the name of an interface, a subnet such as
 * 10.1.0.0/16 or fd00::/64, or "" for all. Interfaces that are down and link-local addresses are
 * left out, aliases and bonds are interfaces like others. STEPAF_ERR_SETTING if @a net_if is no
 * subnet and names no interface, or admits no address; STEPAF_ERR_TRANSPORT if the system gives no
 * list. */
stepaf_status_t stepaf_tcp_addresses_own(const char *net_if, struct stepaf_tcp_addresses *own_p);

/* Keep those of @a theirs that a connection can be tried to, best first: on the same node
 * loopback; else subnets that this host is in, then others, then addresses that are this host's
 * own too, such as those of bridges with the same number everywhere. */
void stepaf_tcp_addresses_order(const struct stepaf_tcp_addresses *own, bool same_node,
                                struct stepaf_tcp_addresses *theirs);

void stepaf_tcp_addresses_pack(const struct stepaf_tcp_addresses *addresses,
                               struct stepaf_pack *pack);
/* False if that is no list. */
bool stepaf_tcp_addresses_unpack(struct stepaf_unpack *unpack,
                                 struct stepaf_tcp_addresses *addresses_p);

/* Make a socket address; return its length. */
socklen_t stepaf_tcp_address_socket(const struct stepaf_tcp_address *address, uint16_t port,
                                    struct sockaddr_storage *storage_p);

/* "10.0.0.1:4242", "[fd00::1]:4242" */
void stepaf_tcp_address_text(const struct stepaf_tcp_address *address, uint16_t port,
                             char text_p[static STEPAF_TCP_ADDRESS_TEXT]);

/* The socket's own end without its port, "10.0.0.1"; "" if the system does not tell. */
void stepaf_tcp_address_own(int fd, char *text_p, size_t capacity);

/* The name of the interface that the socket's own end belongs to; "?" if it is none of @a own. */
const char *stepaf_tcp_interface_of(int fd, const struct stepaf_tcp_addresses *own);

#endif
