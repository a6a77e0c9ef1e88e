/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: what settings and announcements say, and in what order peers are tried. */
#define _GNU_SOURCE 1 /* RTLD_NEXT */

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/tcp/address.h"
#include "unit.h"

static struct stepaf_net_address address(const char *text, unsigned prefix, bool loopback)
{
    struct stepaf_net_address made = {.prefix = (uint8_t)prefix, .loopback = loopback};

    made.family = strchr(text, ':') ? AF_INET6 : AF_INET;
    CU_ASSERT_EQUAL_FATAL(inet_pton(made.family, text, made.bytes), 1);
    return made;
}

static void interfaces_are_chosen(void)
{
    static const struct {
        const char *net_if;
        const char *trouble; /* NULL: at least one address, all of loopback */
    } cases[] = {
        {"lo", NULL},
        {"127.0.0.0/8", NULL},
        {"127.0.0.1/32", NULL},
        {"126.0.0.0/7", NULL},
        {"nosuchif0", "is not an interface of this host"},
        {"l", "is not an interface of this host"},
        {"127.0.0.1", "is not an interface of this host"},
        {"203.0.113.0/24", "contains no address of this host"},
        {"2001:db8::/32", "contains no address of this host"},
        {"127.0.0.2/32", "contains no address of this host"},
        {"/", "is not a subnet"},
        {"/8", "is not a subnet"},
        {"127.0.0.0/", "is not a subnet"},
        {"127.0.0.0/33", "is not a subnet"},
        {"127.0.0.0/-1", "is not a subnet"},
        {"127.0.0.0/ 8", "is not a subnet"},
        {"127.0.0.0/8x", "is not a subnet"},
        {"127.0.0/8", "is not a subnet"},
        {"127.0.0.0.0/8", "is not a subnet"},
        {"::1/129", "is not a subnet"},
        {":::/8", "is not a subnet"},
        {"lo/8", "is not a subnet"},
        {"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb/8", "is not a subnet"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stepaf_net_addresses own = {.n = 99};
        stepaf_status_t status = stepaf_net_addresses_own(cases[i].net_if, &own);
        if (cases[i].trouble) {
            CU_ASSERT(status == STEPAF_ERR_SETTING && own.n == 99);
            UNIT_CONTAINS(stepaf_last_error()->text, cases[i].trouble);
            UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_NET_IF");
            continue;
        }
        CU_ASSERT(status == STEPAF_OK && own.n >= 1 && own.n <= STEPAF_NET_ADDRESSES);
        for (unsigned k = 0; k < own.n && own.n != 99; k++) {
            CU_ASSERT_TRUE(own.list[k].loopback);
            UNIT_STRING(own.list[k].name, "lo");
        }
    }
}

static void all_interfaces_hold_no_link_local_address(void)
{
    struct stepaf_net_addresses own;

    CU_ASSERT_EQUAL(stepaf_net_addresses_own("", &own), STEPAF_OK);
    for (unsigned i = 0; i < own.n; i++)
        CU_ASSERT(own.list[i].family == AF_INET || own.list[i].bytes[0] != 0xfe ||
                  (own.list[i].bytes[1] & 0xc0) != 0x80);
}

static void peers_addresses_are_ordered(void)
{
    struct stepaf_net_addresses own = {.n = 4};
    struct stepaf_net_addresses theirs = {.n = 7}, kept;
    /* By network: another one, the same, unknown. */
    static const char *const expected[3][8] = {
        {"10.1.9.9:9", "[fd00::9]:9", "192.0.2.7:9", "[2001:db8::7]:9"},
        {"127.0.0.1:9", "10.1.9.9:9", "[fd00::9]:9", "192.0.2.7:9", "[2001:db8::7]:9",
         "10.1.2.128:9", "172.17.0.1:9"},
        {"10.1.9.9:9", "[fd00::9]:9", "192.0.2.7:9", "[2001:db8::7]:9", "10.1.2.128:9",
         "172.17.0.1:9"},
    };
    char text[STEPAF_TCP_ADDRESS_TEXT];

    own.list[0] = address("127.0.0.1", 8, true);
    own.list[1] = address("10.1.2.128", 16, false);
    own.list[2] = address("172.17.0.1", 16, false);
    own.list[3] = address("fd00::1", 64, false);
    theirs.list[0] = address("192.0.2.7", 0, false);  /* by a route */
    theirs.list[1] = address("10.1.2.128", 0, false); /* my own numbers: last, or never */
    theirs.list[2] = address("127.0.0.1", 0, true);
    theirs.list[3] = address("10.1.9.9", 0, false);
    theirs.list[4] = address("2001:db8::7", 0, false);
    theirs.list[5] = address("172.17.0.1", 0, false);
    theirs.list[6] = address("fd00::9", 0, false);
    kept = theirs;
    for (int network = 0; network < 3; network++) {
        unsigned n = 0;
        while (expected[network][n])
            n++;
        theirs = kept;
        stepaf_tcp_addresses_order(&own, (enum stepaf_tcp_network)network, &theirs);
        CU_ASSERT_EQUAL_FATAL(theirs.n, n);
        for (unsigned i = 0; i < n; i++) {
            stepaf_tcp_address_text(&theirs.list[i], 9, text);
            UNIT_STRING(text, expected[network][i]);
        }
    }
}

static void networks_are_told_apart(void)
{
    uint64_t id = stepaf_net_network_id();

    CU_ASSERT(id != 0 && id == stepaf_net_network_id());
    CU_ASSERT_EQUAL(stepaf_tcp_network_of(id, id, false), STEPAF_TCP_SAME_NETWORK);
    CU_ASSERT_EQUAL(stepaf_tcp_network_of(id, id + 1, true), STEPAF_TCP_OTHER_NETWORK);
    CU_ASSERT_EQUAL(stepaf_tcp_network_of(0, id, true), STEPAF_TCP_SAME_NETWORK);
    CU_ASSERT_EQUAL(stepaf_tcp_network_of(id, 0, false), STEPAF_TCP_UNKNOWN_NETWORK);
}

/* The system's list, as the test likes it. */
static struct ifaddrs *system_list;

int getifaddrs(struct ifaddrs **list_p)
{
    int (*real)(struct ifaddrs **) =
        (int (*)(struct ifaddrs **))(uintptr_t)dlsym(RTLD_NEXT, "getifaddrs");

    *list_p = system_list;
    return system_list ? 0 : real(list_p);
}

void freeifaddrs(struct ifaddrs *list)
{
    void (*real)(struct ifaddrs *) =
        (void (*)(struct ifaddrs *))(uintptr_t)dlsym(RTLD_NEXT, "freeifaddrs");

    if (list != system_list)
        real(list);
}

/* However many interfaces are in front of it, the likely address is told, and first. */
static void the_likely_addresses_come_first(void)
{
    enum { N = STEPAF_NET_ADDRESSES + 40 };
    static struct ifaddrs list[N];
    static struct sockaddr_in in[N];
    static char names[N][24];
    struct stepaf_net_addresses own;

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "nosuch%d", i);
        in[i] = (struct sockaddr_in){.sin_family = AF_INET};
        in[i].sin_addr.s_addr = htonl(0x0a000001 + (uint32_t)i);
        list[i] = (struct ifaddrs){.ifa_next = i + 1 < N ? &list[i + 1] : NULL,
                                   .ifa_name = names[i],
                                   .ifa_flags = IFF_UP,
                                   .ifa_addr = (struct sockaddr *)&in[i]};
    }
    in[N - 1].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    list[N - 1].ifa_flags |= IFF_LOOPBACK | IFF_RUNNING;
    list[N - 4].ifa_flags |= IFF_LOOPBACK | IFF_RUNNING; /* a router's */
    in[N - 6].sin_addr.s_addr = htonl(0xa9fe0001);       /* link-local */
    list[N - 6].ifa_flags |= IFF_RUNNING;
    list[N - 2].ifa_flags |= IFF_RUNNING;
    list[N - 5].ifa_flags |= IFF_RUNNING;
    system_list = list;
    CU_ASSERT_EQUAL(stepaf_net_addresses_own("", &own), STEPAF_OK);
    CU_ASSERT_EQUAL(own.n, STEPAF_NET_ADDRESSES);
    UNIT_STRING(own.list[0].name, names[N - 1]);
    UNIT_STRING(own.list[1].name, names[N - 5]);
    UNIT_STRING(own.list[2].name, names[N - 2]);
    for (unsigned i = 3; i < own.n; i++)
        UNIT_STRING(own.list[i].name, names[i - 3]);
    CU_ASSERT_TRUE(own.list[0].loopback);
    CU_ASSERT_EQUAL(stepaf_net_addresses_own(names[N - 3], &own), STEPAF_OK);
    CU_ASSERT_EQUAL(own.n, 1);
    CU_ASSERT_EQUAL(stepaf_net_addresses_own(names[N - 4], &own), STEPAF_OK);
    CU_ASSERT(own.n == 1 && !own.list[0].loopback);
    system_list = NULL;
}

