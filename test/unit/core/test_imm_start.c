/* SPDX-License-Identifier: Apache-2.0 */
/* STARTs as 32 bits, at an FFN rank: what they leave out comes from the plan's remote plan. */
#include "batches.h"
#include "core/batch.h"
#include "core/imm.h"
#include "core/op.h"
#include "core/remote_plan.h"

static struct stepaf_link *link_of(uint32_t peer)
{
    return job->ctx->peers[peer].link;
}

static bool expand(uint32_t imm, struct stepaf_msg *msg_p)
{
    return stepaf_imm_decode(job->ctx, link_of(0), imm, msg_p);
}

static uint32_t said(const struct stepaf_msg *msg)
{
    uint32_t imm = 0;

    CU_ASSERT_TRUE(stepaf_msg_to_imm(msg, &imm));
    return imm;
}

/* Whatever the sequence has come to, the whole of it and the slot are found. */
static void a_start_is_the_next_one(void)
{
    begin();
    for (uint32_t seq = 0; seq < 3000; seq++) {
        struct stepaf_msg msg = start_msg(seq % DEPTH, seq), got;
        msg.n_words = 0;
        CU_ASSERT_TRUE(expand(said(&msg), &got));
        CU_ASSERT(got.type == STEPAF_MSG_START && got.plan == PLAN && got.seq == seq);
        CU_ASSERT(got.slot == seq % DEPTH && got.n == 0 && got.epoch == msg.epoch);
        EXPECT_TAKEN(job, 0, &got);
        CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
        fake_forget(job);
    }
    end();
}

/* One skipped a few times: the same. */
static void a_start_may_be_later(void)
{
    struct stepaf_msg msg, got;

    begin();
    msg = start_msg(100 % DEPTH, 100);
    msg.n_words = 0;
    CU_ASSERT_TRUE(expand(said(&msg), &got));
    CU_ASSERT(got.seq == 100 && got.slot == 100 % DEPTH);
    msg.seq = 511;
    CU_ASSERT_TRUE(expand(said(&msg), &got));
    CU_ASSERT(got.seq == 511 && got.slot == 511 % DEPTH);
    msg.seq = 512;
    CU_ASSERT_FALSE(expand(said(&msg), &got));
    end();
}

static void expect_stale(uint32_t imm)
{
    stepaf_counters_t counters = job->ctx->counters;
    uint64_t digest = state_digest(job->ctx);
    struct stepaf_msg msg;

    CU_ASSERT_FALSE(expand(imm, &msg));
    job->ctx->up.deliver_imm(&job->ctx->up, link_of(0), imm);
    counters.dropped_stale++;
    CU_ASSERT(!memcmp(&counters, &job->ctx->counters, sizeof(counters)));
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
}

static void what_makes_no_sense_is_counted(void)
{
    begin();
    start(0, 0, 0);
    expect_stale(stepaf_imm_make(STEPAF_IMM_START, PLAN, 0, 1));     /* once more */
    expect_stale(stepaf_imm_make(STEPAF_IMM_START, PLAN, 1, 2));     /* another epoch */
    expect_stale(stepaf_imm_make(STEPAF_IMM_START, PLAN + 1, 1, 1)); /* no such plan */
    expect_stale(stepaf_imm_make(STEPAF_IMM_START, 65535, 1, 1));
    expect_stale(stepaf_imm_make(STEPAF_IMM_RESPONSE, PLAN, 0, 1)); /* not for this role */
    expect_stale(stepaf_imm_make(STEPAF_IMM_RELEASED, PLAN, 0, 1));
    expect_stale(stepaf_imm_make(STEPAF_IMM_OTHER, PLAN, 1, 1));
    for (uint32_t imm = 0; imm < 1u << 30; imm += 1021) {
        struct stepaf_msg msg;
        if (expand(imm << 2, &msg))
            CU_ASSERT(msg.plan == PLAN && msg.slot < DEPTH);
    }
    EXPECT_WHOLE(job);
    CU_ASSERT_EQUAL(stepaf_release(take()), STEPAF_OK);
    end();
}

/* What says more than 32 bits hold is not shortened. */
static void only_the_commonest_are_shortened(void)
{
    uint32_t imm = 7;

    begin();
    for (int type = 0; type < 256; type++) {
        struct stepaf_msg msg = {.type = (uint8_t)type};
        bool plain = type == STEPAF_MSG_START || type == STEPAF_MSG_RESPONSE;
        CU_ASSERT_EQUAL(stepaf_msg_to_imm(&msg, &imm), plain);
        msg.n = 1;
        CU_ASSERT_FALSE(stepaf_msg_to_imm(&msg, &imm));
    }
    struct stepaf_msg full = start_msg(0, 0);
    full.n_words = STEPAF_MSG_SIZES; /* to a peer that was skipped */
    CU_ASSERT_FALSE(stepaf_msg_to_imm(&full, &imm));
    end();
}

