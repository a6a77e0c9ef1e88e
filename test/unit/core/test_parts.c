/* SPDX-License-Identifier: Apache-2.0 */
/* An operation's parts: what goes to whom when ranks get different things, are slow or lost. */
#include "core/counters.h"
#include "starts.h"

static void sizes_and_sources_may_differ(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    stepaf_tensor_t push[2] = {{PUSHED, memory + 3000, 33}, {ALSO, NULL, 0}};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = 2};
    stepaf_request_h request;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, PEERS);
    const struct fake_record *record = fake_last(job);
    CU_ASSERT(record->msg.n == 2 && record->msg.word[STEPAF_MSG_SIZES] == 33);
    CU_ASSERT_EQUAL(record->msg.word[STEPAF_MSG_SIZES + 1], 0);
    CU_ASSERT(record->xfer[0].src == memory + 3000 && record->xfer[0].bytes == 33);
    CU_ASSERT_EQUAL(record->xfer[1].bytes, 0);
    end();
}

static void scatter_gives_each_rank_its_own(void)
{
    stepaf_tensor_t push[PEERS * 2];

    begin();
    stepaf_plan_h plan = make_plan(STEPAF_PLAN_SCATTER);
    commit();
    for (uint32_t i = 0; i < PEERS * 2; i++)
        push[i] = (stepaf_tensor_t){i % 2 ? ALSO : PUSHED, memory + 100 * i, 10 + i};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = PEERS * 2};
    stepaf_request_h request;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(job->n_records, PEERS);
    for (uint32_t p = 0; p < PEERS; p++)
        for (uint32_t i = 0; i < 2; i++) {
            const struct stepaf_xfer *xfer = &job->records[p].xfer[i];
            CU_ASSERT(xfer->src == memory + 100 * (p * 2 + i) && xfer->bytes == 10 + p * 2 + i);
            CU_ASSERT_EQUAL(job->records[p].msg.word[STEPAF_MSG_SIZES + i], xfer->bytes);
        }
    params.n_push = 2; /* as for a broadcast */
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_INVALID);
    (void)start(plan); /* as planned, to all */
    CU_ASSERT_EQUAL(job->n_records, 2 * PEERS);
    end();
}

/* A rank that gets nothing is not told, holds nothing, and is not waited for. */
static void scatter_skips_who_gets_nothing(void)
{
    stepaf_tensor_t push[PEERS * 2];
    stepaf_request_h request;

    begin();
    stepaf_plan_h plan = make_plan(STEPAF_PLAN_SCATTER);
    commit();
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = PEERS * 2};
    for (uint32_t i = 0; i < PEERS * 2; i++)
        push[i] = (stepaf_tensor_t){i % 2 ? ALSO : PUSHED, memory, i == 3 ? 7 : 0};
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(job->n_records, 1);
    CU_ASSERT_EQUAL(fake_last(job)->peer, 1);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_INPROGRESS);
    struct stepaf_msg stray = fake_msg(job, STEPAF_MSG_RELEASE, 0, 0, 0);
    EXPECT_DROP(job, 0, &stray, DROP_STALE);
    release(1, 0, 0, 0);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    push[3].bytes = 0; /* nobody gets anything */
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 1);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_slot(request), 1);
    CU_ASSERT_EQUAL(job->ctx->counters.operations_completed, 2);
    end();
}

/* No room in a transport's queue delays; what comes later keeps behind. */
static void a_full_queue_delays_and_keeps_order(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    fake_link(job, 1)->room = 0;
    stepaf_request_h first = start(plan), second = start(plan);
    EXPECT_WHOLE(job);
    CU_ASSERT_EQUAL(job->n_records, 2 * (PEERS - 1));
    CU_ASSERT_EQUAL(job->ctx->counters.queued, 2);
    CU_ASSERT_EQUAL(stepaf_request_sent(first), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_cancel(second), STEPAF_OK); /* told to rank 1 behind its start */
    fake_forget(job);
    fake_link(job, 1)->room = 1;
    CU_ASSERT_EQUAL(stepaf_request_sent(first), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_sent(second), STEPAF_INPROGRESS);
    EXPECT_WHOLE(job);
    fake_link(job, 1)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(stepaf_request_sent(second), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(job->n_records, 3);
    CU_ASSERT(job->records[0].msg.type == STEPAF_MSG_START && job->records[0].msg.seq == 0);
    CU_ASSERT(job->records[1].msg.type == STEPAF_MSG_START && job->records[1].msg.seq == 1);
    CU_ASSERT(job->records[2].msg.type == STEPAF_MSG_CANCEL && job->records[2].msg.seq == 1);
    CU_ASSERT_TRUE(stepaf_list_empty(&job->ctx->net.queued));
    end();
}

static void sources_are_in_use_until_sent(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    fake_link(job, 2)->holds = true;
    stepaf_request_h request = start(plan);
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_INPROGRESS);
    fake_complete(job, 2);
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_OK);
    for (uint32_t p = 0; p < PEERS; p++)
        release(p, 0, 0, 0);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    request = start(plan);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(plan), STEPAF_ERR_STATE);
    for (uint32_t p = 0; p < PEERS; p++)
        release(p, 0, 1, 1); /* it has got it; the transport may not know yet */
    CU_ASSERT_PTR_NULL(fake_link(job, 2)->held);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    request = start(plan);
    job->ctx->up.lost(&job->ctx->up, &fake_link(job, 2)->base, "it has finalized");
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_OK); /* no device may ever say so */
    for (uint32_t p = 0; p < 2; p++)
        release(p, 0, 2, 2);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(plan), STEPAF_OK);
    end();
}

