/* SPDX-License-Identifier: Apache-2.0 */
/* Who connects where ranks meet and is none, or speaks as one by hand. */
#ifndef STEPAF_TEST_CALLERS_H
#define STEPAF_TEST_CALLERS_H

#include "meets.h"

/* A connection to a port of this machine, as soon as somebody listens there. */
static inline int caller_connect(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 20};

    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
}

static inline void caller_prove(const char *by, uint64_t kind,
                                const struct stepaf_control_hello *hello, const uint8_t *nonce,
                                uint8_t *proof_p)
{
    struct stepaf_control_claim claim = {.kind = kind, .hello = *hello};
    uint8_t key[STEPAF_PROOF_KEY_BYTES];

    if (nonce)
        memcpy(claim.nonce, nonce, sizeof claim.nonce);
    stepaf_proof_key(by, strlen(by), key);
    stepaf_proof_make(key, &claim, sizeof claim, proof_p);
}

/* What a rank would say first. */
static inline struct stepaf_control_opening caller_opening(const char *by, uint32_t from,
                                                           uint32_t version)
{
    struct stepaf_control_opening opening = {.hello = {.magic = stepaf_control_hello_magic,
                                                       .version = version,
                                                       .from = from,
                                                       .size = 3,
                                                       .left_ms = 10000,
                                                       .nonce = {1, 2, 3}}};
    caller_prove(by, stepaf_control_hello_magic, &opening.hello, NULL, opening.proof);
    return opening;
}

/* Whether the other end closes the connection, whatever it says before. */
static inline bool caller_is_shown_out(int fd)
{
    char sink[256];
    ssize_t got;

    while ((got = recv(fd, sink, sizeof sink, 0)) > 0)
        continue;
    return got == 0 || errno == ECONNRESET;
}

static inline void caller_send(int fd, const void *data, size_t bytes)
{
    CU_ASSERT_EQUAL(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* Greet as a rank that gives up after so many ms: the connection, which is that rank's then. */
static inline int caller_arrive(const char *by, uint32_t rank, uint32_t size, uint32_t left_ms)
{
    struct stepaf_control_opening opening = {.hello = {.magic = stepaf_control_hello_magic,
                                                       .version = STEPAF_CONTROL_VERSION,
                                                       .from = rank,
                                                       .size = size,
                                                       .left_ms = left_ms,
                                                       .nonce = {(uint8_t)rank, 7, 9}}};
    struct stepaf_control_answer answer = {.magic = stepaf_control_answer_magic};
    struct stepaf_control_challenge challenge;
    struct stepaf_control_frame frame = {0};
    int fd = caller_connect(meet_port);

    caller_prove(by, stepaf_control_hello_magic, &opening.hello, NULL, opening.proof);
    caller_send(fd, &opening, sizeof opening);
    CU_ASSERT_EQUAL(recv(fd, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    caller_prove(by, stepaf_control_answer_magic, &opening.hello, challenge.nonce, answer.proof);
    caller_send(fd, &answer, sizeof answer);
    CU_ASSERT_EQUAL(recv(fd, &frame, sizeof frame, MSG_WAITALL), sizeof frame);
    return fd;
}

#endif
