/* SPDX-License-Identifier: Apache-2.0 */
/* Where this rank can be called by members, as its hello says it, and where others can. */
#ifndef STEPAF_BOOT_CONSENSUS_ADDRESS_H
#define STEPAF_BOOT_CONSENSUS_ADDRESS_H

#include "base/pack.h"

struct stepaf_control_address;

enum { STEPAF_CONSENSUS_ADDRESSES = 8 };

struct stepaf_consensus_addresses {
    uint16_t port;       /* 0: it does not listen */
    uint8_t n;           /* addresses other than loopback */
    uint64_t network_id; /* of the host's network, or the container's; 0: not known */
    uint8_t bytes[STEPAF_CONSENSUS_ADDRESSES][16]; /* IPv6, or IPv4 as IPv6 has it */
};

/* Those of this host that a setting such as STEPAF_NET_IF leaves. */
void stepaf_consensus_addresses_own(const char *net_if, struct stepaf_consensus_addresses *own_p);
void stepaf_consensus_addresses_pack(const struct stepaf_consensus_addresses *addresses,
                                     struct stepaf_pack *pack);
bool stepaf_consensus_addresses_read(struct stepaf_unpack *unpack,
                                     struct stepaf_consensus_addresses *addresses_p);

/* The @a at-th place to call, loopback first where both are in one network; false: there is
 * none. */
bool stepaf_consensus_address_at(const struct stepaf_consensus_addresses *own,
                                 const struct stepaf_consensus_addresses *theirs, unsigned at,
                                 struct stepaf_control_address *address_p);

#endif
