/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans that take the batch of any worker, on a GPU that is made up: what is refused, how
 * much can be received, and what the kernels are told. */
#include <stdlib.h>

#include "core/key_recv.h"
#include "core/plan.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "fake.h"
#include "gpu/stream_any.h"
#include "plans.h"
#include "unit.h"

enum { WORKERS = 2, LARGE = 200000, SMALL = 8, ANSWER = 3008, FEWER = 1000, DEPTH = 3 };

static struct fake_job *job, *worker;
static stepaf_plan_h plan;
static stepaf_tensor_t push[2] = {{.key = 1}, {.key = 2}};
static stepaf_tensor_t pull[WORKERS];
static uint8_t *memory;
static int stream;
static uint32_t depth = DEPTH;

static void key(uint64_t id, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = depth,
                                  .mem_kind = STEPAF_MEM_CUDA};

    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(job->handle, id, direction, bytes, &params),
                          STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(worker->handle, id, direction, bytes, &params),
                          STEPAF_OK);
}

/* The plan that all workers have. */
static void make_worker(void)
{
    stepaf_tensor_t out[2] = {{.key = 1, .bytes = LARGE}, {.key = 2, .bytes = SMALL}};
    stepaf_tensor_t in = {.key = 3, .bytes = ANSWER};
    stepaf_plan_h its;
    uint8_t *data;

    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(worker->handle, LARGE + (size_t)depth * ANSWER,
                                       STEPAF_MEM_CUDA, (void **)&data),
                          STEPAF_OK);
    out[0].data = data;
    out[1].data = data;
    in.data = data + LARGE;
    CU_ASSERT_EQUAL_FATAL(
        stepaf_plan_create(worker->handle, out, 2, &in, 1, STEPAF_PLAN_STREAM, &its), STEPAF_OK);
}

/* An FFN rank with two workers, to the second of which it answers less; not committed. */
static void begin(void)
{
    cpu_device_begin();
    job = fake_open(STEPAF_FFN, WORKERS, 1);
    worker = fake_open(STEPAF_ATTENTION, WORKERS, 1);
    key(1, STEPAF_PUSH, LARGE);
    key(2, STEPAF_PUSH, SMALL);
    key(3, STEPAF_PULL, ANSWER);
    make_worker();
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, (size_t)WORKERS * depth * ANSWER,
                                       STEPAF_MEM_CUDA, (void **)&memory),
                          STEPAF_OK);
    for (int p = 0; p < WORKERS; p++)
        pull[p] =
            (stepaf_tensor_t){3, memory + (size_t)p * depth * ANSWER, p == 0 ? ANSWER : FEWER};
    CU_ASSERT_EQUAL_FATAL(plan_create(job->handle, push, 2, pull, WORKERS,
                                      STEPAF_PLAN_STREAM | STEPAF_PLAN_ANY, &plan),
                          STEPAF_OK);
}

static void commit(void)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_streams_prepare(worker->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, worker), STEPAF_OK);
}

static void end(void)
{
    fake_close(job);
    fake_close(worker);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    CU_ASSERT_EQUAL(cpu_device_count(), 0);
    cpu_device_end();
}

static struct stepaf_stream *stream_of_plan(void)
{
    return ((struct stepaf_plan_obj *)stepaf_table_get(&job->ctx->tables.plans, 0))->stream;
}

