/* SPDX-License-Identifier: Apache-2.0 */
/* What an FFN rank does with batches: in which order it gets them, answers, releases. */
#include "batches.h"
#include "core/batch.h"
#include "core/counters.h"
#include "core/metrics.h"
#include "core/remote_plan.h"

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
        CU_ASSERT(!record->xfer[0].bytes || record->xfer[0].src_mem != NULL);
    }
    CU_ASSERT_EQUAL(job->n_records, 4);
    CU_ASSERT_EQUAL(job->ctx->counters.responses_sent, 4);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, 60);
    end();
}

static void an_answer_and_its_release_are_stamped(void)
{
    stepaf_trace_record_t records[8];
    size_t n = 0;

    begin();
    start(1, 0, 0);
    CU_ASSERT_EQUAL(answer(take(), 10, STEPAF_RESPOND_RELEASE), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, records, sizeof(*records), 8, &n), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(n, 4);
    static const int events[] = {STEPAF_EVENT_ARRIVED, STEPAF_EVENT_HANDLED, STEPAF_EVENT_RESPONDED,
                                 STEPAF_EVENT_RELEASED};
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL((int)records[i].event, events[i]);
        CU_ASSERT_EQUAL(records[i].peer, job->ctx->peers[1].who.rank);
        CU_ASSERT(records[i].plan == PLAN && records[i].sequence == 0 && records[i].tensor == -1);
    }
    CU_ASSERT_EQUAL(records[2].time_ns, records[3].time_ns);
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

/* Whether the last answer, all as planned, can be told in 32 bits. */
static bool was_short(void)
{
    const struct stepaf_msg *msg = &fake_last(job)->msg;
    uint32_t imm;

    return stepaf_msg_to_imm(msg, &imm);
}

/* Times that are long are told by a message of full length; 32 bits stand for short ones. */
static void long_times_are_told(void)
{
    enum { LONG_US = 50 };
    uint32_t seq = 0;

    begin();
    struct stepaf_ctx_clock *clock = &job->ctx->clock;
    uint64_t ticks = (uint64_t)(10 * LONG_US * clock->own.ticks_per_us);
    for (int slow = 0; slow < 3; slow++, seq++) { /* neither, in the queue, at work */
        start(0, seq % DEPTH, seq);
        struct stepaf_batch_obj *batch = &job->ctx->peers[0].remotes[PLAN]->batches[seq % DEPTH];
        batch->arrived -= slow == 1 ? ticks : 0;
        stepaf_batch_h taken = take();
        batch->handled = slow == 2 ? batch->arrived : batch->handled;
        batch->arrived -= slow == 2 ? ticks : 0;
        batch->handled -= slow == 2 ? ticks : 0;
        clock->told_from = slow ? ticks : UINT64_MAX;
        CU_ASSERT_EQUAL(answer(taken, BYTES, STEPAF_RESPOND_RELEASE), STEPAF_OK);
        const struct stepaf_msg *msg = &fake_last(job)->msg;
        CU_ASSERT_EQUAL(was_short(), slow == 0);
        CU_ASSERT_EQUAL(msg->flags, STEPAF_MSG_RELEASED | (slow ? STEPAF_MSG_TIMED : 0));
        uint32_t told = msg->word[slow == 2 ? STEPAF_MSG_WORK : STEPAF_MSG_QUEUE];
        CU_ASSERT(!slow || (told >= LONG_US * 9900 && told < UINT32_MAX - 1));
    }
    clock->told_from = 0; /* always */
    start(0, seq % DEPTH, seq);
    CU_ASSERT_EQUAL(answer(take(), BYTES, STEPAF_RESPOND_RELEASE), STEPAF_OK);
    CU_ASSERT(!was_short());
    end();
}

static uint64_t count_times(const struct stepaf_metrics *metrics, uint32_t time)
{
    uint64_t n = 0;

    for (int i = 0; i < STEPAF_HISTOGRAM_BUCKETS; i++)
        n += metrics->histograms[time].buckets[i];
    return n;
}

