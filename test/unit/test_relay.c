/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans whose peers are reached by way of the host: every transport, every pair of kinds,
 * and what goes wrong. Ranks are processes; their GPUs are made of memory. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_fake.h"
#include "cuda_kernels.h"
#include "relay_rank.h"
#include "unit.h"

/* ---- exchanges ---- */

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    const struct relay_job *job = arg;
    struct relay_rank rank;

    if (relay_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    unsigned n = job->replays ? job->replays * job->depth : job->ops;
    if (job->replays && !rank.host ? relay_rank_replay(&rank) : relay_rank_run(&rank, 0, n))
        return 1;
    RANK_CHECK(boot, rank.n_looked == n);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.plan)
        RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    relay_rank_close(&rank);
    return 0;
}

static const struct relay_job small = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .relay = "always",
    .depth = 2,
    .n_push = 3,
    .n_pull = 2,
    .push = {112, 4096, 8},
    .pull = {5000, 64},
    .ops = 301,
};

static const struct relay_job large = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .relay = "always",
    .depth = 3,
    .n_push = 2,
    .n_pull = 1,
    .push = {3 << 20, 100},
    .pull = {2500001},
    .ops = 20,
};

static void run(struct relay_job job)
{
    ranks_expect_processes(job.n_attention + job.n_ffn, exchange, &job);
}

static void over_every_transport(void)
{
    struct relay_job job = small;

    run(job);
    run(large);
    job.transports = "tcp";
    run(job);
    job = large;
    job.transports = "tcp";
    run(job);
}

static void with_one_slot_and_with_many_peers(void)
{
    struct relay_job job = small;

    job.depth = 1;
    job.ops = 100;
    run(job);
    job.n_ffn = 3;
    run(job);
    job.n_ffn = 1;
    job.n_attention = 3;
    run(job);
    job.depth = 3;
    job.n_ffn = 2;
    job.n_attention = 2;
    job.transports = "tcp";
    run(job);
}

/* More tensors than one launch takes, at one end of each pair. */
static void with_more_peers_than_a_launch_takes(void)
{
    struct relay_job job = small;

    job.n_ffn = RELAY_PEERS;
    job.n_pull = 3;
    job.pull[2] = 700;
    job.ops = 30;
    job.host[1] = true;
    run(job);
    job.n_ffn = 1;
    job.n_attention = RELAY_PEERS;
    job.host[0] = true;
    job.host[1] = false;
    run(job);
}

static void by_copy_engines(void)
{
    struct relay_job job = small;

    job.engine = "ce";
    run(job);
    job.fixed = true;
    job.transports = "tcp";
    run(job);
    job.in_host[0] = true;
    job.in_host[1] = true;
    run(job);
}

static void replayed_as_graphs(void)
{
    struct relay_job job = small;

    job.fixed = true;
    job.replays = 100;
    run(job);
    job.transports = "tcp";
    job.depth = 3;
    job.n_ffn = 2;
    run(job);
}

static void between_host_plans_and_streams(void)
{
    struct relay_job job = small;

    for (int i = 0; i < 4; i++) {
        job.host[0] = i & 1;
        job.host[1] = i & 2;
        job.transports = i % 2 ? "shm" : "tcp";
        job.n_attention = 1 + i % 2;
        job.n_ffn = 2;
        run(job);
    }
    job = small;
    job.host[0] = true;
    job.fixed = true;
    job.replays = 50;
    run(job);
}

static void with_tensors_in_host_memory(void)
{
    struct relay_job job = small;

    for (int i = 1; i < 4; i++) {
        job.in_host[0] = i & 1;
        job.in_host[1] = i & 2;
        run(job);
    }
    job.host[1] = true; /* a stream plan on host memory, and no stream at the other end */
    job.in_host[0] = true;
    run(job);
}

/* ---- life ---- */

/* A commit in between, after an uneven number of operations, so that a host plan goes on with another
 * slot than the stream begins with. */
static int commit_again(const stepaf_boot_t *boot, void *arg)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                                  .direction = STEPAF_PULL,
                                  .max_bytes = 8};
    struct relay_rank rank;

    if (relay_rank_open(&rank, arg, boot))
        return 1;
    for (uint64_t round = 0; round < 3; round++) {
        RANK_CHECK(boot, stepaf_key_declare(rank.ctx, 1000 + round, &params) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        RANK_CHECK(boot, relay_rank_run(&rank, 0, 7) == 0);
        RANK_CHECK(boot, rank.n_wrong == 0);
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    }
    relay_rank_close(&rank);
    return 0;
}

static void again_after_each_commit(void)
{
    struct relay_job job = small;

    job.fixed = true;
    ranks_expect_processes(2, commit_again, &job);
    job.depth = 3;
    job.host[0] =
        true; /* its answers' slots go on: look does not know, so answers are of one size */
    job.transports = "tcp";
    ranks_expect_processes(2, commit_again, &job);
}

/* ---- failures ---- */

/* The stream waits, and nobody answers; with the next commit all is well again. */
static int go_on_after_a_timeout(const stepaf_boot_t *boot, void *arg)
{
    const struct relay_job *job = arg;
    struct relay_rank rank;

    if (relay_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, relay_rank_begin(&rank, 0) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cuda_kernels_sync(RELAY_SYNC_MS));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_TIMEOUT);
        RANK_CHECK(boot, stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL) ==
                             STEPAF_ERR_TIMEOUT);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, relay_rank_run(&rank, 0, job->ops) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    relay_rank_close(&rank);
    return 0;
}

