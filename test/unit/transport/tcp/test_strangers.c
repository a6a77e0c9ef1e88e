/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: strangers at the door, and a host without a file left to open it with. */
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "tcp_side.h"
#include "unit.h"

enum { STRANGERS = 200 };

static struct side b; /* its peers are bare sockets */

static void begin(void)
{
    tcp_set_defaults();
    tcp_open(&b, false, 1);
}

static void end(void)
{
    side_close(&b);
}

/* Somebody who knows not all, or says it wrongly, changes nothing, and is told nothing. */
static void strangers_are_refused(void)
{
    enum { N = 8 };
    struct stepaf_tcp_hello hellos[N];
    char byte;

    begin();
    tcp_expect_bare(&b, 0);
    for (int i = 0; i < N; i++)
        hellos[i] = tcp_hello(&b, 0, 0);
    hellos[0].magic++;
    hellos[1].nonce[0] ^= 1;
    hellos[2].nonce[1] ^= 1ull << 63;
    hellos[3].slot = 1;
    hellos[4].connection = 1;
    hellos[5].slot = UINT32_MAX;
    hellos[6].proof[0] ^= 1;
    hellos[7].proof[STEPAF_PROOF_BYTES - 1] ^= 0x80;
    for (int i = 0; i < N; i++) {
        int fd = tcp_bare_dial(&b);
        tcp_bare_send(fd, &hellos[i], sizeof hellos[i]);
        side_progress(&b);
        CU_ASSERT(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
        CU_ASSERT_TRUE(tcp_bare_is_closed(&b, fd));
        CU_ASSERT(!tcp_link(&b, 0)->up && !b.n_lost);
        close(fd);
    }
    int fd = tcp_bare(&b, 0, 0);
    CU_ASSERT_TRUE(tcp_link(&b, 0)->up);
    close(fd);
    end();
}

/* Whoever has only seen a greeting go by can say all of it again, and has proven nothing: each
 * challenge asks for something else. */
static void what_was_heard_cannot_be_said_again(void)
{
    struct stepaf_tcp_hello hello;
    struct stepaf_tcp_challenge challenge;
    struct stepaf_tcp_answer answers[5];
    uint8_t byte;

    begin();
    tcp_expect_bare(&b, 0);
    hello = tcp_hello(&b, 0, 0);
    int fd = tcp_bare_dial(&b);
    tcp_bare_send(fd, &hello, sizeof hello);
    CU_ASSERT_TRUE(tcp_bare_read(&b, fd, &challenge, sizeof challenge));
    answers[0] = tcp_answer(&b, &hello, &challenge); /* never said in its place */
    close(fd);
    for (int i = 1; i < 5; i++)
        answers[i] = answers[0];
    for (int i = 0; i < 5; i++) {
        struct stepaf_tcp_challenge again;
        fd = tcp_bare_dial(&b);
        tcp_bare_send(fd, &hello, sizeof hello);
        CU_ASSERT_TRUE(tcp_bare_read(&b, fd, &again, sizeof again));
        CU_ASSERT_NOT_EQUAL(memcmp(again.nonce, challenge.nonce, sizeof again.nonce), 0);
        if (i)
            answers[i] = tcp_answer(&b, &hello, &again);
        if (i == 1)
            answers[i].proof[31] ^= 1;
        if (i == 2)
            answers[i].magic = stepaf_tcp_welcome_magic;
        if (i == 3)
            memcpy(answers[i].proof, again.proof, sizeof again.proof); /* its own words */
        if (i == 4)
            memcpy(answers[i].proof, hello.proof, sizeof hello.proof);
        tcp_bare_send(fd, &answers[i], sizeof answers[i]);
        CU_ASSERT_TRUE(tcp_bare_is_closed(&b, fd));
        CU_ASSERT(!tcp_link(&b, 0)->up && !b.n_lost && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
        close(fd);
    }
    fd = tcp_bare(&b, 0, 0);
    CU_ASSERT_TRUE(tcp_link(&b, 0)->up);
    close(fd);
    end();
}

/* A copied hello takes no place from the peer. */
static void a_copied_hello_is_in_nobodys_way(void)
{
    struct stepaf_tcp_challenge challenge;

    begin();
    tcp_expect_bare(&b, 0);
    struct stepaf_tcp_hello hello = tcp_hello(&b, 0, 0);
    int copy = tcp_bare_dial(&b);
    tcp_bare_send(copy, &hello, sizeof hello);
    CU_ASSERT_TRUE(tcp_bare_read(&b, copy, &challenge, sizeof challenge));
    int fd = tcp_bare(&b, 0, 0);
    CU_ASSERT_TRUE(tcp_link(&b, 0)->up);
    CU_ASSERT_TRUE(tcp_bare_is_closed(&b, copy));
    close(copy);
    close(fd);
    end();
}

/* The secrets stay where they are, in all that either side says. */
static void no_secret_goes_over_the_wire(void)
{
    uint8_t said[sizeof(struct stepaf_tcp_hello) + sizeof(struct stepaf_tcp_challenge)];
    struct stepaf_tcp_hello hello;

    begin();
    tcp_expect_bare(&b, 0);
    hello = tcp_hello(&b, 0, 0);
    int fd = tcp_bare_dial(&b);
    tcp_bare_send(fd, &hello, sizeof hello);
    memcpy(said, &hello, sizeof hello);
    CU_ASSERT_TRUE(tcp_bare_read(&b, fd, said + sizeof hello, sizeof said - sizeof hello));
    for (size_t i = 0; i + 8 <= sizeof said; i++)
        for (int k = 0; k < STEPAF_CLAIM_SECRET_WORDS; k++)
            CU_ASSERT(memcmp(said + i, &tcp_of(&b)->secret[k], 8) != 0);
    close(fd);
    end();
}

/* The same connection cannot be taken twice. */
static void a_second_of_the_same_is_refused(void)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", "2");
    tcp_open(&b, false, 1);
    tcp_expect_bare(&b, 0);
    int first = tcp_bare(&b, 0, 1), again = tcp_bare_dial(&b);
    struct stepaf_tcp_hello hello = tcp_hello(&b, 0, 1);
    tcp_bare_send(again, &hello, sizeof hello);
    CU_ASSERT_TRUE(tcp_bare_is_closed(&b, again));
    int other = tcp_bare(&b, 0, 0);
    CU_ASSERT(tcp_link(&b, 0)->up && !b.n_lost);
    close(first);
    close(again);
    close(other);
    end();
}

/* More than there are places for, some silent, some talking nonsense; then a peer. */
static void a_crowd_of_strangers_is_no_harm(void)
{
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: */*\r\n\r\n";
    int fds[STRANGERS];

    begin();
    tcp_expect_bare(&b, 0);
    int files = tcp_open_files();
    side_must(STRANGERS > tcp_of(&b)->n_strangers, "too few strangers");
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = tcp_bare_dial(&b);
        if (i % 3)
            (void)send(fds[i], garbage, i % 3 == 1 ? 5 : sizeof garbage, MSG_NOSIGNAL);
        if (i % 20 == 19) /* the kernel holds no more than fit */
            side_progress(&b);
    }
    int fd = tcp_bare(&b, 0, 0);
    CU_ASSERT(tcp_link(&b, 0)->up && !b.n_lost && !b.n_messages);
    for (int i = 0; i < STRANGERS; i++) {
        CU_ASSERT_TRUE(tcp_bare_is_closed(&b, fds[i]));
        close(fds[i]);
    }
    CU_ASSERT_EQUAL(tcp_open_files(), files + 1); /* listener's gone; both ends of fd */
    close(fd);
    end();
}

