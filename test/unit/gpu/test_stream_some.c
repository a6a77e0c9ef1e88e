/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans that need some answers only, on a GPU that is made up: what they enqueue, and what
 * is refused. test/mpi/answers_streams has ranks that are late. */
#include <stdlib.h>

#include "core/plan.h"
#include "gpu/stream_some.h"
#include "plans.h"
#include "stream_job.h"
#include "unit.h"

enum {
    PEERS = 30,
    PULLS = 3,
    DEPTH = STREAM_DEPTH,
    PUSH = 5000,
    LARGE = STEPAF_PIECES_MAX + 16,
    SMALL = 8
};

static stepaf_plan_h plan;

static stepaf_plan_h make(struct fake_job *its, size_t pull_bytes, int n_pull)
{
    stepaf_tensor_t push = {.key = 1}, pull[PEERS * PULLS];
    uint32_t n_peers = its->ctx->n_peers;
    stepaf_plan_h made = NULL;
    uint8_t *data;

    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(its->handle, PUSH + 8 + n_peers * PULLS * DEPTH * pull_bytes,
                                       STEPAF_MEM_CUDA, (void **)&data),
                          STEPAF_OK);
    if (its->ctx->role == STEPAF_ATTENTION)
        push = (stepaf_tensor_t){1, data, PUSH};
    for (uint32_t i = 0; i < n_peers * (uint32_t)n_pull; i++)
        pull[i] = (stepaf_tensor_t){2 + i % (uint32_t)n_pull,
                                    data + PUSH + 8 + i * DEPTH * pull_bytes, pull_bytes};
    CU_ASSERT_EQUAL_FATAL(
        plan_create(its->handle, &push, 1, pull, (int)n_peers * n_pull, STEPAF_PLAN_STREAM, &made),
        STEPAF_OK);
    return made;
}

/* An attention rank of so many FFN ranks, none of which has another, and one of these. */
static void begin(uint32_t n_peers, size_t pull_bytes, int n_pull)
{
    cpu_device_begin();
    stream_job.job = fake_open(STEPAF_ATTENTION, 1, n_peers);
    stream_job.other = fake_open(STEPAF_FFN, 1, n_peers);
    stream_job_key(1, STEPAF_PUSH, PUSH);
    for (int i = 0; i < n_pull; i++)
        stream_job_key(2 + (uint64_t)i, STEPAF_PULL, pull_bytes);
    plan = make(stream_job.job, pull_bytes, n_pull);
    (void)make(stream_job.other, pull_bytes, n_pull);
}

static int launches_of(stepaf_status_t (*call)(void))
{
    int before = cpu_device.n_launches;

    CU_ASSERT_EQUAL(call(), STEPAF_OK);
    return cpu_device.n_launches - before;
}

static stepaf_status_t start(void)
{
    return stepaf_start_on_stream(plan, NULL, &stream_job.stream, NULL);
}

static stepaf_status_t wait_on_it(void)
{
    return stepaf_wait_on_stream(plan, &stream_job.stream);
}

/* From the commit behind the call on, until it is said otherwise. */
static void it_is_so_from_the_next_commit_on(void)
{
    begin(PEERS, SMALL, 2);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(stepaf_plan_answers(plan, 0));
    CU_ASSERT_EQUAL(launches_of(start), 1);
    CU_ASSERT_EQUAL(launches_of(wait_on_it), 1);
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 20, 5), STEPAF_OK);
    CU_ASSERT_PTR_NULL(stepaf_plan_answers(plan, 0));
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    const struct stepaf_stream *its = stream_job_stream();
    CU_ASSERT_PTR_NOT_NULL_FATAL(its->some);
    CU_ASSERT_EQUAL(its->some->need, 20);
    CU_ASSERT_EQUAL(its->some->n_each, 2);
    CU_ASSERT_EQUAL(its->some->patience_ns, 5000);
    CU_ASSERT_EQUAL(its->some->gone, 0);
    CU_ASSERT_PTR_EQUAL(stepaf_plan_answers(plan, 1), &its->some->slots[1]);
    CU_ASSERT_PTR_NULL(stepaf_plan_answers(plan, DEPTH));
    CU_ASSERT_EQUAL(launches_of(start), 2); /* the wait for late ones, too */
    CU_ASSERT_EQUAL(launches_of(wait_on_it), 1);
    CU_ASSERT(its->launches.receive[0].threads >= PEERS * 2 * 8);
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, PEERS, 0), STEPAF_OK); /* as none is said */
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(stepaf_plan_answers(plan, 0));
    CU_ASSERT_EQUAL(launches_of(start), 1);
    CU_ASSERT_EQUAL(launches_of(wait_on_it), 1);
    stream_job_end();
}

