/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring: the newest stamps, oldest first; and its operations as events of a trace file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock_keep.h"
#include "core/trace_file.h"
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

/* ---- events of a trace file ---- */

enum { MOST = 4, STEP = 1000000 };

/* What was printed of one kind of event. */
struct seen {
    unsigned n;
    double ts[MOST];
    double value[MOST]; /* the number after @a field */
};

/* Leave an event @a at steps after the begin, of plan 0. */
static void leave(struct fake_job *job, stepaf_event_t event, uint32_t at, uint32_t sequence,
                  uint32_t peer)
{
    stepaf_trace_stamp(&job->ctx->trace, event,
                       job->ctx->clock.own.base_ticks + (uint64_t)at * STEP, 0, sequence, peer,
                       STEPAF_TRACE_WHOLE, 0);
}

/* Leave operation 0 as its attention rank does, pushed after a step and complete after four. */
static void leave_operation(struct fake_job *job, uint32_t at)
{
    leave(job, STEPAF_EVENT_START, at, 0, STEPAF_TRACE_ALL);
    leave(job, STEPAF_EVENT_NOTIFIED, at + 1, 0, 0);
    leave(job, STEPAF_EVENT_WAITED, at + 2, 0, STEPAF_TRACE_ALL);
    leave(job, STEPAF_EVENT_ANSWERED, at + 4, 0, 0);
    leave(job, STEPAF_EVENT_COMPLETED, at + 4, 0, STEPAF_TRACE_ALL);
}

static void leave_batch(struct fake_job *job, uint32_t at)
{
    leave(job, STEPAF_EVENT_ARRIVED, at + 1, 0, 0);
    leave(job, STEPAF_EVENT_HANDLED, at + 2, 0, 0);
    leave(job, STEPAF_EVENT_RESPONDED, at + 3, 0, 0);
    leave(job, STEPAF_EVENT_RELEASED, at + 3, 0, 0);
}

/* Print what is in the ring. The caller frees the text. */
static char *print_events(struct fake_job *job)
{
    size_t n = read_all(job, RECORDS), bytes = 0;
    char *text = NULL;
    FILE *stream = open_memstream(&text, &bytes);

    fake_must(stream != NULL, "a stream");
    job->ctx->trace.number = 0; /* as in processes with one context each */
    stepaf_trace_events_print(job->ctx, records, n, stream);
    fclose(stream);
    return text;
}

static double number_behind(const char *text, const char *field)
{
    char quoted[32];

    snprintf(quoted, sizeof(quoted), "\"%s\":", field);
    const char *at = strstr(text, quoted);
    return at ? strtod(at + strlen(quoted), NULL) : -1;
}

static struct seen find_events(const char *text, const char *phase, const char *name,
                               const char *field)
{
    struct seen seen = {0};
    char begin[64];

    snprintf(begin, sizeof(begin), "{\"ph\":\"%s\",\"name\":\"%s\"", phase, name);
    for (; (text = strstr(text, begin)) && seen.n < MOST; text++, seen.n++) {
        seen.ts[seen.n] = number_behind(text, "ts");
        seen.value[seen.n] = number_behind(text, field);
    }
    return seen;
}

/* The number of a plan is used again, or its rank replaced: the sequence begins at 0 each time. */
static void operations_with_one_number_are_told_apart(void)
{
    struct fake_job *job = begin(), *counterpart = fake_open(STEPAF_FFN, 1, 1);

    for (uint32_t at = 0; at < 30; at += 10) {
        leave_operation(job, at);
        leave_batch(counterpart, at);
    }
    leave(job, STEPAF_EVENT_START, 5, 1, STEPAF_TRACE_ALL); /* read late, as a stream's is */
    leave(job, STEPAF_EVENT_COMPLETED, 6, 1, STEPAF_TRACE_ALL);
    char *text = print_events(job), *other = print_events(counterpart);
    struct seen ops = find_events(text, "X", "operation", "dur");
    struct seen pushes = find_events(text, "X", "push", "dur");
    struct seen waits = find_events(text, "X", "wait", "dur");
    struct seen queues = find_events(other, "X", "queue", "dur");
    struct seen batches = find_events(other, "X", "batch", "dur");
    /* The ring has lost the first START. */
    CU_ASSERT_EQUAL_FATAL(ops.n, 3);
    CU_ASSERT_EQUAL_FATAL(pushes.n, 2);
    CU_ASSERT_EQUAL_FATAL(waits.n, 2);
    for (unsigned i = 0; i < 2; i++) {
        CU_ASSERT(pushes.value[i] < ops.value[i + 1] / 2);
        CU_ASSERT(waits.value[i] < ops.value[i + 1] * 0.6);
        CU_ASSERT(ops.value[i + 1] < (ops.ts[2] - ops.ts[1]) / 2);
    }
    CU_ASSERT_PTR_NULL(strstr(text, "more in flight"));
    CU_ASSERT_EQUAL_FATAL(queues.n, 3);
    CU_ASSERT_EQUAL_FATAL(batches.n, 3);
    CU_ASSERT(queues.value[2] < (queues.ts[2] - queues.ts[1]) / 5);
    CU_ASSERT(batches.value[2] < (queues.ts[2] - queues.ts[1]) / 5);
    CU_ASSERT_PTR_NULL(strstr(other, "more in flight"));
    static const char *const ways[] = {"push", "answer"};
    for (int way = 0; way < 2; way++) {
        struct seen own = find_events(text, way ? "f" : "s", ways[way], "id");
        struct seen others = find_events(other, way ? "s" : "f", ways[way], "id");
        CU_ASSERT_EQUAL_FATAL(own.n, 2);
        CU_ASSERT_EQUAL_FATAL(others.n, 3);
        CU_ASSERT_EQUAL(own.value[0], others.value[1]);
        CU_ASSERT_EQUAL(own.value[1], others.value[2]);
        CU_ASSERT(own.value[0] != own.value[1] && others.value[0] != others.value[1]);
    }
    free(text);
    free(other);
    fake_close(job);
    fake_close(counterpart);
}

/* A stream may wait before another one sends. */
static void a_wait_may_precede_its_operation(void)
{
    struct fake_job *job = begin();

    for (uint32_t at = 0; at < 20; at += 10) {
        leave(job, STEPAF_EVENT_WAITED, at + 1, 0, STEPAF_TRACE_ALL);
        leave(job, STEPAF_EVENT_START, at + 2, 0, STEPAF_TRACE_ALL);
        leave(job, STEPAF_EVENT_NOTIFIED, at + 3, 0, 0);
        leave(job, STEPAF_EVENT_COMPLETED, at + 5, 0, STEPAF_TRACE_ALL);
    }
    char *text = print_events(job);
    struct seen ops = find_events(text, "X", "operation", "dur");
    struct seen waits = find_events(text, "X", "wait", "dur");
    CU_ASSERT_EQUAL(ops.n, 2);
    CU_ASSERT_EQUAL(waits.n, 2);
    CU_ASSERT(waits.value[0] < ops.value[0] && waits.value[1] < ops.value[1]);
    free(text);
    fake_close(job);
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
        {"operations with one number are told apart", operations_with_one_number_are_told_apart},
        {"a wait may precede its operation", a_wait_may_precede_its_operation},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
