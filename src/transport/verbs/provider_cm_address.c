/* SPDX-License-Identifier: Apache-2.0 */
/* IP addresses of RDMA ports, through librdmacm. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <string.h>

#include "transport/verbs/provider_cm.h"

enum { ETHERNET_BYTES = 6, IPOIB_BYTES = 20 };

static const uint8_t ipv4_mapped[12] = {[10] = 0xff, [11] = 0xff};

void stepaf_verbs_cm_to_socket(const union ibv_gid *address, uint16_t port,
                               struct sockaddr_storage *storage_p)
{
    struct sockaddr_in *ipv4 = (struct sockaddr_in *)storage_p;
    struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)storage_p;

    memset(storage_p, 0, sizeof(*storage_p));
    if (stepaf_verbs_is_ipv4(address)) {
        ipv4->sin_family = AF_INET;
        ipv4->sin_port = htons(port);
        memcpy(&ipv4->sin_addr, address->raw + sizeof(ipv4_mapped), sizeof(ipv4->sin_addr));
    } else {
        ipv6->sin6_family = AF_INET6;
        ipv6->sin6_port = htons(port);
        memcpy(&ipv6->sin6_addr, address->raw, sizeof(ipv6->sin6_addr));
    }
}

/* Convert an address that peers can use: neither loopback nor link-local. */
static bool to_address(const struct sockaddr *socket, union ibv_gid *address_p)
{
    const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)socket;
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)socket;

    if (socket && socket->sa_family == AF_INET) {
        memcpy(address_p->raw, ipv4_mapped, sizeof(ipv4_mapped));
        memcpy(address_p->raw + sizeof(ipv4_mapped), &ipv4->sin_addr, sizeof(ipv4->sin_addr));
        return true;
    }
    if (!socket || socket->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr))
        return false;
    memcpy(address_p->raw, &ipv6->sin6_addr, sizeof(address_p->raw));
    return true;
}

bool stepaf_verbs_cm_is_on(const struct rdma_cm_id *id, const struct ibv_context *context,
                           uint8_t port)
{
    return id->verbs && id->port_num == port &&
           !strcmp(ibv_get_device_name(id->verbs->device), ibv_get_device_name(context->device));
}

/* Return whether the address belongs to the port: binding to an address shows its device. */
static bool belongs(struct rdma_event_channel *channel, const union ibv_gid *address,
                    const struct ibv_context *context, uint8_t port)
{
    struct sockaddr_storage storage;
    struct rdma_cm_id *id;
    bool does;

    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
        return false;
    stepaf_verbs_cm_to_socket(address, 0, &storage);
    does = !rdma_bind_addr(id, (struct sockaddr *)&storage) &&
           stepaf_verbs_cm_is_on(id, context, port);
    (void)rdma_destroy_id(id);
    return does;
}

/* Return whether an interface appears to belong to the port: the GID of an iWARP port begins with
 * its interface's hardware address, and the hardware address of IP over InfiniBand ends with the
 * GID. */
static bool seems_own(const struct ifaddrs *list, const char *name, const union ibv_gid *gid)
{
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        const struct sockaddr_ll *hardware = (const struct sockaddr_ll *)at->ifa_addr;
        if (!hardware || hardware->sll_family != AF_PACKET || strcmp(at->ifa_name, name) != 0)
            continue;
        if (hardware->sll_halen == ETHERNET_BYTES)
            return !memcmp(hardware->sll_addr, gid->raw, ETHERNET_BYTES);
        /* the kernel's structure is longer than its C declaration */
        return hardware->sll_halen == IPOIB_BYTES &&
               !memcmp((const uint8_t *)hardware + offsetof(struct sockaddr_ll, sll_addr) +
                           IPOIB_BYTES - sizeof(gid->raw),
                       gid->raw, sizeof(gid->raw));
    }
    return false;
}

/* librdmacm keeps a device open after it has bound to it: the likely device comes first, so that
 * librdmacm need not touch the others. */
int stepaf_verbs_cm_address(struct rdma_event_channel *channel, struct ibv_context *context,
                            uint8_t port, union ibv_gid *address_p)
{
    static const int families[] = {AF_INET, AF_INET6};
    union ibv_gid gid = {.raw = {0}};
    struct ifaddrs *list;
    bool found = false;

    (void)ibv_query_gid(context, port, 0, &gid);
    if (getifaddrs(&list))
        return errno;
    for (int pass = 0; pass < 4; pass++)
        for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next)
            found = at->ifa_addr && at->ifa_addr->sa_family == families[pass % 2] &&
                    (at->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP &&
                    seems_own(list, at->ifa_name, &gid) == (pass < 2) &&
                    to_address(at->ifa_addr, address_p) &&
                    belongs(channel, address_p, context, port);
    freeifaddrs(list);
    return found ? 0 : ENODEV;
}