/* Behind the control memory that the plan says it needs is nothing of it. */
static void its_memory_is_its_own(void)
{
    begin(PEERS, SMALL, 1);
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 1, 0), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    const struct stepaf_stream *its = stream_job_stream();
    const uint8_t *control = stream_job.job->ctx->gpu.streams->control;
    const uint8_t *end_of_it = control + stepaf_stream_control_bytes(its);
    CU_ASSERT((const uint8_t *)(its->some + 1) <= end_of_it);
    for (uint32_t slot = 0; slot < DEPTH; slot++) {
        CU_ASSERT((const uint8_t *)its->launches.receive[slot].args.counts < (uint8_t *)its->some);
        CU_ASSERT_PTR_EQUAL(its->launches.receive[slot].args.awaited, its->some);
        CU_ASSERT_PTR_EQUAL(its->launches.send[slot].args.asked, its->some);
    }
    stream_job_end();
}

/* What is late must not come to where the caller has something else by then. */
static void nothing_comes_in_place(void)
{
    for (int n = 0; n < 2; n++) {
        begin(2, LARGE, 1);
        CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, n, 0), STEPAF_OK);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_stream()->mailboxes[0].proto,
                        n ? STEPAF_PROTO_BCOPY : STEPAF_PROTO_ZCOPY);
        stream_job_end();
    }
}

/* Copy engines would write to who is given up, too. */
static void copy_engines_send_nothing(void)
{
    for (int n = 0; n < 2; n++) {
        setenv("STEPAF_CUDA_ENGINE", "ce", 1);
        begin(2, SMALL, 1);
        unsetenv("STEPAF_CUDA_ENGINE");
        CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, n, 0), STEPAF_OK);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        cpu_device.n_copies = 0;
        CU_ASSERT_EQUAL(start(), STEPAF_OK);
        CU_ASSERT_EQUAL(cpu_device.n_copies, n ? 0 : 2);
        stream_job_end();
    }
}

/* CUDA takes the wait for late ones, and refuses the rest. */
static void half_a_start_ends_the_plan(void)
{
    begin(2, SMALL, 1);
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 1, 0), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(start(), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_OK); /* nothing is enqueued */
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 2;
    CU_ASSERT_EQUAL(start(), STEPAF_ERR_TRANSPORT);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_TRANSPORT);
    stream_job_end();
}

static void what_does_not_go_is_refused(void)
{
    begin(PEERS, SMALL, PULLS);
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 1, 0), STEPAF_ERR_LIMIT);
    UNIT_CONTAINS(stepaf_last_error()->text, "at most 64 tensors");
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, PEERS, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, PEERS + 1, 0), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    stream_job_end();
    setenv("STEPAF_CUDA_PROXY", "always", 1);
    setenv("STEPAF_PROGRESS", "thread", 1);
    begin(2, SMALL, 1);
    unsetenv("STEPAF_CUDA_PROXY");
    unsetenv("STEPAF_PROGRESS");
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 1, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_commit(), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "is proxied");
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, 0, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_commit(), STEPAF_OK);
    stream_job_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it is so from the next commit on", it_is_so_from_the_next_commit_on},
        {"its memory is its own", its_memory_is_its_own},
        {"nothing comes in place", nothing_comes_in_place},
        {"copy engines send nothing", copy_engines_send_nothing},
        {"half a start ends the plan", half_a_start_ends_the_plan},
        {"what does not go is refused", what_does_not_go_is_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
