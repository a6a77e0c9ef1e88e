/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env_text.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/why.h"
#include "topo/sys.h"

enum { RANKS = 4 };

enum stepaf_tcp_network stepaf_tcp_network_of(uint64_t own_id, uint64_t their_id, bool same_node)
{
    if (own_id && their_id)
        return own_id == their_id ? STEPAF_TCP_SAME_NETWORK : STEPAF_TCP_OTHER_NETWORK;
    return same_node ? STEPAF_TCP_SAME_NETWORK : STEPAF_TCP_UNKNOWN_NETWORK;
}

/* Return how late to try an address; RANKS: never. */
static int rank_of(const struct stepaf_net_addresses *own, enum stepaf_tcp_network network,
                   const struct stepaf_net_address *address)
{
    int rank = 2;

    if (address->loopback)
        return network == STEPAF_TCP_SAME_NETWORK ? 0 : RANKS;
    for (unsigned i = 0; i < own->n; i++) {
        const struct stepaf_net_address *mine = &own->list[i];
        if (mine->family != address->family)
            continue;
        if (!memcmp(mine->bytes, address->bytes, stepaf_net_address_bytes(mine->family)))
            return network == STEPAF_TCP_OTHER_NETWORK ? RANKS : 3;
        if (!mine->loopback && mine->prefix &&
            stepaf_net_same_bits(mine->bytes, address->bytes, mine->prefix))
            rank = 1;
    }
    return rank;
}

void stepaf_tcp_addresses_order(const struct stepaf_net_addresses *own,
                                enum stepaf_tcp_network network,
                                struct stepaf_net_addresses *theirs)
{
    struct stepaf_net_addresses ordered = {.n = 0};

    for (int rank = 0; rank < RANKS; rank++)
        for (unsigned i = 0; i < theirs->n; i++)
            if (rank_of(own, network, &theirs->list[i]) == rank)
                ordered.list[ordered.n++] = theirs->list[i];
    *theirs = ordered;
}

void stepaf_tcp_addresses_pack(const struct stepaf_net_addresses *addresses,
                               struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, addresses->n);
    for (unsigned i = 0; i < addresses->n; i++) {
        const struct stepaf_net_address *address = &addresses->list[i];
        stepaf_pack_u32(pack, (address->family == AF_INET6 ? 6u : 4u) | address->loopback << 8);
        stepaf_pack_bytes(pack, address->bytes, stepaf_net_address_bytes(address->family));
    }
}

bool stepaf_tcp_addresses_unpack(struct stepaf_unpack *unpack,
                                 struct stepaf_net_addresses *addresses_p)
{
    struct stepaf_net_addresses addresses = {.n = stepaf_unpack_u32(unpack)};

    if (unpack->failed || addresses.n > STEPAF_NET_ADDRESSES)
        return false;
    for (unsigned i = 0; i < addresses.n; i++) {
        uint32_t kind = stepaf_unpack_u32(unpack);
        struct stepaf_net_address *address = &addresses.list[i];
        if ((kind & 0xff) != 4 && (kind & 0xff) != 6)
            return false;
        address->family = (kind & 0xff) == 6 ? AF_INET6 : AF_INET;
        address->loopback = kind >> 8 & 1;
        const void *bytes = stepaf_unpack_bytes(unpack, stepaf_net_address_bytes(address->family));
        if (!bytes)
            return false;
        memcpy(address->bytes, bytes, stepaf_net_address_bytes(address->family));
    }
    if (unpack->failed)
        return false;
    *addresses_p = addresses;
    return true;
}

socklen_t stepaf_tcp_address_socket(const struct stepaf_net_address *address, uint16_t port,
                                    struct sockaddr_storage *storage_p)
{
    memset(storage_p, 0, sizeof(*storage_p));
    if (address->family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)storage_p;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)storage_p;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, address->bytes, 16);
    return sizeof(*in6);
}

void stepaf_tcp_address_text(const struct stepaf_net_address *address, uint16_t port,
                             char text_p[static STEPAF_TCP_ADDRESS_TEXT])
{
    char text[INET6_ADDRSTRLEN] = "?";

    inet_ntop(address->family, address->bytes, text, sizeof(text));
    snprintf(text_p, STEPAF_TCP_ADDRESS_TEXT, address->family == AF_INET6 ? "[%s]:%u" : "%s:%u",
             text, port);
}

/* Find the address of the socket's own end; an IPv4 address even if the socket is IPv6. */
static bool own_end(int fd, struct stepaf_net_address *address_p)
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof(name);
    const uint8_t *bytes;

    if (getsockname(fd, (struct sockaddr *)&name, &length))
        return false;
    address_p->family = (uint8_t)name.ss_family;
    if (name.ss_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)&name)->sin_addr;
    } else if (name.ss_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)&name)->sin6_addr;
        bytes = in6->s6_addr;
        if (IN6_IS_ADDR_V4MAPPED(in6)) {
            address_p->family = AF_INET;
            bytes += 12;
        }
    } else {
        return false;
    }
    memcpy(address_p->bytes, bytes, stepaf_net_address_bytes(address_p->family));
    return true;
}

void stepaf_tcp_address_own(int fd, char *text_p, size_t capacity)
{
    struct stepaf_net_address address = {0};

    if (!own_end(fd, &address) ||
        !inet_ntop(address.family, address.bytes, text_p, (socklen_t)capacity))
        text_p[0] = '\0';
}

const char *stepaf_tcp_interface_of(int fd, const struct stepaf_net_addresses *own)
{
    struct stepaf_net_address address = {0};

    if (!own_end(fd, &address))
        return "?";
    for (unsigned i = 0; i < own->n; i++)
        if (own->list[i].family == address.family &&
            !memcmp(own->list[i].bytes, address.bytes, stepaf_net_address_bytes(address.family)))
            return own->list[i].name;
    return "?";
}
