/* SPDX-License-Identifier: Apache-2.0 */
/* A rank with verdicts, whose only peer is made up, for the tests of what they tell each other. */
#ifndef STEPAF_TEST_VERDICTS_H
#define STEPAF_TEST_VERDICTS_H

#include <stdlib.h>

#include "fake.h"
#include "unit.h"
#include "verdict/verdict.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 100, LEARNT = 40, WORK_NS = 700 };

static struct fake_job *job, *counterpart;
static stepaf_plan_h plan;
static uint32_t seq; /* of the next operation */
static int64_t longest_ns;
static int64_t started_ns, worked_ns; /* of the last operation, common clock */

static inline void begin(stepaf_role_t role, const char *setting)
{
    void *memory;

    setenv("STEPAF_VERDICT", setting, 1);
    job = fake_open(role, 1, 1);
    unsetenv("STEPAF_VERDICT");
    counterpart = fake_open(role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN, 1, 1);
    fake_key(job, counterpart, PUSHED, STEPAF_PUSH, BYTES, 1);
    fake_key(job, counterpart, PULLED, STEPAF_PULL, BYTES, 1);
    struct fake_job *attention = role == STEPAF_FFN ? counterpart : job;
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(attention->handle, 4096, STEPAF_MEM_HOST, &memory), 0);
    stepaf_tensor_t push = {PUSHED, memory, BYTES}, pull = {PULLED, (char *)memory + 1024, BYTES};
    plan = NULL;
    if (role == STEPAF_ATTENTION)
        CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, &pull, 1, 0, &plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_forget(job);
    seq = 0;
    longest_ns = 0;
}

static inline void end(void)
{
    fake_close(job);
    fake_close(counterpart);
}

static inline struct stepaf_msg tell_msg(uint32_t of, int64_t arrived_ns, uint32_t work_ns)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_TELL, 0, 0, of);

    msg.word[STEPAF_MSG_KNOWN] = 1;
    msg.word[STEPAF_MSG_WORK] = work_ns;
    msg.word[STEPAF_MSG_ARRIVED] = (uint32_t)arrived_ns;
    msg.word[STEPAF_MSG_ARRIVED + 1] = (uint32_t)((uint64_t)arrived_ns >> 32);
    return msg;
}

/* One operation, whose peer takes @a busy_ns at least. Whether the rank has asked about it. */
static inline bool operate(int64_t busy_ns)
{
    stepaf_request_h request;
    int64_t began = stepaf_monotonic_ns();
    stepaf_timeline_t line = {.size = sizeof(line)};

    fake_forget(job);
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, 0, &line), STEPAF_OK);
    started_ns = line.start_ns + line.notified_ns;
    while (stepaf_clock_ns(job->handle) - started_ns < busy_ns)
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    struct stepaf_msg response = fake_msg(job, STEPAF_MSG_RESPONSE, 0, 0, seq++);
    worked_ns = stepaf_clock_ns(job->handle) - started_ns;
    response.flags = STEPAF_MSG_RELEASED;
    response.n_words = STEPAF_MSG_SIZES;
    response.word[STEPAF_MSG_QUEUE] = 0;
    response.word[STEPAF_MSG_WORK] = WORK_NS;
    fake_say(job, 0, &response);
    CU_ASSERT_EQUAL(stepaf_wait(request, 1000000), STEPAF_OK);
    if (stepaf_monotonic_ns() - began > longest_ns)
        longest_ns = stepaf_monotonic_ns() - began;
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    return fake_count(job, STEPAF_MSG_ASK) > 0;
}

/* Have it learn what is usual. */
static inline void learn(void)
{
    for (int i = 0; i < LEARNT; i++)
        if (operate(0)) {
            struct stepaf_msg told = tell_msg(seq - 1, stepaf_clock_ns(job->handle), WORK_NS);
            fake_tell(job, 0, &told);
        }
}

static inline size_t read_all(stepaf_verdict_t *verdicts, size_t capacity)
{
    size_t n = 777;

    CU_ASSERT_EQUAL(stepaf_verdict_read(job->handle, verdicts, sizeof(*verdicts), capacity, &n),
                    STEPAF_OK);
    return n;
}

/* The newest verdict on operation @a of. */
static inline stepaf_verdict_t verdict_on(uint32_t of)
{
    stepaf_verdict_t verdicts[64], none = {.phase = 777};

    for (size_t n = read_all(verdicts, 64); n-- > 0;)
        if (verdicts[n].sequence == of)
            return verdicts[n];
    return none;
}

#endif
