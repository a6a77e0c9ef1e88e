/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans whose peers are reached by way of the host, from commit to commit, and what goes
 * wrong. Ranks are processes; their GPUs are made of memory. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "proxy_again.h"
#include "proxy_rank.h"
#include "unit.h"

/* ---- life ---- */

static void again_after_each_commit(void)
{
    struct proxy_job job = proxy_small;

    job.fixed = true;
    ranks_expect_processes(2, proxy_commit_again, &job);
    job.depth = 3;
    job.host[0] =
        true; /* its answers' slots go on: look does not know, so answers are of one size */
    job.transports = "tcp";
    ranks_expect_processes(2, proxy_commit_again, &job);
}

/* Plans of the same keys go together in the order of making, though numbers are given out again. */
static int make_several(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    stepaf_plan_h first = rank.plan;
    if (rank.role == STEPAF_ATTENTION) {
        if (proxy_rank_plan(&rank))
            return 1;
        RANK_CHECK(boot, stepaf_plan_destroy(first) == STEPAF_OK);
    }
    if (proxy_rank_plan(&rank))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 7) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void plans_go_together_in_the_order_of_making(void)
{
    struct proxy_job job = proxy_small;

    job.fixed = true;
    ranks_expect_processes(2, make_several, &job);
    job.host[0] = true;
    ranks_expect_processes(2, make_several, &job);
}

static void keys_go_with_what_they_came_to(void)
{
    struct proxy_job job = proxy_small;

    ranks_expect_processes(2, proxy_withdraw_keys, &job);
    job.in_host[1] = true;
    ranks_expect_processes(2, proxy_withdraw_keys, &job);
    job.in_host[1] = false;
    job.host[0] = true;
    job.fixed = true;
    ranks_expect_processes(2, proxy_withdraw_keys, &job);
}

/* ---- failures ---- */

/* The stream waits, and nobody answers; with the next commit all is well again. */
static int go_on_after_a_timeout(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_TIMEOUT);
        RANK_CHECK(boot, stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL) ==
                             STEPAF_ERR_TIMEOUT);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, job->ops) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

/* The same without asking what has become of the plan. */
static int commit_after_a_timeout(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_FFN) {
        RANK_CHECK(boot, stepaf_recv_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    }
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_deadline_ends_a_wait_until_the_next_commit(void)
{
    struct proxy_job job = proxy_small;

    job.ops = 20;
    job.timeout_us = "3000000"; /* all of the rest within it, on a busy machine, too */
    ranks_expect_processes(2, go_on_after_a_timeout, &job);
    job.timeout_us = "300000";
    ranks_expect_processes(2, commit_after_a_timeout, &job);
    job.proxy = "auto";
    ranks_expect_processes(2, commit_after_a_timeout, &job);
}

/* An FFN rank in host memory gives a batch back. */
static int give_back(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    stepaf_batch_h batch;
    int n;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
        stepaf_status_t status = stepaf_wait_on_stream(rank.plan, &rank.stream);
        /* The release may be here already. */
        RANK_CHECK(boot, status == STEPAF_OK || status == STEPAF_ERR_CANCELED);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_CANCELED);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "without an answer") != NULL);
    } else {
        RANK_CHECK(boot, stepaf_recv(rank.ctx, STEPAF_FROM_ANY, 0, -1, &batch, 1, &n) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_batch_that_is_given_back_ends_the_wait(void)
{
    struct proxy_job job = proxy_small;

    job.host[1] = true;
    ranks_expect_processes(2, give_back, &job);
}

/* A stream that has failed gives back what it will not answer. */
static int fail_at_the_ffn(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    stepaf_request_h request;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_FFN) { /* it waits for what comes too late */
        RANK_CHECK(boot, stepaf_recv_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_TIMEOUT);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, -1) == STEPAF_ERR_CANCELED);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_stream_that_has_failed_gives_back_batches(void)
{
    struct proxy_job job = proxy_small;

    job.host[0] = true;
    job.timeout_us = "200000";
    ranks_expect_processes(2, fail_at_the_ffn, &job);
}

/* The peer dies while the stream waits, long before the deadline. */
static int lose_the_peer(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 4) == 0);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 4) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
    }
    (void)stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1); /* the other may be dead by its end */
    if (rank.role == STEPAF_FFN)
        _exit(3);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_peer_that_dies_ends_the_wait(void)
{
    struct proxy_job job = proxy_small;
    int statuses[2];

    job.timeout_us = "60000000";
    for (int i = 0; i < 2; i++) {
        job.transports = i ? "tcp" : "shm";
        ranks_run(2, lose_the_peer, &job, statuses);
        CU_ASSERT_EQUAL(statuses[0], 0);
        CU_ASSERT(WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == 3);
    }
}

