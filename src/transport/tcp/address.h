/* SPDX-License-Identifier: Apache-2.0 */
/* In what order to try the addresses of a peer, and how they are written. */
#ifndef STEPAF_TRANSPORT_TCP_ADDRESS_H
#define STEPAF_TRANSPORT_TCP_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/pack.h"
#include "topo/address.h"

enum { STEPAF_TCP_ADDRESS_TEXT = 64 };

/* Whether a peer's process sees the interfaces that this one sees. */
enum stepaf_tcp_network {
    STEPAF_TCP_OTHER_NETWORK,  /* so whatever it calls by a number of mine is something else */
    STEPAF_TCP_SAME_NETWORK,   /* under the same kernel, in the same network namespace */
    STEPAF_TCP_UNKNOWN_NETWORK /* one of the two cannot tell */
};

enum stepaf_tcp_network stepaf_tcp_network_of(uint64_t own_id, uint64_t their_id, bool same_node);

/* Keep those of @a theirs that a connection can be tried to, best first: in the same network
 * loopback; subnets that this host is in, then others, then, where the network is not known to be
 * another, addresses that are this host's own too. What is left out would lead to this host
 * itself. */
void stepaf_tcp_addresses_order(const struct stepaf_net_addresses *own,
                                enum stepaf_tcp_network network,
                                struct stepaf_net_addresses *theirs);

void stepaf_tcp_addresses_pack(const struct stepaf_net_addresses *addresses,
                               struct stepaf_pack *pack);
/* False if that is no list. */
bool stepaf_tcp_addresses_unpack(struct stepaf_unpack *unpack,
                                 struct stepaf_net_addresses *addresses_p);

/* Make a socket address; return its length. */
socklen_t stepaf_tcp_address_socket(const struct stepaf_net_address *address, uint16_t port,
                                    struct sockaddr_storage *storage_p);

/* "10.0.0.1:4242", "[fd00::1]:4242" */
void stepaf_tcp_address_text(const struct stepaf_net_address *address, uint16_t port,
                             char text_p[static STEPAF_TCP_ADDRESS_TEXT]);

/* The socket's own end without its port, "10.0.0.1"; "" if the system does not tell. */
void stepaf_tcp_address_own(int fd, char *text_p, size_t capacity);

/* The name of the interface that the socket's own end belongs to; "?" if it is none of @a own. */
const char *stepaf_tcp_interface_of(int fd, const struct stepaf_net_addresses *own);

#endif
