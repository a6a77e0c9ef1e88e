/* SPDX-License-Identifier: Apache-2.0 */
/* One attention and one FFN rank, real ones: what a peer's death, a failed commit and another
 * process leave, seen through calls that only look. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/handles.h"
#include "core/peer.h"
#include "pair_rank.h"
#include "unit.h"

enum { LIMIT_S = 10 };

/* ---- a peer that dies ---- */

enum { START, ASK_PEER, ASK_TENSOR, DESTROY, N_LOOKS };

static stepaf_status_t look(const struct pair_rank *rank, int how, stepaf_request_h request)
{
    stepaf_request_h other;

    if (how == START)
        return stepaf_start(rank->plan, &other);
    if (how == ASK_PEER)
        return stepaf_request_peer(request, 0);
    return how == ASK_TENSOR ? stepaf_request_tensor(request, 0, NULL)
                             : stepaf_plan_destroy(rank->plan);
}

/* The FFN rank dies with the batch in its hands, answered or not; the other one does nothing but
 * look. */
static int look_at_the_dead(const stepaf_boot_t *boot, void *arg)
{
    int how = *(int *)arg;
    bool answered = how == START || how == DESTROY;
    stepaf_status_t status, last = how == DESTROY ? STEPAF_OK : STEPAF_ERR_PEER_LOST;
    time_t began = time(NULL);
    struct pair_rank rank;
    stepaf_request_h request;
    stepaf_batch_h batch;

    if (pair_open(&rank, boot, "inline"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        if (pair_receive(&rank, &batch) || (answered && pair_answer(&rank, batch)))
            return 1;
        _exit(0);
    }
    RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
    if (answered)
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    do
        status = look(&rank, how, request);
    while (status != last && time(NULL) - began < LIMIT_S);
    RANK_CHECK(boot, status == last);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void whoever_looks_learns_of_a_death(void)
{
    for (int how = 0; how < N_LOOKS; how++)
        ranks_expect_processes(2, look_at_the_dead, &how);
}

/* A peer whose process lives, but which writes no more because it cannot. */
static int be_given_up(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;
    stepaf_request_h request;
    stepaf_batch_h batch;

    (void)arg;
    if (pair_open(&rank, boot, "inline"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        struct stepaf_ctx *ctx = stepaf_contexts[stepaf_handle_context(rank.ctx)].ctx;
        if (pair_receive(&rank, &batch))
            return 1;
        stepaf_peer_fail(&ctx->peers[0], "so says the test");
    } else {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, (int64_t)LIMIT_S * 1000000) == STEPAF_ERR_PEER_LOST);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "it has given this rank up") != NULL);
    }
    RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, (int[]){0, 1}, 2, 20000000) ==
                         STEPAF_OK);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void who_is_given_up_is_told(void)
{
    setenv("STEPAF_TRANSPORTS", "shm", 1);
    ranks_expect_processes(2, be_given_up, NULL);
    unsetenv("STEPAF_TRANSPORTS");
}

/* ---- commits that fail ---- */

/* A transport that cannot be opened at first is not left out for that later. */
static int open_later(const stepaf_boot_t *boot, void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair_rank rank;
    char ports[32];

    (void)arg;
    RANK_CHECK(boot, !bind(taken, (struct sockaddr *)&address, bytes) && !listen(taken, 1));
    RANK_CHECK(boot, !getsockname(taken, (struct sockaddr *)&address, &bytes));
    snprintf(ports, sizeof(ports), "%d", ntohs(address.sin_port));
    setenv("STEPAF_NET_PORTS", ports, 1); /* each rank's own */
    setenv("STEPAF_NET_IF", "lo", 1);
    if (pair_open(&rank, boot, "inline"))
        return 1;
    const struct stepaf_ctx *ctx = stepaf_contexts[stepaf_handle_context(rank.ctx)].ctx;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_TRANSPORT);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "no free port") != NULL);
    RANK_CHECK(boot, ctx->net.n_transports == 0 || !rank.ffn);
    close(taken);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_transport_that_failed_is_tried_again(void)
{
    ranks_expect_processes(2, open_later, NULL);
}

