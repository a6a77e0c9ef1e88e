/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a batch at an FFN rank, and what cancels it. */
#include "batches.h"
#include "core/counters.h"

static void starts_that_make_no_sense_are_dropped(void)
{
    begin();
    struct stepaf_msg msg = start_msg(0, 0);
    msg.plan = PLAN + 1;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.plan = 65535;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    static const struct {
        uint32_t slot, seq;
    } bad[] = {{1, 0}, {DEPTH, 0}, {255, 0},        {0, 1},          {2, 1},
               {1, 2}, {0, 2},     {0, UINT32_MAX}, {2, UINT32_MAX}, {0, 0x80000000}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        msg = start_msg(bad[i].slot, bad[i].seq);
        EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    msg = start_msg(0, 0);
    msg.n = 2;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* another number of tensors */
    msg.n = 255;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.n = 1;
    msg.word[STEPAF_MSG_SIZES] = BYTES + 1;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* more than planned */
    msg.word[STEPAF_MSG_SIZES] = UINT32_MAX;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.word[STEPAF_MSG_SIZES] = BYTES;
    msg.epoch--;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg.epoch += 2;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg.epoch--;
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* twice */
    CU_ASSERT_EQUAL(job->ctx->counters.batches_received, 1);
    end();
}

static void a_slot_that_is_not_free_is_not_started(void)
{
    begin();
    for (uint32_t seq = 0; seq < DEPTH; seq++)
        start(0, seq, seq);
    struct stepaf_msg again = start_msg(0, DEPTH);
    EXPECT_DROP(job, 0, &again, DROP_MALFORMED); /* ready */
    stepaf_batch_h batch = take();
    EXPECT_DROP(job, 0, &again, DROP_MALFORMED); /* held */
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    EXPECT_TAKEN(job, 0, &again);
    end();
}

/* An honest rank cannot know that the slot is free before it is told. */
static void a_slot_whose_release_has_not_left_is_not_started(void)
{
    begin();
    for (int proto = 0; proto < 2; proto++) {
        uint32_t seq = (uint32_t)proto * DEPTH;
        for (uint32_t slot = 0; slot < DEPTH; slot++)
            start(0, slot, seq + slot);
        fake_link(job, 0)->room = 0;
        stepaf_batch_h batch = take();
        CU_ASSERT_EQUAL(proto ? answer(batch, 8, STEPAF_RESPOND_RELEASE) : stepaf_release(batch),
                        STEPAF_OK);
        struct stepaf_msg again = start_msg(0, seq + DEPTH);
        EXPECT_DROP(job, 0, &again, DROP_MALFORMED);
        fake_link(job, 0)->room = FAKE_ENDLESS;
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
    }
    end();
}

/* The peer has had the answer, whatever the transport knows of it. */
static void a_slot_that_is_used_again_ends_the_answer_before(void)
{
    begin();
    for (uint32_t slot = 0; slot < DEPTH; slot++)
        start(0, slot, slot);
    fake_link(job, 0)->holds = true;
    CU_ASSERT_EQUAL(answer(take(), 8, STEPAF_RESPOND_RELEASE), STEPAF_OK);
    CU_ASSERT_PTR_NOT_NULL(fake_link(job, 0)->held);
    struct stepaf_msg again = start_msg(0, DEPTH);
    EXPECT_TAKEN(job, 0, &again);
    CU_ASSERT_PTR_NULL(fake_link(job, 0)->held); /* forgotten */
    end();
}

/* A scattered operation may leave this rank out: numbers and slots jump together. */
static void operations_may_be_skipped(void)
{
    begin();
    start(0, 1, 4);
    CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
    struct stepaf_msg old = start_msg(0, 3);
    EXPECT_DROP(job, 0, &old, DROP_MALFORMED); /* and never back */
    start(0, 2, 5);
    CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
    start(0, (1 + 1000000) % DEPTH, 4 + 1000000);
    end();
}

static void sizes_may_shrink(void)
{
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};

    begin();
    for (uint32_t i = 0; i < 3; i++) {
        static const uint32_t sizes[] = {0, 7, BYTES};
        struct stepaf_msg msg = start_msg(i % DEPTH, i);
        msg.n = 1;
        msg.word[STEPAF_MSG_SIZES] = sizes[i];
        EXPECT_TAKEN(job, 0, &msg);
        stepaf_batch_h batch = take();
        CU_ASSERT_EQUAL(stepaf_batch_tensor(batch, 0, &tensor), STEPAF_OK);
        CU_ASSERT_EQUAL(tensor.bytes, sizes[i]);
        CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    }
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_received, 7 + BYTES);
    end();
}

