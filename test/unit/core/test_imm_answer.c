/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as 32 bits, at an attention rank; and when a START may not be shortened. */
#include "core/imm.h"
#include "core/op.h"
#include "starts.h"

static stepaf_plan_h make_pulling_plan(void)
{
    stepaf_tensor_t push = {PUSHED, memory, BYTES}, pull[PEERS];
    stepaf_plan_h plan = NULL;

    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, memory + 2048 + (size_t)p * 1024, BYTES};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, pull, PEERS, 0, &plan), 0);
    return plan;
}

static bool expand(uint32_t imm, struct stepaf_msg *msg_p)
{
    return stepaf_imm_decode(job->ctx, job->ctx->peers[0].link, imm, msg_p);
}

/* Every operation that is in flight is found by the end of its sequence. */
static void an_answer_is_of_one_in_flight(void)
{
    struct stepaf_msg got;

    begin();
    stepaf_plan_h plan = make_pulling_plan();
    commit();
    for (uint32_t round = 0; round < 1000; round++) {
        stepaf_request_h requests[DEPTH];
        for (uint32_t s = 0; s < DEPTH; s++)
            requests[s] = start(plan);
        for (uint32_t s = DEPTH; s-- > 0;) {
            uint32_t seq = round * DEPTH + s;
            CU_ASSERT_TRUE(expand(stepaf_imm_make(STEPAF_IMM_RELEASED, 0, seq, 1), &got));
            CU_ASSERT(got.type == STEPAF_MSG_RESPONSE && got.flags == STEPAF_MSG_RELEASED);
            CU_ASSERT(got.seq == seq && got.slot == s);
            CU_ASSERT(got.word[STEPAF_MSG_QUEUE] == UINT32_MAX);
            CU_ASSERT(got.word[STEPAF_MSG_WORK] == UINT32_MAX);
            for (uint32_t p = 0; p < PEERS; p++)
                EXPECT_TAKEN(job, p, &got);
            CU_ASSERT_EQUAL(stepaf_wait(requests[s], 0), STEPAF_OK);
        }
        fake_forget(job);
    }
    end();
}

static void expect_stale(uint32_t imm)
{
    uint64_t stale = job->ctx->counters.dropped_stale;
    struct stepaf_msg msg;

    CU_ASSERT_FALSE(expand(imm, &msg));
    job->ctx->up.deliver_imm(&job->ctx->up, job->ctx->peers[0].link, imm);
    CU_ASSERT_EQUAL(job->ctx->counters.dropped_stale, stale + 1);
}

static void what_makes_no_sense_is_counted(void)
{
    begin();
    stepaf_plan_h plan = make_pulling_plan();
    commit();
    expect_stale(stepaf_imm_make(STEPAF_IMM_RESPONSE, 0, 0, 1)); /* none was started */
    (void)start(plan);
    expect_stale(stepaf_imm_make(STEPAF_IMM_RESPONSE, 0, 1, 1)); /* not yet */
    expect_stale(stepaf_imm_make(STEPAF_IMM_RESPONSE, 0, 0, 2)); /* another epoch */
    expect_stale(stepaf_imm_make(STEPAF_IMM_RESPONSE, 1, 0, 1)); /* no such plan */
    expect_stale(stepaf_imm_make(STEPAF_IMM_START, 0, 0, 1));    /* not for this role */
    expect_stale(stepaf_imm_make(STEPAF_IMM_OTHER, 0, 0, 1));
    end();
}

