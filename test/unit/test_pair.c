/* SPDX-License-Identifier: Apache-2.0 */
/* One attention and one FFN rank, real ones: what a peer's death, a failed commit and another thread
 * leave, seen through calls that only look. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/handles.h"
#include "ranks.h"
#include "unit.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 4096, LIMIT_S = 10 };

struct pair_rank {
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    stepaf_plan_h plan; /* attention */
    uint8_t *memory;
    bool ffn;
};

static int open_rank(struct pair_rank *rank, const stepaf_boot_t *boot, const char *progress)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                               .direction = STEPAF_PUSH,
                               .max_bytes = BYTES};
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_boot_t own = *boot;

    own.close = NULL; /* whoever has attached it ends it */
    *rank = (struct pair_rank){.boot = boot, .ffn = boot->rank == 1};
    setenv("STEPAF_PROGRESS", progress, 1);
    RANK_CHECK(boot, stepaf_init(&own, &params, &rank->ctx) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(rank->ctx, PUSHED, &key) == STEPAF_OK);
    key.direction = STEPAF_PULL;
    RANK_CHECK(boot, stepaf_key_declare(rank->ctx, PULLED, &key) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_alloc(rank->ctx, (size_t)2 * BYTES, STEPAF_MEM_HOST,
                                  (void **)&rank->memory) == STEPAF_OK);
    stepaf_tensor_t push = {PUSHED, rank->memory, BYTES},
                    pull = {PULLED, rank->memory + BYTES, BYTES};
    if (!rank->ffn)
        RANK_CHECK(boot,
                   stepaf_plan_create(rank->ctx, &push, 1, &pull, 1, 0, &rank->plan) == STEPAF_OK);
    return 0;
}

static int receive(struct pair_rank *rank, stepaf_batch_h *batch_p)
{
    int n;

    RANK_CHECK(rank->boot, stepaf_recv(rank->ctx, STEPAF_FROM_ANY, STEPAF_TIMEOUT_DEFAULT, batch_p,
                                       1, &n) == STEPAF_OK);
    return 0;
}

static int answer(struct pair_rank *rank, stepaf_batch_h batch)
{
    stepaf_tensor_t tensor = {PULLED, rank->memory, BYTES};

    RANK_CHECK(rank->boot, stepaf_respond(batch, &tensor, 1, 0, NULL) == STEPAF_OK);
    return 0;
}

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

