/* SPDX-License-Identifier: Apache-2.0 */
/* What an FFN rank tells of a batch before its answer: tensors, and that the push is here. */
#include "batches.h"
#include "core/counters.h"

static stepaf_status_t send_ahead(stepaf_batch_h batch, size_t bytes)
{
    stepaf_tensor_t tensor = {PULLED, memory, bytes};

    return stepaf_respond_tensor(batch, 0, &tensor);
}

static void a_tensor_goes_ahead_of_its_answer(void)
{
    begin();
    for (uint32_t seq = 0; seq < 2 * DEPTH; seq++) {
        bool ahead = seq != DEPTH; /* then nothing of before is left */
        start(1, seq % DEPTH, seq);
        stepaf_batch_h batch = take();
        if (ahead) {
            CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_OK);
            const struct fake_record *record = fake_last(job);
            CU_ASSERT(record->msg.type == STEPAF_MSG_LANDED && record->msg.n == 0);
            CU_ASSERT(record->n_xfer == 0 && record->msg.word[0] == STEPAF_MSG_NO_TENSOR);
            unsigned n_records = job->n_records;
            CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_OK); /* once is enough */
            CU_ASSERT_EQUAL(job->n_records, n_records);
            CU_ASSERT_EQUAL(send_ahead(batch, 40 + seq), STEPAF_OK);
            record = fake_last(job);
            CU_ASSERT(record->peer == 1 && record->n_xfer == 1);
            CU_ASSERT(record->msg.type == STEPAF_MSG_LANDED && record->msg.plan == PLAN);
            CU_ASSERT(record->msg.slot == seq % DEPTH && record->msg.seq == seq);
            CU_ASSERT(record->msg.n == 0 && record->msg.word[0] == 0);
            CU_ASSERT_EQUAL(record->msg.word[1], 40 + seq);
            CU_ASSERT(record->xfer[0].bytes == 40 + seq && record->xfer[0].src == memory);
            CU_ASSERT_EQUAL(record->xfer[0].dst_offset, 64 + seq % DEPTH * 200);
            CU_ASSERT_EQUAL(send_ahead(batch, 40 + seq), STEPAF_ERR_STATE);
            CU_ASSERT_EQUAL(answer(batch, 39 + seq, 0), STEPAF_ERR_INVALID);
        }
        EXPECT_WHOLE(job);
        CU_ASSERT_EQUAL(answer(batch, 40 + seq, STEPAF_RESPOND_RELEASE), STEPAF_OK);
        const struct fake_record *record = fake_last(job);
        CU_ASSERT(record->msg.type == STEPAF_MSG_RESPONSE && record->msg.n == 1);
        CU_ASSERT_EQUAL(record->msg.word[STEPAF_MSG_SIZES], 40 + seq);
        CU_ASSERT_EQUAL(record->xfer[0].bytes, ahead ? 0 : 40 + seq);
        CU_ASSERT_EQUAL(record->xfer[0].dst_offset, 64 + seq % DEPTH * 200);
    }
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, 6 * 40 + 15);
    CU_ASSERT_EQUAL(job->ctx->counters.responses_sent, 2 * DEPTH);
    end();
}

