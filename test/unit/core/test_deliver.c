/* SPDX-License-Identifier: Apache-2.0 */
/* What an attention rank is told of its operations. */
#include "core/counters.h"
#include "drop.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 100, DEPTH = 2 };

static struct fake_job *job, *counterpart;
static stepaf_plan_h plan;  /* number 0: a tensor each way */
static stepaf_plan_h quiet; /* number 1: pushes, and expects no answer */

/* An attention rank with two FFN ranks. */
static void begin(void)
{
    stepaf_tensor_t push = {.key = PUSHED, .bytes = BYTES};
    stepaf_tensor_t pull[2] = {{.key = PULLED, .bytes = BYTES}, {.key = PULLED, .bytes = 60}};
    void *memory;

    job = fake_open(STEPAF_ATTENTION, 1, 2);
    counterpart = fake_open(STEPAF_FFN, 1, 2);
    fake_key(job, counterpart, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(job, counterpart, PULLED, STEPAF_PULL, BYTES, DEPTH);
    fake_key(job, counterpart, 3, STEPAF_PUSH, BYTES, DEPTH);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 4096, STEPAF_MEM_HOST, &memory), 0);
    push.data = memory;
    pull[0].data = (uint8_t *)memory + 1000;
    pull[1].data = (uint8_t *)memory + 2000;
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, pull, 2, 0, &plan), 0);
    push.key = 3;
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, NULL, 0, 0, &quiet), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_forget(job);
}

static void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(counterpart);
}

static stepaf_request_h start(stepaf_plan_h which)
{
    stepaf_request_h request = NULL;

    CU_ASSERT_EQUAL(stepaf_start(which, &request), STEPAF_OK);
    return request;
}

static struct stepaf_msg response_msg(uint32_t slot, uint32_t seq)
{
    return fake_msg(job, STEPAF_MSG_RESPONSE, 0, slot, seq);
}

static struct stepaf_msg release_msg(uint32_t number, uint32_t slot, uint32_t seq)
{
    return fake_msg(job, STEPAF_MSG_RELEASE, number, slot, seq);
}

static void answers_that_make_no_sense_are_dropped(void)
{
    begin();
    struct stepaf_msg msg = response_msg(0, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE); /* nothing was started yet */
    stepaf_request_h request = start(plan);
    msg.plan = 2;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg.plan = 65535;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg.plan = 1;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    static const struct {
        uint32_t slot, seq;
    } bad[] = {{1, 0}, {1, 1}, {0, 1}, {0, UINT32_MAX}, {DEPTH, 0}, {255, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        msg = response_msg(bad[i].slot, bad[i].seq);
        EXPECT_DROP(job, 0, &msg, DROP_STALE);
    }
    msg = response_msg(0, 0);
    msg.n = 2;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.n = 255;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.n = 1;
    msg.word[STEPAF_MSG_SIZES] = 61;
    EXPECT_DROP(job, 1, &msg, DROP_MALFORMED); /* more than that rank's destination holds */
    msg.word[STEPAF_MSG_SIZES] = UINT32_MAX;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.word[STEPAF_MSG_SIZES] = BYTES;
    msg.epoch++;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg.epoch--;
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_STALE); /* twice */
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_received, BYTES);
    end();
}

static void all_answers_complete_an_operation(void)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    begin();
    stepaf_request_h request = start(plan);
    CU_ASSERT_EQUAL(stepaf_request_tensor(request, 1, &info), STEPAF_INPROGRESS);
    struct stepaf_msg msg = response_msg(0, 0);
    msg.n = 1;
    msg.word[STEPAF_MSG_SIZES] = 20;
    EXPECT_TAKEN(job, 1, &msg);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_tensor(request, 1, &info), STEPAF_OK);
    CU_ASSERT(info.bytes == 20 && info.max_bytes == 60 && info.key == PULLED);
    msg.n = 0; /* as planned */
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(stepaf_request_tensor(request, 0, &info), STEPAF_OK);
    CU_ASSERT_EQUAL(info.bytes, BYTES);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(job->ctx->counters.operations_completed, 1);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_received, BYTES + 20);
    end();
}

/* The second slot's operation, by itself. */
static void slots_do_not_mix(void)
{
    begin();
    stepaf_request_h first = start(plan), second = start(plan);
    struct stepaf_msg msg = response_msg(1, 1);
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_TAKEN(job, 1, &msg);
    CU_ASSERT_EQUAL(stepaf_test(first), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_test(second), STEPAF_OK);
    end();
}

