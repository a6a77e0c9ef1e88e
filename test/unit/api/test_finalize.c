/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_finalize where calls of the context are under way: other threads' end soon, by
 * STEPAF_ERR_HANDLE, and nothing is freed before; the batch handler's own is refused. One attention
 * and one FFN rank, real ones. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/time.h"
#include "pair_rank.h"
#include "unit.h"

/* Far below the deadlines of the calls, which are half a minute or more. */
static const int64_t SOON_NS = 10000000000;

static void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- threads in calls ---- */

struct caller {
    struct pair_rank *rank;
    stepaf_request_h request;
    stepaf_status_t (*call)(struct caller *caller);
    _Atomic bool begun;
    stepaf_status_t status;
};

static stepaf_status_t call_recv(struct caller *caller)
{
    stepaf_batch_h batch;
    int n;

    return stepaf_recv(caller->rank->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1,
                       &n);
}

static stepaf_status_t call_wait(struct caller *caller)
{
    return stepaf_wait(caller->request, STEPAF_TIMEOUT_DEFAULT);
}

static stepaf_status_t call_wait_any(struct caller *caller)
{
    int index;

    return stepaf_wait_any(&caller->request, 1, STEPAF_TIMEOUT_DEFAULT, &index);
}

static stepaf_status_t call_barrier(struct caller *caller)
{
    return stepaf_barrier(caller->rank->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
}

static stepaf_status_t call_commit(struct caller *caller)
{
    return stepaf_commit(caller->rank->ctx);
}

/* Calls that do not wait, again and again until the handle is not valid any more. */
static stepaf_status_t call_many(struct caller *caller)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};
    stepaf_status_t status = STEPAF_OK;

    while (!status) {
        (void)stepaf_rank(caller->rank->ctx, STEPAF_GROUP_FFN);
        (void)stepaf_clock_ns(caller->rank->ctx);
        (void)stepaf_progress(caller->rank->ctx);
        status = stepaf_counters_query(caller->rank->ctx, &counters);
    }
    return status;
}

static void *run_call(void *arg)
{
    struct caller *caller = arg;

    atomic_store(&caller->begun, true);
    caller->status = caller->call(caller);
    return NULL;
}

/* Two threads finalize while others are in @a callers' calls: all end soon. */
static int finalize_beside(struct pair_rank *rank, struct caller *callers, int n)
{
    pthread_t threads[4];
    int64_t began;

    for (int i = 0; i < n; i++) {
        callers[i].rank = rank;
        RANK_CHECK(rank->boot, !pthread_create(&threads[i], NULL, run_call, &callers[i]));
    }
    for (int i = 0; i < n; i++)
        while (!atomic_load(&callers[i].begun))
            nap(1);
    nap(20);
    began = stepaf_monotonic_ns();
    stepaf_finalize(rank->ctx);
    for (int i = 0; i < n; i++) {
        RANK_CHECK(rank->boot, !pthread_join(threads[i], NULL));
        RANK_CHECK(rank->boot, callers[i].status == STEPAF_ERR_HANDLE);
    }
    RANK_CHECK(rank->boot, stepaf_monotonic_ns() - began < SOON_NS);
    RANK_CHECK(rank->boot, stepaf_role(rank->ctx) == STEPAF_ROLE_AUTO);
    stepaf_finalize(rank->ctx); /* ignored */
    return 0;
}

static stepaf_status_t call_finalize(struct caller *caller)
{
    stepaf_finalize(caller->rank->ctx);
    return STEPAF_ERR_HANDLE;
}

/* Until the peer has finalized. */
static int leave_after_the_peer(const struct pair_rank *rank)
{
    stepaf_link_info_t info = {.size = sizeof(info)};

    while (!info.is_lost) {
        RANK_CHECK(rank->boot, stepaf_link_query(rank->ctx, 0, &info) == STEPAF_OK);
        nap(1);
    }
    stepaf_finalize(rank->ctx);
    return 0;
}

static int finalize_in_calls(const stepaf_boot_t *boot, void *arg)
{
    struct caller callers[] = {{.call = call_recv}, {.call = call_many}, {.call = call_finalize}};
    struct pair_rank rank;

    (void)arg;
    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    return rank.ffn ? finalize_beside(&rank, callers, 3) : leave_after_the_peer(&rank);
}

static void calls_of_other_threads_end(void)
{
    ranks_expect_processes(2, finalize_in_calls, NULL);
}

