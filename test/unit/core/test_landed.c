/* SPDX-License-Identifier: Apache-2.0 */
/* What is here of an operation before its answer: whole tensors, and that the push has arrived. */
#include "core/op.h"
#include "core/plan.h"
#include "starts.h"

enum { PLAN_NUMBER = 0 };

/* A tensor back from each rank, in slots one behind the other. */
static stepaf_plan_h make_pulling_plan(void)
{
    stepaf_tensor_t push = {PUSHED, memory, BYTES}, pull[PEERS];
    stepaf_plan_h plan = NULL;

    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, memory + 1000 + p * BYTES * DEPTH, BYTES};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, pull, PEERS, 0, &plan), 0);
    return plan;
}

static struct stepaf_msg landed(uint32_t seq, uint32_t index, uint32_t bytes)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_LANDED, PLAN_NUMBER, seq % DEPTH, seq);

    msg.n_words = STEPAF_MSG_SIZES;
    msg.word[STEPAF_MSG_TENSOR_INDEX] = index;
    msg.word[STEPAF_MSG_HERE] = bytes;
    return msg;
}

static void answer_as_planned(uint32_t peer, uint32_t seq)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RESPONSE, PLAN_NUMBER, seq % DEPTH, seq);

    msg.flags = STEPAF_MSG_RELEASED;
    msg.n_words = STEPAF_MSG_SIZES;
    EXPECT_TAKEN(job, peer, &msg);
}

static stepaf_status_t size_of(stepaf_request_h request, int index, size_t *bytes_p)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_status_t status = stepaf_request_tensor(request, index, &info);

    *bytes_p = info.bytes;
    return status;
}

static void tensors_are_there_before_the_answer(void)
{
    size_t bytes;

    begin();
    stepaf_plan_h plan = make_pulling_plan();
    commit();
    for (uint32_t seq = 0; seq < 2 * DEPTH; seq++) {
        stepaf_request_h request = start(plan);
        for (int p = 0; p < PEERS; p++) { /* nothing is left of the slot's last operation */
            CU_ASSERT_EQUAL(size_of(request, p, &bytes), STEPAF_INPROGRESS);
            CU_ASSERT_EQUAL(stepaf_wait_push(request, p, 0), STEPAF_ERR_TIMEOUT);
        }
        struct stepaf_msg msg = landed(seq, STEPAF_MSG_NO_TENSOR, 0);
        EXPECT_TAKEN(job, 2, &msg);
        CU_ASSERT_EQUAL(stepaf_wait_push(request, 2, 0), STEPAF_OK);
        CU_ASSERT_EQUAL(size_of(request, 2, &bytes), STEPAF_INPROGRESS);
        msg = landed(seq, 0, seq % 2 ? BYTES : 20 + seq);
        EXPECT_TAKEN(job, 1, &msg);
        CU_ASSERT_EQUAL(size_of(request, 1, &bytes), STEPAF_OK);
        CU_ASSERT_EQUAL(bytes, seq % 2 ? BYTES : 20 + seq);
        CU_ASSERT_EQUAL(stepaf_wait_tensor(request, 1, 0), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_wait_push(request, 1, 0), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_INPROGRESS);
        CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
        for (uint32_t p = 0; p < PEERS; p++)
            answer_as_planned(p, seq);
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        CU_ASSERT_EQUAL(size_of(request, 1, &bytes), STEPAF_OK);
        CU_ASSERT_EQUAL(bytes, BYTES);
    }
    CU_ASSERT_EQUAL(stepaf_wait_push(NULL, 0, 0), STEPAF_ERR_HANDLE);
    end();
}

static void a_peer_may_fail_behind_its_tensor(void)
{
    size_t bytes;

    begin();
    stepaf_plan_h plan = make_pulling_plan();
    commit();
    stepaf_request_h request = start(plan);
    struct stepaf_msg msg = landed(0, 0, 7);
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_TAKEN(job, 1, &msg);
    msg = fake_msg(job, STEPAF_MSG_RELEASE, PLAN_NUMBER, 0, 0);
    msg.flags = STEPAF_MSG_UNWANTED;
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_ERR_CANCELED);
    job->ctx->up.lost(&job->ctx->up, job->ctx->peers[1].link, "by the test");
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_ERR_PEER_LOST);
    for (int p = 0; p < 2; p++) { /* what has come stays */
        CU_ASSERT(size_of(request, p, &bytes) == STEPAF_OK && bytes == 7);
        CU_ASSERT_EQUAL(stepaf_wait_push(request, p, 0), STEPAF_OK);
    }
    CU_ASSERT_EQUAL(size_of(request, 2, &bytes), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_wait_push(request, 3, 0), STEPAF_ERR_INVALID);
    end();
}

static void what_cannot_be_is_dropped(void)
{
    begin();
    stepaf_plan_h plan = make_pulling_plan();
    commit();
    stepaf_request_h request = start(plan);
    struct stepaf_msg msg = landed(0, 1, 7); /* no such tensor */
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = landed(0, 0, BYTES + 1);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = landed(0, 0, 7);
    msg.n_words = 1;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = landed(1, 0, 7); /* of no operation in flight */
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = landed(0, 0, 7);
    msg.plan = 9;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = landed(0, 0, 7);
    msg.slot = DEPTH;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg = landed(0, 0, 7);
    msg.epoch++;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    answer_as_planned(0, 0);
    msg = landed(0, 0, 7); /* of an answer that is here */
    EXPECT_DROP(job, 0, &msg, DROP_SILENTLY);
    const struct stepaf_op *op =
        &((struct stepaf_plan_obj *)stepaf_table_get(&job->ctx->tables.plans, PLAN_NUMBER))->ops[0];
    CU_ASSERT(op->pull_bytes[0] == BYTES && stepaf_op_has_landed(op, 0) == 0);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_OK);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"tensors are there before the answer", tensors_are_there_before_the_answer},
        {"a peer may fail behind its tensor", a_peer_may_fail_behind_its_tensor},
        {"what cannot be is dropped", what_cannot_be_is_dropped},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
