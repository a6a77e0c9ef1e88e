/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/counters.h>

#include "fail.h"
#include "guard.h"

/* The channel's own deadline: far beyond any block of operations, whose waits have theirs. */
#define CHANNEL_TIMEOUT_US ((int64_t)3600 * 1000000)
#define FAILED_PAUSE_NS 1000000
#define MORE_S 4 /* additional time until failed ranks exit without the others */

int perf_launched(void)
{
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                        "MPI_LOCALRANKID"};

    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        if (getenv(signs[i]) != NULL)
            return 1;
    }
    return 0;
}

int perf_launched_rank(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        const char *rank = getenv(ranks[i]);

        if (rank != NULL)
            return atoi(rank);
    }
    return 0;
}

int perf_job_gather(struct perf_job *job, const void *data, size_t bytes, void **all_p,
                    size_t **offsets_p)
{
    stepaf_status_t status;

    *all_p = NULL;
    *offsets_p = calloc((size_t)job->channel.size + 1, sizeof(**offsets_p));
    if (*offsets_p == NULL)
        return perf_fail("out of memory");
    status = job->channel.allgather(job->channel.self, data, bytes, all_p, *offsets_p,
                                    CHANNEL_TIMEOUT_US);
    if (status != STEPAF_OK) {
        free(*offsets_p);
        *offsets_p = NULL;
        return perf_fail_status(status, "gathering results");
    }
    return 0;
}

int perf_job_max(struct perf_job *job, double mine, double *max_p)
{
    double max = mine;
    size_t *offsets;
    void *all;

    if (perf_job_gather(job, &mine, sizeof(mine), &all, &offsets) != 0)
        return -1;
    for (int i = 0; i < job->channel.size; i++) {
        if (((double *)all)[i] > max)
            max = ((double *)all)[i];
    }
    free(all);
    free(offsets);
    *max_p = max;
    return 0;
}

/* The sentence of the failed ranks: the first one's in full, and the number of others. */
static int tell_failures(const char *verdicts, int size, size_t stride)
{
    const char *first = NULL;
    int first_rank = 0;
    int more = 0;

    for (int i = 0; i < size; i++) {
        const char *text = verdicts + (size_t)i * stride;

        if (text[0] == '\0')
            continue;
        more += first != NULL;
        if (first == NULL) {
            first = text;
            first_rank = i;
        }
    }
    if (first == NULL)
        return 0;
    if (more == 0)
        return perf_fail("rank %d failed: %.*s", first_rank, PERF_FAIL_MAX - 64, first);
    return perf_fail("rank %d failed: %.*s; so did %d more", first_rank, PERF_FAIL_MAX - 64, first,
                     more);
}

/* This rank has failed: it only waits until the others are notified. */
static bool has_failed;

/* The others may never arrive: then this rank reports its failure, and exits. Ranks that still
 * wait for an operation have a deadline. */
static void begin_failing(const struct perf_job *job)
{
    char text[PERF_FAIL_MAX];

    if (has_failed)
        return;
    snprintf(text, sizeof(text), "rank %d failed: %.*s", job->channel.rank, PERF_FAIL_MAX - 32,
             perf_fail_text());
    perf_guard_failed((unsigned)job->wait_s + MORE_S, text);
    has_failed = true;
}

static void end_failing(void)
{
    if (!has_failed)
        return;
    perf_unguard();
    has_failed = false;
}

void perf_job_give_way(void)
{
    static unsigned turns;

    if (has_failed) {
        nanosleep(&(struct timespec){0, FAILED_PAUSE_NS}, NULL);
        return;
    }
    /* A loop that only yields can keep ranks of other sessions off all cores (Linux 6.18). */
    if (++turns % 64 == 0)
        nanosleep(&(struct timespec){0, 1000}, NULL);
    else
        sched_yield();
}

int perf_job_idle(stepaf_context_h ctx)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};

    perf_job_give_way();
    if (ctx == NULL)
        return 0;
    stepaf_progress(ctx);
    if (stepaf_counters_query(ctx, &counters) != STEPAF_OK || counters.peers_lost == 0)
        return 0;
    return perf_fail_status(STEPAF_ERR_PEER_LOST, "waiting for the end of a block");
}

static void leave_if_lost(const struct perf_job *job, int rc)
{
    if (rc == 0 || !perf_fail_is_loss())
        return;
    fprintf(stderr, "stepaf_perf: rank %d failed: %s\n", job->channel.rank, perf_fail_text());
    fflush(NULL);
    _exit(PERF_EXIT_FAILED);
}

int perf_job_end_block(struct perf_job *job, stepaf_context_h ctx, int rc)
{
    int settled;

    leave_if_lost(job, rc);
    if (rc != 0)
        begin_failing(job);
    settled = perf_job_settle(job, ctx);
    leave_if_lost(job, settled);
    return perf_job_agree(job, rc != 0 ? rc : settled);
}

int perf_job_agree(struct perf_job *job, int rc)
{
    char mine[PERF_FAIL_MAX] = "";
    void *all;
    size_t *offsets;

    leave_if_lost(job, rc);
    if (rc != 0) {
        begin_failing(job);
        snprintf(mine, sizeof(mine), "%s", perf_fail_text());
    }
    /* One byte says that all is well, so that the usual verdict is short. */
    rc = perf_job_gather(job, mine, rc != 0 ? sizeof(mine) : 1, &all, &offsets);
    end_failing();
    if (rc != 0)
        return -1;
    if (offsets[job->channel.size] != (size_t)job->channel.size) {
        char *verdicts = calloc((size_t)job->channel.size, PERF_FAIL_MAX);

        rc = verdicts == NULL ? perf_fail("out of memory") : 0;
        for (int i = 0; i < job->channel.size && verdicts != NULL; i++)
            memcpy(verdicts + (size_t)i * PERF_FAIL_MAX, (char *)all + offsets[i],
                   offsets[i + 1] - offsets[i]);
        if (verdicts != NULL)
            rc = tell_failures(verdicts, job->channel.size, PERF_FAIL_MAX);
        free(verdicts);
    }
    free(all);
    free(offsets);
    return rc;
}
