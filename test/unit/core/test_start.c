/* SPDX-License-Identifier: Apache-2.0 */
/* Starting operations: slots and credits, and what is refused untouched. */
#include <string.h>

#include "core/counters.h"
#include "core/key.h"
#include "core/plan.h"
#include "core/plan_end.h"
#include "starts.h"

static void an_operation_is_one_post_to_each_rank(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    CU_ASSERT_EQUAL(stepaf_plan_depth(plan), DEPTH);
    for (uint32_t seq = 0; seq < 2; seq++) {
        fake_forget(job);
        CU_ASSERT_EQUAL(stepaf_request_slot(start(plan)), (int)seq);
        CU_ASSERT_EQUAL_FATAL(job->n_records, PEERS);
        for (uint32_t p = 0; p < PEERS; p++) {
            const struct fake_record *record = &job->records[p];
            CU_ASSERT(record->peer == p && record->n_xfer == 2);
            CU_ASSERT(record->msg.type == STEPAF_MSG_START && record->msg.n == 0);
            CU_ASSERT(record->msg.slot == seq && record->msg.seq == seq && record->msg.epoch == 1);
            CU_ASSERT(record->xfer[0].src == memory && record->xfer[0].bytes == BYTES);
            CU_ASSERT(record->xfer[1].src == memory + 1000 && record->xfer[1].bytes == 50);
            for (int i = 0; i < 2; i++) {
                const struct stepaf_key *key = stepaf_key_find(job->ctx, i ? ALSO : PUSHED);
                const struct stepaf_xfer *xfer = &record->xfer[i];
                const struct fake_rmem *rmem = (const struct fake_rmem *)xfer->dst;
                CU_ASSERT_EQUAL(xfer->dst_offset, key->remote[p].offset + seq * BYTES);
                CU_ASSERT_EQUAL(memcmp(rmem->memory + xfer->dst_offset, xfer->src, xfer->bytes), 0);
                CU_ASSERT(xfer->src_mem && xfer->src_mem->base == memory);
            }
        }
    }
    CU_ASSERT_EQUAL(job->ctx->counters.operations_started, 2);
    CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, 2 * PEERS * (BYTES + 50));
    end();
}

/* What is stamped once for all ranks is read as a record of each, in order. */
static void a_start_is_traced_for_each_rank(void)
{
    static stepaf_trace_record_t all[64], few[64];
    static const uint64_t bytes[] = {BYTES, 50, 0};
    enum { RECORDS = 1 + 3 * PEERS };
    size_t n;

    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    CU_ASSERT_EQUAL(stepaf_trace_clear(job->handle), STEPAF_OK);
    (void)start(plan);
    CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, all, sizeof(*all), 64, &n), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(n, RECORDS);
    CU_ASSERT(all[0].event == STEPAF_EVENT_START && all[0].peer == -1 && all[0].tensor == -1);
    for (int i = 1; i < RECORDS; i++) {
        int kind = (i - 1) / PEERS;
        CU_ASSERT_EQUAL(all[i].event, kind < 2 ? STEPAF_EVENT_POSTED : STEPAF_EVENT_NOTIFIED);
        CU_ASSERT_EQUAL(all[i].peer, (i - 1) % PEERS);
        CU_ASSERT_EQUAL(all[i].tensor, kind < 2 ? kind : -1);
        CU_ASSERT_EQUAL(all[i].bytes, bytes[kind]);
        CU_ASSERT_EQUAL(all[i].time_ns, all[0].time_ns);
    }
    for (size_t capacity = 0; capacity < RECORDS; capacity++) {
        memset(few, 0x55, sizeof(few));
        CU_ASSERT_EQUAL(stepaf_trace_read(job->handle, few, sizeof(*few), capacity, &n), STEPAF_OK);
        CU_ASSERT_EQUAL(n, capacity);
        CU_ASSERT_EQUAL(memcmp(few, all + RECORDS - capacity, capacity * sizeof(few[0])), 0);
        CU_ASSERT_EQUAL(few[capacity].sequence, 0x55555555);
    }
    end();
}