static void releases_that_make_no_sense_are_dropped(void)
{
    begin();
    struct stepaf_msg msg = release_msg(0, 0, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE); /* nothing was started yet */
    (void)start(plan);
    msg.seq = 1;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = release_msg(0, 1, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = release_msg(0, DEPTH, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = release_msg(2, 0, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = release_msg(65535, 0, 0);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = release_msg(0, 0, 0);
    msg.epoch--;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    struct stepaf_msg answer = response_msg(0, 0);
    answer.flags = STEPAF_MSG_RELEASED;
    EXPECT_TAKEN(job, 0, &answer);
    msg.epoch++;
    EXPECT_DROP(job, 0, &msg, DROP_STALE); /* the answer has released it */
    EXPECT_TAKEN(job, 1, &msg);
    EXPECT_DROP(job, 1, &msg, DROP_STALE); /* twice */
    end();
}

/* Answer and release, as one message or as two, in whatever order they are of use. */
static void a_slot_is_free_when_all_have_released(void)
{
    stepaf_request_h request;

    begin();
    for (uint32_t i = 0; i < DEPTH; i++)
        (void)start(plan);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_WOULD_BLOCK);
    struct stepaf_msg answer = response_msg(0, 0), release = release_msg(0, 0, 0);
    EXPECT_TAKEN(job, 0, &answer);
    answer.flags = STEPAF_MSG_RELEASED;
    EXPECT_TAKEN(job, 1, &answer);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_WOULD_BLOCK);
    EXPECT_TAKEN(job, 0, &release);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_slot(request), 0);
    CU_ASSERT_EQUAL(job->ctx->counters.would_block, 2);
    end();
}

static void a_release_without_an_answer_cancels(void)
{
    begin();
    stepaf_request_h request = start(plan);
    struct stepaf_msg release = release_msg(0, 0, 0), answer = response_msg(0, 0);
    release.flags = STEPAF_MSG_UNWANTED;
    EXPECT_TAKEN(job, 1, &release);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_ERR_CANCELED);
    EXPECT_DROP(job, 1, &answer, DROP_STALE); /* too late */
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_ERR_CANCELED);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    EXPECT_TAKEN(job, 0, &answer); /* the other one need not know */
    CU_ASSERT_EQUAL(job->ctx->counters.late, 1);
    CU_ASSERT_EQUAL(job->ctx->counters.operations_failed, 1);
    end();
}

static void without_pulls_the_release_is_the_answer(void)
{
    begin();
    stepaf_request_h request = start(quiet);
    struct stepaf_msg release = release_msg(1, 0, 0);
    EXPECT_TAKEN(job, 0, &release);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
    EXPECT_TAKEN(job, 1, &release);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    end();
}

static void a_canceled_operation_waits_for_its_slot(void)
{
    stepaf_request_h other;

    begin();
    stepaf_request_h request = start(plan);
    struct stepaf_msg answer = response_msg(0, 0), release = release_msg(0, 0, 0);
    EXPECT_TAKEN(job, 0, &answer);
    fake_forget(job);
    CU_ASSERT_EQUAL(stepaf_cancel(request), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 1); /* only who has not answered is told */
    CU_ASSERT_EQUAL(fake_last(job)->msg.type, STEPAF_MSG_CANCEL);
    CU_ASSERT(fake_last(job)->peer == 1 && fake_last(job)->msg.seq == 0);
    CU_ASSERT_EQUAL(stepaf_cancel(request), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_ERR_CANCELED);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_ERR_CANCELED);
    (void)start(plan);
    CU_ASSERT_EQUAL(stepaf_start(plan, &other), STEPAF_ERR_WOULD_BLOCK);
    EXPECT_TAKEN(job, 1, &answer); /* it crossed */
    CU_ASSERT_EQUAL(job->ctx->counters.late, 1);
    EXPECT_TAKEN(job, 0, &release);
    CU_ASSERT_EQUAL(stepaf_start(plan, &other), STEPAF_ERR_WOULD_BLOCK);
    EXPECT_TAKEN(job, 1, &release);
    CU_ASSERT_EQUAL(stepaf_start(plan, &other), STEPAF_OK);
    CU_ASSERT_EQUAL(job->ctx->counters.operations_failed, 1);
    end();
}

/* Of an operation that was complete without it, when its slot has others: impossible sizes free no
 * slot, and right ones are counted. */
