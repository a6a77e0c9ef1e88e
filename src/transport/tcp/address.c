/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
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

/* Own addresses as they are found, with how likely each is. */
struct ranked {
    struct stepaf_tcp_addresses addresses;
    int ranks[STEPAF_TCP_ADDRESSES];
};

static unsigned address_bytes(int family)
{
    return family == AF_INET ? 4 : 16;
}

static bool same_bits(const uint8_t *one, const uint8_t *other, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(one, other, whole))
        return false;
    return !rest || (one[whole] ^ other[whole]) >> (8 - rest) == 0;
}

/* An interface's address as ours; false if it is of no use. */
static bool take_interface(const struct ifaddrs *from, struct stepaf_tcp_address *address_p)
{
    struct stepaf_tcp_address address = {0};
    const uint8_t *mask = NULL;

    if (!from->ifa_addr || !(from->ifa_flags & IFF_UP))
        return false;
    address.family = (uint8_t)from->ifa_addr->sa_family;
    if (address.family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from->ifa_addr;
        memcpy(address.bytes, &in->sin_addr, 4);
        if (from->ifa_netmask)
            mask = (const uint8_t *)&((const struct sockaddr_in *)(const void *)from->ifa_netmask)
                       ->sin_addr;
    } else if (address.family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from->ifa_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
            return false;
        memcpy(address.bytes, &in6->sin6_addr, 16);
        if (from->ifa_netmask)
            mask = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)from->ifa_netmask)
                       ->sin6_addr;
    } else {
        return false;
    }
    for (unsigned i = 0; mask && i < address_bytes(address.family); i++)
        address.prefix = (uint8_t)(address.prefix + __builtin_popcount(mask[i]));
    address.loopback = from->ifa_flags & IFF_LOOPBACK;
    snprintf(address.name, sizeof(address.name), "%s", from->ifa_name);
    *address_p = address;
    return true;
}

/* How likely it is that others reach this host there: 0 is best. */
static int likelihood(const struct ifaddrs *at)
{
    static const char *const kinds[] = {"device", "bridge"};
    bool is_kind[2];
    char path[64];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/sys/class/net/%.15s/%s", at->ifa_name, kinds[i]);
        is_kind[i] = !access(path, F_OK);
    }
    if (at->ifa_flags & IFF_LOOPBACK)
        return 0;
    if (!(at->ifa_flags & IFF_RUNNING))
        return 4;
    return is_kind[0] ? 1 : is_kind[1] ? 3 : 2;
}

/* Put it behind those that are as likely. */
static void insert(struct ranked *ranked, const struct stepaf_tcp_address *address, int rank,
                   unsigned *n_p)
{
    struct stepaf_tcp_addresses *list = &ranked->addresses;
    unsigned at = list->n;

    ++*n_p;
    while (at > 0 && ranked->ranks[at - 1] > rank)
        at--;
    if (at == STEPAF_TCP_ADDRESSES)
        return;
    list->n += list->n < STEPAF_TCP_ADDRESSES;
    for (unsigned i = list->n - 1; i > at; i--) {
        list->list[i] = list->list[i - 1];
        ranked->ranks[i] = ranked->ranks[i - 1];
    }
    list->list[at] = *address;
    ranked->ranks[at] = rank;
}

static stepaf_status_t refuse_interface(const char *net_if, const char *what)
{
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT, "STEPAF_NET_IF: \"%.64s\" %s",
                            net_if, what);
}

stepaf_status_t stepaf_tcp_addresses_own(const char *net_if, struct stepaf_tcp_addresses *own_p)
{
    struct ranked own = {.addresses.n = 0};
    struct stepaf_tcp_address address;
    struct stepaf_env_subnet subnet;
    bool by_subnet = stepaf_env_subnet(net_if, &subnet), known = !net_if[0] || by_subnet;
    struct ifaddrs *all;
    unsigned n = 0;

    if (strchr(net_if, '/') && !by_subnet)
        return refuse_interface(net_if, "is no subnet such as 10.1.0.0/16 or fd00::/64");
    if (getifaddrs(&all))
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "tcp: no list of interfaces: %s", stepaf_why(errno));
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        known = known || !strcmp(net_if, at->ifa_name);
        if (!take_interface(at, &address))
            continue;
        if (by_subnet ? address.family == subnet.family &&
                            same_bits(address.bytes, subnet.bytes, subnet.prefix)
                      : !net_if[0] || !strcmp(net_if, address.name))
            insert(&own, &address, likelihood(at), &n);
    }
    freeifaddrs(all);
    if (!known)
        return refuse_interface(net_if, "is no interface of this host");
    if (!n && net_if[0])
        return refuse_interface(net_if, by_subnet ? "holds no address of this host that is up"
                                                  : "is down or has no address");
    if (n > own.addresses.n)
        stepaf_log_warn(
            "tcp: this host has %u addresses, of which peers are told %u; STEPAF_NET_IF "
            "chooses",
            n, own.addresses.n);
    *own_p = own.addresses;
    return STEPAF_OK;
}

uint64_t stepaf_tcp_kernel_id(void)
{
    char boot[64];
    int bytes = stepaf_sys_read(boot, sizeof(boot), "", "/proc/sys/kernel/random/boot_id");

    return bytes > 0 ? stepaf_hash(STEPAF_HASH_START, boot, (size_t)bytes) : 0;
}