static void plans_are_for_ffn_ranks_and_streams(void)
{
    stepaf_tensor_t out = {.key = 1}, in = {.key = 3};
    stepaf_plan_h none = NULL;

    begin();
    CU_ASSERT_EQUAL(stepaf_plan_create(worker->handle, &out, 1, &in, 1,
                                       STEPAF_PLAN_STREAM | STEPAF_PLAN_ANY, &none),
                    STEPAF_ERR_ROLE);
    CU_ASSERT_EQUAL(stepaf_plan_create(worker->handle, &out, 1, &in, 1, STEPAF_PLAN_ANY, &none),
                    STEPAF_ERR_INVALID);
    UNIT_CONTAINS(stepaf_last_error()->text, "requires STEPAF_PLAN_STREAM");
    const uint64_t keys[STEPAF_MAX_TENSORS + 1] = {1, 2};
    CU_ASSERT_EQUAL(stepaf_plan_create(job->handle, &out, 1, &in, 1, STEPAF_PLAN_STREAM, &none),
                    STEPAF_ERR_ROLE);
    CU_ASSERT_EQUAL(
        stepaf_plan_create_ffn(worker->handle, keys, 2, pull, WORKERS, STEPAF_PLAN_STREAM, &none),
        STEPAF_ERR_ROLE);
    CU_ASSERT_EQUAL(stepaf_plan_create_ffn(job->handle, keys, 2, pull, WORKERS, 0, &none),
                    STEPAF_ERR_INVALID);
    UNIT_CONTAINS(stepaf_last_error()->text, "require STEPAF_PLAN_STREAM");
    CU_ASSERT_EQUAL(stepaf_plan_create_ffn(job->handle, keys, STEPAF_MAX_TENSORS + 1, pull, WORKERS,
                                           STEPAF_PLAN_STREAM, &none),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(
        stepaf_plan_create_ffn(job->handle, NULL, 2, pull, WORKERS, STEPAF_PLAN_STREAM, &none),
        STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(
        stepaf_plan_create_ffn(job->handle, keys, 2, pull, WORKERS, STEPAF_PLAN_STREAM, NULL),
        STEPAF_ERR_INVALID);
    CU_ASSERT_PTR_NULL(none);
    CU_ASSERT_PTR_NULL(stepaf_plan_origin(plan));
    CU_ASSERT_PTR_NULL(stepaf_plan_origin(NULL));
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(cpu_device.n_launches, 0);
    end();
}

static void every_slot_of_every_worker_can_be_received(void)
{
    begin();
    commit();
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_ERR_STATE);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < WORKERS * DEPTH; k++)
            CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
        int n = cpu_device.n_launches;
        CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_WOULD_BLOCK);
        CU_ASSERT_EQUAL(cpu_device.n_launches, n);
        CU_ASSERT_EQUAL(stepaf_plan_destroy(plan), STEPAF_ERR_STATE);
        for (int k = 0; k < WORKERS * DEPTH; k++)
            CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_ERR_STATE);
    }
    CU_ASSERT_EQUAL(stepaf_plan_destroy(plan), STEPAF_OK);
    end();
}

/* What a launch is told, and what lies in GPU memory, fit what the plan says of its tensors. */
static void kernels_find_what_the_plan_says(void)
{
    const struct stepaf_any_args *args = &cpu_device.any_args;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    begin();
    commit();
    CU_ASSERT_EQUAL_FATAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT(args->n_peers == WORKERS && args->n_each == 2 && args->depth == DEPTH);
    CU_ASSERT(args->ring_mask == 15 && args->epoch == job->ctx->epoch);
    CU_ASSERT_PTR_EQUAL(stepaf_plan_origin(plan), args->origin);
    CU_ASSERT(!args->gate_takes && !args->gate_ends && args->shares[0].n > 1);
    CU_ASSERT_EQUAL(cpu_device.launched.blocks, args->shares[0].n + args->shares[1].n);
    for (int at = 0; at < 2 * WORKERS; at++)
        for (unsigned slot = 0; slot < DEPTH; slot++) {
            const struct stepaf_any_tensor *entry = &args->tensors[at];
            CU_ASSERT_EQUAL(stepaf_plan_tensor(plan, slot, at / 2, at % 2, &info), STEPAF_OK);
            CU_ASSERT_PTR_EQUAL(entry->tensor.data + (size_t)slot * entry->data_stride, info.data);
            CU_ASSERT_EQUAL(entry->tensor.proto, at % 2 ? STEPAF_PROTO_INLINE : STEPAF_PROTO_LL);
            CU_ASSERT_PTR_EQUAL(args->landed + (size_t)slot * args->landed_stride,
                                stepaf_plan_bytes(plan, slot));
        }
    CU_ASSERT_EQUAL_FATAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    for (int p = 0; p < WORKERS; p++) {
        const struct stepaf_any_tensor *entry = &args->tensors[p];
        CU_ASSERT(entry->tensor.data == pull[p].data && entry->data_stride == ANSWER);
        CU_ASSERT(entry->tensor.bytes == pull[p].bytes && entry->tensor.peer == p);
    }
    CU_ASSERT_EQUAL(cpu_device.launched.blocks, args->shares[0].n);
    end();
}