/* The FFN rank dies with the batch in its hands, answered or not; the other one does nothing but look. */
static int look_at_the_dead(const stepaf_boot_t *boot, void *arg)
{
    int how = *(int *)arg;
    bool answered = how == START || how == DESTROY;
    stepaf_status_t status, last = how == DESTROY ? STEPAF_OK : STEPAF_ERR_PEER_LOST;
    time_t began = time(NULL);
    struct pair_rank rank;
    stepaf_request_h request;
    stepaf_batch_h batch;

    if (open_rank(&rank, boot, "inline"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        if (receive(&rank, &batch) || (answered && answer(&rank, batch)))
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
    if (open_rank(&rank, boot, "inline"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        struct stepaf_ctx *ctx = stepaf_handle_ctx(rank.ctx, STEPAF_HANDLE_CONTEXT);
        if (receive(&rank, &batch))
            return 1;
        stepaf_engine_give_up(&ctx->peers[0], "so says the test");
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
    if (open_rank(&rank, boot, "inline"))
        return 1;
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(rank.ctx, STEPAF_HANDLE_CONTEXT);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_TRANSPORT);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "no free port") != NULL);
    RANK_CHECK(boot, ctx->n_transports == 0 || !rank.ffn);
    close(taken);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_transport_that_failed_is_tried_again(void)
{
    ranks_expect_processes(2, open_later, NULL);
}

/* ---- the handler ---- */

static atomic_int entered, returned;
static stepaf_status_t commit_status;
static stepaf_context_h handler_ctx;

static void slow(stepaf_batch_h batch, void *arg)
{
    (void)arg;
    commit_status = stepaf_commit(handler_ctx);
    atomic_store(&entered, 1);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    (void)stepaf_release(batch);
    atomic_store(&returned, 1);
}

static int replace_the_handler(const stepaf_boot_t *boot, void *arg)
{
    stepaf_request_h request;
    struct pair_rank rank;

    (void)arg;
    if (open_rank(&rank, boot, "thread"))
        return 1;
    handler_ctx = rank.ctx;
    if (rank.ffn)
        RANK_CHECK(boot, stepaf_set_handler(rank.ctx, slow, NULL) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        while (!atomic_load(&entered))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        RANK_CHECK(boot, stepaf_set_handler(rank.ctx, NULL, NULL) == STEPAF_OK);
        RANK_CHECK(boot, atomic_load(&returned));
        RANK_CHECK(boot, commit_status == STEPAF_ERR_STATE);
    } else {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_ERR_CANCELED);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_handlers_call_is_over_when_it_is_replaced(void)
{
    ranks_expect_processes(2, replace_the_handler, NULL);
}

/* ---- other processes and threads ---- */

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
        if (open_rank(&rank, &again, "inline"))
            return 1;
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        if (rank.ffn) {
            stepaf_tensor_t tensor = {PULLED, rank.memory, BYTES};
            if (receive(&rank, &batch))
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

static int fork_and_finalize(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;
    int status = 1;

    (void)arg;
    if (open_rank(&rank, boot, "inline"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    pid_t child = fork();
    if (child == 0) {
        stepaf_finalize(rank.ctx);
        _exit(0);
    }
    RANK_CHECK(boot, waitpid(child, &status, 0) == child && status == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    struct stepaf_ctx *ctx = stepaf_handle_ctx(rank.ctx, STEPAF_HANDLE_CONTEXT);
    for (int i = 0; i < 1000; i++)
        (void)stepaf_progress(rank.ctx);
    RANK_CHECK(boot, ctx->n_alive == 1);
    RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, (int[]){0, 1}, 2, 20000000) ==
                         STEPAF_OK);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_child_cannot_finalize(void)
{
    ranks_expect_processes(2, fork_and_finalize, NULL);
}

static void *start_waiting(void *arg)
{
    stepaf_start_params_t params = {.flags = STEPAF_START_WAIT}; /* the default time */
    struct pair_rank *rank = arg;
    stepaf_request_h request;

    return (void *)(intptr_t)stepaf_start_with(rank->plan, &params, &request);
}

enum { ROUNDS = 60, OF_COMMITS = 3, OF_THREAD = 4 };

struct setter {
    struct pair_rank *rank;
    _Atomic bool stop;
    _Atomic uint32_t rounds;
    _Atomic bool failed;
};

/* What may be done at any time: at an attention rank memory and a plan, at an FFN rank a key and where
 * it is received, unless it was committed meanwhile, and has memory of the library's. */
static bool set_up(const struct pair_rank *rank)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                               .direction = STEPAF_PUSH,
                               .max_bytes = 64};
    stepaf_tensor_t push = {PUSHED, rank->memory, BYTES}, pull = {PULLED, NULL, BYTES};
    stepaf_status_t received;
    stepaf_plan_h plan;

    if (!rank->ffn)
        return !stepaf_alloc(rank->ctx, BYTES, STEPAF_MEM_HOST, &pull.data) &&
               !stepaf_plan_create(rank->ctx, &push, 1, &pull, 1, 0, &plan) &&
               !stepaf_plan_destroy(plan) && !stepaf_free(rank->ctx, pull.data);
    if (stepaf_key_declare(rank->ctx, OF_THREAD, &key))
        return false;
    received = stepaf_register_recv(rank->ctx, OF_THREAD, rank->memory, BYTES, (int[]){0}, 1);
    return (!received || received == STEPAF_ERR_INVALID) &&
           !stepaf_key_withdraw(rank->ctx, OF_THREAD);
}

static void *keep_setting_up(void *arg)
{
    struct setter *setter = arg;

    while (!setter->stop && !setter->failed) {
        setter->failed = !set_up(setter->rank);
        setter->rounds++;
    }
    return NULL;
}

/* One thread commits, again and again; another one sets up and takes back meanwhile. */
static int commit_beside_another_thread(const stepaf_boot_t *boot, void *arg)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                               .direction = STEPAF_PULL,
                               .max_bytes = BYTES};
    struct pair_rank rank;
    struct setter setter = {.rank = &rank};
    pthread_t thread;

    (void)arg;
    if (open_rank(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, !pthread_create(&thread, NULL, keep_setting_up, &setter));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t before = setter.rounds;
        RANK_CHECK(boot, i % 2 ? !stepaf_key_withdraw(rank.ctx, OF_COMMITS)
                               : !stepaf_key_declare(rank.ctx, OF_COMMITS, &key));
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        while (setter.rounds == before && !setter.failed)
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    setter.stop = true;
    RANK_CHECK(boot, !pthread_join(thread, NULL) && !setter.failed);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void another_thread_sets_up_while_one_commits(void)
{
    ranks_expect_processes(2, commit_beside_another_thread, NULL);
}

/* One thread waits for a slot, another one ends the plan as soon as that is possible. */
static int end_the_plan_of_a_start(const stepaf_boot_t *boot, void *arg)
{
    struct pair_rank rank;
    stepaf_request_h request;
    stepaf_batch_h batch;
    pthread_t thread;
    void *status;

    (void)arg;
    if (open_rank(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        if (receive(&rank, &batch) || answer(&rank, batch))
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
        if (receive(&rank, &batch) || answer(&rank, batch))
            return 1;
        RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
    } else {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
        RANK_CHECK(boot, !pthread_create(&thread, NULL, start_waiting, &rank));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        while (stepaf_plan_destroy(rank.plan) == STEPAF_ERR_STATE) {
        }
        RANK_CHECK(boot, !pthread_join(thread, &status));
        RANK_CHECK(boot, (intptr_t)status == STEPAF_OK);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == 0);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_start_that_waits_holds_its_plan(void)
{
    ranks_expect_processes(2, end_the_plan_of_a_start, NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"whoever looks learns of a death", whoever_looks_learns_of_a_death},
        {"who is given up is told", who_is_given_up_is_told},
        {"a transport that failed is tried again", a_transport_that_failed_is_tried_again},
        {"a handler's call is over when it is replaced",
         a_handlers_call_is_over_when_it_is_replaced},
        {"handles of a context that is gone are bad", handles_of_a_context_that_is_gone_are_bad},
        {"a child cannot finalize", a_child_cannot_finalize},
        {"a start that waits holds its plan", a_start_that_waits_holds_its_plan},
        {"another thread sets up while one commits", another_thread_sets_up_while_one_commits},
        CU_TEST_INFO_NULL,
    };
    return unit_run("pair", tests);
}