/* A prefix ends at any bit, not only between bytes. */
static void subnets_end_at_any_bit(void)
{
    static const struct {
        const char *mine, *first;
        unsigned prefix;
    } cases[] = {
        {"10.1.2.3", "10.1.2.2", 31}, {"10.1.2.3", "10.1.3.3", 23},   {"10.1.2.3", "10.0.2.3", 15},
        {"10.1.2.3", "11.9.9.9", 7},  {"10.1.2.3", "10.1.2.131", 24}, {"fd00::1", "fd00::3", 126},
        {"fd00::1", "fc00::1", 7},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned more = 0; more < 2; more++) {
            struct stepaf_net_addresses own = {.n = 1}, theirs = {.n = 2};
            bool six = strchr(cases[i].mine, ':');
            own.list[0] = address(cases[i].mine, cases[i].prefix + more, false);
            theirs.list[0] = address(six ? "2001:db8::1" : "192.0.2.1", 0, false);
            theirs.list[1] = address(cases[i].first, 0, false);
            struct stepaf_net_address expected = theirs.list[!more];
            bool is_edge = i != 4; /* there, one more bit makes no difference either */
            stepaf_tcp_addresses_order(&own, STEPAF_TCP_OTHER_NETWORK, &theirs);
            if (more && !is_edge)
                continue;
            CU_ASSERT_EQUAL(memcmp(&theirs.list[0], &expected, sizeof expected), 0);
        }
}