static void a_deadline_ends_a_wait_until_the_next_commit(void)
{
    struct relay_job job = small;

    job.ops = 20;
    job.timeout_us = "3000000"; /* all of the rest within it, on a busy machine, too */
    ranks_expect_processes(2, go_on_after_a_timeout, &job);
}

/* An FFN rank in host memory gives a batch back. */
static int give_back(const stepaf_boot_t *boot, void *arg)
{
    struct relay_rank rank;
    stepaf_batch_h batch;
    int n;

    if (relay_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, relay_rank_begin(&rank, 0) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cuda_kernels_sync(RELAY_SYNC_MS));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_CANCELED);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "without an answer") != NULL);
    } else {
        RANK_CHECK(boot, stepaf_recv(rank.ctx, STEPAF_FROM_ANY, -1, &batch, 1, &n) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    relay_rank_close(&rank);
    return 0;
}

static void a_batch_that_is_given_back_ends_the_wait(void)
{
    struct relay_job job = small;

    job.host[1] = true;
    ranks_expect_processes(2, give_back, &job);
}

/* A stream that has failed gives back what it will not answer. */
static int fail_at_the_ffn(const stepaf_boot_t *boot, void *arg)
{
    struct relay_rank rank;
    stepaf_request_h request;

    if (relay_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_FFN) { /* it waits for what comes too late */
        RANK_CHECK(boot, stepaf_recv_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        RANK_CHECK(boot, cuda_kernels_sync(RELAY_SYNC_MS));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_TIMEOUT);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, -1) == STEPAF_ERR_CANCELED);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    relay_rank_close(&rank);
    return 0;
}

static void a_stream_that_has_failed_gives_back_batches(void)
{
    struct relay_job job = small;

    job.host[0] = true;
    job.timeout_us = "200000";
    ranks_expect_processes(2, fail_at_the_ffn, &job);
}

/* The peer dies while the stream waits, long before the deadline. */
static int lose_the_peer(const stepaf_boot_t *boot, void *arg)
{
    const struct relay_job *job = arg;
    struct relay_rank rank;

    if (relay_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, relay_rank_run(&rank, 0, 4) == 0);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, relay_rank_begin(&rank, 4) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
    }
    (void)stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1); /* the other may be dead by its end */
    if (rank.role == STEPAF_FFN)
        _exit(3);
    RANK_CHECK(boot, cuda_kernels_sync(RELAY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    relay_rank_close(&rank);
    return 0;
}

static void a_peer_that_dies_ends_the_wait(void)
{
    struct relay_job job = small;
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
    struct relay_rank rank;

    if (relay_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, relay_rank_begin(&rank, 0) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_ERR_STATE);
    relay_rank_close(&rank);
    return 0;
}

static void operations_that_are_open_are_left_behind(void)
{
    struct relay_job job = small;

    ranks_expect_processes(2, leave, &job);
    job.transports = "tcp";
    ranks_expect_processes(2, leave, &job);
}

/* ---- refusals ---- */

static int refuse_without_a_thread(const stepaf_boot_t *boot, void *arg)
{
    struct relay_rank rank;

    if (relay_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_UNSUPPORTED);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "STEPAF_PROGRESS=thread") != NULL);
    relay_rank_close(&rank);
    return 0;
}

static void without_the_librarys_thread_it_is_refused(void)
{
    struct relay_job job = small;

    job.progress = "inline";
    ranks_expect_processes(2, refuse_without_a_thread, &job);
}

static int refuse_a_pair(const stepaf_boot_t *boot, void *arg)
{
    struct relay_rank rank;

    if (relay_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_MISMATCH);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "STEPAF_CUDA_RELAY=always") != NULL);
    relay_rank_close(&rank);
    return 0;
}

static void a_host_plan_next_to_a_stream_takes_the_setting(void)
{
    struct relay_job job = small;

    job.relay = "auto";
    job.host[0] = true;
    ranks_expect_processes(2, refuse_a_pair, &job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"over every transport", over_every_transport},
        {"with one slot, and with many peers", with_one_slot_and_with_many_peers},
        {"with more peers than a launch takes", with_more_peers_than_a_launch_takes},
        {"by copy engines", by_copy_engines},
        {"replayed as graphs", replayed_as_graphs},
        {"between host plans and streams", between_host_plans_and_streams},
        {"with tensors in host memory", with_tensors_in_host_memory},
        {"again after each commit", again_after_each_commit},
        {"a deadline ends a wait", a_deadline_ends_a_wait_until_the_next_commit},
        {"a batch that is given back ends the wait", a_batch_that_is_given_back_ends_the_wait},
        {"a stream that has failed gives back", a_stream_that_has_failed_gives_back_batches},
        {"a peer that dies ends the wait", a_peer_that_dies_ends_the_wait},
        {"operations that are open are left", operations_that_are_open_are_left_behind},
        {"without the library's thread", without_the_librarys_thread_it_is_refused},
        {"a host plan next to a stream", a_host_plan_next_to_a_stream_takes_the_setting},
        CU_TEST_INFO_NULL,
    };
    return unit_run("relay", tests);
}
