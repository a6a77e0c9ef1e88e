/* SPDX-License-Identifier: Apache-2.0 */
/* What an attention rank tells of its plans: taken only if every number in it makes sense here. */
#include "core/counters.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/region.h"
#include "drop.h"

enum { PUSHED = 1, PULLED = 2, SHALLOW = 3, BYTES = 100, DEPTH = 4, REGION_BYTES = 4096 };

static struct fake_job *job, *counterpart;
static uint32_t region; /* of both attention ranks: where answers go */

/* An FFN rank with two attention ranks. */
static void begin(void)
{
    void *memory;

    job = fake_open(STEPAF_FFN, 2, 1);
    counterpart = fake_open(STEPAF_ATTENTION, 2, 1);
    fake_key(job, counterpart, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(job, counterpart, PULLED, STEPAF_PULL, BYTES, DEPTH);
    fake_key(job, counterpart, SHALLOW, STEPAF_PUSH, BYTES, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(counterpart->handle, REGION_BYTES, STEPAF_MEM_HOST, &memory),
                          0);
    region = counterpart->ctx->memory.regions[0]->mem.id;
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_forget(job);
}

static void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(counterpart);
}

static struct stepaf_msg plan_msg(uint32_t plan, uint32_t n_push, uint32_t n_pull, uint32_t depth)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PLAN, plan, 0, 0);

    msg.word[0] = n_push;
    msg.word[1] = n_pull;
    msg.word[2] = depth;
    return msg;
}

static struct stepaf_msg push_msg(uint32_t plan, uint32_t index, uint64_t key, uint32_t bytes)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_TENSOR, plan, index, 0);

    msg.word[0] = (uint32_t)key;
    msg.word[1] = (uint32_t)(key >> 32);
    msg.word[2] = bytes;
    return msg;
}

static struct stepaf_msg pull_msg(uint32_t plan, uint32_t index, uint32_t bytes, uint64_t offset,
                                  uint32_t stride)
{
    struct stepaf_msg msg = push_msg(plan, index, PULLED, bytes);

    msg.flags = STEPAF_MSG_PULL_SIDE;
    msg.word[3] = region;
    msg.word[4] = (uint32_t)offset;
    msg.word[5] = (uint32_t)(offset >> 32);
    msg.word[6] = stride;
    return msg;
}

/* Tell peer 0's plan @a plan with one tensor each way. */
static void make_plan(uint32_t plan, uint32_t depth)
{
    struct stepaf_msg head = plan_msg(plan, 1, 1, depth);
    struct stepaf_msg push = push_msg(plan, 0, PUSHED, BYTES);
    struct stepaf_msg pull = pull_msg(plan, 0, BYTES, 0, BYTES);

    EXPECT_TAKEN(job, 0, &head);
    EXPECT_TAKEN(job, 0, &push);
    EXPECT_TAKEN(job, 0, &pull);
}

static void start(uint32_t plan, uint32_t slot, uint32_t seq)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_START, plan, slot, seq);

    EXPECT_TAKEN(job, 0, &msg);
}

static void a_plan_becomes_complete(void)
{
    begin();
    struct stepaf_msg head = plan_msg(3, 1, 1, 2),
                      start_msg = fake_msg(job, STEPAF_MSG_START, 3, 1, 9);
    struct stepaf_msg push = push_msg(3, 0, PUSHED, 90), pull = pull_msg(3, 0, 80, 4000, 16);

    head.slot = 1; /* as a plan that was used in an earlier epoch begins */
    head.seq = 9;
    EXPECT_DROP(job, 0, &push, DROP_MALFORMED); /* of no plan yet */
    EXPECT_TAKEN(job, 0, &head);
    EXPECT_DROP(job, 0, &start_msg, DROP_MALFORMED);
    EXPECT_TAKEN(job, 0, &push);
    EXPECT_DROP(job, 0, &start_msg, DROP_MALFORMED);
    EXPECT_TAKEN(job, 0, &pull);
    EXPECT_TAKEN(job, 0, &start_msg);
    CU_ASSERT_EQUAL(job->ctx->counters.batches_received, 1);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_received, 90);

    stepaf_batch_h batch;
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
    int n;
    CU_ASSERT_EQUAL_FATAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                          STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_batch_query(batch, &info), STEPAF_OK);
    CU_ASSERT(info.attention_rank == 0 && info.plan == 3 && info.sequence == 9);
    CU_ASSERT(info.n_tensors == 1 && info.n_answers == 1);
    CU_ASSERT_EQUAL(stepaf_batch_tensor(batch, 0, &tensor), STEPAF_OK);
    CU_ASSERT(tensor.key == PUSHED && tensor.bytes == 90 && tensor.max_bytes == BYTES);
    CU_ASSERT_PTR_EQUAL(tensor.data,
                        stepaf_key_slice(stepaf_key_find(job->ctx, PUSHED), 0) + BYTES);
    CU_ASSERT_EQUAL(stepaf_batch_answer(batch, 0, &tensor), STEPAF_OK);
    CU_ASSERT(tensor.key == PULLED && tensor.bytes == 80 && tensor.data == NULL);
    end();
}