/* While times are measured each answer counts, and what is told stays the same. */
static void all_times_are_counted_where_that_is_asked_for(void)
{
    begin();
    struct stepaf_metrics *metrics = job->ctx->polling.metrics;
    uint64_t ticks = (uint64_t)(1000 * job->ctx->clock.own.ticks_per_us);
    for (uint32_t seq = 0; seq < 3; seq++) { /* not asked; short; long */
        if (seq == 1) {
            atomic_store(&metrics->head->wish.until_ns, INT64_MAX);
            metrics->due = stepaf_ticks();
            stepaf_metrics_keep(job->ctx, metrics->due);
        }
        metrics->plain.told_from = seq == 2 ? ticks : UINT64_MAX;
        start(0, seq % DEPTH, seq);
        struct stepaf_batch_obj *batch = &job->ctx->peers[0].remotes[PLAN]->batches[seq % DEPTH];
        batch->arrived -= 2 * ticks;
        CU_ASSERT_EQUAL(answer(take(), BYTES, STEPAF_RESPOND_RELEASE), STEPAF_OK);
        CU_ASSERT_EQUAL(was_short(), seq < 2);
        CU_ASSERT_EQUAL(count_times(metrics, STEPAF_TIME_QUEUE), seq);
        CU_ASSERT_EQUAL(count_times(metrics, STEPAF_TIME_WORK), seq);
    }
    uint64_t sum_ns = metrics->histograms[STEPAF_TIME_QUEUE].sum_ns;
    CU_ASSERT(sum_ns >= 3900000 && sum_ns < 60000000000);
    end();
}

/* A batch without an answer tells its times with the release; one that nobody took has done no
 * work. */
static void a_release_tells_times(void)
{
    struct stepaf_msg cancel;

    begin();
    uint64_t ticks = (uint64_t)(1000 * job->ctx->clock.own.ticks_per_us);
    start(0, 0, 0);
    struct stepaf_batch_obj *batch = &job->ctx->peers[0].remotes[PLAN]->batches[0];
    batch->arrived -= 3 * ticks;
    stepaf_batch_h taken = take();
    batch->handled -= 2 * ticks;
    CU_ASSERT_EQUAL(stepaf_release(taken), STEPAF_OK);
    const struct stepaf_msg *msg = &fake_last(job)->msg;
    CU_ASSERT(msg->type == STEPAF_MSG_RELEASE && msg->n_words == STEPAF_MSG_SIZES);
    CU_ASSERT_EQUAL(msg->flags, STEPAF_MSG_UNWANTED | STEPAF_MSG_TIMED);
    CU_ASSERT(msg->word[STEPAF_MSG_QUEUE] >= 990000 && msg->word[STEPAF_MSG_WORK] >= 1990000);
    CU_ASSERT(msg->word[STEPAF_MSG_WORK] < UINT32_MAX - 1);
    start(0, 1, 1);
    batch++;
    batch->arrived -= ticks;
    cancel = fake_msg(job, STEPAF_MSG_CANCEL, PLAN, 1, 1);
    EXPECT_TAKEN(job, 0, &cancel);
    msg = &fake_last(job)->msg;
    CU_ASSERT(msg->type == STEPAF_MSG_RELEASE && msg->flags & STEPAF_MSG_TIMED);
    CU_ASSERT(msg->word[STEPAF_MSG_QUEUE] >= 990000);
    CU_ASSERT_EQUAL(msg->word[STEPAF_MSG_WORK], UINT32_MAX);
    start(0, 2, 2); /* answered first: the times have gone with the answer */
    taken = take();
    CU_ASSERT_EQUAL(answer(taken, BYTES, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_release(taken), STEPAF_OK);
    msg = &fake_last(job)->msg;
    CU_ASSERT(msg->type == STEPAF_MSG_RELEASE && !msg->flags && !msg->n_words);
    end();
}

static void batches_come_in_order(void)
{
    static const int from[] = {1, 0, 0, 1};
    stepaf_batch_h batches[4];
    stepaf_batch_info_t info = {.size = sizeof(info)};
    int n;

    begin();
    start(1, 0, 0);
    start(0, 0, 0);
    start(0, 1, 1);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, 0, batches, 1, &n),
                    STEPAF_ERR_INVALID);
    start(1, 1, 1);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, batches, 4, &n), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(n, 4);
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(stepaf_batch_query(batches[i], &info), STEPAF_OK);
        CU_ASSERT_EQUAL(info.attention_rank, from[i]);
        CU_ASSERT_EQUAL(info.sequence, i == 2 || i == 3);
    }
    start(1, 2, 2);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, 0, batches, 2, &n),
                    STEPAF_ERR_TIMEOUT);
    start(0, 2, 2);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, 0, batches, 2, &n), STEPAF_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(stepaf_batch_query(batches[i], &info), STEPAF_OK);
        CU_ASSERT_EQUAL(info.attention_rank, i);
    }
    end();
}

