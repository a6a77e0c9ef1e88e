/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: who answers where a peer should be, and what becomes of a peer that is shown out. */
#define _GNU_SOURCE 1 /* accept4 */

#include <fcntl.h>
#include <poll.h>

#include "tcp_dial.h"

/* Have a connect to a port of this test's, where b should be. */
static int listen_in_place(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const uint8_t addresses[][4] = {{127, 0, 0, 1}};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    memcpy(&address.sin_addr, addresses[0], 4);
    side_must(!bind(listener, (struct sockaddr *)&address, length) && !listen(listener, 1) &&
                  !getsockname(listener, (struct sockaddr *)&address, &length),
              "listen");
    struct stepaf_pack pack = announcement(addresses, 1, ntohs(address.sin_port));
    connect_by(&pack);
    return listener;
}

/* Another program on the port, that answers. */
static void who_does_not_know_my_secret_is_not_the_peer(void)
{
    struct stepaf_tcp_challenge challenge = {.magic = stepaf_tcp_challenge_magic};
    struct stepaf_tcp_hello hello;

    begin();
    int listener = listen_in_place();
    int fd = accept(listener, NULL, NULL);
    CU_ASSERT_TRUE(tcp_bare_read(&a, fd, &hello, sizeof hello)); /* and is told no secret */
    for (int k = 0; k < STEPAF_CLAIM_SECRET_WORDS; k++)
        for (size_t i = 0; i + 8 <= sizeof hello; i++)
            CU_ASSERT(memcmp((uint8_t *)&hello + i, &tcp_of(&b)->secret[k], 8) != 0 &&
                      memcmp((uint8_t *)&hello + i, &tcp_of(&a)->secret[k], 8) != 0);
    memcpy(challenge.proof, hello.proof, sizeof hello.proof); /* the opener's own words */
    memcpy(challenge.nonce, hello.nonce, sizeof hello.nonce);
    tcp_bare_send(fd, &challenge, sizeof challenge);
    CU_ASSERT_TRUE(tcp_until_lost(&a));
    UNIT_CONTAINS(a.lost_reason, "another program");
    CU_ASSERT_FALSE(tcp_link(&a, 0)->up);
    close(fd);
    close(listener);
    end();
}

/* A crowd can push out a peer whose hello is still on its way. It comes again. */
static void who_is_pushed_out_comes_again(void)
{
    const uint8_t addresses[][4] = {{127, 0, 0, 1}};
    int crowd[100];

    begin();
    struct stepaf_pack pack = announcement(addresses, 1, tcp_of(&b)->listener.port);
    connect_by(&pack);
    side_must(tcp_of(&b)->n_strangers < 100, "too few strangers");
    for (int i = 0; i < 100; i++) {
        crowd[i] = tcp_bare_dial(&b);
        if (i % 20 == 0)
            side_progress(&b); /* takes in a's connection first, without a word */
    }
    side_progress(&b);
    CU_ASSERT_TRUE(comes_up());
    CU_ASSERT(!a.n_lost && tcp_link(&a, 0)->dial.shown_out > 0);
    for (int i = 0; i < 100; i++)
        close(crowd[i]);
    end();
}

/* A listener that is short of places resets a connection whose hello it has not read: that is no
 * verdict, and the peer comes again. */
static void who_is_reset_comes_again(void)
{
    struct stepaf_tcp_hello hello;

    begin();
    int listener = listen_in_place();
    int fd = accept(listener, NULL, NULL);
    CU_ASSERT_TRUE(tcp_bare_read(&a, fd, &hello, sizeof hello)); /* a waits for the challenge */
    tcp_reset(fd);
    int64_t deadline_ns = stepaf_monotonic_ns() + 10000000000;
    struct pollfd again = {.fd = listener, .events = POLLIN};
    while (!a.n_lost && poll(&again, 1, 1) < 1 && stepaf_monotonic_ns() < deadline_ns)
        side_progress(&a);
    CU_ASSERT(again.revents & POLLIN);
    CU_ASSERT(!a.n_lost && tcp_link(&a, 0)->dial.shown_out == 1);
    CU_ASSERT_EQUAL(a.links[0]->connects_again, 1);
    close(listener);
    end();
}

/* Who always closes is not the peer, and not tried for ever. */
static void who_always_closes_is_given_up(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const uint8_t addresses[][4] = {{127, 9, 9, 9}, {127, 0, 0, 1}};
    int fd = socket(AF_INET, SOCK_STREAM, 0), n = 0;

    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECT_US", "50000");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    address.sin_port = htons(tcp_of(&b)->listener.port);
    memcpy(&address.sin_addr, addresses[0], 4);
    side_must(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 1), "listen");
    struct stepaf_pack pack = announcement(addresses, 2, tcp_of(&b)->listener.port);
    connect_by(&pack);
    while (tcp_link(&a, 0)->dial.trying == 0) {
        int visitor = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (visitor >= 0)
            tcp_reset(visitor);
        n += visitor >= 0;
        side_progress(&a);
    }
    CU_ASSERT(n > 1);
    UNIT_CONTAINS(tcp_link(&a, 0)->trouble, "127.9.9.9");
    CU_ASSERT_TRUE(comes_up());
    CU_ASSERT(a.links[0]->connects_again >= (unsigned)n);
    close(fd);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who does not know my secret is not the peer",
         who_does_not_know_my_secret_is_not_the_peer},
        {"who is pushed out comes again", who_is_pushed_out_comes_again},
        {"who is reset comes again", who_is_reset_comes_again},
        {"who always closes is given up", who_always_closes_is_given_up},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
