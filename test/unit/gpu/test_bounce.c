/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory in plans that the host starts, at an attention rank: carried as it is or bounced, with
 * the same result. */
#include <pthread.h>
#include <time.h>

#include "bounces.h"

static void begin_attention(bool takes)
{
    stepaf_tensor_t push, pull[PEERS];

    cpu_device_begin();
    cpu_device.rdma.flush = true;
    open_jobs(STEPAF_ATTENTION, takes);
    push = (stepaf_tensor_t){PUSHED, gpu_memory + 10, BYTES};
    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, gpu_memory + PLACE + (size_t)p * 300, BYTES};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, pull, PEERS, 0, &plan),
                          STEPAF_OK);
}

static stepaf_request_h start(void)
{
    stepaf_request_h request = NULL;

    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
    stepaf_progress(job->handle);
    return request;
}

static void answer(uint32_t peer, uint32_t seq, bool is_short)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RESPONSE, 0, seq % DEPTH, seq);

    msg.flags = STEPAF_MSG_RELEASED;
    if (is_short)
        job->ctx->up.deliver_imm(&job->ctx->up, job->ctx->peers[peer].link,
                                 stepaf_imm_make(STEPAF_IMM_RELEASED, 0, seq, 1));
    else
        fake_tell(job, peer, &msg);
}

static void a_plan_waits_for_a_commit(void)
{
    stepaf_request_h request;

    begin_attention(false);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(region()->linked, 0);
    commit();
    CU_ASSERT_EQUAL(region()->linked, 1);
    (void)start();
    end();
}

static void bounced_tensors_are_copied_out_and_in(void)
{
    begin_attention(false);
    commit();
    CU_ASSERT_EQUAL(n_pinned(), 1);
    UNIT_CONTAINS(job->ctx->peers[0].refused, "GPU memory: staged");
    for (uint32_t seq = 0; seq < 10; seq++) {
        uint32_t slot = seq % DEPTH;
        gpu_memory[10] = (uint8_t)seq;
        stepaf_request_h request = start();
        for (uint32_t p = 0; p < PEERS; p++) {
            const struct stepaf_xfer *xfer = &job->records[p].xfer[0];
            const uint8_t *src = xfer->src;
            CU_ASSERT(src == region()->bounce->mem.base + 10 &&
                      xfer->src_mem == &region()->bounce->mem);
            CU_ASSERT(memcmp(src, gpu_memory + 10, BYTES) == 0);
            write_bounced(region(), PLACE + p * 300 + slot * BYTES, (uint8_t)(50 + seq + p));
            answer(p, seq, seq % 2);
            const uint8_t *pulled = gpu_memory + PLACE + p * 300 + (size_t)slot * BYTES;
            CU_ASSERT(is_all(pulled, (uint8_t)(50 + seq + p)));
        }
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        fake_forget(job);
    }
    CU_ASSERT_EQUAL(cpu_device.n_flushes, 0);
    end();
}

static void taken_tensors_are_carried_as_they_are(void)
{
    begin_attention(true);
    commit();
    CU_ASSERT(n_pinned() == 0 && !region()->bounce);
    UNIT_CONTAINS(job->ctx->peers[0].refused, "GPU memory: as it is");
    for (uint32_t seq = 0; seq < 4; seq++) {
        stepaf_request_h request = start();
        for (uint32_t p = 0; p < PEERS; p++) {
            CU_ASSERT_PTR_EQUAL(job->records[p].xfer[0].src, gpu_memory + 10);
            CU_ASSERT_PTR_EQUAL(job->records[p].xfer[0].src_mem, &region()->mem);
            answer(p, seq, seq % 2);
            CU_ASSERT_EQUAL(cpu_device.n_flushes, seq * PEERS + p + 1);
        }
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        fake_forget(job);
    }
    end();
}

static void a_gpu_that_orders_writes_is_not_flushed(void)
{
    begin_attention(true);
    cpu_device.rdma.flush = false;
    commit();
    (void)start();
    answer(0, 0, false);
    answer(1, 0, true);
    CU_ASSERT_EQUAL(cpu_device.n_flushes, 0);
    end();
}

