/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of operations on streams, on a GPU that is made up: the library's own waits, and how
 * they end. */
#include "core/peer.h"
#include "core/plan.h"
#include "stream_job.h"
#include "unit.h"

/* A wait of the host's takes operations before it along, on a stream of the library's: behind what
 * the user's stream held when the request was made. */
static void the_hosts_wait_comes_behind_the_start(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    for (int n = 0; n < STREAM_DEPTH; n++)
        CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
    for (int n = 0; n < STREAM_DEPTH; n++)
        CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
    int n_launches = cpu_device.n_launches;
    CU_ASSERT_EQUAL(cpu_device.n_waits, 0);
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_OK);
    CU_ASSERT_FATAL(cpu_device.n_waits > 0);
    CU_ASSERT_PTR_EQUAL(cpu_device.waits[0].event, stream_job_stream()->sent[1]);
    CU_ASSERT_PTR_EQUAL(cpu_device.waits[0].stream, cpu_device.launched.stream);
    CU_ASSERT_PTR_NOT_EQUAL(cpu_device.waits[0].stream, &stream_job.stream);
    CU_ASSERT_EQUAL(cpu_device.waits[0].n_launches, n_launches);
    CU_ASSERT_EQUAL(cpu_device.n_launches, n_launches + 4); /* two gates, and what unpacks */
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_ERR_STATE);
    stream_job_end();
}

/* The library's own waits are in a stream that the user's does not come behind: until they are over
 * a slot cannot be used again, whether its operation has a request or was taken along. */
static void a_slot_is_free_when_the_hosts_wait_is_over(void)
{
    stepaf_request_h first = NULL, second = NULL;

    for (int known = 0; known < 2; known++) {
        stream_job_begin(STEPAF_ATTENTION);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_start(NULL, known ? &first : NULL), 0);
        CU_ASSERT_EQUAL(stream_job_start(NULL, &second), STEPAF_OK);
        cpu_device.busy = true;
        CU_ASSERT_EQUAL(stepaf_test(second), STEPAF_INPROGRESS);
        int n_launches = cpu_device.n_launches;
        CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_ERR_WOULD_BLOCK);
        CU_ASSERT_EQUAL(stepaf_last_error()->status, STEPAF_ERR_WOULD_BLOCK);
        CU_ASSERT_EQUAL(cpu_device.n_launches, n_launches);
        cpu_device.busy = false;
        CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job.job->ctx->n_polled, 0);
        CU_ASSERT_EQUAL(stepaf_test(second), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
        stream_job_end();
    }
}

/* What is captured has come by nothing yet, and a replay is of other operations: a wait that a
 * request is about is refused, and the request has its end all the same. */
static void a_wait_with_a_request_is_not_captured(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
    int n_launches = cpu_device.n_launches;
    cpu_device.capturing = true;
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_ERR_INVALID);
    UNIT_CONTAINS(stepaf_last_error()->text, "replays have no requests");
    CU_ASSERT_EQUAL(cpu_device.n_launches, n_launches);
    CU_ASSERT_FALSE(stream_job.job->ctx->gpu.streams->captured); /* nothing to keep mailboxes for */
    cpu_device.capturing = false;
    CU_ASSERT_EQUAL(stepaf_plan_status(stream_job.plan), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_OK);
    stream_job_end();
}

/* A wait that was enqueued stays what its request is about, whatever the slot holds next. */
static void a_request_is_of_its_own_wait_alone(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    cpu_device.capturing = true;
    for (int n = 0; n < 2 * STREAM_DEPTH; n++) {
        CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    }
    cpu_device.capturing = false;
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_OK);
    stream_job_end();
}

/* Of an operation that has failed nobody knows what has come from whom: peers that live are not
 * said to be lost. */
static void each_part_of_a_request_says_why_it_failed(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    stream_job_stream()->watch->fault = STEPAF_FAULT_TIMEOUT; /* of peer 0 */
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_ERR_TIMEOUT);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_STREAM_TIMEOUT_US");
    CU_ASSERT_EQUAL(stepaf_request_tensor(request, 0, NULL), STEPAF_ERR_TIMEOUT);
    stream_job_end();
}

