/* SPDX-License-Identifier: Apache-2.0 */
/* One attention and one FFN rank, real ones, whose threads meet in the library: in the handler, in
 * starts and in commits. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "pair_rank.h"
#include "unit.h"

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
    if (pair_open(&rank, boot, "thread"))
        return 1;
    handler_ctx = rank.ctx;
    if (rank.ffn)
        RANK_CHECK(boot, stepaf_batch_set_handler(rank.ctx, slow, NULL) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        while (!atomic_load(&entered))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        RANK_CHECK(boot, stepaf_batch_set_handler(rank.ctx, NULL, NULL) == STEPAF_OK);
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

/* ---- a start that waits ---- */

static void *start_waiting(void *arg)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_WAIT}; /* the default time */
    struct pair_rank *rank = arg;
    stepaf_request_h request;

    return (void *)(intptr_t)stepaf_start_with(rank->plan, &params, &request);
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
    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.ffn) {
        if (pair_receive(&rank, &batch) || pair_answer(&rank, batch))
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
        if (pair_receive(&rank, &batch) || pair_answer(&rank, batch))
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

/* ---- a commit ---- */

enum { ROUNDS = 60, OF_COMMITS = 3, OF_THREAD = 4 };

struct setter {
    struct pair_rank *rank;
    _Atomic bool stop;
    _Atomic uint32_t rounds;
    _Atomic bool failed;
};

/* What may be done at any time: at an attention rank memory and a plan, at an FFN rank a key and
 * where it is received, unless it was committed meanwhile, and has memory of the library's. */
static bool set_up(const struct pair_rank *rank)
{
    stepaf_tensor_t push = {PAIR_PUSHED, rank->memory, PAIR_BYTES},
                    pull = {PAIR_PULLED, NULL, PAIR_BYTES};
    stepaf_status_t received;
    stepaf_plan_h plan;

    if (!rank->ffn)
        return !stepaf_alloc(rank->ctx, PAIR_BYTES, STEPAF_MEM_HOST, &pull.data) &&
               !stepaf_plan_create(rank->ctx, &push, 1, &pull, 1, 0, &plan) &&
               !stepaf_plan_destroy(plan) && !stepaf_free(rank->ctx, pull.data);
    if (stepaf_key_declare(rank->ctx, OF_THREAD, STEPAF_PUSH, 64, NULL))
        return false;
    received = stepaf_key_set_recv(rank->ctx, OF_THREAD, rank->memory, PAIR_BYTES, (int[]){0}, 1);
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
    struct pair_rank rank;
    struct setter setter = {.rank = &rank};
    pthread_t thread;

    (void)arg;
    if (pair_open(&rank, boot, "thread"))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, !pthread_create(&thread, NULL, keep_setting_up, &setter));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t before = setter.rounds;
        RANK_CHECK(
            boot, i % 2 ? !stepaf_key_withdraw(rank.ctx, OF_COMMITS)
                        : !stepaf_key_declare(rank.ctx, OF_COMMITS, STEPAF_PULL, PAIR_BYTES, NULL));
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

int main(void)
{
    CU_TestInfo tests[] = {
        {"a handler's call is over when it is replaced",
         a_handlers_call_is_over_when_it_is_replaced},
        {"a start that waits holds its plan", a_start_that_waits_holds_its_plan},
        {"another thread sets up while one commits", another_thread_sets_up_while_one_commits},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
