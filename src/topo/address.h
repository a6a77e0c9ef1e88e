/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses at which this host can be reached, and their network. */
#ifndef STEPAF_TOPO_ADDRESS_H
#define STEPAF_TOPO_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <stepaf/types.h>

enum { STEPAF_NET_ADDRESSES = 64, STEPAF_NET_IF_NAME = 16 };

/* An address of an interface, or a peer's. */
struct stepaf_net_address {
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t prefix; /* bits of the subnet; own addresses only */
    bool loopback;
    bool is_spare;                 /* of a running interface that is no NIC; own addresses only */
    char name[STEPAF_NET_IF_NAME]; /* of the interface; own addresses only */
    uint8_t bytes[16];             /* network order; 4 of them for AF_INET */
};

struct stepaf_net_addresses {
    struct stepaf_net_address list[STEPAF_NET_ADDRESSES];
    unsigned n;
};

/* List this host's addresses that @a net_if admits: the name of an interface, a subnet such as
 * 10.1.0.0/16 or fd00::/64, or "" for all. Interfaces that are down and link-local addresses are
 * left out; aliases and bonds are interfaces like others. The likely addresses come first:
 *
 *    - loopback, which only ranks of the same network try
 *    - NICs
 *    - others that have a carrier
 *    - bridges, which are often numbered alike on all hosts
 *    - interfaces without a carrier
 *
 * If there are more than STEPAF_NET_ADDRESSES, the last are left out with a warning. Returns
 * STEPAF_ERR_SETTING if @a net_if is no subnet and names no interface, or admits no address;
 * STEPAF_ERR_TRANSPORT if the system provides no list. */
stepaf_status_t stepaf_net_addresses_own(const char *net_if, struct stepaf_net_addresses *own_p);

/* Return a number for the kernel that this process runs under; 0 if the system does not tell. */
uint64_t stepaf_net_kernel_id(void);
/* Return a number for the network namespace and the kernel of this process; 0 if the system does
 * not tell. */
uint64_t stepaf_net_network_id(void);

static inline unsigned stepaf_net_address_bytes(int family)
{
    return family == AF_INET ? 4 : 16;
}

static inline bool stepaf_net_same_bits(const uint8_t *one, const uint8_t *other, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(one, other, whole))
        return false;
    return !rest || (one[whole] ^ other[whole]) >> (8 - rest) == 0;
}

#endif
