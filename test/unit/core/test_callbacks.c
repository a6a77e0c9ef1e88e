/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that poll: how often the handler is called, and what is refused within a callback. */
#include <string.h>

#include "batches.h"

enum { TOO_MANY = 20 * DEPTH }; /* calls: then peer 1 stops, so that the test ends */

static int n_calls;
static double ticks_per_us; /* as it is */

/* Peer 1 goes on: it starts its next operation as soon as the slot is free. */
static void release_and_poll(stepaf_batch_h batch, void *arg)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};

    (void)arg;
    CU_ASSERT_EQUAL(stepaf_batch_query(batch, &info), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    job->ctx->clock.own.ticks_per_us = 1e5; /* a deadline that counts from here is far off */
    if (++n_calls >= TOO_MANY)
        return;
    struct stepaf_msg msg =
        start_msg((uint32_t)(info.sequence + DEPTH) % DEPTH, (uint32_t)info.sequence + DEPTH);
    fake_say(job, 1, &msg);
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
}

static void load(void)
{
    n_calls = 0;
    ticks_per_us = job->ctx->clock.own.ticks_per_us;
    for (uint32_t slot = 0; slot < DEPTH; slot++)
        start(1, slot, slot);
}

static void end_load(void)
{
    job->ctx->clock.own.ticks_per_us = ticks_per_us;
    end();
}

static void it_is_called_for_what_was_there(void)
{
    begin();
    load();
    CU_ASSERT_EQUAL(stepaf_batch_set_handler(job->handle, release_and_poll, NULL), STEPAF_OK);
    for (int i = 1; i <= 3; i++) {
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
        CU_ASSERT_EQUAL(n_calls, i * DEPTH);
    }
    end_load();
}

/* Also where ranks outnumber cores, and waits look at the clock less often. */
static void a_wait_beside_it_keeps_its_deadline(void)
{
    for (int crowded = 0; crowded < 2; crowded++) {
        stepaf_tensor_t tensor = {PULLED, NULL, 8};
        stepaf_request_h request = NULL;
        begin();
        tensor.data = memory;
        start(0, 0, 0);
        fake_link(job, 0)->holds = true;
        CU_ASSERT_EQUAL(stepaf_respond(take(), &tensor, 1, STEPAF_RESPOND_RELEASE, &request),
                        STEPAF_OK);
        load();
        CU_ASSERT_EQUAL(stepaf_batch_set_handler(job->handle, release_and_poll, NULL), STEPAF_OK);
        job->ctx->polling.oversubscribed = crowded;
        job->ctx->clock.own.ticks_per_us = 1e-9; /* the deadline passes at once */
        CU_ASSERT_EQUAL(stepaf_wait(request, 1000), STEPAF_ERR_TIMEOUT);
        CU_ASSERT_EQUAL(n_calls, DEPTH);
        end_load();
    }
}

static void poll_the_other(stepaf_context_h ctx, void *arg)
{
    (void)ctx;
    (void)arg;
    atomic_store(&counterpart->ctx->job.members.is_news, true);
    CU_ASSERT_EQUAL(stepaf_progress(counterpart->handle), STEPAF_OK);
}

/* Both contexts are in a call that made a callback, and would be freed under it. */
static void end_both(stepaf_context_h ctx, void *arg)
{
    (void)arg;
    CU_ASSERT_PTR_EQUAL(ctx, counterpart->handle);
    for (int i = 0; i < 2; i++) {
        stepaf_context_h handle = i ? counterpart->handle : job->handle;
        stepaf_finalize(handle);
        CU_ASSERT_EQUAL(stepaf_last_error()->status, STEPAF_ERR_STATE);
        CU_ASSERT_PTR_NOT_NULL(strstr(stepaf_last_error()->text, "stepaf_finalize"));
        CU_ASSERT_EQUAL(stepaf_commit(handle), STEPAF_ERR_STATE);
        CU_ASSERT_PTR_NOT_NULL(strstr(stepaf_last_error()->text, "called by"));
    }
    n_calls++;
}

static void a_callback_within_another_ends_neither_context(void)
{
    begin();
    n_calls = 0;
    CU_ASSERT_EQUAL(stepaf_members_set_callback(job->handle, poll_the_other, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_members_set_callback(counterpart->handle, end_both, NULL), STEPAF_OK);
    atomic_store(&job->ctx->job.members.is_news, true);
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    CU_ASSERT_EQUAL(n_calls, 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it is called for what was there", it_is_called_for_what_was_there},
        {"a wait beside it keeps its deadline", a_wait_beside_it_keeps_its_deadline},
        {"a callback within another ends neither context",
         a_callback_within_another_ends_neither_context},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
