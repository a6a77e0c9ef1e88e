/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/consensus/address.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/env_text.h"
#include "base/fd.h"
#include "base/hash.h"
#include "boot/control/socket.h"

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

/* As the control connections have it; false if others cannot reach it. */
static bool address_of(const struct ifaddrs *at, uint8_t *bytes_p)
{
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
        return false;
    if (at->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at->ifa_addr;
        memcpy(bytes_p, mapped_prefix, sizeof mapped_prefix);
        memcpy(bytes_p + sizeof mapped_prefix, &in->sin_addr, 4);
        return true;
    }
    if (at->ifa_addr->sa_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)at->ifa_addr;
    memcpy(bytes_p, &in6->sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

/* Whether the setting means this address: by its interface's name, or a subnet. */
static bool is_meant(const char *net_if, const struct ifaddrs *at, const uint8_t *bytes)
{
    bool is_v4 = memcmp(bytes, mapped_prefix, sizeof mapped_prefix) == 0;
    struct stepaf_env_subnet subnet;

    if (!net_if[0] || !strcmp(net_if, at->ifa_name))
        return true;
    if (!stepaf_env_subnet(net_if, &subnet) || subnet.family != (is_v4 ? AF_INET : AF_INET6))
        return false;
    const uint8_t *own = is_v4 ? bytes + sizeof mapped_prefix : bytes;
    unsigned whole = subnet.prefix / 8, rest = subnet.prefix % 8;
    return memcmp(own, subnet.bytes, whole) == 0 &&
           (!rest || (own[whole] ^ subnet.bytes[whole]) >> (8 - rest) == 0);
}

/* Which network of which kernel this process is in. */
static uint64_t find_network(void)
{
    char boot[64], space[64];
    int fd = stepaf_fd_open("/proc/sys/kernel/random/boot_id", O_RDONLY);
    ssize_t boot_bytes = fd >= 0 ? read(fd, boot, sizeof boot) : -1;
    ssize_t space_bytes = readlink("/proc/self/ns/net", space, sizeof space);

    if (fd >= 0)
        close(fd);
    if (boot_bytes <= 0 || space_bytes <= 0)
        return 0;
    return stepaf_hash(stepaf_hash(STEPAF_HASH_START, boot, (size_t)boot_bytes), space,
                       (size_t)space_bytes);
}

void stepaf_consensus_addresses_own(const char *net_if, struct stepaf_consensus_addresses *own_p)
{
    struct stepaf_consensus_addresses own = {.port = own_p->port, .network_id = find_network()};
    struct ifaddrs *all;

    stepaf_fd_begin(); /* for the library's own socket */
    int rc = getifaddrs(&all);
    (void)stepaf_fd_end(-1);
    if (rc == 0) {
        for (const struct ifaddrs *at = all; at && own.n < STEPAF_CONSENSUS_ADDRESSES;
             at = at->ifa_next)
            own.n += address_of(at, own.bytes[own.n]) && is_meant(net_if, at, own.bytes[own.n]);
        freeifaddrs(all);
    }
    *own_p = own;
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
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    bool is_near = own->network_id && own->network_id == theirs->network_id;
    struct stepaf_control_address address = {.scope = 0};

    if (is_near && at == 0) {
        memcpy(address.bytes, mapped_prefix, sizeof mapped_prefix);
        memcpy(address.bytes + sizeof mapped_prefix, loopback, sizeof loopback);
        *address_p = address;
        return true;
    }
    at -= is_near;
    if (at >= theirs->n)
        return false;
    memcpy(address.bytes, theirs->bytes[at], sizeof address.bytes);
    *address_p = address;
    return true;
}
