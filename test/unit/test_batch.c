/* SPDX-License-Identifier: Apache-2.0 */
/* Batches at an FFN rank: what makes one, what ends it, and what is told of it. */
#include "drop.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 100, DEPTH = 3, PLAN = 5 };

static struct fake_job *job, *twin;
static uint8_t *memory;

/* An FFN rank that knows one plan of each of two attention ranks. */
static void begin(void)
{
    void *allocated;

    job = fake_open(STEPAF_FFN, 2, 1);
    twin = fake_open(STEPAF_ATTENTION, 2, 1);
    fake_key(job, twin, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(job, twin, PULLED, STEPAF_PULL, BYTES, DEPTH);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(twin->handle, 4096, STEPAF_MEM_HOST, &allocated), 0);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, BYTES, STEPAF_MEM_HOST, &allocated), 0);
    memory = allocated;
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, twin), STEPAF_OK);
    for (uint32_t p = 0; p < 2; p++) {
        struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PLAN, PLAN, 0, 0);
        msg.word[0] = 1;
        msg.word[1] = 1;
        msg.word[2] = DEPTH;
        EXPECT_TAKEN(job, p, &msg);
        msg = fake_msg(job, STEPAF_MSG_TENSOR, PLAN, 0, 0);
        msg.word[0] = PUSHED;
        msg.word[2] = BYTES;
        EXPECT_TAKEN(job, p, &msg);
        msg.flags = STEPAF_MSG_PULL_SIDE;
        msg.word[0] = PULLED;
        msg.word[3] = twin->ctx->regions[0]->id;
        msg.word[4] = 64;
        msg.word[6] = 200;
        EXPECT_TAKEN(job, p, &msg);
    }
    fake_forget(job);
}

static void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(twin);
}

static struct stepaf_msg start_msg(uint32_t slot, uint32_t seq)
{
    return fake_msg(job, STEPAF_MSG_START, PLAN, slot, seq);
}

static void start(uint32_t peer, uint32_t slot, uint32_t seq)
{
    struct stepaf_msg msg = start_msg(slot, seq);

    EXPECT_TAKEN(job, peer, &msg);
}

static stepaf_batch_h take(void)
{
    stepaf_batch_h batch = NULL;
    int n;

    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, &batch, 1, &n), STEPAF_OK);
    return batch;
}

static stepaf_status_t answer(stepaf_batch_h batch, size_t bytes, uint32_t flags)
{
    stepaf_tensor_t tensor = {PULLED, memory, bytes};

    return stepaf_respond(batch, &tensor, 1, flags, NULL);
}

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
    } bad[] = {{1, 0}, {DEPTH, 0}, {255, 0},   {0, 1},          {2, 1},
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
    for (int way = 0; way < 3; way++) {
        uint32_t seq = (uint32_t)way * DEPTH;
        for (uint32_t slot = 0; slot < DEPTH; slot++)
            start(0, slot, seq + slot);
        fake_link(job, 0)->room = way < 2 ? 0 : FAKE_ENDLESS;
        fake_link(job, 0)->holds = way == 2;
        stepaf_batch_h batch = take();
        CU_ASSERT_EQUAL(way ? answer(batch, 8, STEPAF_RESPOND_RELEASE) : stepaf_release(batch),
                        STEPAF_OK);
        struct stepaf_msg again = start_msg(0, seq + DEPTH);
        EXPECT_DROP(job, 0, &again, DROP_MALFORMED);
        fake_link(job, 0)->room = FAKE_ENDLESS;
        fake_link(job, 0)->holds = false;
        fake_complete(job, 0);
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
    }
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
    stepaf_tensor_info_t tensor;

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
    CU_ASSERT_EQUAL(job->ctx->counters.bytes_received, 7 + BYTES);
    end();
}

static void types_that_are_not_for_an_ffn_rank_are_dropped(void)
{
    begin();
    start(0, 0, 0);
    for (unsigned type = 0; type < 256; type++) {
        bool known = type == STEPAF_MSG_START || type == STEPAF_MSG_CANCEL ||
                     (type >= STEPAF_MSG_PLAN && type <= STEPAF_MSG_BYE);
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
    CU_ASSERT_EQUAL(fake_last(job)->msg.flags, STEPAF_MSG_UNWANTED);
    EXPECT_DROP(job, 0, &cancel, DROP_SILENTLY); /* it crossed the release */
    stepaf_batch_info_t info;
    CU_ASSERT_EQUAL(stepaf_batch_get(take(), &info), STEPAF_OK);
    CU_ASSERT_EQUAL(info.attention_rank, 1); /* the other one is untouched */
    stepaf_batch_h none;
    int n;
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, &none, 1, &n), STEPAF_ERR_TIMEOUT);
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
    CU_ASSERT_EQUAL(fake_last(job)->msg.flags, STEPAF_MSG_UNWANTED);
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

static void an_answer_goes_where_the_plan_says(void)
{
    begin();
    for (uint32_t seq = 0; seq < 4; seq++) {
        start(1, seq % DEPTH, seq);
        CU_ASSERT_EQUAL(answer(take(), seq * 10, STEPAF_RESPOND_RELEASE), STEPAF_OK);
        const struct fake_record *record = fake_last(job);
        CU_ASSERT(record->peer == 1 && record->n_xfer == 1);
        CU_ASSERT(record->msg.type == STEPAF_MSG_RESPONSE && record->msg.plan == PLAN);
        CU_ASSERT(record->msg.flags == STEPAF_MSG_RELEASED && record->msg.epoch == 1);
        CU_ASSERT(record->msg.slot == seq % DEPTH && record->msg.seq == seq);
        CU_ASSERT(record->msg.n == 1 && record->msg.word[STEPAF_MSG_SIZES] == seq * 10);
        CU_ASSERT(record->xfer[0].bytes == seq * 10 && record->xfer[0].src == memory);
        CU_ASSERT_EQUAL(record->xfer[0].dst_offset, 64 + seq % DEPTH * 200);
        CU_ASSERT(!record->xfer[0].bytes || record->xfer[0].src_region != NULL);
    }
    CU_ASSERT_EQUAL(job->n_records, 4);
    CU_ASSERT_EQUAL(job->ctx->counters.responses_sent, 4);
    CU_ASSERT_EQUAL(job->ctx->counters.bytes_sent, 60);
    end();
}

