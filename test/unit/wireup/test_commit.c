/* SPDX-License-Identifier: Apache-2.0 */
/* The commit from one rank's side: what it tells, what it waits for, what a failure leaves. */
#include "core/batch.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/peer_renew.h"
#include "core/region.h"
#include "drop.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 100, DEPTH = 2, PEERS = 2 };

static struct fake_job *attention, *ffn;
static uint8_t *memory; /* the attention rank's */

static void begin(void)
{
    void *allocated;

    attention = fake_open(STEPAF_ATTENTION, 2, PEERS);
    ffn = fake_open(STEPAF_FFN, 2, PEERS);
    fake_key(attention, ffn, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(attention, ffn, PULLED, STEPAF_PULL, BYTES, DEPTH);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(attention->handle, 4096, STEPAF_MEM_HOST, &allocated), 0);
    memory = allocated;
    fake_pair(attention, ffn);
    fake_pair(ffn, attention);
}

static void end(void)
{
    EXPECT_WHOLE(attention);
    EXPECT_WHOLE(ffn);
    fake_close(attention);
    fake_close(ffn);
}

static stepaf_plan_h make_plan(void)
{
    stepaf_tensor_t push = {PUSHED, memory, BYTES};
    stepaf_tensor_t pull[PEERS] = {{PULLED, memory + 1000, 60}, {PULLED, memory + 2000, 70}};
    stepaf_plan_h plan = NULL;

    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(attention->handle, &push, 1, pull, PEERS, 0, &plan),
                          STEPAF_OK);
    return plan;
}

/* What one peer was told since fake_forget, as letters. */
static const char *stream_advert(const struct fake_job *job, uint32_t peer)
{
    static const char letters[] = "?SARCPTXY...BZ";
    static char text[64];
    size_t n = 0;

    for (unsigned i = 0; i < job->n_records && n < sizeof text - 1; i++)
        if (job->records[i].peer == peer)
            text[n++] = letters[job->records[i].msg.type];
    text[n] = '\0';
    return text;
}

static void plans_are_announced_before_ready(void)
{
    begin();
    stepaf_plan_h plan = make_plan();
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_epoch(attention->handle), 1);
    for (uint32_t p = 0; p < PEERS; p++) {
        UNIT_STRING(stream_advert(attention, p), "PTTY");
        const struct stepaf_msg *msgs[4];
        for (unsigned i = 0, n = 0; i < attention->n_records && n < 4; i++)
            if (attention->records[i].peer == p)
                msgs[n++] = &attention->records[i].msg;
        CU_ASSERT(msgs[0]->word[0] == 1 && msgs[0]->word[1] == 1 && msgs[0]->word[2] == DEPTH);
        CU_ASSERT(msgs[1]->flags == 0 && msgs[1]->word[0] == PUSHED && msgs[1]->word[2] == BYTES);
        CU_ASSERT(msgs[2]->flags == STEPAF_MSG_PULL_SIDE && msgs[2]->word[0] == PULLED);
        CU_ASSERT(msgs[2]->word[2] == 60 + 10 * p && msgs[2]->word[4] == 1000 + 1000 * p);
        CU_ASSERT(msgs[2]->word[3] == attention->ctx->memory.regions[0]->mem.id &&
                  msgs[2]->word[6] == BYTES);
        CU_ASSERT(msgs[3]->seq == 1 && msgs[3]->word[0] == 0);
    }
    fake_forget(attention);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(plan), STEPAF_OK);
    (void)make_plan(); /* all that it names is known: no commit is needed */
    UNIT_STRING(stream_advert(attention, 0), "XPTT");
    UNIT_STRING(stream_advert(attention, 1), "XPTT");
    end();
}

/* Numbers of plans that have ended are given out again. FFN ranks' stream plans take what comes in
 * its order. */