/* So that a crowd behind it cannot push it out: it has a place of its own from then on. */
static void a_hello_that_is_there_counts_at_once(void)
{
    begin();
    tcp_expect_bare(&b, 0);
    struct stepaf_tcp_hello hello = tcp_hello(&b, 0, 0);
    int fd = tcp_bare_dial(&b);
    tcp_bare_send(fd, &hello, sizeof hello);
    CU_ASSERT_EQUAL(side_progress(&b), 1);
    CU_ASSERT_EQUAL(tcp_link(&b, 0)->connections[0].state, STEPAF_TCP_GREETING);
    int crowd[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        crowd[i] = tcp_bare_dial(&b);
        side_progress(&b);
    }
    struct stepaf_tcp_challenge challenge;
    CU_ASSERT_TRUE(tcp_bare_read(&b, fd, &challenge, sizeof challenge));
    struct stepaf_tcp_answer answer = tcp_answer(&b, &hello, &challenge);
    tcp_bare_send(fd, &answer, sizeof answer);
    CU_ASSERT_TRUE(tcp_bare_read(&b, fd, &answer, sizeof answer));
    CU_ASSERT_TRUE(tcp_link(&b, 0)->up);
    for (int i = 0; i < STRANGERS; i++)
        close(crowd[i]);
    close(fd);
    end();
}