static void no_slot_is_used_twice(void)
{
    stepaf_request_h request = NULL;

    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    for (uint32_t seq = 0; seq < DEPTH; seq++)
        (void)start(plan);
    uint64_t digest = state_digest(job->ctx);
    fake_forget(job);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_WOULD_BLOCK);
    CU_ASSERT_PTR_NULL(request);
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    CU_ASSERT_EQUAL(job->n_records, 0);
    for (uint32_t p = 0; p < PEERS; p++)
        release(p, 0, 1, 1); /* the slot after the next one */
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_WOULD_BLOCK);
    release(0, 0, 0, 0);
    release(1, 0, 0, 0);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_WOULD_BLOCK);
    release(2, 0, 0, 0);
    CU_ASSERT_EQUAL(stepaf_request_slot(start(plan)), 0);
    CU_ASSERT_EQUAL(stepaf_request_slot(start(plan)), 1);
    CU_ASSERT_EQUAL(job->ctx->counters.would_block, 3);
    end();
}

/* Two plans with a key in common share its buffers. */
static void plans_share_a_keys_buffers(void)
{
    stepaf_tensor_t push = {PUSHED, memory, BYTES};
    stepaf_request_h request;
    stepaf_plan_h other;

    begin();
    push.data = memory;
    stepaf_plan_h plan = make_plan(0);
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, NULL, 0, 0, &other), 0);
    commit();
    (void)start(plan);
    CU_ASSERT_EQUAL(stepaf_start(other, &request), STEPAF_ERR_WOULD_BLOCK);
    for (uint32_t p = 0; p < PEERS; p++)
        release(p, 0, 0, 0);
    (void)start(other);
    CU_ASSERT_EQUAL(stepaf_request_slot(start(plan)), 1);
    end();
}

static void a_release_on_its_way_is_seen(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    for (uint32_t seq = 0; seq < DEPTH; seq++)
        (void)start(plan);
    for (uint32_t p = 0; p < PEERS; p++) {
        struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_RELEASE, 0, 0, 0);
        fake_say(job, p, &msg);
    }
    (void)start(plan); /* it looks before it gives up */
    CU_ASSERT_EQUAL(job->ctx->counters.would_block, 0);
    end();
}

static unsigned n_waited;

/* While somebody waits for slot 0: one rank after the other lets go of it. */
static void let_go(struct fake_job *waiting)
{
    if (n_waited < PEERS) {
        struct stepaf_msg msg = fake_msg(waiting, STEPAF_MSG_RELEASE, 0, 0, 0);
        fake_tell(waiting, n_waited, &msg);
    }
    n_waited++;
}

static void a_start_may_wait(void)
{
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = 1};
    stepaf_request_h request;

    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    for (uint32_t seq = 0; seq < DEPTH; seq++)
        (void)start(plan);
    uint64_t digest = state_digest(job->ctx);
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_last_error()->phase, STEPAF_PHASE_RELEASE);
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    params.timeout_us = 0; /* polls once */
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    params.timeout_us = STEPAF_TIMEOUT_DEFAULT;
    n_waited = 0;
    job->on_progress = let_go;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_request_slot(request), 0);
    CU_ASSERT(n_waited >= PEERS);
    job->on_progress = NULL;
    end();
}

/* While somebody waits for slot 0, the rank that holds it dies. Nobody else ends the plan. */
static void lose(struct fake_job *waiting)
{
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};

    if (!n_waited++)
        return; /* a look before the wait */
    CU_ASSERT_EQUAL(stepaf_plan_idle(stepaf_table_get(&waiting->ctx->tables.plans, 0)),
                    STEPAF_ERR_STATE);
    UNIT_CONTAINS(stepaf_last_error()->text, "waits for a slot");
    fake_tell(waiting, 1, &bye);
}

static void what_a_start_has_waited_for_is_asked_anew(void)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_WAIT};
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};
    stepaf_request_h request;

    for (int waits = 0; waits < 2; waits++) {
        begin();
        stepaf_plan_h plan = make_plan(0);
        commit();
        for (uint32_t seq = 0; seq < DEPTH; seq++)
            (void)start(plan);
        n_waited = 0;
        job->on_progress = waits ? lose : NULL;
        if (!waits)
            for (uint32_t p = 0; p < PEERS; p++) /* that it is free, and why, comes with one look */
                fake_say(job, p, &bye);
        release(0, 0, 0, 0);
        release(2, 0, 0, 0);
        CU_ASSERT_EQUAL(stepaf_start_with(plan, waits ? &params : NULL, &request),
                        STEPAF_ERR_PEER_LOST);
        job->on_progress = NULL;
        end();
    }
}

