/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/consensus/address.h"

#include <string.h>

#include "base/log.h"
#include "boot/control/socket.h"
#include "topo/address.h"

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};
static const struct stepaf_control_address loopback = {
    .bytes = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

/* Convert an address to the form that the control connections use. */
static void as_v6(const struct stepaf_net_address *address, uint8_t bytes_p[16])
{
    bool is_v4 = address->family == AF_INET;

    memcpy(bytes_p, mapped_prefix, sizeof mapped_prefix);
    memcpy(bytes_p + (is_v4 ? sizeof mapped_prefix : 0), address->bytes,
           stepaf_net_address_bytes(address->family));
}

/* Return the last address to announce, from @a at on: the first that is no NIC's, if no earlier one
 * is. Where there are many NICs, the network by which hosts are managed may be a bond or a bridge. */
static unsigned choose_last(const struct stepaf_net_addresses *all, unsigned at)
{
    for (unsigned i = 0; i < at; i++)
        if (!all->list[i].loopback && all->list[i].is_spare)
            return at;
    for (unsigned i = at; i < all->n; i++)
        if (!all->list[i].loopback && all->list[i].is_spare)
            return i;
    return at;
}

void stepaf_consensus_addresses_pick(const struct stepaf_net_addresses *all,
                                     struct stepaf_consensus_addresses *own)
{
    unsigned n = 0;

    for (unsigned i = 0; i < all->n; i++)
        n += !all->list[i].loopback;
    for (unsigned i = 0; i < all->n && own->n < STEPAF_CONSENSUS_ADDRESSES; i++) {
        bool is_last = own->n == STEPAF_CONSENSUS_ADDRESSES - 1;
        if (!all->list[i].loopback)
            as_v6(&all->list[is_last ? choose_last(all, i) : i], own->bytes[own->n++]);
    }
    if (n > own->n)
        stepaf_log_info("members: this host has %u addresses, of which members get %u; set "
                        "STEPAF_NET_IF to choose",
                        n, own->n);
}

void stepaf_consensus_addresses_own(const char *net_if, struct stepaf_consensus_addresses *own_p)
{
    struct stepaf_consensus_addresses own = {.network_id = stepaf_net_network_id()};
    struct stepaf_net_addresses all;

    if (stepaf_net_addresses_own(net_if, &all))
        all.n = 0;            /* the transport that needs the addresses reports the error */
    if (net_if[0] && all.n) { /* one, as the transport tcp takes it */
        all.n = 1;
        own.network_id = all.list[0].loopback ? own.network_id : 0;
    }
    stepaf_consensus_addresses_pick(&all, &own);
    *own_p = own;
}

void stepaf_consensus_address_one(const struct stepaf_consensus_addresses *own,
                                  struct stepaf_control_address *address_p)
{
    *address_p = loopback;
    if (own->n)
        memcpy(address_p->bytes, own->bytes[0], sizeof address_p->bytes);
}

void stepaf_consensus_addresses_pack(const struct stepaf_consensus_addresses *addresses,
                                     struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, addresses->port);
    stepaf_pack_u32(pack, addresses->n);
    stepaf_pack_u64(pack, addresses->network_id);
    stepaf_pack_bytes(pack, addresses->bytes, addresses->n * sizeof addresses->bytes[0]);
}

bool stepaf_consensus_addresses_read(struct stepaf_unpack *unpack,
                                     struct stepaf_consensus_addresses *addresses_p)
{
    struct stepaf_consensus_addresses addresses = {0};
    uint32_t port = stepaf_unpack_u32(unpack), n = stepaf_unpack_u32(unpack);

    addresses.network_id = stepaf_unpack_u64(unpack);
    if (unpack->failed || port > UINT16_MAX || n > STEPAF_CONSENSUS_ADDRESSES)
        return false;
    addresses.port = (uint16_t)port;
    addresses.n = (uint8_t)n;
    const void *bytes = n ? stepaf_unpack_bytes(unpack, n * sizeof addresses.bytes[0]) : NULL;
    if (bytes)
        memcpy(addresses.bytes, bytes, n * sizeof addresses.bytes[0]);
    if (unpack->failed)
        return false;
    *addresses_p = addresses;
    return true;
}

bool stepaf_consensus_address_at(const struct stepaf_consensus_addresses *own,
                                 const struct stepaf_consensus_addresses *theirs, unsigned at,
                                 struct stepaf_control_address *address_p)
{
    bool is_near = own->network_id && own->network_id == theirs->network_id;
    struct stepaf_control_address address = {.scope = 0};

    if (is_near && at == 0) {
        *address_p = loopback;
        return true;
    }
    at -= is_near;
    if (at >= theirs->n)
        return false;
    memcpy(address.bytes, theirs->bytes[at], sizeof address.bytes);
    *address_p = address;
    return true;
}
