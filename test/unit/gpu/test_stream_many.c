/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans with more tensors than one launch takes, on a GPU that is made up: an operation has
 * launches, and is one operation all the same. */
#include <string.h>

#include "core/plan.h"
#include "core/region.h"
#include "gpu/stream.h"
#include "plans.h"
#include "stream_job.h"
#include "unit.h"

enum {
    PEERS = 30,
    PUSHES = 3, /* 90 tensors: of 21 peers, and of 9 */
    FIRST = STEPAF_KERNEL_TENSORS / PUSHES,
    LEGS = 2,
    LARGE = 100000,
    SMALL = 8,
    PULL = 3008,
    DEPTH = STREAM_DEPTH,
    HALF_A_START = 2 /* two launches */
};

static stepaf_plan_h plan;
static uint8_t *memory;

/* Where the answers lie, or are answered from, behind what is pushed: of peer @a p, slot 0. */
static size_t answer(uint32_t p)
{
    return (size_t)PUSHES * LARGE + (size_t)p * DEPTH * PULL;
}

static stepaf_plan_h make(struct fake_job *its, uint8_t **memory_p)
{
    stepaf_tensor_t push[PUSHES] = {{.key = 1}, {.key = 2}, {.key = 3}}, pull[PEERS];
    uint32_t n_peers = its->ctx->n_peers;
    stepaf_plan_h made = NULL;
    uint8_t *data;

    CU_ASSERT_EQUAL_FATAL(
        stepaf_alloc(its->handle, answer(n_peers), STEPAF_MEM_CUDA, (void **)&data), STEPAF_OK);
    *memory_p = data;
    for (int i = 0; i < PUSHES && its->ctx->role == STEPAF_ATTENTION; i++) {
        push[i].data = data + (size_t)i * LARGE;
        push[i].bytes = i ? SMALL : LARGE;
    }
    for (uint32_t p = 0; p < n_peers; p++)
        pull[p] = (stepaf_tensor_t){4, data + answer(p), PULL};
    CU_ASSERT_EQUAL_FATAL(
        plan_create(its->handle, push, PUSHES, pull, (int)n_peers, STEPAF_PLAN_STREAM, &made),
        STEPAF_OK);
    return made;
}

/* A rank of @a role with so many peers, none of which has another. */
static void begin(stepaf_role_t role)
{
    bool ffn = role == STEPAF_FFN;
    uint8_t *its;

    cpu_device_begin();
    stream_job.job = fake_open(role, ffn ? PEERS : 1, ffn ? 1 : PEERS);
    stream_job.other =
        fake_open(ffn ? STEPAF_ATTENTION : STEPAF_FFN, ffn ? PEERS : 1, ffn ? 1 : PEERS);
    stream_job_key(1, STEPAF_PUSH, LARGE);
    stream_job_key(2, STEPAF_PUSH, SMALL);
    stream_job_key(3, STEPAF_PUSH, SMALL);
    stream_job_key(4, STEPAF_PULL, PULL);
    plan = make(stream_job.job, &memory);
    (void)make(stream_job.other, &its);
}

static void commit(void)
{
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
}

/* That @a launches hold every tensor once, in order. */
static void expect_legs(const struct stepaf_launch *launches, uint32_t n_each)
{
    uint32_t at = 0;

    for (int k = 0; k < LEGS; k++) {
        CU_ASSERT_EQUAL(launches[k].args.n_tensors, (k ? PEERS - FIRST : FIRST) * n_each);
        CU_ASSERT(launches[k].blocks > 0);
        for (uint32_t i = 0; i < launches[k].args.n_tensors; i++, at++)
            CU_ASSERT_EQUAL(launches[k].args.tensors[i].peer, at / n_each);
    }
    CU_ASSERT_EQUAL(at, PEERS * n_each);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (const uint8_t *)a < (const uint8_t *)b + b_bytes &&
           (const uint8_t *)b < (const uint8_t *)a + a_bytes;
}

