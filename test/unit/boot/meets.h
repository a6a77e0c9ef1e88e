/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that meet over TCP, for the tests of how they do. They are threads here, so that a race
 * detector gets to see them. */
#ifndef STEPAF_TEST_MEETS_H
#define STEPAF_TEST_MEETS_H

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "boot/boot_tcp.h"
#include "boot/control/control.h"
#include "unit.h"

/* MEET_SOME_US: for those who are there to find each other, whatever else the machine does. */
enum { MEET_RANKS = 16, MEET_LONG_US = 20000000, MEET_SOME_US = 2000000, MEET_SHORT_US = 300000 };

/* One rank: what it is told, and what became of it. */
struct meet {
    int rank, size;
    char meet[64];
    const char *secret;
    char ports[16]; /* STEPAF_NET_PORTS */
    int64_t timeout_us;
    int64_t delay_us;                           /* before it comes */
    int rounds;                                 /* contexts, one after the other */
    size_t bytes;                               /* more than a number, in the exchange */
    stepaf_status_t (*then)(struct meet *meet); /* after all have exchanged */
    pthread_t thread;
    stepaf_boot_t boot;
    stepaf_status_t status;
    stepaf_error_t error;
    int wrong; /* numbers in what it has gathered */
};

static uint16_t meet_port;

/* A port that nobody has at the moment. */
static inline uint16_t meet_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        exit(99);
    close(fd);
    return ntohs(address.sin_port);
}

static inline struct stepaf_env meet_env(const struct meet *meet)
{
    struct stepaf_env env = {.boot = STEPAF_ENV_BOOT_tcp,
                             .size = meet->size,
                             .rank = meet->rank,
                             .meet = (char *)(uintptr_t)meet->meet,
                             .secret = (char *)(uintptr_t)(meet->secret ? meet->secret : ""),
                             .secret_file = (char *)(uintptr_t) "",
                             .net_ports = (char *)(uintptr_t)meet->ports};
    env.from_environment[STEPAF_ENV_RANK] = 1;
    return env;
}

/* Each rank's block: its number, then @a bytes bytes that follow from it. */
static inline stepaf_status_t meet_gather(struct meet *meet, size_t bytes)
{
    size_t offsets[MEET_RANKS + 1], mine = sizeof(int) + bytes * (size_t)(meet->rank + 1);
    char *block = malloc(mine), *all = NULL;
    int number;

    memcpy(block, &meet->rank, sizeof meet->rank);
    memset(block + sizeof(int), meet->rank + 1, mine - sizeof(int));
    stepaf_status_t status = meet->boot.allgather(meet->boot.self, block, mine, (void **)&all,
                                                  offsets, meet->timeout_us);
    free(block);
    if (status != STEPAF_OK)
        return status;
    for (int i = 0; i < meet->size; i++) {
        size_t length = offsets[i + 1] - offsets[i];
        memcpy(&number, all + offsets[i], sizeof number);
        meet->wrong += number != i || length != sizeof(int) + bytes * (size_t)(i + 1);
        if (length > sizeof(int)) { /* all bytes are as the first */
            const char *bytes_of = all + offsets[i] + sizeof(int);
            meet->wrong +=
                *bytes_of != i + 1 || memcmp(bytes_of, bytes_of + 1, length - sizeof(int) - 1) != 0;
        }
    }
    free(all);
    return STEPAF_OK;
}

static inline stepaf_status_t meet_barrier(struct meet *meet, stepaf_group_t group, int first,
                                           int step)
{
    int ranks[MEET_RANKS], n = 0;

    for (int i = first; i < meet->size; i += step)
        ranks[n++] = i;
    return meet->boot.barrier(meet->boot.self, group, ranks, n, meet->timeout_us);
}

/* Two exchanges, the barrier of all, then those of every other rank. */
static inline stepaf_status_t meet_use(struct meet *meet)
{
    stepaf_status_t status = meet_gather(meet, 0);

    if (status == STEPAF_OK)
        status = meet_gather(meet, meet->bytes);
    if (status == STEPAF_OK)
        status = meet_barrier(meet, STEPAF_GROUP_WORLD, 0, 1);
    if (status == STEPAF_OK)
        status = meet_barrier(meet, meet->rank % 2 ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION,
                              meet->rank % 2, 2);
    return status;
}

static inline void *meet_run_rank(void *arg)
{
    struct meet *meet = arg;
    struct stepaf_env env = meet_env(meet);

    nanosleep(&(struct timespec){0, meet->delay_us * 1000}, NULL);
    for (int round = 0; round < meet->rounds && meet->status == STEPAF_OK; round++) {
        meet->status = stepaf_boot_tcp(&env, &meet->boot);
        if (meet->status != STEPAF_OK)
            break;
        meet->status = meet_use(meet);
        if (meet->status == STEPAF_OK && meet->then)
            meet->status = meet->then(meet);
        meet->error = *stepaf_last_error();
        meet->boot.close(meet->boot.self);
    }
    return NULL;
}

static inline void meet_prepare(struct meet *meets, int n, int64_t timeout_us)
{
    for (int i = 0; i < n; i++) {
        meets[i] = (struct meet){.rank = i, .size = n, .timeout_us = timeout_us, .rounds = 1};
        snprintf(meets[i].meet, sizeof meets[i].meet, "127.0.0.1:%u", meet_port);
    }
}

static inline void meet_start(struct meet *meets, int n)
{
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&meets[i].thread, NULL, meet_run_rank, &meets[i]), 0);
}

static inline void meet_finish(struct meet *meets, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(meets[i].thread, NULL);
}

static inline void meet_run(struct meet *meets, int n)
{
    meet_start(meets, n);
    meet_finish(meets, n);
}

static inline void meet_expect(const struct meet *meet, stepaf_status_t status, const char *text)
{
    CU_ASSERT_EQUAL(meet->status, status);
    if (meet->status != status)
        fprintf(stderr, "\n    rank %d: %s: %s\n", meet->rank, stepaf_status_name(meet->status),
                meet->error.text);
    if (*text)
        UNIT_CONTAINS(meet->error.text, text);
    CU_ASSERT_EQUAL(meet->wrong, 0);
}

static inline int meet_count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

static inline void meet_forget_launchers(void)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    meet_port = meet_free_port();
}

#endif