static void types_that_are_not_for_an_ffn_rank_are_dropped(void)
{
    begin();
    start(0, 0, 0);
    for (unsigned type = 0; type < 256; type++) {
        bool known = type == STEPAF_MSG_START || type == STEPAF_MSG_CANCEL ||
                     (type >= STEPAF_MSG_PLAN && type < STEPAF_MSG_TYPE_END);
        struct stepaf_msg msg = fake_msg(job, (enum stepaf_msg_type)type, PLAN, 0, 0);
        if (!known)
            EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    end();
}

static void a_ready_batch_is_canceled(void)
{
    begin();
    start(0, 0, 0);
    start(1, 0, 0);
    struct stepaf_msg cancel = fake_msg(job, STEPAF_MSG_CANCEL, PLAN, 0, 0);
    EXPECT_TAKEN(job, 0, &cancel);
    CU_ASSERT_EQUAL(job->n_records, 1);
    CU_ASSERT_EQUAL(fake_last(job)->msg.type, STEPAF_MSG_RELEASE);
    CU_ASSERT_EQUAL(fake_last(job)->msg.flags, STEPAF_MSG_UNWANTED | STEPAF_MSG_TIMED);
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY); /* it crossed the release */
    stepaf_batch_info_t info = {.size = sizeof(info)};
    CU_ASSERT_EQUAL(stepaf_batch_query(take(), &info), STEPAF_OK);
    CU_ASSERT_EQUAL(info.attention_rank, 1); /* the other one is untouched */
    stepaf_batch_h none;
    int n;
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &none, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    start(0, 1, 1);
    end();
}

static void cancels_of_nothing_are_ignored(void)
{
    begin();
    start(0, 0, 0);
    struct stepaf_msg cancel = fake_msg(job, STEPAF_MSG_CANCEL, PLAN, 0, 1);
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY); /* another operation */
    cancel.seq = 0;
    cancel.slot = 1;
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY);
    cancel.slot = DEPTH;
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY);
    cancel.slot = 255;
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY);
    cancel.slot = 0;
    cancel.plan = 65535;
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY);
    cancel.plan = PLAN;
    EXPECT_DROP(job, 1, &cancel, DROP_SILENTLY); /* another rank's plan */
    cancel.epoch++;
    EXPECT_DROP(job, 0, &cancel, DROP_STALE);
    end();
}

static void a_held_batch_that_is_canceled_takes_no_answer(void)
{
    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    struct stepaf_msg cancel = fake_msg(job, STEPAF_MSG_CANCEL, PLAN, 0, 0);
    EXPECT_TAKEN(job, 0, &cancel);
    EXPECT_TAKEN(job, 0, &cancel);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(answer(batch, 8, 0), STEPAF_ERR_CANCELED);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 1);
    CU_ASSERT_EQUAL(fake_last(job)->msg.flags, STEPAF_MSG_UNWANTED | STEPAF_MSG_TIMED);
    end();
}

static void a_cancel_that_crosses_the_answer_changes_nothing(void)
{
    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    struct stepaf_msg cancel = fake_msg(job, STEPAF_MSG_CANCEL, PLAN, 0, 0);
    CU_ASSERT_EQUAL(answer(batch, 8, 0), STEPAF_OK);
    EXPECT_TAKEN(job, 0, &cancel);
    CU_ASSERT_EQUAL(answer(batch, 8, 0), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_last(job)->msg.type, STEPAF_MSG_RELEASE);
    CU_ASSERT_EQUAL(fake_last(job)->msg.flags, 0); /* answered it was */
    end();
}

static void a_commit_names_whose_batch_is_in_the_way(void)
{
    begin();
    start(1, 0, 0);
    stepaf_batch_h batch = take();
    CU_ASSERT_EQUAL(fake_commit(job, counterpart), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_role, STEPAF_ATTENTION);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    end();
}

/* What waits to go out may take all of a barrier's time: there is not as much again. */
static void a_barrier_has_one_deadline(void)
{
    begin();
    start(0, 0, 0);
    fake_link(job, 0)->room = 0;
    CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_barrier(job->handle, STEPAF_GROUP_WORLD, 2000), STEPAF_OK);
    CU_ASSERT_EQUAL(job->barrier_us, 0);
    fake_link(job, 0)->room = FAKE_ENDLESS;
    job->barrier_status = STEPAF_ERR_TIMEOUT;
    CU_ASSERT_EQUAL(stepaf_barrier(job->handle, STEPAF_GROUP_WORLD, 3600000000),
                    STEPAF_ERR_TIMEOUT);
    CU_ASSERT(job->barrier_us > 0 && job->barrier_us <= 3600000000);
    CU_ASSERT_EQUAL(stepaf_last_error()->phase, STEPAF_PHASE_BARRIER);
    UNIT_STRING(stepaf_last_error()->text, "fake: barrier");
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"starts that make no sense are dropped", starts_that_make_no_sense_are_dropped},
        {"a slot that is not free is not started", a_slot_that_is_not_free_is_not_started},
        {"a slot whose release has not left is not started",
         a_slot_whose_release_has_not_left_is_not_started},
        {"a slot that is used again ends the answer before",
         a_slot_that_is_used_again_ends_the_answer_before},
        {"operations may be skipped", operations_may_be_skipped},
        {"sizes may shrink", sizes_may_shrink},
        {"types that are not for an FFN rank are dropped",
         types_that_are_not_for_an_ffn_rank_are_dropped},
        {"a ready batch is canceled", a_ready_batch_is_canceled},
        {"cancels of nothing are ignored", cancels_of_nothing_are_ignored},
        {"a held batch that is canceled takes no answer",
         a_held_batch_that_is_canceled_takes_no_answer},
        {"a cancel that crosses the answer changes nothing",
         a_cancel_that_crosses_the_answer_changes_nothing},
        {"a commit names whose batch is in the way", a_commit_names_whose_batch_is_in_the_way},
        {"a barrier has one deadline", a_barrier_has_one_deadline},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