/* An operation that nobody answers. */
static int finalize_in_a_wait(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;

    (void)arg;
    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn)
        return leave_after_the_peer(&rank);
    struct caller callers[] = {{.call = call_wait}, {.call = call_wait_any}, {.call = call_many}};
    RANK_CHECK(boot, stepaf_start(rank.plan, &callers[0].request) == STEPAF_OK);
    callers[1].request = callers[0].request;
    return finalize_beside(&rank, callers, 3);
}

static void waits_of_other_threads_end(void)
{
    ranks_expect_processes(2, finalize_in_a_wait, NULL);
}

/* One that the peer does not enter: it leaves when this rank has gone. */
static int finalize_in_a_collective(const stepaf_boot_t *boot, void *arg)
{
    struct caller caller = {.call = arg};
    struct pair_rank rank;

    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(rank.ctx, 9, STEPAF_PUSH, 64, NULL) == STEPAF_OK);
    return rank.ffn ? leave_after_the_peer(&rank) : finalize_beside(&rank, &caller, 1);
}

static void a_barrier_ends(void)
{
    ranks_expect_processes(2, finalize_in_a_collective, call_barrier);
}

static void a_commit_ends(void)
{
    ranks_expect_processes(2, finalize_in_a_collective, call_commit);
}

/* ---- the handler ---- */

static stepaf_context_h handler_ctx;
static atomic_int n_calls, go;

static void finalize_and_release(stepaf_batch_h batch, void *arg)
{
    (void)arg;
    stepaf_finalize(handler_ctx);
    if (stepaf_last_error()->status == STEPAF_ERR_STATE && stepaf_release(batch) == STEPAF_OK)
        atomic_fetch_add(&n_calls, 1);
}

static int finalize_in_the_handler(const stepaf_boot_t *boot, void *arg)
{
    stepaf_request_h request;
    struct pair_rank rank;

    setenv("STEPAF_LOG_LEVEL", "none", 1);
    if (pair_open(&rank, boot, arg))
        return 1;
    handler_ctx = rank.ctx;
    if (rank.ffn)
        RANK_CHECK(boot, !stepaf_batch_set_handler(rank.ctx, finalize_and_release, NULL));
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        while (!atomic_load(&n_calls))
            RANK_CHECK(boot, stepaf_progress(rank.ctx) == STEPAF_OK);
    } else {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_ERR_CANCELED);
    }
    stepaf_finalize(rank.ctx);
    RANK_CHECK(boot, stepaf_role(rank.ctx) == STEPAF_ROLE_AUTO);
    return 0;
}

static void the_handler_cannot_finalize(void)
{
    static char inline_mode[] = "inline", thread_mode[] = "thread";

    ranks_expect_processes(2, finalize_in_the_handler, inline_mode);
    ranks_expect_processes(2, finalize_in_the_handler, thread_mode);
}

static void stay(stepaf_batch_h batch, void *arg)
{
    (void)batch;
    (void)arg;
    atomic_fetch_add(&n_calls, 1);
    while (!atomic_load(&go))
        nap(1);
}

/* Then finalize gives up, and what the call uses stays. */
static int finalize_beside_a_handler_that_stays(const stepaf_boot_t *boot, void *arg)
{
    stepaf_request_h request;
    struct pair_rank rank;

    (void)arg;
    setenv("STEPAF_LOG_LEVEL", "none", 1);
    setenv("STEPAF_TIMEOUT_US", "300000", 1);
    if (pair_open(&rank, boot, "thread"))
        return 1;
    if (rank.ffn)
        RANK_CHECK(boot, !stepaf_batch_set_handler(rank.ctx, stay, NULL));
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (!rank.ffn) {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        (void)stepaf_wait(request, 1000000);
    }
    while (rank.ffn && !atomic_load(&n_calls))
        nap(1);
    stepaf_finalize(rank.ctx);
    RANK_CHECK(boot, stepaf_role(rank.ctx) == STEPAF_ROLE_AUTO);
    atomic_store(&go, 1);
    nap(20);
    return 0;
}

static void a_handler_that_stays_is_not_waited_for_ever(void)
{
    ranks_expect_processes(2, finalize_beside_a_handler_that_stays, NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"calls of other threads end", calls_of_other_threads_end},
        {"waits of other threads end", waits_of_other_threads_end},
        {"a barrier ends", a_barrier_ends},
        {"a commit ends", a_commit_ends},
        {"the handler cannot finalize", the_handler_cannot_finalize},
        {"a handler that stays is not waited for ever",
         a_handler_that_stays_is_not_waited_for_ever},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