static void plans_are_announced_in_the_order_of_making(void)
{
    static const uint32_t order[] = {1, 0, 2};
    unsigned n = 0;

    begin();
    stepaf_plan_h first = make_plan();
    (void)make_plan();
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_destroy(first), STEPAF_OK);
    (void)make_plan(); /* 0 again, behind 1 */
    (void)make_plan();
    CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    for (unsigned i = 0; i < attention->n_records; i++)
        if (attention->records[i].peer == 0 && attention->records[i].msg.type == STEPAF_MSG_PLAN)
            CU_ASSERT(n < 3 && attention->records[i].msg.plan == order[n++]);
    CU_ASSERT_EQUAL(n, 3);
    end();
}

/* A plan goes on where it was, and the past is past. */
static void a_new_epoch_goes_on(void)
{
    stepaf_request_h request;

    begin();
    stepaf_plan_h plan = make_plan();
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_STATE); /* nothing has changed */
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
    fake_key(attention, ffn, 7, STEPAF_PUSH, 8, 1);
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_STATE); /* in flight */
    for (uint32_t p = 0; p < PEERS; p++) {
        struct stepaf_msg answer = fake_msg(attention, STEPAF_MSG_RESPONSE, 0, 0, 0);
        EXPECT_TAKEN(attention, p, &answer);
    }
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_STATE); /* held */
    for (uint32_t p = 0; p < PEERS; p++) {
        struct stepaf_msg release = fake_msg(attention, STEPAF_MSG_RELEASE, 0, 0, 0);
        fake_say(attention, p, &release); /* on its way: the commit takes it in */
    }
    CU_ASSERT_EQUAL(stepaf_epoch(attention->handle), 1);
    fake_forget(attention);
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_epoch(attention->handle), 2);
    UNIT_STRING(stream_advert(attention, 1), "ZPTTY");
    const struct fake_record *told_again = &attention->records[PEERS];
    CU_ASSERT_EQUAL(told_again->msg.type, STEPAF_MSG_PLAN);
    CU_ASSERT(told_again->msg.slot == 1 && told_again->msg.seq == 1);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_last(attention)->msg.epoch, 2);
    struct stepaf_msg old = fake_msg(attention, STEPAF_MSG_RESPONSE, 0, 1, 1);
    old.epoch = 1;
    EXPECT_DROP(attention, 0, &old, DROP_STALE);
    end();
}

/* Nobody goes on if one rank cannot, and then it is as before. */
static void a_bad_outcome_leaves_all_as_it_was(void)
{
    begin();
    uint32_t n_regions = attention->ctx->memory.n_regions;
    stepaf_key_allocate_undo(ffn->ctx);
    for (int round = 0; round < 2; round++) {
        ffn->others_status = STEPAF_ERR_KEY;
        CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_ERR_KEY);
        UNIT_CONTAINS(stepaf_last_error()->text, "so says the fake");
        CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, 0); /* its receive buffers are gone again */
        CU_ASSERT_EQUAL(stepaf_epoch(ffn->handle), 0);
        attention->others_status = STEPAF_ERR_NO_MEMORY;
        CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_NO_MEMORY);
        CU_ASSERT_EQUAL(attention->ctx->memory.n_regions, n_regions);
        CU_ASSERT_EQUAL(stepaf_epoch(attention->handle), 0);
        stepaf_key_allocate_undo(ffn->ctx);
    }
    CU_ASSERT(attention->n_records == 0 && ffn->n_records == 0);
    attention->others_status = ffn->others_status = STEPAF_OK;
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_OK);
    end();
}

static void expect_broken(struct fake_job *job)
{
    stepaf_batch_h batch;
    int n;

    CU_ASSERT_EQUAL(stepaf_epoch(job->handle), 0); /* the first one has failed */
    if (!stepaf_is_attention(job->ctx))
        CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                        STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_key_declare(job->handle, 99, STEPAF_PUSH, 0, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_commit(job->handle), STEPAF_ERR_STATE);
    UNIT_CONTAINS(stepaf_last_error()->text, "halfway");
}

