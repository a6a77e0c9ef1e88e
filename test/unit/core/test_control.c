/* SPDX-License-Identifier: Apache-2.0 */
/* What both roles are told at set-up: the time, and whether all are ready. */
#include <stdlib.h>
#include <time.h>

#include "core/clock_keep.h"
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

/* A pong from peer @a p that says @a ns, and that its bound is @a bound. */
static struct stepaf_msg make_pong(uint32_t p, uint64_t ns, uint32_t bound)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PONG, 0, 0, job->ctx->peers[p].clock.seq);

    msg.word[2] = (uint32_t)ns;
    msg.word[3] = (uint32_t)(ns >> 32);
    msg.word[4] = 1;
    msg.word[5] = bound;
    return msg;
}

static int64_t off_ns(void)
{
    int64_t before_ns = stepaf_monotonic_ns();
    int64_t ns = stepaf_clock_ns(job->handle);
    int64_t after_ns = stepaf_monotonic_ns();

    return ns - (before_ns + after_ns) / 2;
}

/* Nobody has asked, or times that cannot be: they do not become this rank's clock. */
static void pongs_that_make_no_sense_are_dropped(void)
{
    static const uint64_t bad[] = {UINT64_MAX, (uint64_t)1 << 63, INT64_MAX};

    begin();
    struct stepaf_peer *peer = &job->ctx->peers[0];
    job->ctx->clock.server = 0;
    struct stepaf_msg msg = make_pong(0, 5000, 0);
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(job->ctx->clock.n_probes, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT(stepaf_clock_ask(peer));
        msg = make_pong(0, bad[i], 0);
        EXPECT_DROP(job, 0, &msg, DROP_MALFORMED);
    }
    CU_ASSERT(stepaf_clock_ask(peer));
    msg = make_pong(0, 5000, 0);
    msg.seq--;
    EXPECT_TAKEN(job, 0, &msg);
    CU_ASSERT_EQUAL(job->ctx->clock.n_probes, 0);
    CU_ASSERT(llabs(off_ns()) < 1000000000);
    end();
}

/* What the peer that is followed says is the time from then on, within the bound. */
static void a_pong_sets_the_clock(void)
{
    enum { AHEAD_NS = 2000000000, ITS_BOUND_NS = 7000 };

    begin();
    job->ctx->clock.server = 1;
    job->ctx->clock.is_nodes = false;
    for (int i = 0; i < 2; i++) { /* of peers 0 and 1; the former is nobody's clock */
        int64_t asked_ns = stepaf_monotonic_ns();
        CU_ASSERT(stepaf_clock_ask(&job->ctx->peers[i]));
        struct stepaf_msg msg =
            make_pong((uint32_t)i, (uint64_t)(stepaf_monotonic_ns() + AHEAD_NS), ITS_BOUND_NS);
        EXPECT_TAKEN(job, (uint32_t)i, &msg);
        int64_t took_ns = stepaf_monotonic_ns() - asked_ns;
        CU_ASSERT_EQUAL(job->ctx->clock.n_probes, (uint32_t)i);
        if (i == 0)
            continue;
        stepaf_link_info_t info = {.size = sizeof(info)};
        CU_ASSERT_EQUAL(stepaf_link_query(job->handle, 1, &info), STEPAF_OK);
        int64_t error_ns = llabs(off_ns() - AHEAD_NS);
        CU_ASSERT(info.clock_bound_ns >= error_ns);
        CU_ASSERT(info.clock_bound_ns >= 2 * ITS_BOUND_NS); /* its own, and through it mine */
        CU_ASSERT(info.clock_bound_ns <= 2 * ITS_BOUND_NS + took_ns + 100000);
    }
    end();
}

/* The first probes of all are free to correct each other; later ones lead the clock slowly. */
static void first_probes_may_jump(void)
{
    enum { AHEAD_NS = 50000000 };

    for (int known = 0; known < 2; known++) {
        begin();
        struct stepaf_ctx_clock *clock = &job->ctx->clock;
        clock->server = 1;
        clock->known = known;
        for (int i = 0; i < 2; i++) { /* the first one's answer was long on its way */
            CU_ASSERT(stepaf_clock_ask(&job->ctx->peers[1]));
            int64_t its_ns = stepaf_monotonic_ns() + AHEAD_NS;
            if (i == 0)
                nanosleep(&(struct timespec){0, 20000000}, NULL);
            struct stepaf_msg msg = make_pong(1, (uint64_t)its_ns, 0);
            EXPECT_TAKEN(job, 1, &msg);
        }
        int64_t error_ns = llabs(off_ns() - AHEAD_NS);
        CU_ASSERT_EQUAL(error_ns > 5000000, known);
        end();
    }
}

/* On one node there is nothing to estimate. */
static void one_node_has_one_clock(void)
{
    begin();
    stepaf_link_info_t info = {.size = sizeof(info)};
    CU_ASSERT_EQUAL(stepaf_link_query(job->handle, 1, &info), STEPAF_OK);
    CU_ASSERT_EQUAL(info.clock_bound_ns, 1000);
    CU_ASSERT_EQUAL(job->ctx->clock.server, -1);
    CU_ASSERT(!job->ctx->clock.probes);
    end();
}

/* How far a stamp of now is off its node's clock, at least: by the one of some that was taken the
 * fastest, since one that was interrupted says nothing. */
static int64_t stamp_error_ns(void)
{
    int64_t error = 0, least = INT64_MAX;

    for (int i = 0; i < 20; i++) {
        int64_t before_ns = stepaf_monotonic_ns();
        int64_t ns = stepaf_clock_common_ns(job->ctx, stepaf_ticks());
        int64_t after_ns = stepaf_monotonic_ns();
        if (after_ns - before_ns >= least)
            continue;
        least = after_ns - before_ns;
        error = ns < before_ns ? before_ns - ns : ns > after_ns ? ns - after_ns : 0;
    }
    return error;
}

/* A rate that was measured badly, by 1000 ppm, does no harm for long: readings are taken while the
 * rank makes progress, and when stamps are read. */
static void stamps_stay_right(void)
{
    stepaf_trace_record_t record;
    size_t n;

    for (int reads = 0; reads < 2 && stepaf_ticks_from_counter; reads++) {
        begin();
        struct stepaf_clock_history *history = &job->ctx->clock.history;
        history->n = 2;
        history->points[1] = history->points[0];
        history->points[1].ticks += 1000000;
        history->points[1].ns += (int64_t)(1000000 * job->ctx->clock.own.ns_per_tick * 1.001);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        CU_ASSERT(stamp_error_ns() > 1000);
        int64_t until_ns = stepaf_monotonic_ns() + 10000000000;
        while (stamp_error_ns() > 1000 && stepaf_monotonic_ns() < until_ns) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
            stepaf_status_t status =
                reads ? stepaf_trace_read(job->handle, &record, sizeof record, 1, &n)
                      : stepaf_progress(job->handle);
            CU_ASSERT_EQUAL(status, STEPAF_OK);
        }
        CU_ASSERT(stamp_error_ns() <= 1000);
        end();
    }
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
        {"a pong sets the clock", a_pong_sets_the_clock},
        {"first probes may jump", first_probes_may_jump},
        {"one node has one clock", one_node_has_one_clock},
        {"stamps stay right", stamps_stay_right},
        {"a ready tells how it went", a_ready_tells_how_it_went},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