/* ---- other processes ---- */

/* What was made in a context that is gone is not taken for what has its number now. */
static int come_again(const stepaf_boot_t *boot, void *arg)
{
    stepaf_boot_local_t *const *locals = arg;
    stepaf_plan_h old_plan = NULL;
    stepaf_request_h old[2] = {NULL}, now[2] = {NULL};
    stepaf_boot_t again;

    for (int i = 0; i < 2; i++) {
        struct pair_rank rank;
        stepaf_batch_h batch;
        RANK_CHECK(boot, stepaf_boot_local_attach(locals[i], boot->rank, -1, &again) == STEPAF_OK);
        if (pair_open(&rank, &again, "inline"))
            return 1;
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        if (rank.ffn) {
            stepaf_tensor_t tensor = {PAIR_PULLED, rank.memory, PAIR_BYTES};
            if (pair_receive(&rank, &batch))
                return 1;
            RANK_CHECK(boot,
                       stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &now[0]) == 0);
            RANK_CHECK(boot, stepaf_wait(now[0], STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
        } else {
            RANK_CHECK(boot, stepaf_start(rank.plan, &now[1]) == STEPAF_OK);
            RANK_CHECK(boot, stepaf_wait(now[1], STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
        }
        if (i) {
            RANK_CHECK(boot, !rank.ffn || stepaf_test(old[0]) == STEPAF_ERR_HANDLE);
            RANK_CHECK(boot, rank.ffn || stepaf_test(old[1]) == STEPAF_ERR_HANDLE);
            RANK_CHECK(boot, rank.ffn || stepaf_plan_destroy(old_plan) == STEPAF_ERR_HANDLE);
        }
        memcpy(old, now, sizeof(old));
        old_plan = rank.plan;
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
        stepaf_finalize(rank.ctx);
        again.close(again.self);
    }
    return 0;
}

static void handles_of_a_context_that_is_gone_are_bad(void)
{
    stepaf_boot_local_t *locals[2];

    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(2, &locals[i]), STEPAF_OK);
    ranks_expect_processes(2, come_again, locals);
    for (int i = 0; i < 2; i++)
        stepaf_boot_local_destroy(locals[i]);
}

/* In a child, what C++ owners do at the end of their scopes, and other calls: 0 if all are refused.
 * Each rank has made what it can make. */
static int use_inherited(const struct pair_rank *rank, stepaf_request_h request,
                         stepaf_batch_h batch)
{
    const stepaf_status_t statuses[] = {
        rank->ffn ? stepaf_release(batch) : stepaf_cancel(request),
        rank->ffn ? stepaf_confirm(batch) : stepaf_plan_destroy(rank->plan),
        rank->ffn ? STEPAF_ERR_HANDLE : stepaf_start(rank->plan, &request),
        rank->ffn ? STEPAF_ERR_HANDLE : stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT),
        stepaf_free(rank->ctx, rank->memory),
        stepaf_alloc(rank->ctx, PAIR_BYTES, STEPAF_MEM_HOST, &(void *){NULL}),
        stepaf_progress(rank->ctx),
        stepaf_commit(rank->ctx),
        stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT),
    };
    int n_wrong = stepaf_role(rank->ctx) != STEPAF_ROLE_AUTO;

    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        n_wrong += statuses[i] != STEPAF_ERR_HANDLE;
    stepaf_finalize(rank->ctx);
    return n_wrong;
}

