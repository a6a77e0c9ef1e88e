/* SPDX-License-Identifier: Apache-2.0 */
/* STARTs as 32 bits, at an FFN rank: what they leave out comes from the plan's remote plan. */
#include "batches.h"
#include "core/imm.h"

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

int main(void)
{
    CU_TestInfo tests[] = {
        {"a start is the next one", a_start_is_the_next_one},
        {"a start may be later", a_start_may_be_later},
        {"what makes no sense is counted", what_makes_no_sense_is_counted},
        {"only the commonest are shortened", only_the_commonest_are_shortened},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
