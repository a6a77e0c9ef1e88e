/* SPDX-License-Identifier: Apache-2.0 */
/* Order in which to try the addresses of a peer, and their text and packed forms. */
#ifndef STEPAF_TRANSPORT_TCP_ADDRESS_H
#define STEPAF_TRANSPORT_TCP_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/pack.h"
#include "topo/address.h"

enum { STEPAF_TCP_ADDRESS_TEXT = 64 };

/* Whether a peer's process sees the same interfaces as this one. */
enum stepaf_tcp_network {
    STEPAF_TCP_OTHER_NETWORK,  /* the same address may mean a different host there */
    STEPAF_TCP_SAME_NETWORK,   /* under the same kernel, in the same network namespace */
    STEPAF_TCP_UNKNOWN_NETWORK /* one of the two cannot tell */
};

enum stepaf_tcp_network stepaf_tcp_network_of(uint64_t own_id, uint64_t their_id, bool same_node);

/* Keep the addresses of @a theirs that are worth a connection attempt, best first: in the same
 * network, loopback; then addresses in subnets of this host; then others; then, unless the network
 * is known to be another, addresses that this host has too. The addresses left out would lead to
 * this host itself. */
void stepaf_tcp_addresses_order(const struct stepaf_net_addresses *own,
                                enum stepaf_tcp_network network,
                                struct stepaf_net_addresses *theirs);

void stepaf_tcp_addresses_pack(const struct stepaf_net_addresses *addresses,
                               struct stepaf_pack *pack);
/* Returns false if the input is no valid list. */
bool stepaf_tcp_addresses_unpack(struct stepaf_unpack *unpack,
                                 struct stepaf_net_addresses *addresses_p);

/* Make a socket address; return its length. */
socklen_t stepaf_tcp_address_socket(const struct stepaf_net_address *address, uint16_t port,
                                    struct sockaddr_storage *storage_p);

/* Format an address: "10.0.0.1:4242", "[fd00::1]:4242". */
void stepaf_tcp_address_text(const struct stepaf_net_address *address, uint16_t port,
                             char text_p[static STEPAF_TCP_ADDRESS_TEXT]);

/* Format the address of the socket's own end without its port, "10.0.0.1"; "" if the system does
 * not tell. */
void stepaf_tcp_address_own(int fd, char *text_p, size_t capacity);

/* Return the name of the interface of the socket's own end; "?" if it is none of @a own. */
const char *stepaf_tcp_interface_of(int fd, const struct stepaf_net_addresses *own);

#endif
