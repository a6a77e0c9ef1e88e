/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring: the newest stamps, oldest first. */
#include <stdlib.h>

#include "core/clock_keep.h"
#include "fake.h"
#include "unit.h"

enum { RECORDS = 16 };

static stepaf_trace_record_t records[2 * RECORDS];

/* A context whose ring is small. */
static struct fake_job *begin(void)
{
    setenv("STEPAF_TRACE_RECORDS", "16", 1);
    struct fake_job *job = fake_open(STEPAF_ATTENTION, 1, 1);
    unsetenv("STEPAF_TRACE_RECORDS");
    return job;
}

/* The stamp number @a i: every field says which. */
static void stamp(struct fake_job *job, uint32_t i)
{
    stepaf_trace_stamp(&job->ctx->trace, STEPAF_EVENT_POSTED, job->ctx->clock.own.base_ticks + i,
                       i + 1, i, i + 2, i % 8, i * 3);
}

static size_t read_all(struct fake_job *job, size_t capacity)
{
    size_t n = 12345;

    CU_ASSERT_EQUAL_FATAL(stepaf_trace_read(job->handle, records, sizeof(*records), capacity, &n),
                          STEPAF_OK);
    return n;
}

static void stamps_come_back(void)
{
    struct fake_job *job = begin();

    CU_ASSERT_EQUAL(read_all(job, RECORDS), 0);
    for (uint32_t i = 0; i < 3; i++)
        stamp(job, i);
    CU_ASSERT_EQUAL(read_all(job, 2 * RECORDS), 3);
    for (uint32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(records[i].sequence, i);
        CU_ASSERT_EQUAL(records[i].plan, i + 1);
        CU_ASSERT_EQUAL(records[i].event, STEPAF_EVENT_POSTED);
        CU_ASSERT_EQUAL(records[i].peer, (int32_t)i + 2);
        CU_ASSERT_EQUAL(records[i].tensor, (int32_t)i % 8);
        CU_ASSERT_EQUAL(records[i].bytes, i * 3);
        CU_ASSERT_EQUAL(records[i].time_ns,
                        stepaf_clock_common_ns(job->ctx, job->ctx->clock.own.base_ticks + i));
    }
    fake_close(job);
}

static void all_and_whole_are_minus_one(void)
{
    struct fake_job *job = begin();

    stepaf_trace_stamp(&job->ctx->trace, STEPAF_EVENT_START, 0, 0, 0, STEPAF_TRACE_ALL,
                       STEPAF_TRACE_WHOLE, 0);
    CU_ASSERT_EQUAL(read_all(job, RECORDS), 1);
    CU_ASSERT_EQUAL(records[0].peer, -1);
    CU_ASSERT_EQUAL(records[0].tensor, -1);
    fake_close(job);
}

static void the_oldest_are_overwritten(void)
{
    struct fake_job *job = begin();

    for (uint32_t i = 0; i < 5 * RECORDS + 3; i++) {
        stamp(job, i);
        size_t n = read_all(job, 2 * RECORDS);
        CU_ASSERT_EQUAL(n, i < RECORDS ? i + 1 : RECORDS);
        for (size_t k = 0; k < n; k++)
            CU_ASSERT_EQUAL(records[k].sequence, i + 1 - n + k);
    }
    fake_close(job);
}

static void a_small_buffer_gets_the_newest(void)
{
    struct fake_job *job = begin();

    for (uint32_t i = 0; i < 40; i++)
        stamp(job, i);
    for (size_t capacity = 0; capacity <= RECORDS; capacity++) {
        records[capacity].sequence = 777;
        CU_ASSERT_EQUAL(read_all(job, capacity), capacity);
        for (size_t k = 0; k < capacity; k++)
            CU_ASSERT_EQUAL(records[k].sequence, 40 - capacity + k);
        CU_ASSERT_EQUAL(records[capacity].sequence, 777);
    }
    fake_close(job);
}

static void clear_forgets(void)
{
    struct fake_job *job = begin();

    for (uint32_t i = 0; i < 21; i++)
        stamp(job, i);
    CU_ASSERT_EQUAL(stepaf_trace_clear(job->handle), STEPAF_OK);
    CU_ASSERT_EQUAL(read_all(job, RECORDS), 0);
    stamp(job, 21);
    CU_ASSERT_EQUAL(read_all(job, RECORDS), 1);
    CU_ASSERT_EQUAL(records[0].sequence, 21);
    for (uint32_t i = 22; i < 60; i++)
        stamp(job, i);
    CU_ASSERT_EQUAL(read_all(job, 2 * RECORDS), RECORDS);
    CU_ASSERT_EQUAL(records[0].sequence, 60 - RECORDS);
    fake_close(job);
}

static void bad_arguments_are_refused(void)
{
    struct fake_job *job = begin();
    size_t n = 5;

    stamp(job, 0);
    CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, NULL, sizeof(stepaf_trace_record_t), 1, &n),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, records, sizeof(*records), 1, NULL),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_trace_read(NULL, records, sizeof(*records), 1, &n), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_trace_clear(NULL), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(n, 5);
    CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, NULL, sizeof(stepaf_trace_record_t), 0, &n),
                    STEPAF_OK);
    CU_ASSERT_EQUAL(n, 0);
    fake_close(job);
}

