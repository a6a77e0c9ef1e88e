/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one machine that are started one by one, for the tests of how they join. They are
 * threads here, so that a race detector gets to see them. */
#ifndef STEPAF_TEST_JOINS_H
#define STEPAF_TEST_JOINS_H

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "boot/boot_join.h"
#include "unit.h"

/* SOME_US: for those who are there to find each other, whatever else the machine does. */
enum {
    RANKS_MAX = 16,
    ENDLESS_US = 600000000,
    LONG_US = 20000000,
    SOME_US = 3000000,
    SHORT_US = 300000
};

/* One rank: what it is told, and what became of it. */
struct rank {
    int rank, size;
    const char *job;
    int64_t timeout_us;
    int64_t delay_us; /* before it comes */
    int rounds;       /* contexts, one after the other */
    pthread_t thread;
    stepaf_status_t status;
    char text[STEPAF_ERROR_TEXT_MAX];
    int peer;  /* whose failure that is */
    int wrong; /* numbers in what it has gathered */
};

static char job_name[32];

static inline struct stepaf_env env_of(const struct rank *rank)
{
    struct stepaf_env env = {.boot = STEPAF_ENV_BOOT_auto,
                             .local_size = rank->size,
                             .local_rank = rank->rank,
                             .local_job = (char *)(uintptr_t)rank->job};
    env.from_environment[STEPAF_ENV_LOCAL_RANK] = 1;
    return env;
}

static inline stepaf_status_t use(struct rank *rank, stepaf_boot_t *boot)
{
    size_t offsets[RANKS_MAX + 1];
    int ranks[RANKS_MAX], number = 100 + rank->rank, *all = NULL;

    for (int i = 0; i < rank->size; i++)
        ranks[i] = i;
    for (int exchange = 0; exchange < 2; exchange++) {
        stepaf_status_t status = boot->allgather(boot->self, &number, sizeof number, (void **)&all,
                                                 offsets, rank->timeout_us);
        if (status != STEPAF_OK)
            return status;
        for (int i = 0; i < rank->size; i++)
            rank->wrong += all[i] != 100 + i;
        free(all);
    }
    return boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, rank->size, rank->timeout_us);
}

static inline void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct stepaf_env env = env_of(rank);
    stepaf_boot_t boot;

    nanosleep(&(struct timespec){0, rank->delay_us * 1000}, NULL);
    for (int round = 0; round < rank->rounds && rank->status == STEPAF_OK; round++) {
        rank->status = stepaf_boot_join(&env, &boot);
        if (rank->status != STEPAF_OK)
            break;
        rank->status = use(rank, &boot);
        if (rank->status != STEPAF_OK) {
            snprintf(rank->text, sizeof rank->text, "%s", stepaf_last_error()->text);
            rank->peer = stepaf_last_error()->peer_world_rank;
        }
        boot.close(boot.self);
    }
    return NULL;
}

static inline void prepare(struct rank *ranks, int n, int64_t timeout_us)
{
    for (int i = 0; i < n; i++)
        ranks[i] = (struct rank){
            .rank = i, .size = n, .job = job_name, .timeout_us = timeout_us, .rounds = 1};
}

static inline void start(struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
}

static inline void finish(struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
}

static inline void run(struct rank *ranks, int n)
{
    start(ranks, n);
    finish(ranks, n);
}

static inline void expect(const struct rank *rank, stepaf_status_t status, const char *text)
{
    CU_ASSERT_EQUAL(rank->status, status);
    if (rank->status != status)
        fprintf(stderr, "\n    rank %d: %s: %s\n", rank->rank, stepaf_status_name(rank->status),
                rank->text);
    UNIT_CONTAINS(rank->text, text);
    CU_ASSERT_EQUAL(rank->wrong, 0);
}

static inline void expect_of(const struct rank *rank, int peer, stepaf_status_t status,
                             const char *text)
{
    expect(rank, status, text);
    CU_ASSERT_EQUAL(rank->peer, peer);
}

static inline int count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

#endif