/* By the transport, whatever the GPU could do itself. */
static void a_gpu_with_two_ways_is_flushed_by_the_card(void)
{
    begin_attention(true);
    cpu_device.rdma.two_ways = true;
    commit();
    (void)start();
    answer(0, 0, false);
    answer(1, 0, true);
    CU_ASSERT_EQUAL(job->n_flushes, 2);
    CU_ASSERT_EQUAL(cpu_device.n_flushes, 0);
    cpu_device.rdma.two_ways = false;
    end();
}

/* What the GPU may not have must not be given to the caller. */
static void a_failing_gpu_loses_the_peer(void)
{
    for (int bounced = 0; bounced < 2; bounced++) {
        begin_attention(!bounced);
        commit();
        stepaf_request_h request = start();
        cpu_device.bad_flush = !bounced;
        cpu_device.n_calls = 0;
        cpu_device.fail_at = bounced ? 1 : 0;
        answer(0, 0, bounced);
        cpu_device.fail_at = 0;
        cpu_device.bad_flush = false;
        answer(1, 0, bounced);
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_ERR_PEER_LOST);
        UNIT_CONTAINS(stepaf_last_error()->text, "cannot be copied to the GPU");
        UNIT_CONTAINS(stepaf_last_error()->text, bounced ? "copy" : "flush");
        CU_ASSERT(job->ctx->peers[0].lost && !job->ctx->peers[1].lost);
        CU_ASSERT_EQUAL(job->n_severed, 1); /* it is alive, and might write */
        end();
    }
}

static void a_start_that_cannot_copy_changes_nothing(void)
{
    stepaf_request_h request;

    begin_attention(false);
    commit();
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(job->n_records, 0);
    request = start();
    answer(0, 0, true);
    answer(1, 0, true);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
    end();
}

/* Starting does not wait for the copy; what is sent later to the same peers does. */
static void nothing_leaves_before_it_is_copied(void)
{
    stepaf_request_h requests[DEPTH];

    begin_attention(false);
    commit();
    for (int s = 0; s < DEPTH; s++)
        CU_ASSERT_EQUAL(stepaf_start(plan, &requests[s]), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 0);
    cpu_device.error = STEPAF_INPROGRESS;
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1; /* the first peer's */
    stepaf_progress(job->handle);
    CU_ASSERT_EQUAL(job->n_records, DEPTH);
    for (int s = 0; s < DEPTH; s++)
        CU_ASSERT(job->records[s].peer == 1 && job->records[s].msg.seq == (uint32_t)s);
    stepaf_progress(job->handle);
    CU_ASSERT_EQUAL(job->n_records, PEERS * DEPTH);
    cpu_device.error = STEPAF_ERR_TRANSPORT;
    end();
}

static void a_copy_that_fails_later_loses_the_peer(void)
{
    stepaf_request_h request;

    begin_attention(false);
    commit();
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    stepaf_progress(job->handle);
    cpu_device.fail_at = 0;
    answer(1, 0, true);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_ERR_PEER_LOST);
    UNIT_CONTAINS(stepaf_last_error()->text, "GPU 0 has failed");
    end();
}

/* The GPU fails while answers are copied in, at the n-th: the caller gets no status that says that
 * they are there, and answers of the other peer are. */
static void fail_arriving(int n)
{
    stepaf_request_h requests[DEPTH];

    begin_attention(false);
    commit();
    for (int s = 0; s < DEPTH; s++)
        requests[s] = start();
    cpu_device.busy = true;
    for (uint32_t s = 0; s < DEPTH; s++) {
        answer(0, s, s % 2);
        answer(1, s, s % 2);
    }
    CU_ASSERT_EQUAL(job->ctx->gpu.n_arriving, DEPTH * PEERS);
    CU_ASSERT_EQUAL(stepaf_test(requests[0]), STEPAF_INPROGRESS);
    cpu_device.busy = false;
    cpu_device.n_calls = 0;
    cpu_device.fail_at = n;
    stepaf_progress(job->handle);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(job->ctx->gpu.n_arriving, 0);
    CU_ASSERT(job->ctx->peers[(n - 1) % PEERS].lost && !job->ctx->peers[n % PEERS].lost);
    CU_ASSERT_EQUAL(job->n_severed, 1); /* it is alive, and might write */
    for (int s = 0; s < DEPTH; s++) {
        bool hit = s == (n - 1) / PEERS;
        CU_ASSERT_EQUAL(stepaf_wait(requests[s], 0), hit ? STEPAF_ERR_PEER_LOST : STEPAF_OK);
        if (!hit)
            continue;
        UNIT_CONTAINS(stepaf_last_error()->text, "cannot be copied to the GPU");
        UNIT_CONTAINS(stepaf_last_error()->text, "GPU 0 has failed");
        CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, (n - 1) % PEERS);
        CU_ASSERT_EQUAL(stepaf_last_error()->phase, STEPAF_PHASE_RESPONSE);
    }
    end();
}