static void a_peer_that_fails_after_the_check_breaks_the_commit(void)
{
    begin();
    for (uint32_t p = 0; p < PEERS; p++) {
        struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};
        ready.word[0] = p ? (uint32_t)STEPAF_ERR_TRANSPORT : 0;
        fake_tell(attention, p, &ready);
    }
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    expect_broken(attention);
    end();
}

/* Peer 1 alone says that its commit has failed: so does this one. */
static void commit_refused_by_one(stepaf_status_t status)
{
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};

    ready.word[0] = (uint32_t)status;
    fake_tell(attention, 1, &ready);
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), status);
}

/* Whoever knows that the commit has failed does not wait for others, who may never come. */
static void one_peer_that_fails_is_enough(void)
{
    begin();
    attention->ctx->env.commit_timeout_us = 3000000;
    commit_refused_by_one(STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    expect_broken(attention);
    end();
}

/* The process that had the place has failed in its commit, the one that has taken it since has not:
 * it is another peer that this one waits for. */
static void what_a_process_before_has_said_does_not_count(void)
{
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};

    begin();
    ready.word[0] = (uint32_t)STEPAF_ERR_TRANSPORT;
    fake_tell(attention, 1, &ready);
    ready.word[0] = 0;
    fake_tell(attention, 1, &ready);
    attention->ctx->env.commit_timeout_us = 1000;
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    CU_ASSERT_EQUAL(attention->ctx->n_alive, PEERS);
    end();
}

/* What its plans name may be gone: nothing can be started any more. */
static void a_broken_commit_ends_all_plans(void)
{
    stepaf_request_h request;

    begin();
    stepaf_plan_h plan = make_plan();
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_OK);
    fake_key(attention, ffn, 7, STEPAF_PUSH, 8, 1);
    attention->import_reason = "a region's announcement is malformed";
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_PROTOCOL);
    CU_ASSERT_EQUAL(stepaf_epoch(attention->handle), 1);
    CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_ERR_STATE);
    UNIT_CONTAINS(stepaf_last_error()->text, "can only be finalized");
    CU_ASSERT_EQUAL(stepaf_start(make_plan(), &request), STEPAF_ERR_STATE);
    end();
}

static stepaf_status_t nobody_meets(void *self, const void *mine, size_t bytes, void **all_p,
                                    size_t *offsets_p, int64_t timeout_us)
{
    (void)self, (void)mine, (void)bytes, (void)all_p, (void)offsets_p, (void)timeout_us;
    return STEPAF_ERR_TIMEOUT;
}

/* What this rank has found says more, but that the others have not come is no outcome. */
static void who_meets_nobody_is_broken_whatever_it_has_found(void)
{
    stepaf_request_h request;

    for (int busy = 0; busy < 2; busy++) {
        begin();
        stepaf_plan_h plan = make_plan();
        CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_OK);
        if (busy)
            CU_ASSERT_EQUAL(stepaf_start(plan, &request), STEPAF_OK);
        fake_key(attention, ffn, 7, STEPAF_PUSH, 8, 1);
        attention->ctx->job.boot.allgather = nobody_meets;
        CU_ASSERT_EQUAL(fake_commit(attention, ffn), busy ? STEPAF_ERR_STATE : STEPAF_ERR_TIMEOUT);
        CU_ASSERT_EQUAL(attention->ctx->state, STEPAF_CTX_BROKEN);
        end();
    }
}

static void a_peer_that_cannot_be_joined_is_named(void)
{
    begin();
    attention->join_reason = "nobody listens there";
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_NO_TRANSPORT);
    UNIT_STRING(stepaf_last_error()->text, "cannot connect to FFN rank 1 (world rank 3): fake: "
                                           "nobody listens there");
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, 3);
    expect_broken(attention);
    end();
}

static void a_peer_whose_memory_makes_no_sense_is_named(void)
{
    begin();
    attention->import_reason = "a region's announcement is malformed";
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_PROTOCOL);
    UNIT_STRING(stepaf_last_error()->text, "memory of FFN rank 0 (world rank 2): a region's "
                                           "announcement is malformed");
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, 2);
    expect_broken(attention);
    end();
}

