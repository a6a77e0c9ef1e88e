/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: who is connected and who is not, addresses that do not answer, settings that cannot be. */
#include <fcntl.h>

#include "base/error.h"
#include "tcp_dial.h"

static struct side c;

static void nothing_is_left_behind(void)
{
    int files = tcp_open_files();

    stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "from before");
    begin();
    tcp_join(&a, 0, &b, 0);
    CU_ASSERT(tcp_of(&b)->listener.fd < 0 && !a.n_lost && !b.n_lost);
    end();
    UNIT_STRING(stepaf_last_error()->text, "from before"); /* success is no failure */
    CU_ASSERT_EQUAL(tcp_open_files(), files);
}

static void several_peers_are_connected(void)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", "3");
    tcp_open(&a, true, 2);
    tcp_open(&b, false, 2);
    tcp_open(&c, false, 2);
    struct side *sides[] = {&a, &b, &c};
    CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 1, 0, NULL));
    CU_ASSERT_PTR_NULL(side_connect(&a, 1, &c, 0, 0, NULL));
    CU_ASSERT_PTR_NULL(side_connect(&b, 1, &a, 0, 0, NULL));
    CU_ASSERT_PTR_NULL(side_connect(&c, 0, &a, 1, 0, NULL));
    CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_QUEUED); /* not yet */
    CU_ASSERT_TRUE(tcp_until(sides, 3, a_is_up, NULL));
    while (!tcp_link(&a, 1)->up)
        for (int i = 0; i < 3; i++)
            side_progress(sides[i]);
    CU_ASSERT_EQUAL(side_say(&a, 0, 10), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(side_say(&a, 1, 20), STEPAF_POST_SENT);
    CU_ASSERT(tcp_until_messages(&a, &b, 1) && b.messages[0].seq == 10);
    CU_ASSERT(tcp_until_messages(&a, &c, 1) && c.messages[0].seq == 20);
    end();
    side_close(&c);
}

/* A peer that cannot even be dialled must not keep the others from being connected. */
static void one_peer_out_of_reach_is_no_harm(void)
{
    static const uint8_t nowhere[][4] = {{255, 255, 255, 255}};

    tcp_set_defaults();
    tcp_open(&a, true, 2);
    tcp_open(&b, false, 1);
    struct stepaf_pack pack = announcement(nowhere, 1, 9);
    CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 0, 0, &pack));
    free(pack.data);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "255.255.255.255:9");
    tcp_join(&a, 1, &b, 0);
    CU_ASSERT(tcp_of(&a)->n_direct <= STEPAF_TCP_DIRECT);
    CU_ASSERT_EQUAL(side_say(&a, 1, 5), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
    end();
}

/* A socket that is bound to @a port, of the kernel's choice if it is 0; -1: that one is taken. */
static int bind_port(uint16_t port, uint16_t *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    side_must(fd >= 0, "socket");
    if (bind(fd, (struct sockaddr *)&address, length)) {
        close(fd);
        return -1;
    }
    side_must(!getsockname(fd, (struct sockaddr *)&address, &length), "port");
    *port_p = ntohs(address.sin_port);
    return fd;
}

/* The port of a socket that has just been closed: nobody listens there. */
static uint16_t dead_port(void)
{
    uint16_t port;
    int fd = bind_port(0, &port);

    side_must(fd >= 0, "port");
    close(fd);
    return port;
}

/* The first of two such ports. */
static uint16_t two_dead_ports(void)
{
    for (;;) {
        uint16_t first, second;
        int fd = bind_port(0, &first);
        int other = fd < 0 || first == UINT16_MAX ? -1 : bind_port(first + 1, &second);
        if (fd >= 0)
            close(fd);
        if (other < 0)
            continue;
        close(other);
        return first;
    }
}

static void the_next_address_is_tried(void)
{
    const uint8_t addresses[][4] = {{255, 255, 255, 255}, {127, 77, 77, 77}, {127, 0, 0, 1}};

    for (int connections = 1; connections <= 3; connections += 2) {
        tcp_set_defaults();
        tcp_set("STEPAF_TCP_CONNECTIONS", connections == 1 ? "1" : "3");
        tcp_open(&a, true, 1);
        tcp_open(&b, false, 1);
        struct stepaf_pack pack = announcement(addresses, 3, tcp_of(&b)->listener.port);
        connect_by(&pack);
        CU_ASSERT_TRUE(comes_up());
        CU_ASSERT(!a.n_lost && !b.n_lost);
        CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
        CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
        end();
    }
}

