/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory in plans that the host starts, at an FFN rank. */
#include "bounces.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/region.h"
#include "plans.h"

static const struct stepaf_region *received_in(void)
{
    const uint8_t *slice = stepaf_key_slice(stepaf_key_find(job->ctx, PUSHED), 0);

    return stepaf_region_find(job->ctx, slice, 1);
}

static void begin_ffn(bool takes)
{
    void *pulled;

    cpu_device_begin();
    cpu_device.rdma.flush = true;
    open_jobs(STEPAF_FFN, takes);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(counterpart->handle, 4096, STEPAF_MEM_HOST, &pulled),
                          STEPAF_OK);
    commit();
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PLAN, PLAN, 0, 0);
    msg.word[0] = msg.word[1] = 1;
    msg.word[2] = DEPTH;
    EXPECT_TAKEN(job, 0, &msg);
    msg = fake_msg(job, STEPAF_MSG_TENSOR, PLAN, 0, 0);
    msg.word[0] = PUSHED;
    msg.word[2] = BYTES;
    EXPECT_TAKEN(job, 0, &msg);
    msg.flags = STEPAF_MSG_PULL_SIDE;
    msg.word[0] = PULLED;
    msg.word[3] = counterpart->ctx->memory.regions[0]->mem.id;
    msg.word[6] = BYTES;
    EXPECT_TAKEN(job, 0, &msg);
    fake_forget(job);
}

static stepaf_batch_h receive(uint32_t seq)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_START, PLAN, seq % DEPTH, seq);
    stepaf_batch_h batch = NULL;
    int n;

    if (seq % 2) { /* as a transport may say it */
        job->ctx->up.deliver_imm(&job->ctx->up, job->ctx->peers[0].link,
                                 stepaf_imm_make(STEPAF_IMM_START, PLAN, seq, msg.epoch));
    } else {
        EXPECT_TAKEN(job, 0, &msg);
    }
    CU_ASSERT_EQUAL_FATAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                          STEPAF_OK);
    return batch;
}

static void batches_are_bounced(void)
{
    begin_ffn(false);
    CU_ASSERT_EQUAL(n_pinned(), 2); /* what is received in, and what is answered from */
    for (uint32_t seq = 0; seq < 6; seq++) {
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        stepaf_tensor_t tensor = {PULLED, gpu_memory + 100, BYTES - seq};
        write_bounced(received_in(), (size_t)(seq % DEPTH) * BYTES, (uint8_t)(1 + seq));
        stepaf_batch_h batch = receive(seq);
        CU_ASSERT_EQUAL(stepaf_batch_tensor(batch, 0, &info), STEPAF_OK);
        CU_ASSERT_EQUAL(info.mem_kind, STEPAF_MEM_CUDA);
        CU_ASSERT(is_all(info.data, (uint8_t)(1 + seq)));
        CU_ASSERT((uint8_t *)info.data >= received_in()->mem.base &&
                  (uint8_t *)info.data < received_in()->mem.base + received_in()->mem.bytes);
        gpu_memory[100] = (uint8_t)seq;
        CU_ASSERT_EQUAL(stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL), STEPAF_OK);
        stepaf_progress(job->handle);
        const struct stepaf_xfer *xfer = &fake_last(job)->xfer[0];
        CU_ASSERT(xfer->src != tensor.data && xfer->bytes == tensor.bytes);
        CU_ASSERT(memcmp(xfer->src, tensor.data, tensor.bytes) == 0);
    }
    end();
}

static void batches_are_flushed(void)
{
    begin_ffn(true);
    CU_ASSERT_EQUAL(n_pinned(), 0);
    for (uint32_t seq = 0; seq < 4; seq++) {
        stepaf_tensor_t tensor = {PULLED, gpu_memory + 100, BYTES};
        stepaf_batch_h batch = receive(seq);
        CU_ASSERT_EQUAL(cpu_device.n_flushes, seq + 1);
        CU_ASSERT_EQUAL(stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL), STEPAF_OK);
        CU_ASSERT_PTR_EQUAL(fake_last(job)->xfer[0].src, tensor.data);
    }
    end();
}

static void a_batch_that_the_gpu_cannot_have_is_none(void)
{
    begin_ffn(true);
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_START, PLAN, 0, 0);
    stepaf_batch_h batch;
    int n;
    cpu_device.bad_flush = true;
    fake_tell(job, 0, &msg);
    cpu_device.bad_flush = false;
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    CU_ASSERT(job->ctx->peers[0].lost && !job->ctx->peers[1].lost);
    UNIT_CONTAINS(job->ctx->peers[0].reason, "flush");
    end();
}

/* The GPU fails while a batch is copied in: nobody is given the batch, and the peer is lost. */
static void a_batch_that_fails_to_arrive_is_none(void)
{
    begin_ffn(false);
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_START, PLAN, 0, 0);
    stepaf_batch_h batch;
    int n;
    cpu_device.busy = true;
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(job->ctx->gpu.n_arriving, 1);
    cpu_device.busy = false;
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(job->ctx->gpu.n_arriving, 0);
    CU_ASSERT(job->ctx->peers[0].lost && !job->ctx->peers[1].lost);
    UNIT_CONTAINS(job->ctx->peers[0].reason, "cannot be copied to the GPU");
    CU_ASSERT_EQUAL(job->n_severed, 1);
    end();
}

/* Memory of keys that only streams use costs no registration and no bounce buffer. */
static void keys_of_streams_are_left_alone(void)
{
    stepaf_tensor_t push = {PUSHED, NULL, 0}, pull[PEERS];

    cpu_device_begin();
    open_jobs(STEPAF_FFN, true);
    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, gpu_memory + (size_t)p * 300, BYTES};
    CU_ASSERT_EQUAL_FATAL(
        plan_create(job->handle, &push, 1, pull, PEERS, STEPAF_PLAN_STREAM, &plan), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_allocate(job->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_bounces_prepare(job->ctx), STEPAF_OK);
    CU_ASSERT(!region()->linked && !received_in()->linked && !region()->mem.registration[0]);
    declare(job, PULLED + 1, STEPAF_PUSH); /* one more, which is not for streams */
    CU_ASSERT_EQUAL_FATAL(stepaf_key_allocate(job->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_bounces_prepare(job->ctx), STEPAF_OK);
    CU_ASSERT(!received_in()->linked && region()->linked && region()->mem.registration[0]);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"batches are bounced", batches_are_bounced},
        {"batches are flushed", batches_are_flushed},
        {"a batch that the GPU cannot have is none", a_batch_that_the_gpu_cannot_have_is_none},
        {"a batch that fails to arrive is none", a_batch_that_fails_to_arrive_is_none},
        {"keys of streams are left alone", keys_of_streams_are_left_alone},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