static void an_operation_is_sent_in_legs(void)
{
    begin(STEPAF_ATTENTION);
    commit();
    const struct stepaf_stream *its = stream_job_stream();
    CU_ASSERT_EQUAL_FATAL(its->launches.n_send, LEGS);
    CU_ASSERT_EQUAL(its->launches.n_receive, 1);
    expect_legs(its->launches.send, PUSHES);
    expect_legs(&its->launches.send[LEGS], PUSHES);
    for (int n = 0; n < DEPTH; n++) {
        int before = cpu_device.n_launches;
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL), STEPAF_OK);
        CU_ASSERT_EQUAL(cpu_device.n_launches, before + LEGS);
        CU_ASSERT_EQUAL(cpu_device.args.tensors[0].peer, FIRST);
        CU_ASSERT_EQUAL(cpu_device.args.slot, n);
    }
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL),
                    STEPAF_ERR_WOULD_BLOCK);
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream_job.stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_OK);
    stream_job_end();
}

/* Legs count, and note what is done and what has landed, each in places of their own. */
static void legs_share_no_memory(void)
{
    begin(STEPAF_FFN);
    commit();
    const struct stepaf_stream *its = stream_job_stream();
    CU_ASSERT_EQUAL_FATAL(its->launches.n_receive, LEGS);
    CU_ASSERT_EQUAL(its->launches.n_send, 1);
    expect_legs(its->launches.receive, PUSHES);
    for (uint32_t slot = 0; slot < DEPTH; slot++) {
        const struct stepaf_launch *launches = &its->launches.receive[slot * (size_t)LEGS];
        CU_ASSERT_PTR_EQUAL(stepaf_plan_bytes(plan, slot), launches[0].args.landed);
        CU_ASSERT_PTR_EQUAL(launches[1].args.landed, launches[0].args.landed + FIRST * PUSHES);
    }
    CU_ASSERT(!overlap(its->launches.receive[0].args.landed, sizeof(uint32_t) * PEERS * PUSHES,
                       its->launches.receive[LEGS].args.landed, sizeof(uint32_t) * PEERS * PUSHES));
    for (int a = 0; a < DEPTH * LEGS; a++) {
        CU_ASSERT(its->launches.receive[a].args.counts + 1 <=
                  (uint32_t *)(void *)(stream_job.job->ctx->gpu.streams->control +
                                       stream_job.job->ctx->gpu.streams->control_bytes));
        for (int b = 0; b < a; b++)
            CU_ASSERT_PTR_NOT_EQUAL(its->launches.receive[a].args.counts,
                                    its->launches.receive[b].args.counts);
    }
    int before = cpu_device.n_launches;
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream_job.stream), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_launches, before + 2 * LEGS);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream_job.stream), STEPAF_OK);
    stream_job_end();
}

/* Sizes and places that a start gives are for a tensor in whichever launch it is; one that is wrong
 * in the last leaves nothing enqueued, and the next start is as planned. */
static void tensors_can_change_in_every_leg(void)
{
    stepaf_tensor_t push[PUSHES] = {{.key = 1, .bytes = LARGE - 5}, {2, NULL, 3}, {3, NULL, 0}};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = PUSHES};

    begin(STEPAF_ATTENTION);
    commit();
    push[1].data = memory + LARGE + 32;
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, &params, &stream_job.stream, NULL), STEPAF_OK);
    for (uint32_t p = FIRST; p < PEERS; p++) {
        const struct stepaf_kernel_tensor *tensors = &cpu_device.args.tensors[(p - FIRST) * PUSHES];
        CU_ASSERT_EQUAL(tensors[0].bytes, LARGE - 5);
        CU_ASSERT_PTR_EQUAL(tensors[0].data, memory);
        CU_ASSERT_EQUAL(tensors[1].bytes, 3);
        CU_ASSERT_PTR_EQUAL(tensors[1].data, push[1].data);
        CU_ASSERT_EQUAL(tensors[2].bytes, 0);
    }
    CU_ASSERT_EQUAL(cpu_device.args.aligned, 1);
    push[2].bytes = SMALL + 1;
    int before = cpu_device.n_launches;
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, &params, &stream_job.stream, NULL),
                    STEPAF_ERR_SIZE);
    CU_ASSERT_EQUAL(cpu_device.n_launches, before);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.args.tensors[0].bytes, LARGE);
    CU_ASSERT_EQUAL(cpu_device.args.tensors[1].bytes, SMALL);
    CU_ASSERT_PTR_EQUAL(cpu_device.args.tensors[1].data, memory + LARGE);
    stream_job_end();
}