/* A peer that has been skipped, perhaps often, is told the whole sequence, once. */
static void who_was_skipped_is_told_in_full(void)
{
    stepaf_tensor_t push[2 * PEERS];
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = 2 * PEERS};
    stepaf_request_h request;
    uint32_t imm;

    begin();
    stepaf_plan_h plan = make_plan(STEPAF_PLAN_SCATTER);
    commit();
    for (int i = 0; i < 2 * PEERS; i++)
        push[i] = (stepaf_tensor_t){i % 2 ? ALSO : PUSHED, memory, i / 2 == 1 ? 0 : 8};
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    for (int turn = 0; turn < 2; turn++) {
        fake_forget(job);
        (void)start(plan);
        CU_ASSERT_EQUAL_FATAL(job->n_records, PEERS);
        for (uint32_t p = 0; p < PEERS; p++)
            CU_ASSERT_EQUAL(stepaf_msg_to_imm(&job->records[p].msg, &imm), turn || p != 1);
    }
    end();
}

static void deliver(uint32_t peer, uint32_t code, uint32_t seq)
{
    stepaf_op_deliver_imm(&job->ctx->up, job->ctx->peers[peer].link,
                          stepaf_imm_make(code, 0, seq, 1));
}

/* Start operation @a seq, which all peers but the first answer. Returns whether the first was
 * asked. */
static bool exchange_without_first(stepaf_plan_h plan, uint32_t seq)
{
    bool was_asked = false;

    fake_forget(job);
    stepaf_request_h request = start(plan);
    for (unsigned i = 0; i < job->n_records; i++)
        was_asked = was_asked || job->records[i].peer == 0;
    for (uint32_t p = 1; p < PEERS; p++)
        deliver(p, STEPAF_IMM_RELEASED, seq);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0),
                    was_asked ? STEPAF_INPROGRESS : STEPAF_ERR_WOULD_BLOCK);
    return was_asked;
}

/* What a peer owes is told from an operation with the same end of its sequence: the peer is left
 * out of that, and one that needs all does not start. */
static void what_is_owed_is_no_other(void)
{
    enum { TURN = STEPAF_IMM_SEQ_MASK + 1, OWED = 1 };
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_ANSWERS, .n_answers = PEERS};
    stepaf_request_h request;
    struct stepaf_msg got;
    uint32_t seq = 0;

    begin();
    stepaf_plan_h plan = make_pulling_plan();
    commit();
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, PEERS - 1, 0), STEPAF_OK);
    for (; seq < TURN + OWED; seq++) {
        bool is_out = seq > OWED && seq % DEPTH == OWED;
        CU_ASSERT_EQUAL(exchange_without_first(plan, seq), !is_out);
        if (!is_out && seq != OWED)
            deliver(0, STEPAF_IMM_RELEASED, seq);
    }
    uint64_t late = job->ctx->counters.late;
    CU_ASSERT_EQUAL_FATAL((TURN + OWED) % DEPTH != OWED, true); /* else it would be so anyway */
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_WOULD_BLOCK);
    CU_ASSERT_FALSE(exchange_without_first(plan, seq));
    CU_ASSERT_TRUE(expand(stepaf_imm_make(STEPAF_IMM_RESPONSE, 0, seq, 1), &got));
    CU_ASSERT(got.seq == OWED && got.slot == OWED);
    deliver(0, STEPAF_IMM_RESPONSE, OWED); /* which frees nothing yet */
    CU_ASSERT_EQUAL(job->ctx->counters.late, late + 1);
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RELEASE, 0, OWED, seq);
    EXPECT_DROP(job, 0, &msg, DROP_STALE); /* of what it never got */
    msg.seq = OWED;
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    for (seq++; seq < TURN + 4 * DEPTH; seq++) {
        CU_ASSERT_TRUE(exchange_without_first(plan, seq));
        deliver(0, STEPAF_IMM_RELEASED, seq);
    }
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 0, 0), STEPAF_OK);
    request = start(plan);
    for (uint32_t p = 0; p < PEERS; p++)
        deliver(p, STEPAF_IMM_RELEASED, seq);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an answer is of one in flight", an_answer_is_of_one_in_flight},
        {"what makes no sense is counted", what_makes_no_sense_is_counted},
        {"what is owed is no other", what_is_owed_is_no_other},
        {"who was skipped is told in full", who_was_skipped_is_told_in_full},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
