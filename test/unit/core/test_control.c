/* SPDX-License-Identifier: Apache-2.0 */
/* What both roles are told at set-up: the time, and whether all are ready. */
#include "drop.h"

static struct fake_job *job, *counterpart;

/* An attention rank with two FFN ranks. */
static void begin(void)
{
    job = fake_open(STEPAF_ATTENTION, 1, 2);
    counterpart = fake_open(STEPAF_FFN, 1, 2);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_forget(job);
}

static void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(counterpart);
}

static void pings_are_answered(void)
{
    begin();
    struct stepaf_msg ping = fake_msg(job, STEPAF_MSG_PING, 0, 0, 77);
    ping.word[0] = 0x1234;
    ping.word[1] = 0x5678;
    int64_t before_ns = stepaf_clock_ns(job->handle);
    fake_tell(job, 1, &ping);
    int64_t after_ns = stepaf_clock_ns(job->handle);
    const struct fake_record *pong = fake_last(job);
    int64_t said_ns = (int64_t)(pong->msg.word[2] | (uint64_t)pong->msg.word[3] << 32);
    CU_ASSERT(pong->peer == 1 && pong->msg.type == STEPAF_MSG_PONG && pong->msg.seq == 77);
    CU_ASSERT(pong->msg.word[0] == 0x1234 && pong->msg.word[1] == 0x5678);
    CU_ASSERT(said_ns >= before_ns && said_ns <= after_ns);
    CU_ASSERT_EQUAL(pong->msg.word[4], 1);
    end();
}

/* Nobody has asked: times that cannot be do not become this rank's clock. */
static void pongs_that_make_no_sense_are_dropped(void)
{
    static const uint64_t bad[][2] = {
        {0, 0}, {UINT64_MAX, 0}, {(uint64_t)1 << 63, 0}, {1, UINT64_MAX}};

    begin();
    job->ctx->clock.pong_best = UINT64_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PONG, 0, 0, job->ctx->clock.pong_seq);
        msg.word[0] = (uint32_t)bad[i][0];
        msg.word[1] = (uint32_t)(bad[i][0] >> 32);
        msg.word[2] = (uint32_t)bad[i][1];
        msg.word[3] = (uint32_t)(bad[i][1] >> 32);
        msg.word[4] = 1;
        EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    uint64_t sent = stepaf_ticks();
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PONG, 0, 0, job->ctx->clock.pong_seq);
    msg.word[0] = (uint32_t)sent;
    msg.word[1] = (uint32_t)(sent >> 32);
    msg.word[3] = UINT32_MAX; /* a time before all time */
    msg.word[4] = 1;
    EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    CU_ASSERT_EQUAL(job->ctx->clock.pong_best, UINT64_MAX);
    msg.word[3] = 0;
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT(job->ctx->clock.pong_best < UINT64_MAX);
    end();
}

static void a_ready_tells_how_it_went(void)
{
    static const struct {
        uint32_t word;
        stepaf_status_t expected;
    } cases[] = {
        {0, STEPAF_OK},
        {(uint32_t)STEPAF_ERR_TRANSPORT, STEPAF_ERR_TRANSPORT},
        {1, STEPAF_ERR_PROTOCOL}, /* "in progress" is no way to end */
        {12345, STEPAF_ERR_PROTOCOL},
        {(uint32_t)-1000, STEPAF_ERR_PROTOCOL},
        {0x80000000, STEPAF_ERR_PROTOCOL},
    };

    begin();
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stepaf_msg msg = {.type = STEPAF_MSG_READY, .seq = i + 10, .word = {cases[i].word}};
        EXPECT_TAKEN(job, 1, &msg);
        CU_ASSERT_EQUAL(job->ctx->peers[1].ready_epoch, i + 10);
        CU_ASSERT_EQUAL(job->ctx->peers[1].ready_status, cases[i].expected);
        CU_ASSERT_EQUAL(job->ctx->peers[0].ready_epoch, 1);
    }
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"pings are answered", pings_are_answered},
        {"pongs that make no sense are dropped", pongs_that_make_no_sense_are_dropped},
        {"a ready tells how it went", a_ready_tells_how_it_went},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