static void bad_plans_are_dropped(void)
{
    static const uint32_t bad[][3] = {
        {9, 0, 1},          {0, 9, 1},     {256, 0, 1},     {0, 256, 1},        {1, 1, 0},
        {1, 1, 33},         {1, 1, 256},   {1, 1, 257},     {UINT32_MAX, 0, 1}, {0, UINT32_MAX, 1},
        {1, 1, UINT32_MAX}, {0x101, 1, 1}, {1, 0x10001, 1}, {1, 1, 0x80000001},
    };
    struct stepaf_msg msg;

    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        msg = plan_msg(0, bad[i][0], bad[i][1], bad[i][2]);
        EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    msg = plan_msg(0, 1, 1, 2);
    msg.slot = 2;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg.slot = 255;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = plan_msg(65535, 1, 1, 1);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = plan_msg(0, 1, 1, 1);
    msg.epoch++;
    EXPECT_DROP(job, 0, &msg, DROP_STALE);
    msg.epoch--;
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* twice */
    EXPECT_TAKEN(job, 1, &msg);                /* another rank's numbers are its own */
    msg = plan_msg(65534, 8, 8, 32);
    EXPECT_TAKEN(job, 0, &msg);
    end();
}

static void bad_pushes_are_dropped(void)
{
    begin();
    struct stepaf_msg head = plan_msg(0, 2, 0, 2), deep = plan_msg(1, 1, 0, DEPTH + 1), msg;

    EXPECT_TAKEN(job, 0, &head);
    EXPECT_TAKEN(job, 0, &deep);
    msg = push_msg(2, 0, PUSHED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* no such plan */
    EXPECT_DROP(job, 1, &msg, DROP_MALFORMED);
    msg = push_msg(65535, 0, PUSHED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = push_msg(0, 2, PUSHED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* no such tensor */
    msg = push_msg(0, 255, PUSHED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = push_msg(0, 0, 99, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* no such key */
    msg = push_msg(0, 0, (uint64_t)1 << 32 | PUSHED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = push_msg(0, 0, PULLED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* nothing is received under it */
    msg = push_msg(0, 0, SHALLOW, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* it has one buffer, the plan two slots */
    msg = push_msg(0, 0, PUSHED, BYTES + 1);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = push_msg(0, 0, PUSHED, UINT32_MAX);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = push_msg(1, 0, PUSHED, BYTES);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* more slots than buffers */
    msg = push_msg(0, 1, PUSHED, BYTES);
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* twice */
    msg.slot = 0;
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* the plan is complete */
    end();
}

/* A destination must lie, with all its slots, in memory that the peer has offered. */
static void bad_pulls_are_dropped(void)
{
    enum { PULLS = 3 };
    static const struct {
        uint32_t bytes;
        uint64_t offset;
        uint32_t stride;
    } bad[] = {
        {1, REGION_BYTES, 0},
        {REGION_BYTES + 1, 0, 0},
        {1, REGION_BYTES - 1, 1},
        {10, REGION_BYTES - 29, 10},
        {1, UINT64_MAX, 0},
        {1, UINT64_MAX, 1},
        {2, (uint64_t)1 << 63, UINT32_MAX},
        {1, 0, REGION_BYTES / 2},
        {1, 0, UINT32_MAX},
        {UINT32_MAX, 0, UINT32_MAX},
        {UINT32_MAX, UINT64_MAX, UINT32_MAX},
    };
    struct stepaf_msg msg;

    begin();
    struct stepaf_msg head = plan_msg(0, 0, PULLS, 3);
    EXPECT_TAKEN(job, 0, &head);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        msg = pull_msg(0, 0, bad[i].bytes, bad[i].offset, bad[i].stride);
        EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    msg = pull_msg(0, PULLS, 1, 0, 1);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* no such tensor */
    msg = pull_msg(0, 255, 1, 0, 1);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = pull_msg(0, 0, 1, 0, 1);
    msg.word[3] = region + 1; /* no such memory */
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = push_msg(0, 0, PUSHED, 1);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED); /* it pushes nothing */

    msg = pull_msg(0, 1, 10, REGION_BYTES - 30, 10); /* just fits */
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);       /* twice */
    msg = pull_msg(0, 0, 0, UINT64_MAX, UINT32_MAX); /* nothing is written, wherever it is */
    msg.word[3] = region + 1;
    EXPECT_TAKEN(job, 0, &msg);
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    msg = pull_msg(0, 2, REGION_BYTES, 0, 0); /* all slots in one place: its own affair */
    EXPECT_TAKEN(job, 0, &msg);
    end();
}

static void a_free_plan_is_closed(void)
{
    begin();
    struct stepaf_msg close = fake_msg(job, STEPAF_MSG_CLOSE, 0, 0, 0);
    struct stepaf_msg head = plan_msg(0, 2, 2, 1);

    EXPECT_DROP(job, 0, &close, DROP_MALFORMED); /* not there */
    make_plan(0, 2);
    EXPECT_DROP(job, 1, &close, DROP_MALFORMED); /* another rank's */
    uint32_t n_used = job->ctx->tables.batches.n_used;
    EXPECT_TAKEN(job, 0, &close);
    CU_ASSERT_EQUAL(job->ctx->tables.batches.n_used, n_used - 2);
    EXPECT_DROP(job, 0, &close, DROP_MALFORMED); /* not any more */
    EXPECT_TAKEN(job, 0, &head);                 /* the number is free again */
    EXPECT_TAKEN(job, 0, &close);                /* also what never became complete */
    close.plan = 65535;
    EXPECT_DROP(job, 0, &close, DROP_MALFORMED);
    end();
}

/* Somebody still reads what a batch has brought, or its answer is still on its way. */
static void a_plan_in_use_is_not_closed(void)
{
    begin();
    struct stepaf_msg close = fake_msg(job, STEPAF_MSG_CLOSE, 0, 0, 0);
    stepaf_batch_h batch;
    int n;

    make_plan(0, 2);
    start(0, 0, 0);
    EXPECT_DROP(job, 0, &close, DROP_MALFORMED); /* ready */
    CU_ASSERT_EQUAL_FATAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                          STEPAF_OK);
    EXPECT_DROP(job, 0, &close, DROP_MALFORMED); /* held */
    fake_link(job, 0)->room = 0;
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    EXPECT_DROP(job, 0, &close, DROP_MALFORMED); /* its release has not left */
    fake_link(job, 0)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    EXPECT_TAKEN(job, 0, &close);
    end();
}

static void a_plan_with_an_answer_that_has_not_left_is_not_closed(void)
{
    stepaf_tensor_t answer = {.key = PULLED, .bytes = 8};
    stepaf_batch_h batch;
    int n;

    begin();
    struct stepaf_msg close = fake_msg(job, STEPAF_MSG_CLOSE, 0, 0, 0);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 8, STEPAF_MEM_HOST, &answer.data), STEPAF_OK);
    make_plan(0, 2);
    for (uint32_t proto = 0; proto < 2; proto++) {
        start(0, proto, proto);
        CU_ASSERT_EQUAL_FATAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n), 0);
        fake_link(job, 0)->room = proto ? FAKE_ENDLESS : 0; /* queued, or with the transport */
        fake_link(job, 0)->holds = proto;
        CU_ASSERT_EQUAL(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, NULL), STEPAF_OK);
        if (!proto)
            EXPECT_DROP(job, 0, &close, DROP_MALFORMED);
        fake_link(job, 0)->room = FAKE_ENDLESS;
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    }
    CU_ASSERT_PTR_NOT_NULL(fake_link(job, 0)->held);
    EXPECT_TAKEN(job, 0, &close);
    CU_ASSERT_PTR_NULL(fake_link(job, 0)->held); /* the peer has it, or it would not close */
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a plan becomes complete", a_plan_becomes_complete},
        {"bad plans are dropped", bad_plans_are_dropped},
        {"bad pushes are dropped", bad_pushes_are_dropped},
        {"bad pulls are dropped", bad_pulls_are_dropped},
        {"a free plan is closed", a_free_plan_is_closed},
        {"a plan in use is not closed", a_plan_in_use_is_not_closed},
        {"a plan with an answer that has not left is not closed",
         a_plan_with_an_answer_that_has_not_left_is_not_closed},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