/* Each says the one thing that the plan waits for. */
static void a_plan_that_is_not_ready_says_why(void)
{
    stepaf_tensor_t push = {PUSHED, NULL, 10}, pull[PEERS];
    stepaf_request_h request;
    stepaf_plan_h plan;
    void *later;

    begin();
    CU_ASSERT_EQUAL(stepaf_start(make_plan(0), &request), STEPAF_ERR_STATE);
    UNIT_CONTAINS(stepaf_last_error()->text,
                  "plan 0: key 1 waits for a commit: commit on all ranks");
    commit();
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 4096, STEPAF_MEM_HOST, &later), STEPAF_OK);
    push.data = memory;
    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, (uint8_t *)later + p * 1000, 10};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(job->handle, &push, 1, pull, PEERS, 0, &plan),
                          STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_STATE);
    UNIT_CONTAINS(stepaf_last_error()->text,
                  "plan 1: the memory of pull tensor 0 (key 3) waits for a commit");
    struct stepaf_key_remote *remote = stepaf_key_find(job->ctx, ALSO)->remote;
    const struct stepaf_key_remote was = remote[1];
    remote[1].rmem = NULL; /* it receives in GPU memory */
    CU_ASSERT_EQUAL(stepaf_start(make_plan(0), &request), STEPAF_ERR_STATE);
    UNIT_CONTAINS(stepaf_last_error()->text, "receives key 2 on streams");
    CU_ASSERT(stepaf_last_error()->peer_rank == 1);
    remote[1] = was;
    end();
}

static void bad_starts_change_nothing(void)
{
    stepaf_tensor_t good[2] = {{PUSHED, NULL, 10}, {ALSO, NULL, 10}}, bad[2];
    uint8_t elsewhere[BYTES];
    stepaf_request_h request = NULL;

    begin();
    good[0].data = good[1].data = memory + 500;
    stepaf_plan_h plan = make_plan(0);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_STATE); /* not committed */
    commit();
    struct {
        uint32_t flags;
        int n_push;
        int field; /* of bad[1]: 1 key, 2 bytes, 3 memory */
        stepaf_status_t expected;
    } const cases[] = {
        {4, 2, 0, STEPAF_ERR_INVALID},  {UINT32_MAX, 2, 0, STEPAF_ERR_INVALID},
        {0, 1, 0, STEPAF_ERR_INVALID},  {0, 3, 0, STEPAF_ERR_INVALID},
        {0, -1, 0, STEPAF_ERR_INVALID}, {0, 2, 1, STEPAF_ERR_INVALID},
        {0, 2, 2, STEPAF_ERR_SIZE},     {0, 2, 3, STEPAF_ERR_UNREGISTERED},
    };
    uint64_t digest = state_digest(job->ctx);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bad, good, sizeof bad);
        if (cases[i].field == 1)
            bad[1].key = PUSHED;
        else if (cases[i].field == 2)
            bad[1].bytes = 51;
        else if (cases[i].field == 3)
            bad[1].data = elsewhere;
        stepaf_start_params_t params = {.field_mask =
                                            STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_PUSH,
                                        .flags = cases[i].flags,
                                        .push = bad,
                                        .n_push = cases[i].n_push};
        CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &request), cases[i].expected);
    }
    CU_ASSERT_EQUAL(stepaf_start(plan, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_PTR_NULL(request);
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    CU_ASSERT_EQUAL(job->n_records, 0);
    end();
}

/* Numbers of operations and of handles wrap around after 2^32. */
static void numbers_wrap(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    struct stepaf_plan_obj *object = stepaf_table_get(&job->ctx->tables.plans, 0);
    object->seq = UINT32_MAX - 2;
    job->ctx->tables.ops.last_generation = UINT32_MAX - 3;
    for (uint32_t i = 0; i < 6; i++) {
        stepaf_request_h request = start(plan);
        for (uint32_t p = 0; p < PEERS; p++)
            release(p, 0, i % DEPTH, UINT32_MAX - 2 + i);
        CU_ASSERT_EQUAL(stepaf_test(request), STEPAF_OK);
    }
    end();
}

/* What has not left by then is given up, with all that it belongs to. */
static void finalize_gives_up_what_is_queued(void)
{
    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    for (uint32_t p = 0; p < PEERS; p++)
        fake_link(job, p)->room = 0;
    (void)start(plan);
    (void)start(plan);
    job->ctx->clock.own.ticks_per_us = 1e-9; /* the second that it waits is over at once */
    end();
}

/* The peer never hears of it, and is none the worse; others answer. */
static void a_source_that_is_not_mapped_fails_the_operation_alone(void)
{
    for (int is_queued = 0; is_queued < 2; is_queued++) {
        begin();
        stepaf_plan_h plan = make_plan(0);
        commit();
        fake_link(job, 1)->cannot_read = true;
        fake_link(job, 1)->room = is_queued ? 0 : FAKE_ENDLESS;
        stepaf_request_h request = start(plan);
        fake_link(job, 1)->room = FAKE_ENDLESS;
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
        CU_ASSERT_EQUAL(fake_count(job, STEPAF_MSG_START), PEERS - 1);
        CU_ASSERT_EQUAL(stepaf_core_counters(job->ctx).bytes_sent, (PEERS - 1) * (BYTES + 50));
        CU_ASSERT_EQUAL(stepaf_request_peer(request, 0), STEPAF_INPROGRESS);
        CU_ASSERT_EQUAL(stepaf_request_peer(request, 1), STEPAF_ERR_UNREGISTERED);
        CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_ERR_UNREGISTERED);
        UNIT_CONTAINS(stepaf_last_error()->text,
                      "operation 0 of plan 0: a source is in registered memory");
        CU_ASSERT(stepaf_last_error()->peer_rank == -1 && job->ctx->n_alive == PEERS);
        for (uint32_t p = 0; p < PEERS; p += 2)
            release(p, 0, 0, 0);
        CU_ASSERT_EQUAL(job->ctx->counters.operations_failed, 1);
        fake_forget(job);
        request = start(plan); /* to all, who are told its whole sequence */
        CU_ASSERT_EQUAL(fake_count(job, STEPAF_MSG_START), PEERS);
        for (uint32_t p = 0; p < PEERS; p++)
            release(p, 0, 1, 1);
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        end();
    }
}

