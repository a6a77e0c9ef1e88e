/* SPDX-License-Identifier: Apache-2.0 */
/* An attention rank with several FFN ranks, for the tests of starts. */
#ifndef STEPAF_TEST_STARTS_H
#define STEPAF_TEST_STARTS_H

#include "drop.h"

enum { PUSHED = 1, ALSO = 2, PULLED = 3, BYTES = 100, DEPTH = 3, PEERS = 3 };

static struct fake_job *job, *counterpart;
static uint8_t *memory; /* registered */

static inline void begin(void)
{
    void *allocated;

    job = fake_open(STEPAF_ATTENTION, 1, PEERS);
    counterpart = fake_open(STEPAF_FFN, 1, PEERS);
    fake_key(job, counterpart, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(job, counterpart, ALSO, STEPAF_PUSH, BYTES, DEPTH + 1);
    fake_key(job, counterpart, PULLED, STEPAF_PULL, BYTES, DEPTH);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 8192, STEPAF_MEM_HOST, &allocated), 0);
    memory = allocated;
    for (int i = 0; i < 8192; i++)
        memory[i] = (uint8_t)(i * 7);
}

static inline void commit(void)
{
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_forget(job);
}

static inline void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(counterpart);
}

/* Two tensors to each rank, no answer. */
static inline stepaf_plan_h make_plan(uint32_t flags)
{
    stepaf_tensor_t push[2] = {{PUSHED, memory, BYTES}, {ALSO, memory + 1000, 50}};
    stepaf_plan_h plan = NULL;

    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, push, 2, NULL, 0, flags, &plan), 0);
    return plan;
}

static inline stepaf_request_h start(stepaf_plan_h plan)
{
    stepaf_request_h request = NULL;

    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
    return request;
}

static inline void release(uint32_t peer, uint32_t plan, uint32_t slot, uint32_t seq)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RELEASE, plan, slot, seq);

    EXPECT_TAKEN(job, peer, &msg);
}

#endif