static void a_peer_that_is_not_ready_in_time_is_named(void)
{
    begin();
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};
    fake_tell(attention, 0, &ready);
    attention->ctx->env.commit_timeout_us = 1000;
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 1);
    UNIT_CONTAINS(stepaf_last_error()->text, "did not become ready in time");
    expect_broken(attention);
    end();
}

/* It has answered in time that its own time was over: who was late it does not say. */
static void a_peer_that_has_waited_in_vain_is_not_to_blame(void)
{
    begin();
    commit_refused_by_one(STEPAF_ERR_TIMEOUT);
    UNIT_STRING(stepaf_last_error()->text,
                "FFN rank 1 (world rank 3) timed out waiting for another rank");
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, -1);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, -1);
    expect_broken(attention);
    end();
}

static void a_peer_that_dies_is_named(void)
{
    begin();
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};
    attention->ctx->peers[0].link = &fake_link(attention, 0)->base;
    fake_tell(attention, 0, &bye);
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    UNIT_CONTAINS(stepaf_last_error()->text, "FFN rank 0");
    expect_broken(attention);
    end();
}

/* Its commit is through, and what it does then is its own affair. */
static void a_peer_that_finalizes_at_once_was_ready(void)
{
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};

    begin();
    for (uint32_t p = 0; p < PEERS; p++) {
        fake_say(attention, p, &ready);
        fake_say(attention, p, &bye);
    }
    attention->sayings_wait_for = 1;
    CU_ASSERT_EQUAL(stepaf_commit(attention->handle), STEPAF_OK);
    CU_ASSERT_EQUAL(attention->ctx->n_alive, 0);
    end();
}

/* Plans must be complete by the time their rank says that it is ready. */
static void malformed_plans_break_the_commit(void)
{
    for (int complete = 0; complete < 2; complete++) {
        begin();
        /* Said before the exchange would be of an older epoch; so the message comes in the middle,
         * where the epoch is the next one already. */
        struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
        struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};
        plan.epoch = 1;
        plan.word[0] = !complete;
        plan.word[2] = 1;
        fake_tell(ffn, 0, &ready);
        fake_say(ffn, 1, &plan);
        fake_say(ffn, 1, &ready);
        ffn->sayings_wait_for = 1;
        CU_ASSERT_EQUAL(stepaf_commit(ffn->handle), complete ? STEPAF_OK : STEPAF_ERR_PROTOCOL);
        CU_ASSERT_EQUAL(fake_last(ffn)->msg.type, STEPAF_MSG_READY);
        CU_ASSERT_EQUAL(fake_last(ffn)->peer, 1);
        CU_ASSERT_EQUAL((int32_t)fake_last(ffn)->msg.word[0],
                        complete ? STEPAF_OK : STEPAF_ERR_PROTOCOL);
        if (!complete)
            expect_broken(ffn);
        end();
    }
}

/* A place beyond the memory that was declared with it. */
/* What it had said of its plans by then is no offence: it is lost, and that is all. */
static void a_peer_may_die_in_the_middle_of_its_plans(void)
{
    begin();
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 1};
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};
    plan.epoch = 1;
    plan.word[0] = 1;
    plan.word[2] = 1;
    fake_tell(ffn, 0, &ready);
    fake_say(ffn, 1, &plan);
    fake_say(ffn, 1, &bye);
    ffn->sayings_wait_for = 1;
    CU_ASSERT_EQUAL(stepaf_commit(ffn->handle), STEPAF_OK);
    CU_ASSERT_EQUAL(ffn->ctx->n_alive, PEERS - 1);
    end();
}