/* ---- the short way does what the long one does ---- */

static void nothing(void)
{
}

static void one_is_here(void)
{
    start(0, 0, 0);
}

static void all_slots_are_full(void)
{
    for (uint32_t seq = 0; seq < DEPTH; seq++)
        start(0, seq, seq);
}

static void all_slots_are_held(void)
{
    all_slots_are_full();
    for (int i = 0; i < DEPTH; i++)
        (void)take();
}

static void go_round(bool has_room, bool is_answered)
{
    for (uint32_t seq = 0; seq < DEPTH; seq++) {
        start(0, seq, seq);
        stepaf_batch_h batch = take();
        fake_link(job, 0)->room = has_room || seq ? FAKE_ENDLESS : 0;
        CU_ASSERT_EQUAL(is_answered ? answer(batch, BYTES, STEPAF_RESPOND_RELEASE)
                                    : stepaf_release(batch),
                        STEPAF_OK);
        fake_link(job, 0)->room = has_room ? FAKE_ENDLESS : 0;
    }
}

static void all_are_answered(void)
{
    go_round(true, true);
}

static void an_answer_waits_for_room(void)
{
    go_round(false, true);
}

static void a_release_waits_for_room(void)
{
    go_round(false, false);
}

static void an_answer_is_posted(void)
{
    fake_link(job, 0)->holds = true;
    go_round(true, true);
}

static void the_peer_is_lost(void)
{
    job->ctx->up.lost(&job->ctx->up, link_of(0), "the test says so");
}

static void the_plan_is_told_in_part(void)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PLAN, PLAN + 1, 0, 0);

    msg.word[0] = msg.word[1] = 1;
    msg.word[2] = DEPTH;
    EXPECT_TAKEN(job, 0, &msg);
}

struct outcome {
    stepaf_counters_t counters;
    uint64_t bytes_received;
    uint32_t n_ready, seq, slot; /* seq and slot: of the plan's next operation */
    struct {
        uint32_t seq, state, answered, canceled, bytes, answer_state;
        bool is_new; /* its generation */
    } batches[DEPTH];
};

static void note_batch(struct outcome *outcome, uint32_t slot, const uint32_t *generations)
{
    const struct stepaf_batch_obj *batch = &job->ctx->peers[0].remotes[PLAN]->batches[slot];

    outcome->batches[slot].seq = batch->seq;
    outcome->batches[slot].state = batch->state;
    outcome->batches[slot].answered = batch->answered;
    outcome->batches[slot].canceled = batch->canceled;
    outcome->batches[slot].bytes = batch->bytes[0];
    outcome->batches[slot].answer_state = batch->answer.state;
    outcome->batches[slot].is_new = batch->generation != generations[slot];
}

/* What comes of it; *comes_p: a batch. */
static struct outcome deliver_so(void (*set_up)(void), uint32_t imm, bool by_the_short_way,
                                 bool *comes_p)
{
    struct stepaf_upcalls *up;

    begin();
    set_up();
    up = &job->ctx->up;
    CU_ASSERT_PTR_EQUAL(up->deliver_imm, stepaf_batch_deliver_imm);
    const struct stepaf_remote_plan *remote = job->ctx->peers[0].remotes[PLAN];
    uint64_t came = job->ctx->counters.batches_received;
    uint32_t generations[DEPTH];
    struct outcome outcome;
    for (uint32_t s = 0; s < DEPTH; s++)
        generations[s] = remote->batches[s].generation;
    (by_the_short_way ? up->deliver_imm : stepaf_imm_deliver)(up, link_of(0), imm);
    memset(&outcome, 0, sizeof(outcome)); /* its padding as well */
    outcome.counters = job->ctx->counters;
    outcome.bytes_received = job->ctx->peers[0].bytes_received;
    outcome.n_ready = job->ctx->inbox.n_peers;
    outcome.seq = remote->seq;
    outcome.slot = remote->slot;
    for (uint32_t s = 0; s < DEPTH; s++)
        note_batch(&outcome, s, generations);
    *comes_p = job->ctx->counters.batches_received > came;
    EXPECT_WHOLE(job);
    fake_link(job, 0)->room = FAKE_ENDLESS;
    fake_link(job, 0)->holds = false;
    fake_complete(job, 0);
    end();
    return outcome;
}

