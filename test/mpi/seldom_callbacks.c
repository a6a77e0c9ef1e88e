/* SPDX-License-Identifier: Apache-2.0 */
/* What callers meet seldom: callbacks that take long, or call what they may not, and a wait that is
 * ended by another thread. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "seldom.h"

enum { HANDLER_US = 5000, LOAD_US = 3000000 };

/* ---- a wait beside a batch callback, under load ---- */

static atomic_int n_calls;

static void answer_slowly(stepaf_batch_h batch, void *arg)
{
    struct se_rank *rank = arg;

    hs_sleep_us(HANDLER_US);
    HS_OK(se_answer(rank, batch, STEPAF_RESPOND_RELEASE));
    atomic_fetch_add(&n_calls, 1);
    stepaf_progress(rank->job->ctx); /* takes in what has come meanwhile */
}

/* Keep several operations going until the wait is over, or should have been long ago. */
static void load(struct se_rank *rank)
{
    const stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                          .flags = STEPAF_START_WAIT};
    int64_t end_ns = hs_now_ns() + LOAD_US * 1000LL * hs_slow();
    stepaf_request_h request = NULL;

    se_await(rank->job, SE_GO);
    while (!se_is_told(rank->job, SE_OVER) && hs_now_ns() < end_ns && !hs_failed())
        HS_OK(stepaf_start_with(rank->plan, &params, &request));
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
}

/* For an answer that the peer does not take in. */
static void wait_under_load(struct se_rank *rank)
{
    const stepaf_tensor_t large = {SE_LARGE, rank->memory, SE_LARGE_BYTES};
    struct hs_job *job = rank->job;
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    int64_t began_ns, took_us;
    int n = 0;

    if (!HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n)) ||
        !HS_OK(stepaf_respond(batch, &large, 1, STEPAF_RESPOND_RELEASE, &request)) ||
        !HS_OK(stepaf_batch_set_handler(job->ctx, answer_slowly, rank)))
        return;
    se_tell(job, SE_GO);
    began_ns = hs_now_ns();
    while (!atomic_load(&n_calls) && !hs_failed() && !hs_hopeless(job))
        stepaf_progress(job->ctx); /* does not go on until the load is over */
    HS_REFUSED(stepaf_wait(request, 10000), STEPAF_ERR_TIMEOUT);
    took_us = (hs_now_ns() - began_ns) / 1000;
    HS_INT(took_us, <, LOAD_US * hs_slow() / 3);
    se_tell(job, SE_OVER);
}

void se_deadline(struct se_rank *rank)
{
    struct hs_job *job = rank->job;

    setenv("STEPAF_TRANSPORTS", "tcp", 1);
    if (!se_open(rank, (stepaf_params_t){0}, 4, 0) ||
        !HS_OK(stepaf_key_declare(job->ctx, SE_LARGE, STEPAF_PULL, SE_LARGE_BYTES, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, SE_LARGE + 1, STEPAF_PUSH, SE_BYTES, NULL)))
        return;
    bool is_large = job->role == STEPAF_ATTENTION && job->index == 0;
    if (is_large) {
        const stepaf_tensor_t push = {SE_LARGE + 1, rank->memory, SE_BYTES},
                              pull = {SE_LARGE, rank->memory + 4 * SE_BYTES, SE_LARGE_BYTES};
        HS_OK(stepaf_plan_create(job->ctx, &push, 1, &pull, 1, 0, &rank->plan));
    }
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    if (job->role == STEPAF_FFN) {
        wait_under_load(rank);
    } else if (!is_large) {
        load(rank);
    } else {
        stepaf_request_h request = NULL;
        HS_OK(stepaf_start(rank->plan, &request));
        se_await(job, SE_OVER);
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    }
}

/* ---- a commit beside a batch callback that takes long ---- */

enum { COMMIT_US = 1000000 };

static void take_long(stepaf_batch_h batch, void *arg)
{
    struct se_rank *rank = arg;

    se_tell(rank->job, SE_GO);
    hs_sleep_us(COMMIT_US * 9 / 10);
    HS_OK(se_answer(rank, batch, STEPAF_RESPOND_RELEASE));
}

void se_commit(struct se_rank *rank)
{
    const stepaf_params_t params = {.field_mask = STEPAF_PARAM_PROGRESS,
                                    .progress = STEPAF_PROGRESS_THREAD};
    struct hs_job *job = rank->job;
    stepaf_request_h request = NULL;
    int64_t began_ns;

    setenv("STEPAF_COMMIT_TIMEOUT_US", "1000000", 1);
    if (!se_open(rank, params, 1, 0))
        return;
    if (job->role == STEPAF_FFN)
        HS_OK(stepaf_batch_set_handler(job->ctx, take_long, rank));
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    if (job->role == STEPAF_ATTENTION) {
        HS_OK(stepaf_start(rank->plan, &request));
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        se_await(job, SE_OVER);
        job->abandoned = true;
        return;
    }
    se_await(job, SE_GO);
    HS_OK(stepaf_key_declare(job->ctx, SE_LARGE, STEPAF_PULL, SE_BYTES, NULL));
    began_ns = hs_now_ns();
    HS_STATUS(stepaf_commit(job->ctx), STEPAF_ERR_TIMEOUT);
    HS_INT((hs_now_ns() - began_ns) / 1000, <, COMMIT_US * 3 / 2);
    job->abandoned = true;
    se_tell(job, SE_OVER);
}