static void a_slow_stranger_has_to_go(void)
{
    begin();
    tcp_expect_bare(&b, 0);
    struct stepaf_tcp_hello hello = tcp_hello(&b, 0, 0);
    int fd = tcp_bare_dial(&b);
    tcp_bare_send(fd, &hello, sizeof hello - 1);
    for (int i = 0; i < 50; i++) {
        side_progress(&b);
        usleep(100);
    }
    CU_ASSERT_FALSE(tcp_link(&b, 0)->up);
    for (unsigned i = 0; i < tcp_of(&b)->n_strangers; i++) /* as if two seconds had passed */
        tcp_of(&b)->strangers[i].until = stepaf_ticks();
    CU_ASSERT_TRUE(tcp_bare_is_closed(&b, fd));
    close(fd);
    fd = tcp_bare(&b, 0, 0);
    CU_ASSERT_TRUE(tcp_link(&b, 0)->up);
    close(fd);
    end();
}

/* Without a file to accept with, a peer waits; it costs no time and is not forgotten. */
static void no_files_left_is_survived(void)
{
    struct rlimit limit, none;

    begin();
    tcp_expect_bare(&b, 0);
    struct stepaf_tcp_hello hello = tcp_hello(&b, 0, 0);
    int fd = tcp_bare_dial(&b);
    tcp_bare_send(fd, &hello, sizeof hello);
    side_must(!getrlimit(RLIMIT_NOFILE, &limit), "limit");
    none = limit;
    none.rlim_cur = 0;
    side_must(!setrlimit(RLIMIT_NOFILE, &none), "limit");
    for (int i = 0; i < 20; i++)
        CU_ASSERT_EQUAL(side_progress(&b), 0);
    side_must(!setrlimit(RLIMIT_NOFILE, &limit), "limit");
    CU_ASSERT_EQUAL(tcp_link(&b, 0)->connections[0].state, STEPAF_TCP_CLOSED);
    for (int i = 0; i < 20; i++)
        side_progress(&b);
    CU_ASSERT_EQUAL(tcp_link(&b, 0)->connections[0].state, STEPAF_TCP_GREETING);
    close(fd);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"strangers are refused", strangers_are_refused},
        {"what was heard cannot be said again", what_was_heard_cannot_be_said_again},
        {"a copied hello is in nobody's way", a_copied_hello_is_in_nobodys_way},
        {"no secret goes over the wire", no_secret_goes_over_the_wire},
        {"a second of the same is refused", a_second_of_the_same_is_refused},
        {"a crowd of strangers is no harm", a_crowd_of_strangers_is_no_harm},
        {"a hello that is there counts at once", a_hello_that_is_there_counts_at_once},
        {"a slow stranger has to go", a_slow_stranger_has_to_go},
        {"no files left is survived", no_files_left_is_survived},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