static void the_short_way_is_as_the_long_one(void)
{
    static const struct {
        void (*set_up)(void);
        uint32_t code, plan, seq, epoch;
        bool comes;
    } cases[] = {
        {nothing, STEPAF_IMM_START, PLAN, 0, 1, true},
        {nothing, STEPAF_IMM_START, PLAN, 1, 1, true}, /* one was skipped */
        {nothing, STEPAF_IMM_START, PLAN, DEPTH + 1, 1, true},
        {nothing, STEPAF_IMM_START, PLAN, 0, 2, false},
        {nothing, STEPAF_IMM_START, PLAN - 1, 0, 1, false},
        {nothing, STEPAF_IMM_START, PLAN + 1, 0, 1, false},
        {nothing, STEPAF_IMM_START, 65535, 0, 1, false},
        {nothing, STEPAF_IMM_START, PLAN, 1023, 1, false},
        {nothing, STEPAF_IMM_RESPONSE, PLAN, 0, 1, false},
        {nothing, STEPAF_IMM_RELEASED, PLAN, 0, 1, false},
        {nothing, STEPAF_IMM_OTHER, PLAN, 0, 1, false},
        {one_is_here, STEPAF_IMM_START, PLAN, 0, 1, false},
        {one_is_here, STEPAF_IMM_START, PLAN, 1, 1, true},
        {one_is_here, STEPAF_IMM_RELEASED, PLAN, 1, 1, false},
        {all_slots_are_full, STEPAF_IMM_START, PLAN, DEPTH, 1, false},
        {all_slots_are_held, STEPAF_IMM_START, PLAN, DEPTH, 1, false},
        {all_are_answered, STEPAF_IMM_START, PLAN, DEPTH, 1, true},
        {an_answer_is_posted, STEPAF_IMM_START, PLAN, DEPTH, 1, true},
        {an_answer_waits_for_room, STEPAF_IMM_START, PLAN, DEPTH, 1, false},
        {a_release_waits_for_room, STEPAF_IMM_START, PLAN, DEPTH, 1, false},
        {the_peer_is_lost, STEPAF_IMM_START, PLAN, 0, 1, false},
        {the_plan_is_told_in_part, STEPAF_IMM_START, PLAN + 1, 0, 1, false},
    };

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t imm = stepaf_imm_make(cases[i].code, cases[i].plan, cases[i].seq, cases[i].epoch);
        bool comes_long, comes_short;
        struct outcome by_long = deliver_so(cases[i].set_up, imm, false, &comes_long);
        struct outcome by_short = deliver_so(cases[i].set_up, imm, true, &comes_short);
        bool good = comes_long == cases[i].comes && comes_short == comes_long &&
                    !memcmp(&by_long, &by_short, sizeof(by_long));
        if (!good)
            fprintf(stderr, "case %u\n", i);
        CU_ASSERT_TRUE(good);
    }
}

/* The low bits of sequences go round, and slots do. */
static void starts_follow_each_other(void)
{
    begin();
    uint64_t before = job->ctx->peers[0].bytes_received;
    for (uint32_t seq = 0; seq < 3000; seq++) {
        stepaf_batch_info_t info = {.size = sizeof(info)};
        uint64_t now = stepaf_ticks();
        job->ctx->up.polled = 0;
        job->ctx->up.deliver_imm(&job->ctx->up, link_of(0),
                                 stepaf_imm_make(STEPAF_IMM_START, PLAN, seq, 1));
        CU_ASSERT(job->ctx->peers[0].remotes[PLAN]->batches[seq % DEPTH].arrived >= now);
        stepaf_batch_h batch = take();
        CU_ASSERT_EQUAL(stepaf_batch_query(batch, &info), STEPAF_OK);
        CU_ASSERT_EQUAL(info.sequence, seq);
        CU_ASSERT_EQUAL(answer(batch, BYTES, STEPAF_RESPOND_RELEASE), STEPAF_OK);
        fake_forget(job);
    }
    CU_ASSERT_EQUAL(job->ctx->peers[0].bytes_received - before, 3000 * BYTES);
    CU_ASSERT_EQUAL(job->ctx->counters.dropped_stale + job->ctx->counters.dropped_malformed, 0);
    end();
}

/* Where messages are logged none goes by a short way, whoever else looks at them. */
static void logged_messages_go_the_long_way(void)
{
    static const char *const verdicts[] = {"off", "on"};

    setenv("STEPAF_LOG_LEVEL", "trace", 1);
    for (int v = 0; v < 2; v++) {
        setenv("STEPAF_VERDICT", verdicts[v], 1);
        for (int role = STEPAF_ATTENTION; role <= STEPAF_FFN; role++) {
            job = fake_open((stepaf_role_t)role, 1, 1);
            CU_ASSERT_PTR_EQUAL(job->ctx->up.deliver_imm, stepaf_imm_deliver);
            CU_ASSERT_PTR_EQUAL(stepaf_op_deliver_imm_observed(job->ctx), stepaf_imm_deliver);
            fake_close(job);
        }
    }
    unsetenv("STEPAF_VERDICT");
    unsetenv("STEPAF_LOG_LEVEL");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a start is the next one", a_start_is_the_next_one},
        {"a start may be later", a_start_may_be_later},
        {"what makes no sense is counted", what_makes_no_sense_is_counted},
        {"only the commonest are shortened", only_the_commonest_are_shortened},
        {"the short way is as the long one", the_short_way_is_as_the_long_one},
        {"starts follow each other", starts_follow_each_other},
        {"logged messages go the long way", logged_messages_go_the_long_way},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