static void an_answer_that_fails_to_arrive_loses_the_peer(void)
{
    for (int n = 1; n <= DEPTH * PEERS; n++)
        fail_arriving(n);
}

/* The peer has ended meanwhile, and then the GPU fails: the operation is told once. */
static void a_lost_peers_answer_may_fail_to_arrive(void)
{
    begin_attention(false);
    commit();
    stepaf_request_h request = start();
    cpu_device.busy = true;
    answer(0, 0, true);
    job->ctx->up.lost(&job->ctx->up, job->ctx->peers[0].link, "it has ended");
    answer(1, 0, true);
    CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_INPROGRESS);
    cpu_device.busy = false;
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_ERR_PEER_LOST);
    cpu_device.fail_at = 0;
    CU_ASSERT(job->ctx->gpu.n_arriving == 0 && job->n_severed == 0);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    UNIT_CONTAINS(stepaf_last_error()->text, "it has ended");
    end();
}

static void other_tensors_may_be_started_with(void)
{
    struct cpu_piece *other;
    stepaf_tensor_t push;
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = &push, .n_push = 1};
    stepaf_request_h request;

    begin_attention(false);
    commit();
    push = (stepaf_tensor_t){PUSHED, gpu_memory + 500, 33};
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    stepaf_progress(job->handle);
    CU_ASSERT(memcmp(fake_last(job)->xfer[0].src, gpu_memory + 500, 33) == 0);
    CU_ASSERT_EQUAL(fake_last(job)->xfer[0].bytes, 33);
    other = cpu_device_piece(BYTES, 0, true);
    CU_ASSERT_EQUAL_FATAL(stepaf_register(job->handle, other->base, BYTES), STEPAF_OK);
    push.data = other->base;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "no commit has prepared");
    end();
}

static void *let_events_pass(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    cpu_device.busy = false;
    return NULL;
}

/* An answer counts as here for a commit, wherever its bytes are: nobody has to guess how long they
 * take. */
static void a_commit_awaits_what_is_arriving(void)
{
    pthread_t thread;

    begin_attention(false);
    commit();
    stepaf_request_h request = start();
    cpu_device.busy = true;
    answer(0, 0, false);
    answer(1, 0, true);
    CU_ASSERT_EQUAL(job->ctx->gpu.n_arriving, 2);
    CU_ASSERT_EQUAL(stepaf_cancel(request), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, let_events_pass, NULL), 0);
    declare(job, PULLED + 1, STEPAF_PULL);
    declare(counterpart, PULLED + 1, STEPAF_PULL);
    CU_ASSERT_EQUAL(fake_commit(job, counterpart), STEPAF_OK);
    CU_ASSERT(pthread_join(thread, NULL) == 0 && job->ctx->gpu.n_arriving == 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a plan waits for a commit", a_plan_waits_for_a_commit},
        {"bounced tensors are copied out and in", bounced_tensors_are_copied_out_and_in},
        {"taken tensors are carried as they are", taken_tensors_are_carried_as_they_are},
        {"a GPU with two ways is flushed by the card", a_gpu_with_two_ways_is_flushed_by_the_card},
        {"a GPU that orders writes is not flushed", a_gpu_that_orders_writes_is_not_flushed},
        {"a failing GPU loses the peer", a_failing_gpu_loses_the_peer},
        {"a start that cannot copy changes nothing", a_start_that_cannot_copy_changes_nothing},
        {"nothing leaves before it is copied", nothing_leaves_before_it_is_copied},
        {"a copy that fails later loses the peer", a_copy_that_fails_later_loses_the_peer},
        {"an answer that fails to arrive loses the peer",
         an_answer_that_fails_to_arrive_loses_the_peer},
        {"a lost peer's answer may fail to arrive", a_lost_peers_answer_may_fail_to_arrive},
        {"other tensors may be started with", other_tensors_may_be_started_with},
        {"a commit awaits what is arriving", a_commit_awaits_what_is_arriving},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
