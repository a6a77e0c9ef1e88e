/* SPDX-License-Identifier: Apache-2.0 */
/* Who else may connect where ranks meet, and where each of them listens: anybody, who says nothing,
 * or anything, or what he has heard. Nothing of that changes anything. */
#include <stdatomic.h>

#include "callers.h"

enum { FLOOD = 300 };

static const char secret[] = "known to all";

/* Rank 0 waits; strangers come, then the others. */
static void strangers_change_nothing(void)
{
    struct stepaf_control_opening good = caller_opening(secret, 1, STEPAF_CONTROL_VERSION);
    struct stepaf_control_opening wrong = caller_opening("guess", 1, STEPAF_CONTROL_VERSION);
    struct stepaf_control_challenge challenge;
    struct stepaf_control_answer answer = {.magic = stepaf_control_answer_magic};
    static const char garbage[5000] = "GET / HTTP/1.1\r\n\r\n";
    struct meet meets[3];
    int fds[5];

    meet_prepare(meets, 3, MEET_LONG_US);
    for (int i = 0; i < 3; i++)
        meets[i].secret = secret;
    meet_start(meets, 1);
    for (int i = 0; i < 5; i++)
        fds[i] = caller_connect(meet_port);
    caller_send(fds[0], garbage, sizeof garbage);
    CU_ASSERT(caller_is_shown_out(fds[0]));
    caller_send(fds[1], &good, sizeof good / 2);
    /* Another secret: that is said, and nothing else. */
    caller_send(fds[2], &wrong, sizeof wrong);
    CU_ASSERT_EQUAL(recv(fds[2], &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    CU_ASSERT_EQUAL(challenge.magic, stepaf_control_refusal_magic);
    CU_ASSERT(caller_is_shown_out(fds[2]));
    /* A copied hello, and an answer to another challenge. */
    caller_send(fds[3], &good, sizeof good);
    CU_ASSERT_EQUAL(recv(fds[3], &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    CU_ASSERT_EQUAL(challenge.magic, stepaf_control_challenge_magic);
    caller_prove(secret, stepaf_control_answer_magic, &good.hello, NULL, answer.proof);
    caller_send(fds[3], &answer, sizeof answer);
    CU_ASSERT(caller_is_shown_out(fds[3]));
    /* The listener's own words. */
    caller_send(fds[4], &good, sizeof good);
    CU_ASSERT_EQUAL(recv(fds[4], &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    memcpy(answer.proof, challenge.proof, sizeof answer.proof);
    caller_send(fds[4], &answer, sizeof answer);
    CU_ASSERT(caller_is_shown_out(fds[4]));
    meet_run(meets + 1, 2);
    meet_finish(meets, 1);
    for (int i = 0; i < 3; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
    for (int i = 0; i < 5; i++)
        close(fds[i]);
}

static _Atomic bool flood_is_over;

/* Connections that say nothing, or nonsense, as fast as they come. */
static void *flood_port(void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(meet_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fds[FLOOD], n = 0;

    for (int i = 0; i < FLOOD; i++)
        fds[i] = -1;
    for (; !flood_is_over; n++) {
        int *fd = &fds[n % FLOOD];
        if (*fd >= 0)
            close(*fd);
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(*fd, (struct sockaddr *)&address, sizeof address) == 0 && n % 3 == 0)
            (void)!send(*fd, "what", 4, MSG_NOSIGNAL);
    }
    for (int i = 0; i < FLOOD; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *(int *)arg = n;
    return NULL;
}

static void a_flood(void)
{
    struct meet meets[5];
    pthread_t flood;
    int n = 0;

    meet_prepare(meets, 5, MEET_LONG_US);
    for (int i = 0; i < 5; i++)
        meets[i].secret = secret;
    flood_is_over = false;
    meet_start(meets, 1);
    close(caller_connect(meet_port));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&flood, NULL, flood_port, &n), 0);
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    meet_run(meets + 1, 4);
    meet_finish(meets, 1);
    flood_is_over = true;
    pthread_join(flood, NULL);
    CU_ASSERT(n > 0);
    for (int i = 0; i < 5; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* Who knows the secret and speaks another version is a rank: all are told. */
static void another_version(void)
{
    struct stepaf_control_opening opening = caller_opening(secret, 2, STEPAF_CONTROL_VERSION + 1);
    struct stepaf_control_answer answer = {.magic = stepaf_control_answer_magic};
    struct stepaf_control_challenge challenge;
    struct stepaf_control_frame frame = {0};
    struct meet meets[3];

    meet_prepare(meets, 3, MEET_LONG_US);
    meets[0].secret = meets[1].secret = secret;
    meet_start(meets, 1);
    int fd = caller_connect(meet_port);
    caller_send(fd, &opening, sizeof opening);
    CU_ASSERT_EQUAL(recv(fd, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    caller_prove(secret, stepaf_control_answer_magic, &opening.hello, challenge.nonce,
                 answer.proof);
    caller_send(fd, &answer, sizeof answer);
    CU_ASSERT_EQUAL(recv(fd, &frame, sizeof frame, MSG_WAITALL), sizeof frame);
    CU_ASSERT_EQUAL(frame.type, STEPAF_CONTROL_FAIL);
    meet_run(meets + 1, 1); /* comes later, and hears it all the same */
    meet_finish(meets, 1);
    for (int i = 0; i < 2; i++)
        meet_expect(&meets[i], STEPAF_ERR_MISMATCH,
                    "rank 2 has another version of libstepaf than rank 0");
    close(fd);
}

/* Where a rank listens once all have met: garbage, and what is right for the meeting alone. */
static stepaf_status_t visit_listener(struct meet *meet)
{
    struct stepaf_control_opening opening = caller_opening(secret, 2, STEPAF_CONTROL_VERSION);
    const struct stepaf_control *control = meet->boot.self;
    int fds[2] = {-1, -1}, lost[3];

    if (meet->rank == 1) {
        opening.hello.to = 1;
        caller_prove(secret, stepaf_control_hello_magic, &opening.hello, NULL, opening.proof);
        for (int i = 0; i < 2; i++)
            fds[i] = caller_connect(control->port);
        caller_send(fds[0], "nonsense of more bytes than nothing", 30);
        caller_send(fds[1], &opening, sizeof opening);
        CU_ASSERT_EQUAL(meet->boot.lost(meet->boot.self, lost, 3), 0); /* looks at all of that */
        CU_ASSERT(caller_is_shown_out(fds[1]));
    }
    stepaf_status_t status = meet_barrier(meet, STEPAF_GROUP_WORLD, 0, 1);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    CU_ASSERT_EQUAL(meet->boot.lost(meet->boot.self, lost, 3), 0);
    return status;
}

static void strangers_of_later(void)
{
    struct meet meets[3];

    meet_prepare(meets, 3, MEET_LONG_US);
    for (int i = 0; i < 3; i++) {
        meets[i].secret = secret;
        meets[i].then = visit_listener;
    }
    meet_run(meets, 3);
    for (int i = 0; i < 3; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* Where rank 0 should be somebody else is. */
static void another_program_at_the_meeting_point(void)
{
    static const char banner[] = "SSH-2.0-another\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(meet_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct meet meet;

    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(listen(listener, 8), 0);
    meet_prepare(&meet, 1, MEET_SHORT_US);
    meet.size = 2;
    meet.rank = 1;
    meet_run(&meet, 1);
    meet_expect(&meet, STEPAF_ERR_TIMEOUT,
                "a process listens there, but does not answer as rank 0 does: no answer");
    close(accept(listener, NULL, NULL));
    meet.timeout_us = MEET_LONG_US;
    meet.status = STEPAF_OK;
    meet_start(&meet, 1);
    int fd = accept(listener, NULL, NULL);
    caller_send(fd, banner, sizeof banner);
    meet_finish(&meet, 1);
    meet_expect(&meet, STEPAF_ERR_BOOT, "rank 1 was rejected: another program answers there");
    close(fd);
    close(listener);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"strangers change nothing", strangers_change_nothing},
        {"a flood", a_flood},
        {"another version", another_version},
        {"strangers of later", strangers_of_later},
        {"another program at the meeting point", another_program_at_the_meeting_point},
        CU_TEST_INFO_NULL,
    };
    if (!stepaf_proof_ready())
        return 99;
    meet_forget_launchers();
    return unit_run(tests);
}
