/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_job.h"
#include "core/plan.h"
#include "plans.h"

#include <CUnit/CUnit.h>

struct stream_job stream_job = {.n_push = 1, .depth = STREAM_DEPTH};

void stream_job_key(uint64_t id, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = stream_job.depth,
                                  .mem_kind = STEPAF_MEM_CUDA};

    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(stream_job.job->handle, id, direction, bytes, &params),
                          STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(
        stepaf_key_declare(stream_job.other->handle, id, direction, bytes, &params), STEPAF_OK);
}

stepaf_plan_h stream_job_make(struct fake_job *its)
{
    stepaf_tensor_t push[2] = {{.key = 1}, {.key = 3}}, pull = {.key = 2, .bytes = STREAM_PULL};
    stepaf_plan_h made = NULL;
    uint8_t *data;

    CU_ASSERT_EQUAL_FATAL(
        stepaf_alloc(its->handle, STREAM_PUSH + STREAM_MORE + (size_t)STREAM_DEPTH * STREAM_PULL,
                     STEPAF_MEM_CUDA, (void **)&data),
        STEPAF_OK);
    pull.data = data + STREAM_PUSH + STREAM_MORE;
    if (its->ctx->role == STEPAF_ATTENTION) {
        push[0].data = data;
        push[0].bytes = STREAM_PUSH;
        push[1].data = data + STREAM_PUSH;
        push[1].bytes = STREAM_MORE;
    }
    CU_ASSERT_EQUAL_FATAL(
        plan_create(its->handle, push, stream_job.n_push, &pull, 1,
                    STEPAF_PLAN_STREAM | (its == stream_job.job ? stream_job.flags : 0), &made),
        STEPAF_OK);
    return made;
}

void stream_job_begin(stepaf_role_t role)
{
    cpu_device_begin();
    stream_job.job = fake_open(role, 1, 1);
    stream_job.other = fake_open(role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN, 1, 1);
    stream_job_key(1, STEPAF_PUSH, STREAM_PUSH);
    stream_job_key(2, STEPAF_PULL, STREAM_PULL);
    if (stream_job.n_push > 1)
        stream_job_key(3, STEPAF_PUSH, STREAM_MORE);
    stream_job.plan = stream_job_make(stream_job.job);
    (void)stream_job_make(stream_job.other);
}

stepaf_status_t stream_job_commit(void)
{
    fake_pair(stream_job.job, stream_job.other);
    CU_ASSERT_EQUAL_FATAL(stepaf_streams_prepare(stream_job.other->ctx), STEPAF_OK);
    return fake_commit(stream_job.job, stream_job.other);
}

void stream_job_end(void)
{
    fake_close(stream_job.job);
    fake_close(stream_job.other);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    CU_ASSERT_EQUAL(cpu_device_count(), 0);
    cpu_device_end();
}

stepaf_status_t stream_job_start(const stepaf_start_params_t *params, stepaf_request_h *request_p)
{
    return stepaf_start_on_stream(stream_job.plan, params, &stream_job.stream, request_p);
}

stepaf_status_t stream_job_wait(void)
{
    return stepaf_wait_on_stream(stream_job.plan, &stream_job.stream);
}

stepaf_status_t stream_job_recv(void)
{
    return stepaf_recv_on_stream(stream_job.plan, &stream_job.stream);
}

stepaf_status_t stream_job_respond(void)
{
    return stepaf_respond_on_stream(stream_job.plan, NULL, &stream_job.stream);
}

struct stepaf_stream *stream_job_stream(void)
{
    return ((struct stepaf_plan_obj *)stepaf_table_get(&stream_job.job->ctx->tables.plans, 0))
        ->stream;
}