/* A rank that is left out of operations: by when that began which it is still about. */
static void who_is_left_out_is_slow_after_a_while(void)
{
    stepaf_members_t members = {.size = sizeof(members)};
    double limit_us = 10000000;

    begin();
    stepaf_plan_h plan = make_plan(0);
    commit();
    job->ctx->env.slow_us = (int64_t)limit_us;
    CU_ASSERT_EQUAL(stepaf_plan_set_answers(plan, PEERS - 1, 0), STEPAF_OK);
    for (uint32_t seq = 0; seq < 2 * DEPTH; seq++) {
        (void)start(plan);
        for (uint32_t p = 0; p < PEERS - 1; p++)
            release(p, 0, seq % DEPTH, seq);
        CU_ASSERT_EQUAL(stepaf_members_query(job->handle, &members, NULL, 0), STEPAF_OK);
        CU_ASSERT_EQUAL(members.n_slow, 0);
    }
    CU_ASSERT_EQUAL(job->ctx->counters.left_out, DEPTH);
    const struct stepaf_plan_obj *obj = stepaf_table_get(&job->ctx->tables.plans, 0);
    obj->ops[0].op_peers[PEERS - 1].answered -=
        (uint64_t)(2 * limit_us * job->ctx->clock.own.ticks_per_us);
    CU_ASSERT_EQUAL(stepaf_members_query(job->handle, &members, NULL, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(members.n_slow, 1);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an operation is one post to each rank", an_operation_is_one_post_to_each_rank},
        {"a start is traced for each rank", a_start_is_traced_for_each_rank},
        {"no slot is used twice", no_slot_is_used_twice},
        {"plans share a key's buffers", plans_share_a_keys_buffers},
        {"a release on its way is seen", a_release_on_its_way_is_seen},
        {"a start may wait", a_start_may_wait},
        {"what a start has waited for is asked anew", what_a_start_has_waited_for_is_asked_anew},
        {"a plan that is not ready says why", a_plan_that_is_not_ready_says_why},
        {"bad starts change nothing", bad_starts_change_nothing},
        {"numbers wrap", numbers_wrap},
        {"finalize gives up what is queued", finalize_gives_up_what_is_queued},
        {"a source that is not mapped fails the operation alone",
         a_source_that_is_not_mapped_fails_the_operation_alone},
        {"who is left out is slow after a while", who_is_left_out_is_slow_after_a_while},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