/* ---- a commit beside a batch callback that always has more to do ---- */

/* Until the FFN rank's commit has its thread stop, and no slot comes free any more. */
static void load_until_silence(struct se_rank *rank)
{
    const stepaf_start_params_t params = {.field_mask =
                                              STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                          .flags = STEPAF_START_WAIT,
                                          .timeout_us = 200000 * hs_slow()};
    int64_t end_ns = hs_now_ns() + LOAD_US * 1000LL * hs_slow();
    stepaf_status_t status = STEPAF_OK;
    stepaf_request_h request = NULL;

    while (!status && hs_now_ns() < end_ns && !hs_failed())
        status = stepaf_start_with(rank->plan, &params, &request);
    HS_STATUS(status, STEPAF_ERR_TIMEOUT);
    HS_REFUSED(stepaf_commit(rank->job->ctx), STEPAF_ERR_STATE);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
}

void se_stop(struct se_rank *rank)
{
    const stepaf_params_t params = {.field_mask = STEPAF_PARAM_PROGRESS,
                                    .progress = STEPAF_PROGRESS_THREAD};
    struct hs_job *job = rank->job;
    int64_t began_ns;

    if (!se_open(rank, params, 4, 0))
        return;
    if (job->role == STEPAF_FFN)
        HS_OK(stepaf_batch_set_handler(job->ctx, answer_slowly, rank));
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    if (job->role == STEPAF_ATTENTION) {
        load_until_silence(rank);
        return;
    }
    while (!atomic_load(&n_calls) && !hs_failed() && !hs_hopeless(job))
        hs_sleep_us(500);
    began_ns = hs_now_ns();
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_STATE);
    HS_INT((hs_now_ns() - began_ns) / 1000, <, LOAD_US * hs_slow() / 3);
}

/* ---- the members' callback calls what it may not ---- */

static void commit_and_finalize(stepaf_context_h ctx, void *arg)
{
    struct se_rank *rank = arg;

    stepaf_finalize(ctx);
    HS_INT(stepaf_last_error()->status, ==, STEPAF_ERR_STATE);
    HS_TRUE(strstr(stepaf_last_error()->text, "stepaf_finalize") != NULL);
    HS_REFUSED(stepaf_commit(ctx), STEPAF_ERR_STATE);
    se_tell(rank->job, SE_OVER);
}

void se_members(struct se_rank *rank)
{
    struct hs_job *job = rank->job;
    int victim;

    if (!se_open_doomed(rank, (stepaf_params_t){0}, STEPAF_GROUP_FFN, 1, &victim))
        return;
    if (job->role == STEPAF_FFN) {
        se_await(job, SE_OVER);
        return;
    }
    HS_OK(stepaf_members_set_callback(job->ctx, commit_and_finalize, rank));
    hs_signal(job, victim, SIGKILL);
    while (!se_is_told(job, SE_OVER) && !hs_failed())
        HS_OK(stepaf_progress(job->ctx));
}

/* ---- a barrier or a commit of the members is ended ---- */

static void *finalize_soon(void *arg)
{
    hs_sleep_us(100000);
    stepaf_finalize(((struct se_rank *)arg)->job->ctx);
    return NULL;
}

/* The first attention rank waits for the second, which comes when that wait is over. */
static void end_wait(struct se_rank *rank, bool commits)
{
    const stepaf_params_t params = {.field_mask = STEPAF_PARAM_THREADS,
                                    .threads = STEPAF_THREADS_MULTIPLE};
    const stepaf_commit_params_t without = {.field_mask = STEPAF_COMMIT_LOST,
                                            .lost = STEPAF_COMMIT_LEAVE_LOST};
    stepaf_members_t members = {.size = sizeof members};
    struct hs_job *job = rank->job;
    pthread_t thread;
    int victim;

    if (!se_open_doomed(rank, params, STEPAF_GROUP_FFN, 1, &victim))
        return;
    if (job->rank == victim) {
        se_await(job, SE_OVER);
        return;
    }
    bool waits = job->role == STEPAF_ATTENTION && job->index == 0;
    if (waits)
        hs_signal(job, victim, SIGKILL);
    while (job->role == STEPAF_ATTENTION && !members.n_lost && !hs_failed()) {
        hs_yield();
        HS_OK(stepaf_progress(job->ctx));
        HS_OK(stepaf_members_query(job->ctx, &members, NULL, 0));
    }
    if (!HS_OK(stepaf_commit_with(job->ctx, &without)))
        return;
    if (!waits) {
        if (!commits || job->role == STEPAF_ATTENTION)
            se_await(job, SE_OVER);
        if (commits) /* who has left in the middle of it fails none of the others */
            HS_OK(stepaf_commit_with(job->ctx, &without));
        return;
    }
    if (HS_TRUE(pthread_create(&thread, NULL, finalize_soon, rank) == 0)) {
        HS_REFUSED(commits ? stepaf_commit_with(job->ctx, &without)
                           : stepaf_barrier(job->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT),
                   STEPAF_ERR_HANDLE);
        pthread_join(thread, NULL);
        job->ctx = NULL;
    }
    se_tell(job, SE_OVER);
}

void se_barrier(struct se_rank *rank)
{
    end_wait(rank, false);
}

void se_agreement(struct se_rank *rank)
{
    end_wait(rank, true);
}