/* Fewer tensors come back than go out: these are in one launch, and of other sizes for each. */
static void answers_are_each_peers_own(void)
{
    stepaf_tensor_t pull[PEERS * 2];

    memset(pull, 0, sizeof(pull));
    begin(STEPAF_FFN);
    commit();
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream_job.stream), STEPAF_OK);
    for (uint32_t p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){4, NULL, PULL - p};
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, pull, &stream_job.stream), STEPAF_OK);
    for (uint32_t p = 0; p < PEERS; p++) {
        CU_ASSERT_EQUAL(cpu_device.args.tensors[p].bytes, PULL - p);
        CU_ASSERT_PTR_EQUAL(cpu_device.args.tensors[p].data, memory + answer(p));
    }
    stream_job_end();
}

/* CUDA takes the first launch, and refuses the second. */
static void half_a_start_ends_the_plan(void)
{
    begin(STEPAF_ATTENTION);
    commit();
    cpu_device.n_calls = 0;
    cpu_device.fail_at = HALF_A_START - 1;
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL),
                    STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_OK); /* nothing is enqueued */
    cpu_device.n_calls = 0;
    cpu_device.fail_at = HALF_A_START;
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL),
                    STEPAF_ERR_TRANSPORT);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "CUDA has refused a part of an operation");
    commit();
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL), STEPAF_OK);
    stream_job_end();
}

/* The GPU looks for the batch of any in one launch. */
static void any_takes_no_legs(void)
{
    stepaf_tensor_t push[PUSHES] = {{.key = 1}, {.key = 2}, {.key = 3}}, pull[PEERS];
    stepaf_plan_h none = NULL;

    begin(STEPAF_FFN);
    for (uint32_t p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){4, memory + answer(p), PULL};
    CU_ASSERT_EQUAL(plan_create(stream_job.job->handle, push, PUSHES, pull, PEERS,
                                STEPAF_PLAN_STREAM | STEPAF_PLAN_ANY, &none),
                    STEPAF_ERR_LIMIT);
    UNIT_CONTAINS(stepaf_last_error()->text, "at most 64 tensors");
    CU_ASSERT_PTR_NULL(none);
    CU_ASSERT_EQUAL(plan_create(stream_job.job->handle, push, 2, pull, PEERS,
                                STEPAF_PLAN_STREAM | STEPAF_PLAN_ANY, &none),
                    STEPAF_OK);
    stream_job_end();
}

/* Memory that a key is received in remains that, also where a plan answers from it. */
static void what_is_answered_from_may_be_received_in(void)
{
    stepaf_tensor_t push = {.key = 50}, pull = {.key = 51, .bytes = 64};
    stepaf_plan_h both = NULL;

    cpu_device_begin();
    stream_job.job = fake_open(STEPAF_FFN, 1, 1);
    stream_job.other = fake_open(STEPAF_ATTENTION, 1, 1);
    stream_job_key(50, STEPAF_PUSH, 64);
    stream_job_key(51, STEPAF_PULL, 64);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(stream_job.job->handle, 4096, STEPAF_MEM_CUDA, &pull.data),
                          STEPAF_OK);
    CU_ASSERT_EQUAL(
        stepaf_key_set_recv(stream_job.job->handle, 50, (uint8_t *)pull.data + 2048, 1024, NULL, 0),
        STEPAF_OK);
    CU_ASSERT_TRUE(stream_job.job->ctx->memory.regions[0]->target);
    CU_ASSERT_EQUAL_FATAL(
        plan_create(stream_job.job->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &both),
        STEPAF_OK);
    CU_ASSERT_TRUE(stream_job.job->ctx->memory.regions[0]->target);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(both), STEPAF_OK);
    CU_ASSERT_TRUE(stream_job.job->ctx->memory.regions[0]->target);
    fake_close(stream_job.job);
    fake_close(stream_job.other);
    cpu_device_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an operation is sent in legs", an_operation_is_sent_in_legs},
        {"legs share no memory", legs_share_no_memory},
        {"tensors can change in every leg", tensors_can_change_in_every_leg},
        {"answers are each peer's own", answers_are_each_peers_own},
        {"half a start ends the plan", half_a_start_ends_the_plan},
        {"any takes no legs", any_takes_no_legs},
        {"what is answered from may be received in", what_is_answered_from_may_be_received_in},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