static void switched_off_it_stays_empty(void)
{
    setenv("STEPAF_TRACE", "off", 1);
    struct fake_job *job = fake_open(STEPAF_ATTENTION, 1, 1);
    unsetenv("STEPAF_TRACE");

    CU_ASSERT_PTR_NULL(job->ctx->trace.next);
    stamp(job, 0);
    CU_ASSERT_EQUAL(read_all(job, RECORDS), 0);
    CU_ASSERT_EQUAL(stepaf_trace_clear(job->handle), STEPAF_OK);
    fake_close(job);
}

/* What one operation leaves, in order. */
static void an_operation_is_stamped(void)
{
    static const stepaf_event_t expected[] = {STEPAF_EVENT_START, STEPAF_EVENT_POSTED,
                                              STEPAF_EVENT_NOTIFIED, STEPAF_EVENT_ANSWERED,
                                              STEPAF_EVENT_COMPLETED};
    struct fake_job *job = begin(), *counterpart = fake_open(STEPAF_FFN, 1, 1);
    stepaf_tensor_t push = {.key = 1};
    stepaf_request_h request;
    stepaf_plan_h plan;
    stepaf_timeline_t line = {.size = sizeof(line)};

    fake_key(job, counterpart, 1, STEPAF_PUSH, 64, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 64, STEPAF_MEM_HOST, &push.data), STEPAF_OK);
    push.bytes = 48;
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, NULL, 0, 0, &plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_trace_clear(job->handle), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, 0, &line), STEPAF_OK);
    CU_ASSERT(line.notified_ns >= 0 && line.answered_ns == -1 && line.ffn_work_ns == -1);
    struct stepaf_msg answer = fake_msg(job, STEPAF_MSG_RESPONSE, 0, 0, 0);
    answer.flags = STEPAF_MSG_RELEASED;
    answer.word[STEPAF_MSG_QUEUE] = 70;
    answer.word[STEPAF_MSG_WORK] = 80;
    fake_tell(job, 0, &answer);
    CU_ASSERT_EQUAL(read_all(job, RECORDS), 5);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(records[i].event, expected[i]);
        CU_ASSERT_EQUAL(records[i].sequence, 0);
        CU_ASSERT_EQUAL(records[i].bytes, i == 1 ? 48 : 0);
        CU_ASSERT(i == 0 || records[i].time_ns >= records[i - 1].time_ns);
    }
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, 0, &line), STEPAF_OK);
    CU_ASSERT(line.answered_ns >= line.notified_ns);
    CU_ASSERT_EQUAL(line.ffn_queue_ns, 70);
    CU_ASSERT_EQUAL(line.ffn_work_ns, 80);
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, 1, &line), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, -1, &line), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, 0, NULL), STEPAF_ERR_INVALID);
    fake_close(job);
    fake_close(counterpart);
}

/* Where no answer is expected the release has the times; what has none leaves them unknown, not
 * 0. */
static void a_release_has_times(void)
{
    struct fake_job *job = begin(), *counterpart = fake_open(STEPAF_FFN, 1, 1);
    stepaf_tensor_t push = {.key = 1};
    stepaf_plan_h plan;

    fake_key(job, counterpart, 1, STEPAF_PUSH, 64, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 64, STEPAF_MEM_HOST, &push.data), STEPAF_OK);
    push.bytes = 48;
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, NULL, 0, 0, &plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    for (uint32_t i = 0; i < 4; i++) {
        stepaf_timeline_t line = {.size = sizeof(line)};
        stepaf_request_h request;
        CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
        struct stepaf_msg release = fake_msg(job, STEPAF_MSG_RELEASE, 0, 0, i);
        release.flags = i == 0 ? STEPAF_MSG_UNWANTED : STEPAF_MSG_UNWANTED | STEPAF_MSG_TIMED;
        release.n_words = i == 1 ? 1 : STEPAF_MSG_SIZES;
        release.word[STEPAF_MSG_QUEUE] = 70;
        release.word[STEPAF_MSG_WORK] = i == 3 ? UINT32_MAX : 80;
        fake_tell(job, 0, &release);
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_timeline_query(request, 0, &line), STEPAF_OK);
        CU_ASSERT_EQUAL(line.ffn_queue_ns, i < 2 ? -1 : 70);
        CU_ASSERT_EQUAL(line.ffn_work_ns, i == 2 ? 80 : -1);
    }
    fake_close(job);
    fake_close(counterpart);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"stamps come back", stamps_come_back},
        {"all and whole are minus one", all_and_whole_are_minus_one},
        {"the oldest are overwritten", the_oldest_are_overwritten},
        {"a small buffer gets the newest", a_small_buffer_gets_the_newest},
        {"clear forgets", clear_forgets},
        {"bad arguments are refused", bad_arguments_are_refused},
        {"switched off it stays empty", switched_off_it_stays_empty},
        {"an operation is stamped", an_operation_is_stamped},
        {"a release has times", a_release_has_times},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