/* An entry is not used again while blocks of the answer that needs it may still begin. */
static void the_ring_has_room_for_answers_that_end_late(void)
{
    const struct stepaf_any_args *args = &cpu_device.any_args;

    depth = 4; /* with two workers a power of two */
    begin();
    commit();
    CU_ASSERT_EQUAL_FATAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(args->depth, 4);
    CU_ASSERT_EQUAL(args->ring_mask, 2 * WORKERS * 4 - 1);
    end();
    depth = DEPTH;
}

static void copy_engines_have_no_part(void)
{
    setenv("STEPAF_CUDA_ENGINE", "ce", 1);
    begin();
    unsetenv("STEPAF_CUDA_ENGINE");
    commit();
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.any_args.tensors[0].tensor.proto, STEPAF_PROTO_ZCOPY);
    CU_ASSERT(!cpu_device.any_args.tensors[0].tensor.copied && cpu_device.any_args.shares[0].n > 0);
    end();
}

static void proxied_workers_are_refused(void)
{
    setenv("STEPAF_CUDA_PROXY", "always", 1);
    begin();
    unsetenv("STEPAF_CUDA_PROXY");
    CU_ASSERT_EQUAL_FATAL(stepaf_key_allocate(job->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_streams_prepare(job->ctx), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "attention rank 0 (world rank 0) is proxied");
    stepaf_key_allocate_undo(job->ctx);
    end();
}

static void answers_fit_whichever_worker_it_is(void)
{
    stepaf_tensor_t answer = {.key = 3, .bytes = FEWER};
    uint8_t elsewhere[FEWER];

    begin();
    commit();
    CU_ASSERT_EQUAL_FATAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    answer.bytes = FEWER + 1;
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, &answer, &stream), STEPAF_ERR_SIZE);
    answer.bytes = FEWER;
    answer.key = 2;
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, &answer, &stream), STEPAF_ERR_INVALID);
    answer.key = 3;
    answer.data = elsewhere;
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, &answer, &stream), STEPAF_ERR_UNREGISTERED);
    answer.data = memory + 5;
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, &answer, &stream), STEPAF_OK);
    CU_ASSERT_PTR_EQUAL(cpu_device.any_args.shares[0].data, answer.data);
    CU_ASSERT(cpu_device.any_args.shares[0].bytes == FEWER && !cpu_device.any_args.aligned);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    CU_ASSERT(!cpu_device.any_args.shares[0].data && cpu_device.any_args.aligned);
    CU_ASSERT_EQUAL(cpu_device.any_args.shares[0].bytes, UINT32_MAX);
    end();
}

static void a_timeout_names_whose_turn_it_was(void)
{
    begin();
    commit();
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_OK);
    stream_of_plan()->watch->peer = 1 | STEPAF_WATCH_ANY;
    stream_of_plan()->watch->fault = STEPAF_FAULT_TIMEOUT;
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_TIMEOUT);
    UNIT_CONTAINS(stepaf_last_error()->text, "the next one due was attention rank 1");
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_ERR_TIMEOUT);
    job->ctx->peers[0].lost = true; /* that is why */
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    end();
}

/* In the middle of a batch it is one worker that is waited for. */
static void a_timeout_within_a_batch_names_its_worker(void)
{
    begin();
    commit();
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    stream_of_plan()->watch->peer = 1;
    stream_of_plan()->watch->fault = STEPAF_FAULT_TIMEOUT;
    job->ctx->peers[0].lost = true;
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_TIMEOUT);
    UNIT_CONTAINS(stepaf_last_error()->text, "attention rank 1 (world rank 1) has sent nothing");
    end();
}

static void a_launch_that_fails_counts_nothing(void)
{
    begin();
    commit();
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    end();
}

static void half_a_receive_ends_the_plan(void)
{
    begin();
    commit();
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 2; /* gate, unpack */
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    cpu_device.fail_at = 0;
    int n_launches = cpu_device.n_launches;
    CU_ASSERT_EQUAL(stream_of_plan()->watch->abort, 1);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(cpu_device.n_launches, n_launches);
    commit();
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    end();
}

/* ---- times ---- */

static uint64_t in_ring(uint64_t time_ns)
{
    return time_ns % (UINT64_C(1) << STEPAF_TIMESTAMP_TIME_BITS);
}

/* What a kernel would note next of the plan's only rank. */
static void note(struct stepaf_timestamp *ring, uint32_t n, uint32_t kind, uint32_t op,
                 uint64_t time_ns)
{
    ring[n] = (struct stepaf_timestamp){time_ns, (uint64_t)kind << STEPAF_TIMESTAMP_KIND |
                                                     (uint64_t)op << STEPAF_TIMESTAMP_OP | (n + 1)};
}