static void receive_buffers_must_lie_in_offered_memory(void)
{
    begin();
    ffn->ctx->memory.regions[0]->mem.bytes = 2 * DEPTH * BYTES - 1; /* for two attention ranks */
    struct stepaf_key *key = stepaf_key_find(ffn->ctx, PUSHED);
    stepaf_container_of(key->recv_bufs.next, struct stepaf_recv_buf, node)->offset = BYTES * DEPTH;
    CU_ASSERT_EQUAL(fake_commit(attention, ffn), STEPAF_ERR_PROTOCOL);
    UNIT_CONTAINS(stepaf_last_error()->text, "no receive buffer");
    CU_ASSERT_EQUAL(fake_last(attention)->msg.type, STEPAF_MSG_READY); /* the others are told */
    CU_ASSERT_EQUAL((int32_t)fake_last(attention)->msg.word[0], STEPAF_ERR_PROTOCOL);
    expect_broken(attention);
    ffn->ctx->memory.regions[0]->mem.bytes = 4096;
    end();
}

/* An answer or release that has not left belongs to a plan that a new epoch would end. */
static void what_has_not_left_is_not_cut_off(void)
{
    stepaf_batch_h batch;
    int n;

    begin();
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg start = fake_msg(ffn, STEPAF_MSG_START, 0, 0, 0);
    plan.word[2] = 1;
    EXPECT_TAKEN(ffn, 0, &plan);
    EXPECT_TAKEN(ffn, 0, &start);
    fake_key(ffn, attention, 7, STEPAF_PUSH, 8, 1);
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_ERR_STATE); /* ready */
    CU_ASSERT_EQUAL(stepaf_recv(ffn->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_ERR_STATE); /* held */
    ffn->ctx->env.commit_timeout_us = 1000;
    fake_link(ffn, 0)->room = 0;
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_ERR_STATE); /* queued */
    ffn->ctx->env.commit_timeout_us = 10000000;
    fake_link(ffn, 0)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_OK);
    end();
}

/* Of a process that has only just returned, and said more than it may. */
static void who_is_cut_off_takes_its_batches_along(void)
{
    stepaf_batch_h batch;
    int n;

    begin();
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg start = fake_msg(ffn, STEPAF_MSG_START, 0, 0, 0);
    plan.word[2] = 2;
    EXPECT_TAKEN(ffn, 0, &plan);
    EXPECT_TAKEN(ffn, 0, &start);
    CU_ASSERT_EQUAL(stepaf_recv(ffn->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n), STEPAF_OK);
    fake_link(ffn, 0)->room = 0;
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK); /* queued */
    start.slot = 1;
    start.seq = 1;
    EXPECT_TAKEN(ffn, 0, &start);
    stepaf_peer_cut(&ffn->ctx->peers[0], "so says the test");
    CU_ASSERT_TRUE(stepaf_list_empty(&ffn->ctx->inbox.ready));
    CU_ASSERT_EQUAL(ffn->ctx->inbox.n_peers, 0);
    CU_ASSERT_TRUE(stepaf_list_empty(&ffn->ctx->net.queued));
    end();
}

/* ---- what comes while ranks exchange adverts ---- */

static struct {
    stepaf_boot_t real;
    unsigned n_dropped; /* messages of the epoch that were dropped, and changed nothing */
} meeting;

/* What a link brings that is read to its end, since its process has ended. */
static stepaf_status_t hear_of_operations(void *self, const void *mine, size_t bytes, void **all_p,
                                          size_t *offsets_p, int64_t timeout_us)
{
    struct stepaf_msg start = fake_msg(ffn, STEPAF_MSG_START, 0, 0, 0);
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 1, 0, 0);
    struct stepaf_msg close = fake_msg(ffn, STEPAF_MSG_CLOSE, 0, 0, 0);
    uint64_t digest = state_digest(ffn->ctx), n = ffn->ctx->counters.dropped_stale;

    plan.word[2] = 1;
    EXPECT_DROP(ffn, 0, &start, DROP_STALE);
    EXPECT_DROP(ffn, 0, &plan, DROP_STALE);
    EXPECT_DROP(ffn, 0, &close, DROP_STALE);
    for (uint32_t epoch = 0; epoch <= STEPAF_IMM_EPOCH_MASK; epoch++)
        stepaf_batch_deliver_imm(&ffn->ctx->up, &fake_link(ffn, 0)->base,
                                 stepaf_imm_make(STEPAF_IMM_START, 0, 0, epoch));
    CU_ASSERT_EQUAL(state_digest(ffn->ctx), digest);
    EXPECT_WHOLE(ffn);
    meeting.n_dropped += (unsigned)(ffn->ctx->counters.dropped_stale - n);
    return meeting.real.allgather(self, mine, bytes, all_p, offsets_p, timeout_us);
}

