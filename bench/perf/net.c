/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "kernel.h"

static unsigned bits_of(uint16_t family)
{
    return family == AF_INET ? 32 : 128;
}

int perf_net_parse(const char *text, struct perf_net_address *network_p)
{
    struct perf_net_address network = {.family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET};
    const char *slash = strchr(text, '/');
    char address[INET6_ADDRSTRLEN];
    size_t length = slash != NULL ? (size_t)(slash - text) : strlen(text);
    unsigned long bits = bits_of(network.family);

    if (length >= sizeof(address))
        return -1;
    memcpy(address, text, length);
    address[length] = '\0';
    if (slash != NULL) {
        char *end;

        /* strtoul would accept signs and spaces as well. */
        if (slash[1] < '0' || slash[1] > '9')
            return -1;
        errno = 0;
        bits = strtoul(slash + 1, &end, 10);
        if (errno != 0 || *end != '\0' || bits > bits_of(network.family))
            return -1;
    }
    if (inet_pton(network.family, address, network.bytes) != 1)
        return -1;
    network.prefix_bits = (uint16_t)bits;
    *network_p = network;
    return 0;
}

int perf_net_within(const struct perf_net_address *address, const struct perf_net_address *network)
{
    unsigned whole = network->prefix_bits / 8u;
    unsigned rest = network->prefix_bits % 8u;

    if (address->family != network->family || memcmp(address->bytes, network->bytes, whole) != 0)
        return 0;
    return rest == 0 || (address->bytes[whole] ^ network->bytes[whole]) >> (8u - rest) == 0;
}

/* Count the leading ones of a netmask. */
static uint16_t count_bits(const uint8_t *mask, size_t bytes)
{
    unsigned bits = 0;

    while (bits < 8 * bytes && (mask[bits / 8] >> (7 - bits % 8) & 1) != 0)
        bits++;
    return (uint16_t)bits;
}

/* Returns false if it is not an address at which a rank could be reached. */
static int read_address(const struct ifaddrs *entry, struct perf_net_address *address_p)
{
    struct perf_net_address address = {0};

    if (entry->ifa_addr == NULL || entry->ifa_netmask == NULL || (entry->ifa_flags & IFF_UP) == 0)
        return 0;
    address.family = entry->ifa_addr->sa_family;
    if (address.family == AF_INET) {
        const struct sockaddr_in *in = (const void *)entry->ifa_addr;
        const struct sockaddr_in *mask = (const void *)entry->ifa_netmask;

        memcpy(address.bytes, &in->sin_addr, 4);
        address.prefix_bits = count_bits((const uint8_t *)&mask->sin_addr, 4);
    } else if (address.family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)entry->ifa_addr;
        const struct sockaddr_in6 *mask = (const void *)entry->ifa_netmask;

        if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr))
            return 0;
        memcpy(address.bytes, &in->sin6_addr, 16);
        address.prefix_bits = count_bits((const uint8_t *)&mask->sin6_addr, 16);
    } else {
        return 0;
    }
    *address_p = address;
    return 1;
}

static int is_admitted(const char *setting, const struct perf_net_address *network,
                       const struct ifaddrs *entry, const struct perf_net_address *address)
{
    if (setting[0] == '\0')
        return (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (network != NULL)
        return perf_net_within(address, network);
    return strcmp(entry->ifa_name, setting) == 0;
}

/* Whether 127.0.0.1 is an address of this host, which has none if it supports IPv6 alone. */
static int has_loopback(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int is_there = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (fd >= 0)
        close(fd);
    return is_there;
}

int perf_net_list(const char *setting, int one_node, struct perf_net *net_p)
{
    struct perf_net_address network;
    struct perf_net net = {.stack = perf_kernel_id("net")};
    struct ifaddrs *entries;
    int is_network = perf_net_parse(setting, &network) == 0;

    if (setting[0] == '\0' && one_node) {
        net.n = 1;
        perf_net_parse(has_loopback() ? "127.0.0.1" : "::1", &net.addresses[0]);
        *net_p = net;
        return 0;
    }
    if (getifaddrs(&entries) != 0)
        return perf_fail("getifaddrs: %s", strerror(errno));
    for (const struct ifaddrs *e = entries; e != NULL && net.n < PERF_NET_MAX; e = e->ifa_next) {
        struct perf_net_address address;

        if (read_address(e, &address) &&
            is_admitted(setting, is_network ? &network : NULL, e, &address))
            net.addresses[net.n++] = address;
    }
    freeifaddrs(entries);
    if (net.n == 0)
        return perf_fail("no interface that is up has an address%s%s",
                         setting[0] != '\0' ? " that STEPAF_NET_IF admits: " : "", setting);
    *net_p = net;
    return 0;
}

static int same_address(const struct perf_net_address *a, const struct perf_net_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

int perf_net_choose(const struct perf_net *from, const struct perf_net *to)
{
    int routed = -1;

    for (int t = 0; t < to->n; t++) {
        const struct perf_net_address *its = &to->addresses[t];

        for (int f = 0; f < from->n; f++) {
            const struct perf_net_address *mine = &from->addresses[f];

            if (its->family != mine->family ||
                (from->stack != to->stack && same_address(mine, its)))
                continue;
            if (perf_net_within(its, mine))
                return t;
            if (routed < 0)
                routed = t;
        }
    }
    return routed;
}

socklen_t perf_net_sockaddr(const struct perf_net_address *address, uint16_t port,
                            struct sockaddr_storage *sockaddr_p)
{
    memset(sockaddr_p, 0, sizeof(*sockaddr_p));
    if (address->family == AF_INET) {
        struct sockaddr_in *in = (void *)sockaddr_p;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in6 = (void *)sockaddr_p;

    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, address->bytes, 16);
    return sizeof(*in6);
}