/* What waits for room is still to be read: its memory cannot go before. */
static void queued_sources_keep_their_memory(void)
{
    stepaf_request_h request = NULL;
    void *other;

    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, BYTES, STEPAF_MEM_HOST, &other), STEPAF_OK);
    stepaf_tensor_t push[2] = {{PUSHED, memory, BYTES}, {ALSO, other, 50}};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = 2};
    fake_link(job, 1)->room = 0;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_cancel(request), STEPAF_OK);
    job->ctx->env.timeout_us = 20000;
    CU_ASSERT_EQUAL(stepaf_free(job->handle, other), STEPAF_ERR_TIMEOUT);
    UNIT_CONTAINS(stepaf_last_error()->text, "FFN rank 1 (world rank 2) has not acknowledged");
    fake_link(job, 1)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(stepaf_free(job->handle, other), STEPAF_OK);
    CU_ASSERT_TRUE(stepaf_list_empty(&job->ctx->net.queued));
    end();
}

static void a_lost_rank_is_refused_or_left_out(void)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_SKIP_LOST};
    stepaf_request_h request = NULL;

    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    struct stepaf_upcalls *up = &job->ctx->up;
    up->lost(up, &fake_link(job, 1)->base, "the test says so");
    uint64_t digest = state_digest(job->ctx);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, PEERS - 1);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, (PEERS - 1) * (BYTES + 50));
    release(0, 0, 0, 0);
    release(2, 0, 0, 0);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_ERR_PEER_LOST);
    end();
}

/* Of a plan that can skip ranks, with nothing for each of them. */
static void expect_only_skipped(stepaf_plan_h plan)
{
    stepaf_tensor_t push[PEERS * 2];
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = PEERS * 2};
    stepaf_request_h request;

    for (uint32_t i = 0; i < PEERS * 2; i++)
        push[i] = (stepaf_tensor_t){i % 2 ? ALSO : PUSHED, memory, 0};
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    push[3].bytes = 7;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
}

/* There is nobody to carry on with, whether the epoch is one without them or not. */
static void a_start_without_anybody_left_is_refused(void)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_SKIP_LOST};
    stepaf_request_h request = NULL;

    begin();
    stepaf_plan_h plan = make_plan(0), scattered = make_plan(STEPAF_PLAN_SCATTER);
    commit();
    for (uint32_t p = 0; p < PEERS; p++)
        job->ctx->up.lost(&job->ctx->up, &fake_link(job, p)->base, "the test says so");
    for (int is_out = 0; is_out < 2; is_out++) {
        for (uint32_t p = 0; p < PEERS; p++)
            job->ctx->peers[p].is_out = is_out;
        CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_PEER_LOST);
        CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_PEER_LOST);
        UNIT_CONTAINS(stepaf_last_error()->text, "no FFN rank is left");
        UNIT_CONTAINS(stepaf_last_error()->text, "the test says so");
        expect_only_skipped(scattered);
    }
    CU_ASSERT_PTR_NULL(request);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"sizes and sources may differ", sizes_and_sources_may_differ},
        {"scatter gives each rank its own", scatter_gives_each_rank_its_own},
        {"scatter skips who gets nothing", scatter_skips_who_gets_nothing},
        {"a full queue delays and keeps order", a_full_queue_delays_and_keeps_order},
        {"sources are in use until sent", sources_are_in_use_until_sent},
        {"queued sources keep their memory", queued_sources_keep_their_memory},
        {"a lost rank is refused or left out", a_lost_rank_is_refused_or_left_out},
        {"a start without anybody left is refused", a_start_without_anybody_left_is_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
