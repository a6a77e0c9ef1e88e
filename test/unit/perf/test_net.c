/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: addresses of the TCP floor, and the list of transports. */
#include <arpa/inet.h>
#include <string.h>

#include "bench/perf/links.h"
#include "bench/perf/net.h"
#include "unit.h"

static void parse(void)
{
    static const char *const bad[] = {"",
                                      "eth0",
                                      "10.0.0",
                                      "10.0.0.0/33",
                                      "10.0.0.0/",
                                      "10.0.0.0/-1",
                                      "10.0.0.0/ 8",
                                      "fd00::/129",
                                      "10.0.0.0/8x",
                                      "fd00::1::2",
                                      "10.0.0.0/99999999999999999999"};
    struct perf_net_address network = {.prefix_bits = 77};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_EQUAL(perf_net_parse(bad[i], &network), -1);
    CU_ASSERT_EQUAL(network.prefix_bits, 77);
    CU_ASSERT_EQUAL(perf_net_parse("10.77.0.0/24", &network), 0);
    CU_ASSERT_EQUAL(network.family, AF_INET);
    CU_ASSERT_EQUAL(network.prefix_bits, 24);
    CU_ASSERT_EQUAL(perf_net_parse("192.0.2.7", &network), 0);
    CU_ASSERT_EQUAL(network.prefix_bits, 32);
    CU_ASSERT_EQUAL(perf_net_parse("fd00::/8", &network), 0);
    CU_ASSERT_EQUAL(network.family, AF_INET6);
    CU_ASSERT_EQUAL(network.bytes[0], 0xfd);
}

static int within(const char *address, const char *network)
{
    struct perf_net_address a;
    struct perf_net_address n;

    CU_ASSERT_EQUAL_FATAL(perf_net_parse(address, &a) | perf_net_parse(network, &n), 0);
    return perf_net_within(&a, &n);
}

static void networks(void)
{
    CU_ASSERT(within("10.77.3.4", "10.77.0.0/16"));
    CU_ASSERT(!within("10.78.3.4", "10.77.0.0/16"));
    CU_ASSERT(within("10.77.3.4", "0.0.0.0/0"));
    CU_ASSERT(within("192.0.2.130", "192.0.2.128/25"));
    CU_ASSERT(!within("192.0.2.127", "192.0.2.128/25"));
    CU_ASSERT(within("192.0.2.7", "192.0.2.7/32"));
    CU_ASSERT(!within("fd00::1", "0.0.0.0/0"));
    CU_ASSERT(within("fd00:1::1", "fd00::/15"));
}

static struct perf_net net_of(uint64_t stack, const char *first, const char *second)
{
    struct perf_net net = {.n = second != NULL ? 2 : 1, .stack = stack};

    CU_ASSERT_EQUAL_FATAL(perf_net_parse(first, &net.addresses[0]), 0);
    if (second != NULL)
        CU_ASSERT_EQUAL_FATAL(perf_net_parse(second, &net.addresses[1]), 0);
    return net;
}

static void choose(void)
{
    struct perf_net one = net_of(1, "172.17.0.1/16", "10.0.0.1/24");
    struct perf_net two = net_of(2, "172.17.0.1/16", "10.0.0.2/24");
    struct perf_net far = net_of(3, "10.9.0.1/24", NULL);
    struct perf_net six = net_of(4, "fd00::1/64", NULL);

    CU_ASSERT_EQUAL(perf_net_choose(&one, &two), 1); /* not the bridge that both have */
    CU_ASSERT_EQUAL(perf_net_choose(&one, &one), 0);
    CU_ASSERT_EQUAL(perf_net_choose(&one, &far), 0);
    CU_ASSERT_EQUAL(perf_net_choose(&one, &six), -1);
}

static void list(void)
{
    struct perf_net net = {0};
    struct sockaddr_storage name;

    CU_ASSERT_EQUAL(perf_net_list("", 1, &net), 0);
    CU_ASSERT_EQUAL(net.n, 1);
    CU_ASSERT_EQUAL(perf_net_sockaddr(&net.addresses[0], 80, &name), sizeof(struct sockaddr_in));
    CU_ASSERT_EQUAL(((struct sockaddr_in *)&name)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    CU_ASSERT_EQUAL(((struct sockaddr_in *)&name)->sin_port, htons(80));
    CU_ASSERT_EQUAL(perf_net_list("no-such-interface", 0, &net), -1);
    CU_ASSERT_EQUAL(perf_net_list("203.0.113.0/32", 0, &net), -1);
    CU_ASSERT_EQUAL(net.n, 1);
}

static void links(void)
{
    CU_ASSERT(perf_links_have("tcp", "tcp"));
    CU_ASSERT(perf_links_have("shm,tcp", "tcp"));
    CU_ASSERT(perf_links_have("shm;cma + tcp;eth0", "tcp"));
    CU_ASSERT(perf_links_have("tcp;shm", "tcp"));
    CU_ASSERT(!perf_links_have("tcp;shm", "shm"));
    CU_ASSERT(!perf_links_have("tcpx", "tcp"));
    CU_ASSERT(!perf_links_have("", "tcp"));
    CU_ASSERT(!perf_links_have(" , + ", "tcp"));
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"parse", parse}, {"networks", networks}, {"choose", choose},
        {"list", list},   {"links", links},       CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