static int fork_in_operation(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    int status = 1;

    if (pair_open(&rank, boot, arg))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn && pair_receive(&rank, &batch))
        return 1;
    RANK_CHECK(boot, rank.ffn || stepaf_start(rank.plan, &request) == STEPAF_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(use_inherited(&rank, request, batch));
    RANK_CHECK(boot, waitpid(child, &status, 0) == child && status == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    if (rank.ffn && pair_answer(&rank, batch))
        return 1;
    RANK_CHECK(boot, rank.ffn || stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    struct stepaf_ctx *ctx = stepaf_contexts[stepaf_handle_context(rank.ctx)].ctx;
    for (int i = 0; i < 1000; i++)
        (void)stepaf_progress(rank.ctx);
    RANK_CHECK(boot, ctx->n_alive == 1);
    RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, (int[]){0, 1}, 2, 20000000) ==
                         STEPAF_OK);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void handles_are_bad_in_a_child(void)
{
    char modes[][8] = {"inline", "thread"};

    for (int i = 0; i < 2; i++)
        ranks_expect_processes(2, fork_in_operation, modes[i]);
}

static int run_new_rank(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;
    stepaf_request_h request;
    stepaf_batch_h batch;

    (void)arg;
    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn && (pair_receive(&rank, &batch) || pair_answer(&rank, batch)))
        return 1;
    RANK_CHECK(boot, rank.ffn || stepaf_start(rank.plan, &request) == STEPAF_OK);
    RANK_CHECK(boot, rank.ffn || stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    stepaf_finalize(rank.ctx);
    return 0;
}

/* Each rank with a context forks one that is a rank of another job. */
static int fork_new_rank(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;
    stepaf_boot_t other;
    int status = 1;

    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    pid_t child = fork();
    if (child == 0) {
        bool is_wrong = stepaf_boot_local_attach(arg, boot->rank, -1, &other) ||
                        run_new_rank(&other, NULL) || stepaf_role(rank.ctx) != STEPAF_ROLE_AUTO;
        _exit(is_wrong);
    }
    RANK_CHECK(boot, waitpid(child, &status, 0) == child && status == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_child_may_join_another_job(void)
{
    stepaf_boot_local_t *local;

    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(2, &local), STEPAF_OK);
    ranks_expect_processes(2, fork_new_rank, local);
    stepaf_boot_local_destroy(local);
}

/* ---- answers from the receive buffers ---- */

enum { ECHOES = 200 };

static bool is_filled(const uint8_t *bytes, int round)
{
    for (int at = 0; at < PAIR_BYTES; at++)
        if (bytes[at] != (uint8_t)(round + at))
            return false;
    return true;
}

/* Each batch is answered from its own receive buffer, and released by the answer. The next push
 * goes to the same buffer as soon as it may. */
static int echo(const stepaf_boot_t *boot, void *arg)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    struct pair_rank rank;
    stepaf_request_h request;
    stepaf_batch_h batch;

    setenv("STEPAF_TRANSPORTS", arg, 1);
    if (pair_open(&rank, boot, "inline"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (int round = 0; round < ECHOES && rank.ffn; round++) {
        if (pair_receive(&rank, &batch))
            return 1;
        RANK_CHECK(boot, stepaf_batch_tensor(batch, 0, &info) == STEPAF_OK);
        stepaf_tensor_t answer = {PAIR_PULLED, info.data, info.bytes};
        RANK_CHECK(boot,
                   stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, NULL) == STEPAF_OK);
    }
    for (int round = 0; round < ECHOES && !rank.ffn; round++) {
        for (int at = 0; at < PAIR_BYTES; at++)
            rank.memory[at] = (uint8_t)(round + at);
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
        RANK_CHECK(boot, is_filled(rank.memory + PAIR_BYTES, round));
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void receive_buffers_are_sources(void)
{
    char transports[][4] = {"shm", "tcp"};

    for (int i = 0; i < 2; i++)
        ranks_expect_processes(2, echo, transports[i]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"whoever looks learns of a death", whoever_looks_learns_of_a_death},
        {"who is given up is told", who_is_given_up_is_told},
        {"a transport that failed is tried again", a_transport_that_failed_is_tried_again},
        {"handles of a context that is gone are bad", handles_of_a_context_that_is_gone_are_bad},
        {"handles are bad in a child", handles_are_bad_in_a_child},
        {"a child may join another job", a_child_may_join_another_job},
        {"receive buffers are sources", receive_buffers_are_sources},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