/* The caller takes it for the own deadline, and waits again. */
static void a_stream_that_has_given_up_says_so_again(void)
{
    stepaf_request_h request = NULL;
    int index = -1;

    for (int tests = 0; tests < 2; tests++) {
        stream_job_begin(STEPAF_ATTENTION);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
        cpu_device.busy = true;
        CU_ASSERT_EQUAL(stepaf_wait(request, 1000), STEPAF_ERR_TIMEOUT); /* the own one */
        CU_ASSERT_EQUAL(stepaf_plan_status(stream_job.plan), STEPAF_OK);
        cpu_device.busy = false;
        stream_job_stream()->watch->fault = STEPAF_FAULT_TIMEOUT;
        for (int i = 0; i < 2; i++) {
            CU_ASSERT_EQUAL(tests ? stepaf_test(request) : stepaf_wait(request, -1),
                            STEPAF_ERR_TIMEOUT);
            CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
            UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_STREAM_TIMEOUT_US");
        }
        CU_ASSERT_EQUAL(stepaf_plan_status(stream_job.plan), STEPAF_ERR_TIMEOUT);
        CU_ASSERT_EQUAL(stepaf_wait_any(&request, 1, -1, &index), STEPAF_ERR_TIMEOUT);
        CU_ASSERT_EQUAL(index, 0);
        stream_job_end();
    }
}

/* Nobody has asked for the plan's status since the GPU has given up. */
static void a_plan_that_the_gpu_has_given_up_can_end(void)
{
    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(stream_job.plan), STEPAF_ERR_STATE);
    stream_job.job->ctx->commit.changed = false;
    stream_job_stream()->watch->fault = STEPAF_FAULT_TIMEOUT;
    CU_ASSERT(!stepaf_stream_busy(stream_job_stream()));
    CU_ASSERT_TRUE(stream_job.job->ctx->commit.changed);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(stream_job.plan), STEPAF_OK);
    stream_job_end();
}

/* What streams still hold is sent all the same, to peers that live, though the operation has
 * failed. */
static void sources_are_free_when_streams_have_come_by(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
    cpu_device.busy = true;
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_INPROGRESS);
    stepaf_peer_fail(&stream_job.job->ctx->peers[0], "says the test");
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_INPROGRESS);
    cpu_device.busy = false;
    CU_ASSERT_EQUAL(stepaf_request_sent(request), STEPAF_OK);
    stream_job_end();
}

/* Nothing is said rather than something wrong: what streams do nobody here knows the time of. */
static void operations_on_streams_are_not_measured(void)
{
    stepaf_timeline_t line = {.size = sizeof(line), .notified_ns = -7};
    stepaf_counters_t counters = {.size = sizeof(counters)};
    stepaf_trace_record_t records[8];
    stepaf_request_h requests[STREAM_DEPTH];
    size_t n = 8;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    for (uint32_t i = 0; i < STREAM_DEPTH; i++) {
        CU_ASSERT_EQUAL(stream_job_start(NULL, &requests[i]), STEPAF_OK);
        CU_ASSERT_EQUAL(
            ((struct stepaf_plan_obj *)stepaf_table_get(&stream_job.job->ctx->tables.plans, 0))
                ->ops[i]
                .seq,
            i);
    }
    for (int over = 0; over < 2; over++) {
        CU_ASSERT_EQUAL(stepaf_timeline_query(requests[1], 0, &line), STEPAF_ERR_UNSUPPORTED);
        UNIT_CONTAINS(stepaf_last_error()->text, "operation 1 of plan 0 is on streams");
        CU_ASSERT_EQUAL(line.notified_ns, -7);
        CU_ASSERT_EQUAL(stepaf_timeline_query(requests[0], 1, &line), STEPAF_ERR_INVALID);
        CU_ASSERT_EQUAL(stepaf_wait(requests[1], -1), over ? STEPAF_ERR_STATE : STEPAF_OK);
    }
    CU_ASSERT_EQUAL(stepaf_wait(requests[0], -1), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &requests[0]), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    stream_job_stream()->watch->fault = STEPAF_FAULT_TIMEOUT;
    CU_ASSERT_EQUAL(stepaf_wait(requests[0], -1), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_counters_query(stream_job.job->handle, &counters), STEPAF_OK);
    CU_ASSERT(!counters.operations_started && !counters.operations_completed);
    CU_ASSERT(!counters.operations_failed && !counters.bytes_sent);
    CU_ASSERT_EQUAL(stepaf_trace_read(stream_job.job->handle, records, sizeof(records[0]), 8, &n),
                    STEPAF_OK);
    CU_ASSERT_EQUAL(n, 0);
    stream_job_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the host's wait comes behind the start", the_hosts_wait_comes_behind_the_start},
        {"a slot is free when the host's wait is over", a_slot_is_free_when_the_hosts_wait_is_over},
        {"a wait with a request is not captured", a_wait_with_a_request_is_not_captured},
        {"a request is of its own wait alone", a_request_is_of_its_own_wait_alone},
        {"each part of a request says why", each_part_of_a_request_says_why_it_failed},
        {"a stream that has given up says so again", a_stream_that_has_given_up_says_so_again},
        {"a plan that the GPU has given up can end", a_plan_that_the_gpu_has_given_up_can_end},
        {"sources are free when streams have come by", sources_are_free_when_streams_have_come_by},
        {"operations on streams are not measured", operations_on_streams_are_not_measured},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