static void bad_tensors_change_nothing(void)
{
    stepaf_tensor_t tensor = {PULLED, NULL, 8};
    uint8_t elsewhere[8];

    begin();
    tensor.data = memory;
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    uint64_t digest = state_digest(job->ctx);
    CU_ASSERT_EQUAL(stepaf_respond_tensor(batch, 1, &tensor), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_respond_tensor(batch, -1, &tensor), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_respond_tensor(batch, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(send_ahead(batch, BYTES + 1), STEPAF_ERR_SIZE);
    CU_ASSERT_EQUAL(send_ahead(batch, SIZE_MAX), STEPAF_ERR_SIZE);
    tensor.data = elsewhere;
    CU_ASSERT_EQUAL(stepaf_respond_tensor(batch, 0, &tensor), STEPAF_ERR_UNREGISTERED);
    tensor = (stepaf_tensor_t){PUSHED, memory, 8};
    CU_ASSERT_EQUAL(stepaf_respond_tensor(batch, 0, &tensor), STEPAF_ERR_INVALID);
    CU_ASSERT(state_digest(job->ctx) == digest && job->n_records == 0);
    CU_ASSERT_EQUAL(answer(batch, 8, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(send_ahead(batch, 8), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    CU_ASSERT_EQUAL(send_ahead(batch, 8), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_ERR_HANDLE);
    end();
}

/* In order with the answer, and though the plan ends meanwhile. */
static void what_goes_ahead_may_wait_for_room(void)
{
    for (int ends = 0; ends < 2; ends++) {
        begin();
        start(0, 0, 0);
        stepaf_batch_h batch = take();
        fake_link(job, 0)->room = 0;
        CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_OK); /* it waits already */
        CU_ASSERT_EQUAL(send_ahead(batch, 30), STEPAF_OK);
        if (ends) {
            struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_CLOSE, PLAN, 0, 0);
            CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
            fake_link(job, 0)->room = FAKE_ENDLESS;
            CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
            EXPECT_TAKEN(job, 0, &msg);
        } else {
            CU_ASSERT_EQUAL(answer(batch, 30, STEPAF_RESPOND_RELEASE), STEPAF_OK);
            CU_ASSERT_EQUAL(job->n_records, 0);
            fake_link(job, 0)->room = FAKE_ENDLESS;
            CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
        }
        CU_ASSERT_EQUAL_FATAL(job->n_records, 3);
        CU_ASSERT_EQUAL(job->records[0].msg.word[0], STEPAF_MSG_NO_TENSOR);
        CU_ASSERT_EQUAL(job->records[1].xfer[0].bytes, 30);
        CU_ASSERT_EQUAL(job->records[2].msg.type, ends ? STEPAF_MSG_RELEASE : STEPAF_MSG_RESPONSE);
        end();
    }
}

/* The answer has nothing to send any more, but its request is about all sources. */
static void an_answer_is_over_when_all_of_it_is(void)
{
    for (int lost = 0; lost < 2; lost++) {
        stepaf_tensor_t tensor = {PULLED, NULL, 30};
        stepaf_request_h request = NULL;
        begin();
        tensor.data = memory;
        start(0, 0, 0);
        stepaf_batch_h batch = take();
        fake_link(job, 0)->holds = true;
        CU_ASSERT_EQUAL(send_ahead(batch, 30), STEPAF_OK);
        fake_link(job, 0)->holds = false;
        CU_ASSERT_EQUAL(stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &request),
                        STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
        CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_INPROGRESS);
        if (lost)
            job->ctx->up.lost(&job->ctx->up, job->ctx->peers[0].link, "by the test");
        else
            fake_complete(job, 0);
        CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        end();
    }
}

static void what_waits_for_room_at_the_end_is_freed(void)
{
    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    fake_link(job, 0)->room = 0;
    CU_ASSERT_EQUAL(stepaf_confirm(batch), STEPAF_OK);
    CU_ASSERT_EQUAL(send_ahead(batch, 30), STEPAF_OK);
    end(); /* a sanitizer looks for what is left */
}

/* The answer then brings it, also one that has waited behind it: or fails for the same reason. */
static void a_tensor_that_cannot_be_read_goes_with_the_answer(void)
{
    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    fake_link(job, 0)->cannot_read = true;
    CU_ASSERT_EQUAL(send_ahead(batch, 8), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT(job->n_records == 0 && stepaf_core_counters(job->ctx).bytes_sent == 0);
    CU_ASSERT_EQUAL(answer(batch, 8, STEPAF_RESPOND_RELEASE), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_last(job)->xfer[0].bytes, 8);
    start(0, 1, 1);
    batch = take();
    fake_link(job, 0)->room = 0;
    fake_link(job, 0)->cannot_read = true;
    CU_ASSERT_EQUAL(send_ahead(batch, 8), STEPAF_OK);
    CU_ASSERT_EQUAL(answer(batch, 8, STEPAF_RESPOND_RELEASE), STEPAF_OK);
    fake_link(job, 0)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 2);
    CU_ASSERT_EQUAL(fake_last(job)->xfer[0].bytes, 8);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, 16);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a tensor goes ahead of its answer", a_tensor_goes_ahead_of_its_answer},
        {"bad tensors change nothing", bad_tensors_change_nothing},
        {"what goes ahead may wait for room", what_goes_ahead_may_wait_for_room},
        {"an answer is over when all of it is", an_answer_is_over_when_all_of_it_is},
        {"what waits for room at the end is freed", what_waits_for_room_at_the_end_is_freed},
        {"a tensor that cannot be read goes with the answer",
         a_tensor_that_cannot_be_read_goes_with_the_answer},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
