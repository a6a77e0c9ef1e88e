/* SPDX-License-Identifier: Apache-2.0 */
/* A job of members that gather, without contexts: all are in one process, and each does something
 * when the test says so. */
#ifndef STEPAF_TEST_GATHERS_H
#define STEPAF_TEST_GATHERS_H

#include <poll.h>
#include <stdlib.h>

#include "base/time.h"
#include "nets.h"

enum { RANKS = 4, EPOCH = 3, CHANNEL = 1, LIMIT_MS = 10000 };

static const int all_ranks[RANKS] = {0, 1, 2, 3};
static const struct stepaf_member_group group = {CHANNEL, all_ranks, RANKS};

struct job {
    struct stepaf_env env;
    struct stepaf_member_net *nets[RANKS]; /* NULL: it is lost */
};

static inline void begin_job(struct job *job)
{
    memset(job, 0, sizeof *job);
    open_nets(&job->env, job->nets, RANKS);
}

static inline void lose_net(struct job *job, int rank)
{
    stepaf_member_net_close(job->nets[rank]);
    job->nets[rank] = NULL;
}

static inline void end_job(struct job *job)
{
    for (int r = 0; r < RANKS; r++)
        stepaf_member_net_close(job->nets[r]);
    stepaf_env_free(&job->env);
}

/* Each says its number, as often as it is. */
static inline void come_to(const struct job *job, int rank, const struct stepaf_member_group *whose,
                           uint32_t epoch)
{
    uint8_t words[RANKS];

    memset(words, rank, sizeof words);
    CU_ASSERT_TRUE(stepaf_member_gather_begin(job->nets[rank], whose, epoch, words, (size_t)rank));
}

static inline void come(const struct job *job, int rank)
{
    come_to(job, rank, &group, EPOCH);
}

static inline stepaf_status_t look(const struct job *job, int rank, int *whom_p)
{
    return stepaf_member_gather_look(job->nets[rank], &group, whom_p);
}

/* Until the rank hears something else, or for too long. */
static inline stepaf_status_t await_rank(const struct job *job, int rank, int *whom_p)
{
    int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL;
    stepaf_status_t status;

    do {
        for (int r = 0; r < RANKS; r++)
            if (job->nets[r])
                stepaf_member_net_pump(job->nets[r]);
        if (rank && job->nets[0]) {
            int whom;
            (void)look(job, 0, &whom);
        }
        (void)poll(NULL, 0, 1);
        status = look(job, rank, whom_p);
    } while (status == STEPAF_INPROGRESS && stepaf_monotonic_ns() < until_ns);
    return status;
}

static inline void check_words(const struct stepaf_member_net *net)
{
    size_t offsets[RANKS + 1];
    void *all = NULL;

    CU_ASSERT_EQUAL_FATAL(
        stepaf_member_net_deal(net, stepaf_member_gather_value(net, CHANNEL), &all, offsets, NULL),
        STEPAF_OK);
    for (int r = 0; r < RANKS; r++) {
        CU_ASSERT_EQUAL(offsets[r + 1] - offsets[r], (size_t)r);
        for (size_t at = offsets[r]; at < offsets[r + 1]; at++)
            CU_ASSERT_EQUAL(((uint8_t *)all)[at], r);
    }
    free(all);
}

static inline void gather_once(const struct job *job)
{
    int whom = -1;

    for (int r = 0; r < RANKS; r++)
        come(job, r);
    CU_ASSERT_EQUAL(await_rank(job, 0, &whom), STEPAF_OK);
    for (int r = 1; r < RANKS; r++)
        CU_ASSERT_EQUAL(await_rank(job, r, &whom), STEPAF_OK);
    for (int r = 0; r < RANKS; r++)
        check_words(job->nets[r]);
}

/* Something comes in. */
static inline bool take(struct stepaf_member_net *net, int from, uint32_t type,
                        const struct stepaf_pack *pack)
{
    struct stepaf_control_frame frame = {.type = type, .bytes = pack->bytes};

    return stepaf_member_gather_take(net, from, &frame, pack->data);
}

#endif