/* Its plan ends with the epoch, or it goes on where the commit is refused. */
static void what_begins_in_the_middle_is_dropped(void)
{
    stepaf_batch_h batch;
    int n;

    for (int refused = 0; refused < 2; refused++) {
        begin();
        CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
        struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
        plan.word[2] = 1;
        EXPECT_TAKEN(ffn, 0, &plan);
        fake_key(ffn, attention, 7, STEPAF_PUSH, 8, 1);
        meeting.real = ffn->ctx->job.boot;
        meeting.n_dropped = 0;
        ffn->ctx->job.boot.allgather = hear_of_operations;
        ffn->others_status = refused ? STEPAF_ERR_KEY : STEPAF_OK;
        CU_ASSERT_EQUAL(fake_commit(ffn, attention), refused ? STEPAF_ERR_KEY : STEPAF_OK);
        CU_ASSERT_EQUAL(meeting.n_dropped, 3 + STEPAF_IMM_EPOCH_MASK + 1);
        ffn->ctx->job.boot.allgather = meeting.real.allgather;
        struct stepaf_msg start = fake_msg(ffn, STEPAF_MSG_START, 0, 0, 0);
        if (!refused) {
            plan.epoch = start.epoch;
            EXPECT_TAKEN(ffn, 0, &plan);
        }
        CU_ASSERT_EQUAL(stepaf_recv(ffn->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                        STEPAF_ERR_TIMEOUT);
        EXPECT_TAKEN(ffn, 0, &start);
        CU_ASSERT_EQUAL(stepaf_recv(ffn->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"plans are announced before READY", plans_are_announced_before_ready},
        {"plans are announced in the order of making", plans_are_announced_in_the_order_of_making},
        {"a new epoch goes on", a_new_epoch_goes_on},
        {"a bad outcome leaves all as it was", a_bad_outcome_leaves_all_as_it_was},
        {"a peer that fails after the check breaks the commit",
         a_peer_that_fails_after_the_check_breaks_the_commit},
        {"one peer that fails is enough", one_peer_that_fails_is_enough},
        {"a broken commit ends all plans", a_broken_commit_ends_all_plans},
        {"who meets nobody is broken", who_meets_nobody_is_broken_whatever_it_has_found},
        {"a peer that cannot be joined is named", a_peer_that_cannot_be_joined_is_named},
        {"a peer whose memory makes no sense is named",
         a_peer_whose_memory_makes_no_sense_is_named},
        {"a peer that is not ready in time is named", a_peer_that_is_not_ready_in_time_is_named},
        {"a peer that has waited in vain is not to blame",
         a_peer_that_has_waited_in_vain_is_not_to_blame},
        {"a peer that dies is named", a_peer_that_dies_is_named},
        {"what a process before has said does not count",
         what_a_process_before_has_said_does_not_count},
        {"a peer that finalizes at once was ready", a_peer_that_finalizes_at_once_was_ready},
        {"malformed plans break the commit", malformed_plans_break_the_commit},
        {"a peer may die in the middle of its plans", a_peer_may_die_in_the_middle_of_its_plans},
        {"receive buffers must lie in offered memory", receive_buffers_must_lie_in_offered_memory},
        {"what has not left is not cut off", what_has_not_left_is_not_cut_off},
        {"who is cut off takes its batches along", who_is_cut_off_takes_its_batches_along},
        {"what begins in the middle is dropped", what_begins_in_the_middle_is_dropped},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