/* Somebody else's port that says nothing: after a time, on to the next. */
static void a_silent_address_is_given_up(void)
{
    const uint8_t addresses[][4] = {{127, 9, 9, 9}, {127, 0, 0, 1}};
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECT_US", "20000");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    address.sin_port = htons(tcp_of(&b)->listener.port);
    memcpy(&address.sin_addr, addresses[0], 4);
    side_must(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 1), "listen");
    struct stepaf_pack pack = announcement(addresses, 2, tcp_of(&b)->listener.port);
    connect_by(&pack);
    CU_ASSERT_TRUE(comes_up());
    CU_ASSERT_EQUAL(tcp_link(&a, 0)->dial.trying, 1);
    UNIT_CONTAINS(tcp_link(&a, 0)->trouble, "127.9.9.9");
    UNIT_CONTAINS(tcp_link(&a, 0)->trouble, "no answer in time");
    close(fd);
    end();
}

/* A peer that is late into the commit has only its kernel answer for a while: that is no reason to
 * give up the only address it has. */
static void a_late_peer_is_waited_for(void)
{
    const uint8_t addresses[][4] = {{127, 0, 0, 1}};

    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECT_US", "2000");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    struct stepaf_pack pack = announcement(addresses, 1, tcp_of(&b)->listener.port);
    connect_by(&pack);
    for (int64_t until_ns = stepaf_monotonic_ns() + 100000000; stepaf_monotonic_ns() < until_ns;)
        side_progress(&a); /* ten times as long, several times over */
    CU_ASSERT_EQUAL(a.n_lost, 0);
    CU_ASSERT_TRUE(comes_up());
    end();
}

static void no_address_that_answers_is_a_lost_peer(void)
{
    const uint8_t addresses[][4] = {{127, 0, 0, 1}};

    begin();
    int files = tcp_open_files();
    struct stepaf_pack pack = announcement(addresses, 1, dead_port());
    connect_by(&pack);
    CU_ASSERT_TRUE(tcp_until_lost(&a));
    UNIT_CONTAINS(a.lost_reason, "127.0.0.1");
    UNIT_CONTAINS(a.lost_reason, "refused");
    CU_ASSERT(a.n_lost == 1 && tcp_of(&a)->count.opening == 0);
    CU_ASSERT_EQUAL(tcp_open_files(), files);
    CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
    end();
}

static void malformed_announcements_are_refused(void)
{
    const uint8_t addresses[][4] = {{127, 0, 0, 1}};

    begin();
    int files = tcp_open_files();
    struct stepaf_pack pack = announcement(addresses, 1, 1);
    size_t whole = pack.bytes;
    for (pack.bytes = 0; pack.bytes < whole; pack.bytes++) {
        const char *reason = side_connect(&a, 0, &b, 0, 0, &pack);
        CU_ASSERT_PTR_NOT_NULL_FATAL(reason);
        UNIT_CONTAINS(reason, "malformed");
    }
    free(pack.data);
    pack = announcement(addresses, 0, 1);
    UNIT_STRING(side_connect(&a, 0, &b, 0, 0, &pack), "it has no address");
    free(pack.data);
    CU_ASSERT(tcp_open_files() == files && tcp_of(&a)->count.links == 0);
    end();
}

/* Closing after a failure must leave alone what is not the transport's, such as standard input. */
static void a_failed_listen_closes_only_its_own(void)
{
    int files = tcp_open_files();
    struct stepaf_tcp tcp = {.epoll_fd = -1, .n_peers = 1, .n_connections = 1};

    begin();
    tcp.base.up = &b.up;
    tcp.own = tcp_of(&b)->own;
    CU_ASSERT_EQUAL(stepaf_tcp_listen(&tcp), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "cannot listen");
    stepaf_tcp_unlisten(&tcp);
    free(tcp.strangers);
    end();
    CU_ASSERT_EQUAL(tcp_open_files(), files);
}

static void expect_no_open(bool initiates, stepaf_status_t status, const char *text)
{
    int files = tcp_open_files();

    side_initiates = initiates;
    CU_ASSERT_EQUAL(side_try_open(&c, 1), status);
    UNIT_CONTAINS(stepaf_last_error()->text, text);
    CU_ASSERT_EQUAL(tcp_open_files(), files);
}

