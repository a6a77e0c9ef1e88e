/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env_text.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/why.h"
#include "topo/sys.h"

/* Own addresses found so far, with the likelihood of each. */
struct ranked {
    struct stepaf_net_addresses addresses;
    int ranks[STEPAF_NET_ADDRESSES];
};

/* Return whether an address leads to no other host. Not all addresses of interface lo are such: if
 * hosts are routers, their own address is one of lo, and the addresses of their NICs are
 * link-local. */
static bool is_of_this_host(const struct stepaf_net_address *address)
{
    struct in6_addr in6;

    if (address->family == AF_INET)
        return address->bytes[0] == IN_LOOPBACKNET;
    memcpy(&in6, address->bytes, sizeof(in6));
    return IN6_IS_ADDR_LOOPBACK(&in6);
}

/* Return whether an address is one that a host gives itself if nobody assigns one. */
static bool is_makeshift(const struct stepaf_net_address *address)
{
    return address->family == AF_INET && address->bytes[0] == 169 && address->bytes[1] == 254;
}

/* Convert an interface's address. Returns false if it is of no use. */
static bool take_interface(const struct ifaddrs *from, struct stepaf_net_address *address_p)
{
    struct stepaf_net_address address = {0};
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
    for (unsigned i = 0; mask && i < stepaf_net_address_bytes(address.family); i++)
        address.prefix = (uint8_t)(address.prefix + __builtin_popcount(mask[i]));
    address.loopback = is_of_this_host(&address);
    snprintf(address.name, sizeof(address.name), "%s", from->ifa_name);
    *address_p = address;
    return true;
}

/* Return how likely other hosts reach this host at an address: 0 is best. Note whether the
 * interface runs and is no NIC. */
static int likelihood(const struct ifaddrs *at, struct stepaf_net_address *address)
{
    static const char *const kinds[] = {"device", "bridge"};
    bool is_kind[2];
    char path[64];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/sys/class/net/%.15s/%s", at->ifa_name, kinds[i]);
        is_kind[i] = !access(path, F_OK);
    }
    if (address->loopback)
        return 0;
    if (!(at->ifa_flags & IFF_RUNNING) || at->ifa_flags & IFF_LOOPBACK || is_makeshift(address))
        return 4;
    address->is_spare = !is_kind[0];
    return is_kind[0] ? 1 : is_kind[1] ? 3 : 2;
}

/* Insert an address behind those that are as likely. */
static void insert(struct ranked *ranked, const struct stepaf_net_address *address, int rank,
                   unsigned *n_p)
{
    struct stepaf_net_addresses *list = &ranked->addresses;
    unsigned at = list->n;

    ++*n_p;
    while (at > 0 && ranked->ranks[at - 1] > rank)
        at--;
    if (at == STEPAF_NET_ADDRESSES)
        return;
    list->n += list->n < STEPAF_NET_ADDRESSES;
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

stepaf_status_t stepaf_net_addresses_own(const char *net_if, struct stepaf_net_addresses *own_p)
{
    struct ranked own = {.addresses.n = 0};
    struct stepaf_net_address address;
    struct stepaf_env_subnet subnet;
    bool by_subnet = stepaf_env_subnet(net_if, &subnet), known = !net_if[0] || by_subnet;
    struct ifaddrs *all;
    unsigned n = 0;

    if (strchr(net_if, '/') && !by_subnet)
        return refuse_interface(net_if, "is not a subnet such as 10.1.0.0/16 or fd00::/64");
    stepaf_fd_begin(); /* for the C library's own socket */
    int rc = getifaddrs(&all);
    (void)stepaf_fd_end(-1);
    if (rc)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "cannot list the network interfaces: %s", stepaf_why(errno));
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        known = known || !strcmp(net_if, at->ifa_name);
        if (!take_interface(at, &address))
            continue;
        if (by_subnet ? address.family == subnet.family &&
                            stepaf_net_same_bits(address.bytes, subnet.bytes, subnet.prefix)
                      : !net_if[0] || !strcmp(net_if, address.name))
            insert(&own, &address, likelihood(at, &address), &n);
    }
    freeifaddrs(all);
    if (!known)
        return refuse_interface(net_if, "is not an interface of this host");
    if (!n && net_if[0])
        return refuse_interface(net_if, by_subnet ? "contains no address of this host that is up"
                                                  : "is down or has no address");
    if (n > own.addresses.n)
        stepaf_log_warn(
            "this host has %u addresses, of which peers get %u; set STEPAF_NET_IF to choose", n,
            own.addresses.n);
    *own_p = own.addresses;
    return STEPAF_OK;
}

uint64_t stepaf_net_kernel_id(void)
{
    char boot[64];
    int bytes = stepaf_sys_read(boot, sizeof(boot), "", "/proc/sys/kernel/random/boot_id");

    return bytes > 0 ? stepaf_hash(STEPAF_HASH_START, boot, (size_t)bytes) : 0;
}

uint64_t stepaf_net_network_id(void)
{
    char name[64];
    uint64_t kernel = stepaf_net_kernel_id();
    ssize_t linked = readlink("/proc/self/ns/net", name, sizeof(name));

    return kernel && linked > 0 ? stepaf_hash(kernel, name, (size_t)linked) : 0;
}
