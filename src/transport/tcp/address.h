/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses this rank can be reached at, and in what order to try those of a peer. */
#ifndef STEPAF_TRANSPORT_TCP_ADDRESS_H
#define STEPAF_TRANSPORT_TCP_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <stepaf/types.h>

#include "base/pack.h"

enum { STEPAF_TCP_ADDRESSES = 64, STEPAF_TCP_IF_NAME = 16, STEPAF_TCP_ADDRESS_TEXT = 64 };

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
 * left out, aliases and bonds are interfaces like others. The likely ones come first: loopback, which
 * only ranks of the same network try, network cards, others that have a carrier, bridges, which are often
 * numbered alike on all hosts, and what has no carrier. Of more than STEPAF_TCP_ADDRESSES the last are
 * left out with a warning. STEPAF_ERR_SETTING if @a net_if is no subnet and names no interface, or
 * admits no address; STEPAF_ERR_TRANSPORT if the system gives no
 * list. */
stepaf_status_t stepaf_tcp_addresses_own(const char *net_if, struct stepaf_tcp_addresses *own_p);

/* Whether a peer's process sees the interfaces that this one sees. */
enum stepaf_tcp_network {
    STEPAF_TCP_OTHER_NETWORK,  /* so whatever it calls by a number of mine is something else */
    STEPAF_TCP_SAME_NETWORK,   /* under the same kernel, in the same network namespace */
    STEPAF_TCP_UNKNOWN_NETWORK /* one of the two cannot tell */
};

/* Which kernel this process runs under; 0: the system does not tell. */
uint64_t stepaf_tcp_kernel_id(void);
/* Which network namespace of which kernel this process is in; 0: the system does not tell. */
uint64_t stepaf_tcp_network_id(void);
enum stepaf_tcp_network stepaf_tcp_network_of(uint64_t own_id, uint64_t their_id, bool same_node);

/* Keep those of @a theirs that a connection can be tried to, best first: in the same network loopback;
 * subnets that this host is in, then others, then, where the network is not known to be another,
 * addresses that are this host's own too. What is left out would lead to this host itself. */
void stepaf_tcp_addresses_order(const struct stepaf_tcp_addresses *own,
                                enum stepaf_tcp_network network,
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