/* What it has sent before still counts; there is nobody to answer, and nothing comes after. */
static void a_lost_peers_batches_stay(void)
{
    stepaf_batch_h batches[2];
    stepaf_batch_info_t info = {.size = sizeof(info)};
    int n;

    begin();
    start(0, 0, 0);
    stepaf_batch_h held = take();
    start(0, 1, 1);
    start(1, 0, 0);
    struct stepaf_upcalls *up = &job->ctx->up;
    up->lost(up, &fake_link(job, 0)->base, "the test says so");
    up->lost(up, &fake_link(job, 0)->base, "twice");
    EXPECT_WHOLE(job);
    CU_ASSERT(job->ctx->n_alive == 1 && job->ctx->counters.peers_lost == 1);
    struct stepaf_msg late = start_msg(2, 2);
    EXPECT_DROP(job, 0, &late, DROP_SILENTLY);
    CU_ASSERT_EQUAL(answer(held, 8, 0), STEPAF_ERR_PEER_LOST);
    UNIT_CONTAINS(stepaf_last_error()->text, "the test says so");
    CU_ASSERT_EQUAL(stepaf_release(held), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, 0, batches, 2, &n), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_batch_query(batches[0], &info), STEPAF_OK);
    CU_ASSERT(info.attention_rank == 0 && info.sequence == 1);
    CU_ASSERT_EQUAL(answer(batches[0], 8, 0), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_release(batches[0]), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 0); /* nobody is told of it */
    EXPECT_WHOLE(job);

    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, -1, batches, 2, &n),
                    STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(
        stepaf_recv(job->handle, STEPAF_FROM_EACH, STEPAF_RECV_SKIP_LOST, 0, batches, 2, &n),
        STEPAF_ERR_TIMEOUT);
    start(1, 1, 1);
    CU_ASSERT_EQUAL(
        stepaf_recv(job->handle, STEPAF_FROM_EACH, STEPAF_RECV_SKIP_LOST, 0, batches, 2, &n),
        STEPAF_OK);
    CU_ASSERT_PTR_NULL(batches[0]);
    CU_ASSERT_EQUAL(stepaf_batch_query(batches[1], &info), STEPAF_OK);
    up->lost(up, &fake_link(job, 1)->base, "so it does");
    CU_ASSERT_EQUAL(
        stepaf_recv(job->handle, STEPAF_FROM_EACH, STEPAF_RECV_SKIP_LOST, -1, batches, 2, &n),
        STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, -1, batches, 2, &n),
                    STEPAF_ERR_PEER_LOST);
    end();
}

/* Answer the next operation of peer 0; the answer stays with the transport. */
static stepaf_request_h posted_answer(uint32_t slot, uint32_t seq)
{
    stepaf_tensor_t tensor = {PULLED, memory, 8};
    stepaf_request_h request = NULL;

    start(0, slot, seq);
    fake_link(job, 0)->holds = true;
    CU_ASSERT_EQUAL(stepaf_respond(take(), &tensor, 1, STEPAF_RESPOND_RELEASE, &request),
                    STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_INPROGRESS);
    return request;
}

static void close_plan(struct fake_job *here)
{
    struct stepaf_msg close = fake_msg(here, STEPAF_MSG_CLOSE, PLAN, 0, 0);

    here->on_progress = NULL;
    fake_tell(here, 0, &close);
}

/* The attention rank has the answer, and is done with the plan, before the transport says so. */
static void a_plan_may_end_while_its_answer_is_waited_for(void)
{
    stepaf_request_h requests[2];
    int index;

    for (int proto = 0; proto < 3; proto++) { /* while waiting, while looking, before */
        begin();
        requests[0] = posted_answer(0, 0);
        job->on_progress = proto == 2 ? NULL : close_plan;
        if (proto == 2)
            close_plan(job);
        if (proto == 0)
            CU_ASSERT_EQUAL(stepaf_wait(requests[0], STEPAF_TIMEOUT_DEFAULT), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_request_sent(requests[0]), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_test(requests[0]), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_wait(requests[0], STEPAF_TIMEOUT_DEFAULT), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_cancel(requests[0]), STEPAF_ERR_STATE);
        CU_ASSERT_EQUAL(stepaf_wait_any(requests, 1, 0, &index), STEPAF_ERR_STATE);
        /* One of times to come, and one of a number that is not in use. */
        requests[1] = (stepaf_request_h)((uintptr_t)requests[0] + (100ull << 32));
        CU_ASSERT_EQUAL(stepaf_wait(requests[1], 0), STEPAF_ERR_HANDLE);
        requests[1] = (stepaf_request_h)((uintptr_t)requests[0] + 1000);
        CU_ASSERT_EQUAL(stepaf_wait(requests[1], 0), STEPAF_ERR_HANDLE);
        end();
    }
}

