/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed while the others are in a collective call, or stopped for a while. */
#include "fault.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_US = 500000, WAIT_US = 200000 };

/* On a slow machine a rank may come so late that the others have waited long enough. */
static bool lost_or_late(stepaf_status_t status)
{
    return status == STEPAF_ERR_PEER_LOST || status == STEPAF_ERR_TIMEOUT ||
           (status == STEPAF_ERR_BOOT &&
            strstr(stepaf_last_error()->text, "another rank has given up") != NULL);
}

/* The last rank never comes; the first one kills it. */
static bool kill_last(struct fault *fault)
{
    struct hs_job *job = fault->job;

    hs_doom(job, job->size - 1);
    if (job->rank == job->size - 1) {
        hs_pause(job);
        for (;;)
            pause();
    }
    if (!hs_pause(job))
        return false;
    if (job->rank == 0)
        fault_kill_later(fault, job->size - 1, fault->delay_us);
    return true;
}

void fault_commit(struct fault *fault)
{
    struct hs_job *job = fault->job;
    stepaf_request_h request = NULL;
    stepaf_status_t status;
    int64_t began;

    fx_declare(job, 0, fault->bytes, 1);
    if (job->role == STEPAF_ATTENTION)
        fx_plan_make(job, 0, fault->bytes, 1, FX_BOTH, &fault->plans[0]);
    if (!kill_last(fault))
        return;
    began = hs_now_ns();
    status = stepaf_commit(job->ctx);
    int64_t us = (hs_now_ns() - began) / 1000;
    if (!HS_TRUE(lost_or_late(status)) || !HS_REFUSED(status, status))
        HS_FAILED("commit: %s", stepaf_status_name(status));
    HS_INT(us, <=, (LIMIT_US + 500000LL) * hs_slow());
    job->abandoned = true;
    if (job->rank == 0)
        fault_killed();
    HS_INT(stepaf_epoch(job->ctx), ==, 0);
    /* Only finalize is left, and it does not hang. */
    HS_TRUE(stepaf_commit(job->ctx) < 0);
    if (job->role == STEPAF_ATTENTION)
        HS_TRUE(fx_start(&fault->plans[0], 0, &request) < 0);
    HS_INT((hs_now_ns() - began) / 1000, <=, 2 * (LIMIT_US + 500000LL) * hs_slow());
}

void fault_barrier(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int64_t began;

    if (!fault_open(fault) || !kill_last(fault))
        return;
    began = hs_now_ns();
    stepaf_status_t status = stepaf_barrier(job->ctx, STEPAF_GROUP_WORLD, LIMIT_US);
    job->abandoned = true;
    if (!HS_TRUE(lost_or_late(status)) || !HS_REFUSED(status, status))
        HS_FAILED("barrier: %s", stepaf_status_name(status));
    HS_INT((hs_now_ns() - began) / 1000, <=, (LIMIT_US + 500000LL) * hs_slow());
    if (job->rank == 0)
        fault_killed();
}

/* Attention rank 0: stop the last FFN rank, find it late, let it go on. */
static void stop_and_go(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct fx_plan *plan = &fault->plans[F_ALL];
    int last = job->ffn - 1, world = fault_world(fault, STEPAF_FFN, last);
    int rounds = fault_rounds(fault);
    stepaf_request_h request = NULL;
    stepaf_counters_t counters = {.size = sizeof(counters)};

    for (int i = 0; i < rounds && fx_exchange(plan); i++)
        ;
    hs_signal(job, world, SIGSTOP);
    hs_sleep_us(20000);
    HS_OK(fx_start(plan, STEPAF_START_WAIT, &request));
    for (int64_t us = 0; us < fault->stop_us && !hs_failed(); us += WAIT_US) {
        bool only_last = fault_others_answered(fault, request);
        int64_t began = hs_now_ns();
        if (HS_REFUSED(stepaf_wait(request, WAIT_US), STEPAF_ERR_TIMEOUT) && only_last) {
            HS_INT(stepaf_last_error()->peer_rank, ==, last);
            HS_INT(stepaf_last_error()->peer_world_rank, ==, world);
            HS_INT(stepaf_last_error()->phase, ==, STEPAF_PHASE_RESPONSE);
        }
        HS_INT((hs_now_ns() - began) / 1000, >=, WAIT_US);
        HS_INT((hs_now_ns() - began) / 1000, <=, 1000000 * hs_slow());
    }
    for (int f = 0; f < last; f++)
        HS_OK(stepaf_request_peer(request, f));
    hs_signal(job, world, SIGCONT);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    fx_verify(plan, plan->next - 1, -1);
    for (int i = 0; i < rounds && fx_exchange(plan); i++)
        ;
    HS_OK(stepaf_counters_query(job->ctx, &counters));
    HS_INT(counters.peers_lost, ==, 0);
    atomic_store(&job->shared->stamp[STAMP_END + 1], 1);
    hs_sleep_us(100000);
    atomic_store(&job->shared->stamp[STAMP_END], 1);
}

/* A stopped rank is late, not lost: the wait names it, and ends well when it goes on. */
void fault_stopped(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int last = job->ffn - 1;

    if (!fault_open(fault))
        return;
    if (job->role == STEPAF_FFN) {
        fault_serve(fault);
    } else if (job->index > 0) { /* others' operations go on as far as they do not need it */
        fault->plans[F_SLICED].skip = last;
        while (atomic_load(&job->shared->stamp[STAMP_END + 1]) == 0 &&
               fx_exchange(&fault->plans[F_SLICED]))
            ;
    } else {
        stop_and_go(fault);
    }
    hs_sync(job);
}

/* Finalize ends in time although the peers take nothing: more is under way than a ring holds. */
void fault_crowded(struct fault *fault)
{
    enum { DEEP = 4, SHARED = 3 };
    struct hs_job *job = fault->job;
    struct fx_plan plans[SHARED];
    stepaf_request_h request;

    if (!fx_open(job, SHARED, fault->bytes, DEEP, FX_NO_PULL, plans))
        return;
    for (int i = 0; i < SHARED * DEEP && job->role == STEPAF_ATTENTION; i++)
        HS_OK(fx_start(&plans[i % SHARED], 0, &request));
    if (job->role == STEPAF_ATTENTION) {
        int64_t began = hs_now_ns();
        hs_close(job);
        HS_INT((hs_now_ns() - began) / 1000000, <=, 4000 * hs_slow());
    }
    hs_pause(job);
}