static void what_is_owed_is_checked_too(void)
{
    stepaf_start_params_t all = {.field_mask = STEPAF_START_PARAM_ANSWERS, .n_answers = 2};
    stepaf_request_h request;

    begin();
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 1, 0), STEPAF_OK);
    for (uint32_t seq = 0; seq <= DEPTH; seq++) {
        request = start(plan);
        struct stepaf_msg answer = response_msg(seq % DEPTH, seq);
        answer.flags = STEPAF_MSG_RELEASED;
        EXPECT_TAKEN(job, 0, &answer);
        CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    }
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_ERR_WOULD_BLOCK); /* it is left out */
    struct stepaf_msg owed = response_msg(0, 0);
    owed.flags = STEPAF_MSG_RELEASED;
    owed.n = 2;
    EXPECT_DROP(job, 1, &owed, DROP_MALFORMED);
    owed.n = 1;
    owed.word[STEPAF_MSG_SIZES] = 61; /* more than that rank's destination holds */
    EXPECT_DROP(job, 1, &owed, DROP_MALFORMED);
    CU_ASSERT_EQUAL(job->ctx->counters.late, 0);
    owed.word[STEPAF_MSG_SIZES] = 20;
    EXPECT_TAKEN(job, 1, &owed);
    EXPECT_DROP(job, 1, &owed, DROP_STALE); /* twice */
    CU_ASSERT_EQUAL(job->ctx->counters.late, 1);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_received, (DEPTH + 1) * BYTES + 20);
    owed = response_msg(1, 1); /* of the other slot, which is next */
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &all, &request), STEPAF_ERR_WOULD_BLOCK);
    owed.flags = STEPAF_MSG_RELEASED;
    EXPECT_TAKEN(job, 1, &owed);
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &all, &request), STEPAF_OK);
    end();
}

static void a_complete_operation_is_not_canceled(void)
{
    begin();
    stepaf_request_h request = start(quiet);
    struct stepaf_msg release = release_msg(1, 0, 0);
    EXPECT_TAKEN(job, 0, &release);
    EXPECT_TAKEN(job, 1, &release);
    fake_forget(job);
    CU_ASSERT_EQUAL(stepaf_cancel(request), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    end();
}

static void types_that_are_not_for_an_attention_rank_are_dropped(void)
{
    begin();
    (void)start(plan);
    for (unsigned type = 0; type < 256; type++) {
        bool known = type == STEPAF_MSG_RESPONSE || type == STEPAF_MSG_RELEASE ||
                     (type >= STEPAF_MSG_READY && type < STEPAF_MSG_TYPE_END);
        struct stepaf_msg msg = fake_msg(job, (enum stepaf_msg_type)type, 0, 0, 0);
        if (!known)
            EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    end();
}

/* What it owed fails, and all else goes on. */
static void a_lost_peer_fails_what_needs_it(void)
{
    begin();
    stepaf_request_h answered = start(plan), open = start(plan);
    struct stepaf_msg msg = response_msg(0, 0), bye = {.type = STEPAF_MSG_BYE};
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_TAKEN(job, 1, &msg);
    fake_tell(job, 1, &bye);
    EXPECT_WHOLE(job);
    CU_ASSERT_EQUAL(stepaf_test(answered), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_test(open), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, 2);
    UNIT_CONTAINS(stepaf_last_error()->text, "finalized");
    msg = response_msg(1, 1);
    EXPECT_DROP(job, 1, &msg, DROP_SILENTLY);
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(stepaf_request_peer(open, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_peer(open, 1), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(job->ctx->counters.peers_lost, 1);
    EXPECT_DROP(job, 1, &bye, DROP_SILENTLY);
    end();
}

static void a_link_that_breaks_in_a_start_loses_the_peer(void)
{
    begin();
    fake_link(job, 0)->breaks = true;
    stepaf_request_h request = start(plan);
    EXPECT_WHOLE(job);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"answers that make no sense are dropped", answers_that_make_no_sense_are_dropped},
        {"all answers complete an operation", all_answers_complete_an_operation},
        {"slots do not mix", slots_do_not_mix},
        {"releases that make no sense are dropped", releases_that_make_no_sense_are_dropped},
        {"a slot is free when all have released", a_slot_is_free_when_all_have_released},
        {"a release without an answer cancels", a_release_without_an_answer_cancels},
        {"without pulls the release is the answer", without_pulls_the_release_is_the_answer},
        {"a canceled operation waits for its slot", a_canceled_operation_waits_for_its_slot},
        {"what is owed is checked too", what_is_owed_is_checked_too},
        {"a complete operation is not canceled", a_complete_operation_is_not_canceled},
        {"types that are not for an attention rank are dropped",
         types_that_are_not_for_an_attention_rank_are_dropped},
        {"a lost peer fails what needs it", a_lost_peer_fails_what_needs_it},
        {"a link that breaks in a start loses the peer",
         a_link_that_breaks_in_a_start_loses_the_peer},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