/* What has its number afterwards is another one. */
static void a_number_that_is_used_again_is_not_mistaken(void)
{
    begin();
    stepaf_request_h before = posted_answer(0, 0);
    close_plan(job);
    fake_link(job, 0)->held = NULL;
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PLAN, PLAN, 0, 0);
    msg.word[1] = 1;
    msg.word[2] = DEPTH;
    EXPECT_TAKEN(job, 0, &msg);
    msg = fake_msg(job, STEPAF_MSG_TENSOR, PLAN, 0, 0);
    msg.flags = STEPAF_MSG_PULL_SIDE;
    msg.word[0] = PULLED;
    msg.word[3] = counterpart->ctx->memory.regions[0]->mem.id;
    msg.word[6] = 200;
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(stepaf_wait(before, 0), STEPAF_OK);
    msg = fake_msg(job, STEPAF_MSG_START, PLAN, 0, 0);
    EXPECT_TAKEN(job, 0, &msg);
    stepaf_tensor_t tensor = {PULLED, memory, 0};
    stepaf_request_h now = NULL;
    CU_ASSERT_EQUAL(stepaf_respond(take(), &tensor, 1, STEPAF_RESPOND_RELEASE, &now), STEPAF_OK);
    CU_ASSERT_EQUAL((uint32_t)(uintptr_t)now, (uint32_t)(uintptr_t)before);
    CU_ASSERT_EQUAL(stepaf_test(now), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stepaf_wait(before, 0), STEPAF_OK);
    fake_complete(job, 0);
    CU_ASSERT_EQUAL(stepaf_wait(now, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_wait(now, 0), STEPAF_ERR_STATE); /* waited for already */
    end();
}

/* Nobody reads it any more, whatever the device says, or does not. */
static void an_answer_to_a_lost_peer_is_over(void)
{
    begin();
    stepaf_request_h request = posted_answer(0, 0);
    job->ctx->up.lost(&job->ctx->up, &fake_link(job, 0)->base, "it has finalized");
    CU_ASSERT_PTR_NULL(fake_link(job, 0)->held);
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
    end();
}

/* It can be answered from elsewhere, or released. */
static void a_source_that_is_not_mapped_leaves_the_batch_unanswered(void)
{
    begin();
    start(0, 0, 0);
    stepaf_batch_h batch = take();
    fake_link(job, 0)->cannot_read = true;
    CU_ASSERT_EQUAL(answer(batch, 8, STEPAF_RESPOND_RELEASE), STEPAF_ERR_UNREGISTERED);
    UNIT_CONTAINS(stepaf_last_error()->text, "that is no longer mapped");
    EXPECT_WHOLE(job);
    CU_ASSERT(job->n_records == 0 && job->ctx->counters.responses_sent == 0);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, 0);
    CU_ASSERT_EQUAL(answer(batch, 8, STEPAF_RESPOND_RELEASE), STEPAF_OK);
    CU_ASSERT(job->n_records == 1 && fake_last(job)->msg.flags == STEPAF_MSG_RELEASED);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, 8);
    end();
}

/* The attention rank learns that there will be none, if nobody can give another one. */
static void the_same_of_an_answer_that_has_waited_for_room(void)
{
    for (int released = 0; released < 2; released++) {
        stepaf_tensor_t tensor = {PULLED, NULL, 8};
        stepaf_request_h request = NULL;
        begin();
        tensor.data = memory;
        start(0, 0, 0);
        stepaf_batch_h batch = take();
        fake_link(job, 0)->room = 0;
        fake_link(job, 0)->cannot_read = true;
        CU_ASSERT_EQUAL(
            stepaf_respond(batch, &tensor, 1, released ? STEPAF_RESPOND_RELEASE : 0, &request),
            STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
        fake_link(job, 0)->room = FAKE_ENDLESS;
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_ERR_UNREGISTERED);
        if (!released)
            CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
        CU_ASSERT_EQUAL(job->n_records, 1);
        CU_ASSERT_EQUAL(fake_last(job)->msg.type, STEPAF_MSG_RELEASE);
        CU_ASSERT_EQUAL(fake_last(job)->msg.flags,
                        STEPAF_MSG_UNWANTED | (released ? 0 : STEPAF_MSG_TIMED));
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an answer goes where the plan says", an_answer_goes_where_the_plan_says},
        {"an answer and its release are stamped", an_answer_and_its_release_are_stamped},
        {"bad answers change nothing", bad_answers_change_nothing},
        {"a release joins a queued answer", a_release_joins_a_queued_answer},
        {"long times are told", long_times_are_told},
        {"all times are counted where that is asked for",
         all_times_are_counted_where_that_is_asked_for},
        {"a release tells times", a_release_tells_times},
        {"batches come in order", batches_come_in_order},
        {"a lost peer's batches stay", a_lost_peers_batches_stay},
        {"a plan may end while its answer is waited for",
         a_plan_may_end_while_its_answer_is_waited_for},
        {"a number that is used again is not mistaken",
         a_number_that_is_used_again_is_not_mistaken},
        {"an answer to a lost peer is over", an_answer_to_a_lost_peer_is_over},
        {"a source that is not mapped leaves the batch unanswered",
         a_source_that_is_not_mapped_leaves_the_batch_unanswered},
        {"the same of an answer that has waited for room",
         the_same_of_an_answer_that_has_waited_for_room},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
