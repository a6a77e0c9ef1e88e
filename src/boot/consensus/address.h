/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses at which members can call this rank, as its hello gives them, and at which this rank
 * can call others. */
#ifndef STEPAF_BOOT_CONSENSUS_ADDRESS_H
#define STEPAF_BOOT_CONSENSUS_ADDRESS_H

#include "base/pack.h"

struct stepaf_control_address;
struct stepaf_net_addresses;

enum { STEPAF_CONSENSUS_ADDRESSES = 8 };

struct stepaf_consensus_addresses {
    uint16_t port; /* 0: the rank does not listen */
    uint8_t n;     /* addresses other than loopback */
    /* of the host's or the container's network; 0: not known, or it does not listen on loopback */
    uint64_t network_id;
    uint8_t bytes[STEPAF_CONSENSUS_ADDRESSES][16]; /* IPv6, or IPv4-mapped */
};

/* Add the addresses of a host to @a own, other than loopback, in their order. If there are too many,
 * the last is the first that is no NIC's, unless one of the others is. */
void stepaf_consensus_addresses_pick(const struct stepaf_net_addresses *all,
                                     struct stepaf_consensus_addresses *own);
/* Get the addresses of this host at which a rank listens: all, or the one that a setting such as
 * STEPAF_NET_IF selects; if that is loopback, or does not exist, loopback alone. The port is 0. */
void stepaf_consensus_addresses_own(const char *net_if, struct stepaf_consensus_addresses *own_p);
/* Get the one address at which a rank listens that does not listen at all. */
void stepaf_consensus_address_one(const struct stepaf_consensus_addresses *own,
                                  struct stepaf_control_address *address_p);
void stepaf_consensus_addresses_pack(const struct stepaf_consensus_addresses *addresses,
                                     struct stepaf_pack *pack);
bool stepaf_consensus_addresses_read(struct stepaf_unpack *unpack,
                                     struct stepaf_consensus_addresses *addresses_p);

/* Return the @a at-th address to call, loopback first if both ranks are in one network; returns
 * false if there is none. */
bool stepaf_consensus_address_at(const struct stepaf_consensus_addresses *own,
                                 const struct stepaf_consensus_addresses *theirs, unsigned at,
                                 struct stepaf_control_address *address_p);

#endif