/* Finalized with operations open. */
static int leave(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_ERR_STATE);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void operations_that_are_open_are_left_behind(void)
{
    struct proxy_job job = proxy_small;

    ranks_expect_processes(2, leave, &job);
    job.transports = "tcp";
    ranks_expect_processes(2, leave, &job);
}

/* ---- refusals ---- */

/* One operation, at an FFN rank in host memory: what it answers with is of no interest. */
static int serve(const stepaf_boot_t *boot, struct proxy_rank *rank, stepaf_batch_h *batch_p)
{
    stepaf_tensor_t answers[PROXY_TENSORS];
    stepaf_request_h request;
    int n;

    RANK_CHECK(boot, stepaf_recv(rank->ctx, STEPAF_FROM_ANY, 0, -1, batch_p, 1, &n) == STEPAF_OK);
    for (int i = 0; i < rank->job->n_pull; i++) {
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        RANK_CHECK(boot, stepaf_batch_answer(*batch_p, i, &info) == STEPAF_OK);
        answers[i] = (stepaf_tensor_t){info.key, rank->source[i], rank->job->pull[i]};
    }
    RANK_CHECK(boot,
               stepaf_respond(*batch_p, answers, rank->job->n_pull, 0, &request) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_wait(request, -1) == STEPAF_OK);
    return 0;
}

/* A plan of whose batches one is still held does not end, and is as it was. */
static int refuse_to_end(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    stepaf_batch_h batch;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (unsigned n = 0; n < 3; n++) {
        if (rank.role == STEPAF_ATTENTION) {
            RANK_CHECK(boot, proxy_rank_begin(&rank, n) == STEPAF_OK);
            RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
            RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
            RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
            RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_ERR_STATE);
            RANK_CHECK(boot, strstr(stepaf_last_error()->text, "has not released") != NULL);
        } else if (serve(boot, &rank, &batch)) {
            return 1;
        }
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
        if (rank.role == STEPAF_FFN)
            RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    }
    if (rank.role == STEPAF_ATTENTION)
        RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_plan_that_cannot_end_goes_on(void)
{
    struct proxy_job job = proxy_small;

    job.host[1] = true;
    job.timeout_us = "3000000";
    ranks_expect_processes(2, refuse_to_end, &job);
}

static int refuse_without_a_thread(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_UNSUPPORTED);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "STEPAF_PROGRESS=thread") != NULL);
    proxy_rank_close(&rank);
    return 0;
}

static void without_the_librarys_thread_it_is_refused(void)
{
    struct proxy_job job = proxy_small;

    job.progress = "inline";
    ranks_expect_processes(2, refuse_without_a_thread, &job);
}

static int refuse_a_pair(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_MISMATCH);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "STEPAF_CUDA_PROXY=always") != NULL);
    proxy_rank_close(&rank);
    return 0;
}

static void a_host_plan_next_to_a_stream_takes_the_setting(void)
{
    struct proxy_job job = proxy_small;

    job.proxy = "auto";
    job.host[0] = true;
    ranks_expect_processes(2, refuse_a_pair, &job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"again after each commit", again_after_each_commit},
        {"keys go with what they came to", keys_go_with_what_they_came_to},
        {"plans go together in the order of making", plans_go_together_in_the_order_of_making},
        {"a deadline ends a wait", a_deadline_ends_a_wait_until_the_next_commit},
        {"a batch that is given back ends the wait", a_batch_that_is_given_back_ends_the_wait},
        {"a stream that has failed gives back", a_stream_that_has_failed_gives_back_batches},
        {"a peer that dies ends the wait", a_peer_that_dies_ends_the_wait},
        {"operations that are open are left", operations_that_are_open_are_left_behind},
        {"a plan that cannot end goes on", a_plan_that_cannot_end_goes_on},
        {"without the library's thread", without_the_librarys_thread_it_is_refused},
        {"a host plan next to a stream", a_host_plan_next_to_a_stream_takes_the_setting},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
