/* SPDX-License-Identifier: Apache-2.0 */
/* An FFN rank that knows one plan of each of two attention ranks, for the tests of batches. */
#ifndef STEPAF_TEST_BATCHES_H
#define STEPAF_TEST_BATCHES_H

#include "core/region.h"
#include "drop.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 100, DEPTH = 3, PLAN = 5 };

static struct fake_job *job, *counterpart;
static uint8_t *memory;

static inline void begin(void)
{
    void *allocated;

    job = fake_open(STEPAF_FFN, 2, 1);
    counterpart = fake_open(STEPAF_ATTENTION, 2, 1);
    fake_key(job, counterpart, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(job, counterpart, PULLED, STEPAF_PULL, BYTES, DEPTH);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(counterpart->handle, 4096, STEPAF_MEM_HOST, &allocated), 0);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, BYTES, STEPAF_MEM_HOST, &allocated), 0);
    memory = allocated;
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
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
        msg.word[3] = counterpart->ctx->memory.regions[0]->mem.id;
        msg.word[4] = 64;
        msg.word[6] = 200;
        EXPECT_TAKEN(job, p, &msg);
    }
    fake_forget(job);
}

static inline void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(counterpart);
}

static inline struct stepaf_msg start_msg(uint32_t slot, uint32_t seq)
{
    return fake_msg(job, STEPAF_MSG_START, PLAN, slot, seq);
}

static inline void start(uint32_t peer, uint32_t slot, uint32_t seq)
{
    struct stepaf_msg msg = start_msg(slot, seq);

    EXPECT_TAKEN(job, peer, &msg);
}

static inline stepaf_batch_h take(void)
{
    stepaf_batch_h batch = NULL;
    int n;

    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n), STEPAF_OK);
    return batch;
}

static inline stepaf_status_t answer(stepaf_batch_h batch, size_t bytes, uint32_t flags)
{
    stepaf_tensor_t tensor = {PULLED, memory, bytes};

    return stepaf_respond(batch, &tensor, 1, flags, NULL);
}

#endif