static void announcements_survive_the_wire(void)
{
    struct stepaf_net_addresses own = {.n = STEPAF_NET_ADDRESSES}, read = {.n = 77};
    struct stepaf_pack pack = {0};

    for (unsigned i = 0; i < own.n; i++)
        own.list[i] =
            i % 2 ? address("fd00::1", 0, i % 3 == 0) : address("10.0.0.1", 0, i % 3 == 0);
    stepaf_tcp_addresses_pack(&own, &pack);
    for (size_t bytes = 0; bytes < pack.bytes; bytes++) {
        struct stepaf_unpack cut = stepaf_unpack_from(pack.data, bytes);
        CU_ASSERT_FALSE(stepaf_tcp_addresses_unpack(&cut, &read));
        CU_ASSERT_EQUAL(read.n, 77);
    }
    struct stepaf_unpack whole = stepaf_unpack_from(pack.data, pack.bytes);
    CU_ASSERT_TRUE(stepaf_tcp_addresses_unpack(&whole, &read));
    CU_ASSERT_EQUAL(memcmp(&own, &read, sizeof own), 0);
    pack.data[0] = STEPAF_NET_ADDRESSES + 1;
    whole = stepaf_unpack_from(pack.data, pack.bytes);
    CU_ASSERT_FALSE(stepaf_tcp_addresses_unpack(&whole, &read));
    pack.data[0] = 1;
    pack.data[4] = 5; /* IP of a kind that is not */
    whole = stepaf_unpack_from(pack.data, pack.bytes);
    CU_ASSERT_FALSE(stepaf_tcp_addresses_unpack(&whole, &read));
    free(pack.data);
}

static void socket_addresses_are_made(void)
{
    struct stepaf_net_address four = address("10.1.2.3", 0, false);
    struct stepaf_net_address six = address("fd00::7", 0, false);
    struct sockaddr_storage storage;

    CU_ASSERT_EQUAL(stepaf_tcp_address_socket(&four, 4711, &storage), sizeof(struct sockaddr_in));
    const struct sockaddr_in *in = (const struct sockaddr_in *)&storage;
    CU_ASSERT(in->sin_family == AF_INET && in->sin_port == htons(4711) &&
              in->sin_addr.s_addr == htonl(0x0a010203));
    CU_ASSERT_EQUAL(stepaf_tcp_address_socket(&six, 1, &storage), sizeof(struct sockaddr_in6));
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&storage;
    CU_ASSERT(in6->sin6_family == AF_INET6 && in6->sin6_port == htons(1) &&
              !memcmp(&in6->sin6_addr, six.bytes, 16));
}

/* A listener for both kinds of address writes those of IPv4 as a socket of IPv4 does. */
static void own_addresses_are_written_one_way(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(any);
    char text[STEPAF_TCP_ADDRESS_TEXT] = "";
    int off = 0, listener = socket(AF_INET6, SOCK_STREAM, 0),
        call = socket(AF_INET, SOCK_STREAM, 0);

    if (listener < 0) {
        printf("\n    SKIP: no IPv6 here: %s", strerror(errno));
        close(call);
        return;
    }
    (void)setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    CU_ASSERT_FATAL(!bind(listener, (struct sockaddr *)&any, sizeof(any)) && !listen(listener, 1) &&
                    !getsockname(listener, (struct sockaddr *)&any, &bytes));
    to.sin_port = any.sin6_port;
    CU_ASSERT_FATAL(!connect(call, (struct sockaddr *)&to, sizeof(to)));
    int accepted = accept(listener, NULL, NULL);
    stepaf_tcp_address_own(accepted, text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, "127.0.0.1");
    stepaf_tcp_address_own(call, text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, "127.0.0.1");
    stepaf_tcp_address_own(-1, text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, "");
    close(accepted);
    close(listener);
    close(call);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"interfaces are chosen", interfaces_are_chosen},
        {"all interfaces hold no link-local address", all_interfaces_hold_no_link_local_address},
        {"peers' addresses are ordered", peers_addresses_are_ordered},
        {"networks are told apart", networks_are_told_apart},
        {"the likely addresses come first", the_likely_addresses_come_first},
        {"subnets end at any bit", subnets_end_at_any_bit},
        {"announcements survive the wire", announcements_survive_the_wire},
        {"socket addresses are made", socket_addresses_are_made},
        {"own addresses are written one way", own_addresses_are_written_one_way},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