static void settings_that_cannot_be_are_refused(void)
{
    static const char *const bad_ifs[][2] = {
        {"nosuchif0", "is not an interface"},
        {"203.0.113.0/24", "no address of"},
    };

    for (size_t i = 0; i < sizeof bad_ifs / sizeof *bad_ifs; i++) {
        tcp_set_defaults();
        tcp_set("STEPAF_NET_IF", bad_ifs[i][0]);
        expect_no_open(false, STEPAF_ERR_SETTING, bad_ifs[i][1]);
        expect_no_open(true, STEPAF_ERR_SETTING, bad_ifs[i][0]);
    }
}

static void ports_run_out(void)
{
    char range[32];
    uint16_t first = two_dead_ports();

    tcp_set_defaults();
    snprintf(range, sizeof range, "%u-%u", first, first + 1u);
    tcp_set("STEPAF_NET_PORTS", range);
    tcp_open(&a, false, 1);
    tcp_open(&b, false, 1);
    CU_ASSERT(tcp_of(&a)->listener.port != tcp_of(&b)->listener.port);
    CU_ASSERT(tcp_of(&a)->listener.port >= first && tcp_of(&b)->listener.port <= first + 1);
    expect_no_open(false, STEPAF_ERR_TRANSPORT, "no free port");
    expect_no_open(false, STEPAF_ERR_TRANSPORT, range);
    end();
}

/* Connections of an ended job linger on its port for a minute; the next job needs it now. */
static void a_port_can_be_used_again_at_once(void)
{
    char range[32];

    tcp_set_defaults();
    snprintf(range, sizeof range, "%u", dead_port());
    tcp_set("STEPAF_NET_PORTS", range);
    for (int job = 0; job < 3; job++) {
        tcp_open(&a, true, 1);
        tcp_open(&b, false, 1);
        tcp_join(&a, 0, &b, 0);
        side_close(&b); /* first, so that it is b's end that lingers */
        side_close(&a);
    }
}

/* With all interfaces: IPv6 as well, where the kernel has it. */
static void ipv6_is_spoken(void)
{
    struct stepaf_net_addresses list = {.n = 1};
    struct stepaf_pack pack = {0};

    tcp_set_defaults();
    tcp_set("STEPAF_NET_IF", "");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    list.list[0] = (struct stepaf_net_address){.family = AF_INET6, .loopback = true};
    list.list[0].bytes[15] = 1;
    bool has_ipv6 = false;
    for (unsigned i = 0; i < tcp_of(&b)->own.n; i++)
        has_ipv6 = has_ipv6 ||
                   (tcp_of(&b)->own.list[i].family == AF_INET6 && tcp_of(&b)->own.list[i].loopback);
    if (has_ipv6) {
        stepaf_pack_bytes(&pack, tcp_of(&b)->secret, sizeof tcp_of(&b)->secret);
        stepaf_pack_u64(&pack, stepaf_net_kernel_id());
        stepaf_pack_u64(&pack, stepaf_net_network_id());
        stepaf_pack_u32(&pack, tcp_of(&b)->listener.port);
        stepaf_tcp_addresses_pack(&list, &pack);
        connect_by(&pack);
        CU_ASSERT_TRUE(comes_up());
        UNIT_STRING(a.links[0]->name, "tcp;lo");
    } else {
        puts("  (loopback has no IPv6 address here)");
    }
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing is left behind", nothing_is_left_behind},
        {"several peers are connected", several_peers_are_connected},
        {"one peer out of reach is no harm", one_peer_out_of_reach_is_no_harm},
        {"the next address is tried", the_next_address_is_tried},
        {"a silent address is given up", a_silent_address_is_given_up},
        {"a late peer is waited for", a_late_peer_is_waited_for},
        {"no address that answers is a lost peer", no_address_that_answers_is_a_lost_peer},
        {"malformed announcements are refused", malformed_announcements_are_refused},
        {"a failed listen closes only its own", a_failed_listen_closes_only_its_own},
        {"settings that cannot be are refused", settings_that_cannot_be_are_refused},
        {"ports run out", ports_run_out},
        {"a port can be used again at once", a_port_can_be_used_again_at_once},
        {"IPv6 is spoken", ipv6_is_spoken},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