uint64_t stepaf_tcp_network_id(void)
{
    char name[64];
    uint64_t kernel = stepaf_tcp_kernel_id();
    ssize_t linked = readlink("/proc/self/ns/net", name, sizeof(name));

    return kernel && linked > 0 ? stepaf_hash(kernel, name, (size_t)linked) : 0;
}

enum stepaf_tcp_network stepaf_tcp_network_of(uint64_t own_id, uint64_t their_id, bool same_node)
{
    if (own_id && their_id)
        return own_id == their_id ? STEPAF_TCP_SAME_NETWORK : STEPAF_TCP_OTHER_NETWORK;
    return same_node ? STEPAF_TCP_SAME_NETWORK : STEPAF_TCP_UNKNOWN_NETWORK;
}

/* How late to try an address; RANKS: never. */
static int rank_of(const struct stepaf_tcp_addresses *own, enum stepaf_tcp_network network,
                   const struct stepaf_tcp_address *address)
{
    int rank = 2;

    if (address->loopback)
        return network == STEPAF_TCP_SAME_NETWORK ? 0 : RANKS;
    for (unsigned i = 0; i < own->n; i++) {
        const struct stepaf_tcp_address *mine = &own->list[i];
        if (mine->family != address->family)
            continue;
        if (!memcmp(mine->bytes, address->bytes, address_bytes(mine->family)))
            return network == STEPAF_TCP_OTHER_NETWORK ? RANKS : 3;
        if (!mine->loopback && mine->prefix && same_bits(mine->bytes, address->bytes, mine->prefix))
            rank = 1;
    }
    return rank;
}

void stepaf_tcp_addresses_order(const struct stepaf_tcp_addresses *own,
                                enum stepaf_tcp_network network,
                                struct stepaf_tcp_addresses *theirs)
{
    struct stepaf_tcp_addresses ordered = {.n = 0};

    for (int rank = 0; rank < RANKS; rank++)
        for (unsigned i = 0; i < theirs->n; i++)
            if (rank_of(own, network, &theirs->list[i]) == rank)
                ordered.list[ordered.n++] = theirs->list[i];
    *theirs = ordered;
}

void stepaf_tcp_addresses_pack(const struct stepaf_tcp_addresses *addresses,
                               struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, addresses->n);
    for (unsigned i = 0; i < addresses->n; i++) {
        const struct stepaf_tcp_address *address = &addresses->list[i];
        stepaf_pack_u32(pack, (address->family == AF_INET6 ? 6u : 4u) | address->loopback << 8);
        stepaf_pack_bytes(pack, address->bytes, address_bytes(address->family));
    }
}

bool stepaf_tcp_addresses_unpack(struct stepaf_unpack *unpack,
                                 struct stepaf_tcp_addresses *addresses_p)
{
    struct stepaf_tcp_addresses addresses = {.n = stepaf_unpack_u32(unpack)};

    if (unpack->failed || addresses.n > STEPAF_TCP_ADDRESSES)
        return false;
    for (unsigned i = 0; i < addresses.n; i++) {
        uint32_t kind = stepaf_unpack_u32(unpack);
        struct stepaf_tcp_address *address = &addresses.list[i];
        if ((kind & 0xff) != 4 && (kind & 0xff) != 6)
            return false;
        address->family = (kind & 0xff) == 6 ? AF_INET6 : AF_INET;
        address->loopback = kind >> 8 & 1;
        const void *bytes = stepaf_unpack_bytes(unpack, address_bytes(address->family));
        if (!bytes)
            return false;
        memcpy(address->bytes, bytes, address_bytes(address->family));
    }
    if (unpack->failed)
        return false;
    *addresses_p = addresses;
    return true;
}

socklen_t stepaf_tcp_address_socket(const struct stepaf_tcp_address *address, uint16_t port,
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

void stepaf_tcp_address_text(const struct stepaf_tcp_address *address, uint16_t port,
                             char text_p[static STEPAF_TCP_ADDRESS_TEXT])
{
    char text[INET6_ADDRSTRLEN] = "?";

    inet_ntop(address->family, address->bytes, text, sizeof(text));
    snprintf(text_p, STEPAF_TCP_ADDRESS_TEXT, address->family == AF_INET6 ? "[%s]:%u" : "%s:%u",
             text, port);
}

void stepaf_tcp_address_own(int fd, char *text_p, size_t capacity)
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof(name);

    if (getsockname(fd, (struct sockaddr *)&name, &length) ||
        getnameinfo((struct sockaddr *)&name, length, text_p, (socklen_t)capacity, NULL, 0,
                    NI_NUMERICHOST))
        text_p[0] = '\0';
}

const char *stepaf_tcp_interface_of(int fd, const struct stepaf_tcp_addresses *own)
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof(name);
    const uint8_t *bytes;
    int family;

    if (getsockname(fd, (struct sockaddr *)&name, &length))
        return "?";
    family = name.ss_family;
    if (family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)&name)->sin_addr;
    } else {
        bytes = ((const struct sockaddr_in6 *)&name)->sin6_addr.s6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)&name)->sin6_addr)) {
            family = AF_INET;
            bytes += 12;
        }
    }
    for (unsigned i = 0; i < own->n; i++)
        if (own->list[i].family == family &&
            !memcmp(own->list[i].bytes, bytes, address_bytes(family)))
            return own->list[i].name;
    return "?";
}