static void bad_answers_change_nothing(void)
{
    uint8_t elsewhere[8];

    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    stepaf_tensor_t tensors[2] = {{PULLED, memory, 8}, {PULLED, memory, 8}};
    uint64_t digest = state_digest(job->ctx);
    CU_ASSERT_EQUAL(stepaf_respond(batch, tensors, 2, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_respond(batch, tensors, 0, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_respond(batch, NULL, 1, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_respond(batch, tensors, -1, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_respond(batch, tensors, 1, 2, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(answer(batch, BYTES + 1, 0), STEPAF_ERR_SIZE);
    CU_ASSERT_EQUAL(answer(batch, SIZE_MAX, 0), STEPAF_ERR_SIZE);
    tensors[0].data = elsewhere;
    CU_ASSERT_EQUAL(stepaf_respond(batch, tensors, 1, 0, NULL), STEPAF_ERR_UNREGISTERED);
    tensors[0] = (stepaf_tensor_t){PUSHED, memory, 8};
    CU_ASSERT_EQUAL(stepaf_respond(batch, tensors, 1, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(answer(batch, 8, 0), STEPAF_OK);
    end();
}

/* One message tells both where the answer has not left yet. */
static void a_release_joins_a_queued_answer(void)
{
    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    fake_link(job, 0)->room = 0;
    CU_ASSERT_EQUAL(answer(batch, 8, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    EXPECT_WHOLE(job);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(job->ctx->counters.queued, 1);
    fake_link(job, 0)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 1);
    CU_ASSERT_EQUAL(fake_last(job)->msg.flags, STEPAF_MSG_RELEASED);
    end();
}

static void batches_come_in_order(void)
{
    static const int from[] = {1, 0, 0, 1};
    stepaf_batch_h batches[4];
    stepaf_batch_info_t info;
    int n;

    begin();
    start(1, 0, 0);
    start(0, 0, 0);
    start(0, 1, 1);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, batches, 1, &n),
                    STEPAF_ERR_INVALID);
    start(1, 1, 1);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, batches, 4, &n), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(n, 4);
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(stepaf_batch_get(batches[i], &info), STEPAF_OK);
        CU_ASSERT_EQUAL(info.attention_rank, from[i]);
        CU_ASSERT_EQUAL(info.sequence, i == 2 || i == 3);
    }
    start(1, 2, 2);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, batches, 2, &n),
                    STEPAF_ERR_TIMEOUT);
    start(0, 2, 2);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, batches, 2, &n), STEPAF_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(stepaf_batch_get(batches[i], &info), STEPAF_OK);
        CU_ASSERT_EQUAL(info.attention_rank, i);
    }
    end();
}

/* Its batches go with it, but for those that the caller holds; the others' stay. */
static void a_lost_peer_takes_its_batches_along(void)
{
    stepaf_batch_h batches[2];
    stepaf_batch_info_t info;
    int n;

    begin();
    start(0, 0, 0);
    stepaf_batch_h held = take();
    start(0, 1, 1);
    start(1, 0, 0);
    struct stepaf_host *host = &job->ctx->host;
    host->lost(host, &fake_link(job, 0)->base, "the test says so");
    host->lost(host, &fake_link(job, 0)->base, "twice");
    EXPECT_WHOLE(job);
    CU_ASSERT(job->ctx->n_alive == 1 && job->ctx->counters.peers_lost == 1);
    struct stepaf_msg late = start_msg(2, 2);
    EXPECT_DROP(job, 0, &late, DROP_SILENTLY);
    CU_ASSERT_EQUAL(answer(held, 8, 0), STEPAF_ERR_PEER_LOST);
    UNIT_CONTAINS(stepaf_last_error()->text, "the test says so");
    CU_ASSERT_EQUAL(stepaf_release(held), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, -1, batches, 2, &n),
                    STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH | STEPAF_RECV_SKIP_LOST, 0, batches,
                                2, &n),
                    STEPAF_OK);
    CU_ASSERT_PTR_NULL(batches[0]);
    CU_ASSERT_EQUAL(stepaf_batch_get(batches[1], &info), STEPAF_OK);
    host->lost(host, &fake_link(job, 1)->base, "so it does");
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, -1, batches, 2, &n),
                    STEPAF_ERR_PEER_LOST);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"starts that make no sense are dropped", starts_that_make_no_sense_are_dropped},
        {"a slot that is not free is not started", a_slot_that_is_not_free_is_not_started},
        {"a slot whose release has not left is not started",
         a_slot_whose_release_has_not_left_is_not_started},
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
        {"an answer goes where the plan says", an_answer_goes_where_the_plan_says},
        {"bad answers change nothing", bad_answers_change_nothing},
        {"a release joins a queued answer", a_release_joins_a_queued_answer},
        {"batches come in order", batches_come_in_order},
        {"a lost peer takes its batches along", a_lost_peer_takes_its_batches_along},
        CU_TEST_INFO_NULL,
    };
    return unit_run("batch", tests);
}
