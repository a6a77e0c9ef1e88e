/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses by which ranks reach each other, for the parts of the bench that use TCP directly.
 * Pure except perf_net_list. */
#ifndef PERF_NET_H
#define PERF_NET_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

enum { PERF_NET_MAX = 16 };

struct perf_net_address {
    uint16_t family; /* AF_INET or AF_INET6 */
    uint16_t prefix_bits;
    uint8_t bytes[16];
};

/* The addresses by which one rank may be reached, best first. */
struct perf_net {
    int n;
    uint64_t stack; /* equal for ranks that have exactly the same interfaces */
    struct perf_net_address addresses[PERF_NET_MAX];
};

/* Read "10.77.0.0/24", "fd00::/8" or a single address, which stands for itself. Returns -1
 * otherwise: the text may be the name of an interface then. */
int perf_net_parse(const char *text, struct perf_net_address *network_p);

/* Whether @a address is in @a network. */
int perf_net_within(const struct perf_net_address *address, const struct perf_net_address *network);

/* List this host's addresses of interfaces that are up, limited to those that @a setting
 * (STEPAF_NET_IF: name of an interface, or network) admits. An empty setting admits the loopback
 * address alone if @a one_node, else all that are neither loopback nor link-local. -1 with a
 * sentence if there is none. */
int perf_net_list(const char *setting, int one_node, struct perf_net *net_p);

/* Choose how a rank with @a from reaches one with @a to: the first address that is in a network
 * of @a from's; else, as there may be a router, the first of a family that both have. Hosts also
 * have private networks, for containers among others, with the same addresses everywhere: an
 * address that both have counts only where they have the same interfaces. Returns the index in
 * @a to, -1 if there is none. */
int perf_net_choose(const struct perf_net *from, const struct perf_net *to);

/* Make the address with @a port for connect or bind; return its length. */
socklen_t perf_net_sockaddr(const struct perf_net_address *address, uint16_t port,
                            struct sockaddr_storage *sockaddr_p);

#endif