/* The gate says whose batch it took: here the second worker's fifth one, then nonsense. */
static void times_are_those_of_the_worker_whose_batch_it_was(void)
{
    const uint64_t fifth = UINT64_C(2) << 32 | 1 << 8 | 1, nobody = UINT64_C(1) << 32 | 7 << 8;
    static const int events[] = {STEPAF_EVENT_ARRIVED, STEPAF_EVENT_HANDLED, STEPAF_EVENT_RESPONDED,
                                 STEPAF_EVENT_RELEASED};
    stepaf_counters_t counters = {.size = sizeof(counters)};
    stepaf_trace_record_t records[16];
    size_t n = 0;

    setenv("STEPAF_STREAM_TIMES", "on", 1);
    begin();
    unsetenv("STEPAF_STREAM_TIMES");
    cpu_queue_begin();
    cpu_device.runs = true; /* for the clock */
    commit();
    cpu_device.runs = false;
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.timestamp.n_batches, stream_of_plan()->any->receive.counts);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_timestamps, 4);
    struct stepaf_timestamp *ring = cpu_device.timestamp.ring;
    uint64_t now = cpu_device_now_ns();
    for (uint32_t op = 0; op < 2; op++) {
        note(ring, 5 * op + 0, STEPAF_TIMESTAMP_WAIT_BEGAN, op, in_ring(now));
        note(ring, 5 * op + 1, STEPAF_TIMESTAMP_WAIT_OVER, op, in_ring(now + 1000));
        note(ring, 5 * op + 2, STEPAF_TIMESTAMP_NAME, op, op ? nobody : fifth);
        note(ring, 5 * op + 3, STEPAF_TIMESTAMP_SEND_BEGAN, op, in_ring(now + 2000));
        note(ring, 5 * op + 4, STEPAF_TIMESTAMP_SEND_OVER, op, in_ring(now + 3000));
    }
    CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, records, sizeof(records[0]), 16, &n), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(n, 4);
    for (int i = 0; i < 4; i++)
        CU_ASSERT(records[i].event == events[i] && records[i].peer == 1 &&
                  records[i].sequence == DEPTH + 1 && records[i].plan == 0);
    CU_ASSERT_EQUAL(stepaf_counters_query(job->handle, &counters), STEPAF_OK);
    CU_ASSERT(counters.batches_received == 1 && counters.responses_sent == 1);
    cpu_queue_end();
    end();
}

static void a_timestamp_that_fails_ends_the_plan_where_it_is_half(void)
{
    setenv("STEPAF_STREAM_TIMES", "on", 1);
    begin();
    unsetenv("STEPAF_STREAM_TIMES");
    cpu_queue_begin();
    cpu_device.runs = true;
    commit();
    cpu_device.runs = false;
    for (int at = 1; at <= 3; at++) { /* of the begin, gate, unpack */
        cpu_device.n_calls = 0;
        cpu_device.fail_at = at;
        CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
        cpu_device.fail_at = 0;
        CU_ASSERT_EQUAL(stream_of_plan()->watch->abort, at > 1);
        if (at > 1)
            commit();
        CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    }
    cpu_queue_end();
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"plans are for FFN ranks and streams", plans_are_for_ffn_ranks_and_streams},
        {"every slot of every worker can be received", every_slot_of_every_worker_can_be_received},
        {"kernels find what the plan says", kernels_find_what_the_plan_says},
        {"the ring has room for answers that end late",
         the_ring_has_room_for_answers_that_end_late},
        {"copy engines have no part", copy_engines_have_no_part},
        {"proxied workers are refused", proxied_workers_are_refused},
        {"answers fit whichever worker it is", answers_fit_whichever_worker_it_is},
        {"a timeout names whose turn it was", a_timeout_names_whose_turn_it_was},
        {"a timeout within a batch names its worker", a_timeout_within_a_batch_names_its_worker},
        {"a launch that fails counts nothing", a_launch_that_fails_counts_nothing},
        {"half a receive ends the plan", half_a_receive_ends_the_plan},
        {"times are those of the worker whose batch it was",
         times_are_those_of_the_worker_whose_batch_it_was},
        {"a timestamp that fails ends the plan where it is half",
         a_timestamp_that_fails_ends_the_plan_where_it_is_half},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
