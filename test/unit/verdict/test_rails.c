/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several rails was late: as transports say it, as ranks tell each other, and as tools see
 * it. */
#include "core/clock_keep.h"
#include "core/imm.h"
#include "core/metrics.h"
#include "core/metrics_layout.h"
#include "verdict/rails.h"
#include "verdict/window.h"
#include "verdicts.h"

/* What a transport says, for the message that it says it of, goes to who asks for that. */
static void an_ffn_rank_tells_which_rail_was_late(void)
{
    begin(STEPAF_FFN, "on");
    struct stepaf_verdict_state *state = stepaf_verdict_of(job->ctx);
    struct stepaf_link *link = job->ctx->peers[0].link;
    struct stepaf_msg start = fake_msg(job, STEPAF_MSG_START, 0, 0, 7);
    struct stepaf_msg landed = fake_msg(job, STEPAF_MSG_LANDED, 0, 0, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job->ctx->up.held_up);
    job->ctx->up.held_up(&job->ctx->up, link, &start, 0, 1, (uint64_t)1 << 30);
    job->ctx->up.held_up(&job->ctx->up, link, &landed, 0, 1, (uint64_t)1 << 30);
    struct stepaf_verdict_late_rail late = stepaf_verdict_find_rail(state, 0, 0, 7);
    CU_ASSERT_EQUAL(late.rail, 1);
    CU_ASSERT(late.ns > 1000000);
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 0, 0, 8).rail, -1);
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 0, 1, 7).rail, -1);
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 1, 0, 7).rail, -1);
    for (uint32_t i = 0; i < STEPAF_VERDICT_HELD_UP; i++) { /* what is long ago is forgotten */
        start.seq = 8 + i;
        job->ctx->up.held_up(&job->ctx->up, link, &start, 0, 0, 1);
    }
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 0, 0, 7).rail, -1);
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 0, 0, 8).rail, 0);
    end();
}

/* In 32 bits, too; what makes no sense is of no operation. */
static void of_an_answer_of_32_bits_as_well(void)
{
    stepaf_request_h request;

    begin(STEPAF_ATTENTION, "on");
    struct stepaf_verdict_state *state = stepaf_verdict_of(job->ctx);
    struct stepaf_link *link = job->ctx->peers[0].link;
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    uint32_t imm = stepaf_imm_make(STEPAF_IMM_RELEASED, 0, 0, job->ctx->epoch);
    uint64_t stale = job->ctx->counters.dropped_stale;
    job->ctx->up.held_up(&job->ctx->up, link, NULL, imm ^ 1, 1, 1); /* another epoch */
    CU_ASSERT_EQUAL(state->n_held_up, 0);
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 0, 0, 0).rail, -1);
    job->ctx->up.held_up(&job->ctx->up, link, NULL, imm, 1, 1);
    CU_ASSERT_EQUAL(state->n_held_up, 1);
    CU_ASSERT_EQUAL(stepaf_verdict_find_rail(state, 0, 0, 0).rail, 1);
    CU_ASSERT_EQUAL(job->ctx->counters.dropped_stale, stale); /* that is the delivery's */
    job->ctx->up.deliver_imm(&job->ctx->up, link, imm);
    CU_ASSERT_EQUAL(stepaf_wait(request, 1000000), STEPAF_OK);
    end();
}

/* A peer's word for a rail; what is none is not believed. */
static void an_attention_rank_hears_which_rail_was_late(void)
{
    static const uint32_t words[] = {0, 2, 300, UINT32_MAX};

    for (int i = 0; i < 4; i++) {
        begin(STEPAF_ATTENTION, "on");
        learn();
        int64_t busy = 10 * longest_ns + 1000000;
        CU_ASSERT_TRUE_FATAL(operate(busy));
        struct stepaf_msg told = tell_msg(seq - 1, started_ns + worked_ns - WORK_NS, WORK_NS);
        told.word[STEPAF_MSG_RAIL] = words[i];
        told.word[STEPAF_MSG_HELD_UP] = worked_ns < UINT32_MAX ? (uint32_t)worked_ns : UINT32_MAX;
        fake_tell(job, 0, &told);
        stepaf_verdict_t verdict = verdict_on(seq - 1);
        CU_ASSERT_EQUAL(verdict.phase, STEPAF_VERDICT_THERE);
        CU_ASSERT_EQUAL(verdict.rail, words[i] == 2 ? 1 : -1);
        CU_ASSERT_EQUAL(fake_last(job)->msg.word[STEPAF_MSG_RAIL], words[i] == 2 ? 2 : 0);
        end();
    }
}

/* Of the last one alone, so that the window's rail is known; and what is counted. */
static void tools_see_the_rail(void)
{
    stepaf_verdict_t verdict = {.phase = STEPAF_VERDICT_BACK, .rail = 2};

    begin(STEPAF_ATTENTION, "on");
    struct stepaf_verdict_state *state = stepaf_verdict_of(job->ctx);
    const struct stepaf_metrics *metrics = job->ctx->polling.metrics;
    stepaf_metrics_write(job->ctx);
    CU_ASSERT_EQUAL(metrics->head->verdict.rail, -1);
    CU_ASSERT_EQUAL_FATAL(metrics->head->late.n, job->ctx->n_peers + 1);
    verdict.time_ns = stepaf_clock_common_ns(job->ctx, stepaf_ticks());
    stepaf_window_add(state, &verdict, 0);
    stepaf_window_add(state, &verdict, 0);
    verdict.rail = 200; /* more than tools have room for */
    stepaf_window_add(state, &verdict, 0);
    verdict.phase = STEPAF_VERDICT_START;
    verdict.rail = -1;
    stepaf_window_add(state, &verdict, job->ctx->n_peers);
    state->shown_ns = 0;
    stepaf_metrics_write(job->ctx);
    CU_ASSERT_EQUAL(metrics->head->verdict.phase, STEPAF_VERDICT_BACK);
    CU_ASSERT_EQUAL(metrics->head->verdict.rail, 2);
    const struct stepaf_metrics_late *late = metrics->late;
    CU_ASSERT(late[0].by_phase[STEPAF_VERDICT_BACK] == 3 && late[0].by_rail[1][2] == 2);
    CU_ASSERT_EQUAL(late[job->ctx->n_peers].by_phase[STEPAF_VERDICT_START], 1);
    end();
    begin(STEPAF_ATTENTION, "off");
    CU_ASSERT_EQUAL(job->ctx->polling.metrics->head->late.n, 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an FFN rank tells which rail was late", an_ffn_rank_tells_which_rail_was_late},
        {"of an answer of 32 bits as well", of_an_answer_of_32_bits_as_well},
        {"an attention rank hears which rail was late",
         an_attention_rank_hears_which_rail_was_late},
        {"tools see the rail", tools_see_the_rail},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
