/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that starts an operation while another one waits in a commit for its peers. Nothing is
 * timed: the peers come when the starting thread has had its turn, or has been waited for long. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "api/handles.h"
#include "fake.h"
#include "unit.h"

enum { PUSHED = 1, BYTES = 100, POLLS = 1000 };

static struct fake_job *attention, *ffn;
static stepaf_plan_h plan;
static uint8_t *memory;
static unsigned n_polls;
static _Atomic bool has_begun; /* the commit */
static _Atomic bool is_about;  /* the other thread, to start an operation */

/* In the commit, with the lock. */
static void let_peer_come(struct fake_job *job)
{
    struct stepaf_msg quiesced = {.type = STEPAF_MSG_QUIESCED, .seq = job->ctx->commit.n};
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 2};

    atomic_store(&has_begun, true);
    n_polls += atomic_load(&is_about);
    if (n_polls < POLLS && !fake_count(job, STEPAF_MSG_START))
        return;
    job->on_progress = NULL;
    fake_say(job, 0, &quiesced);
    fake_say(job, 0, &ready);
}

/* The starting thread's turn. */
static void await_commit(void)
{
    while (!atomic_load(&has_begun))
        (void)sched_yield();
    atomic_store(&is_about, true);
}

static void *start_by_plan(void *arg)
{
    stepaf_request_h request;

    await_commit();
    *(stepaf_status_t *)arg = stepaf_start(plan, &request);
    return NULL;
}

static void *start_at_once(void *arg)
{
    stepaf_tensor_t push = {PUSHED, memory, BYTES};
    stepaf_request_h request;

    await_commit();
    *(stepaf_status_t *)arg = stepaf_push_pull(attention->handle, &push, 1, NULL, 0, &request);
    return NULL;
}

/* It waits for a slot from before the commit on, and could have it in the middle. */
static void *start_when_free(void *arg)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_WAIT};
    stepaf_request_h request;

    atomic_store(&is_about, true);
    *(stepaf_status_t *)arg = stepaf_start_with(plan, &params, &request);
    return NULL;
}

static void begin(void)
{
    stepaf_tensor_t push = {PUSHED, NULL, BYTES};
    void *allocated;

    attention = fake_open(STEPAF_ATTENTION, 1, 1);
    attention->ctx->threads.many = attention->ctx->lock.used = true;
    atomic_store(&stepaf_contexts[attention->ctx->handle.slot].counts, true);
    attention->ctx->polling.oversubscribed = false; /* it sleeps between polls, without the lock */
    attention->ctx->env.backoff = STEPAF_ENV_BACKOFF_sleep;
    attention->ctx->env.spin_us = attention->ctx->env.sleep_after_us = 0;
    ffn = fake_open(STEPAF_FFN, 1, 1);
    fake_key(attention, ffn, PUSHED, STEPAF_PUSH, BYTES, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(attention->handle, 4096, STEPAF_MEM_HOST, &allocated), 0);
    push.data = memory = allocated;
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(attention->handle, &push, 1, NULL, 0, 0, &plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    fake_key(attention, ffn, 7, STEPAF_PUSH, 8, 1);
    fake_pair(attention, ffn);
    fake_forget(attention);
    n_polls = 0;
    atomic_store(&has_begun, false);
    atomic_store(&is_about, false);
    attention->on_progress = let_peer_come;
}

static void end(void)
{
    fake_close(attention);
    fake_close(ffn);
}

static void a_start_waits_for_the_end_of_a_commit(void)
{
    void *(*const starts[])(void *) = {start_by_plan, start_at_once};

    for (int i = 0; i < 2; i++) {
        stepaf_status_t status = STEPAF_ERR_STATE;
        pthread_t thread;
        begin();
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, starts[i], &status), 0);
        CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_OK);
        pthread_join(thread, NULL);
        CU_ASSERT_EQUAL(status, STEPAF_OK);
        CU_ASSERT_EQUAL(fake_last(attention)->msg.type, STEPAF_MSG_START);
        CU_ASSERT_EQUAL(fake_last(attention)->msg.epoch, 2);
        end();
    }
}

/* The slot comes free behind what this rank has told its peers. */
static void release_the_slot(struct fake_job *job)
{
    struct stepaf_msg release = fake_msg(job, STEPAF_MSG_RELEASE, 0, 0, 0);

    if (!job->ctx->commit.has_entered)
        return;
    release.n_words = 0;
    fake_say(job, 0, &release);
    job->on_progress = let_peer_come;
}

/* Whether a thread waits for a slot of the plan. */
static bool one_waits(void)
{
    struct stepaf_ctx *ctx = attention->ctx;

    stepaf_lock_enter(&ctx->lock);
    uint32_t n = ((struct stepaf_plan_obj *)stepaf_table_get(&ctx->tables.plans, 0))->n_waiting;
    stepaf_lock_leave(&ctx->lock);
    return n > 0;
}

static void who_waits_for_a_slot_waits_for_it_too(void)
{
    stepaf_status_t status = STEPAF_ERR_STATE;
    stepaf_request_h request;
    pthread_t thread;

    begin();
    attention->on_progress = release_the_slot;
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    fake_forget(attention);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, start_when_free, &status), 0);
    while (!one_waits())
        (void)sched_yield();
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_OK);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, STEPAF_OK);
    CU_ASSERT_EQUAL(fake_last(attention)->msg.type, STEPAF_MSG_START);
    CU_ASSERT_EQUAL(fake_last(attention)->msg.epoch, 2);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a start waits for the end of a commit", a_start_waits_for_the_end_of_a_commit},
        {"who waits for a slot waits for it too", who_waits_for_a_slot_waits_for_it_too},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
