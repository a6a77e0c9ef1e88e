/* SPDX-License-Identifier: Apache-2.0 */
/* Whose time it was, from numbers: each kind of delay at 2 and 10 times the median, alone and two
 * at once; what the clocks, and ranks that have not looked, leave open. */
#include <string.h>

#include "unit.h"
#include "verdict/judge.h"

enum { POST = 2000, WAY = 10000, QUEUE = 5000, WORK = 80000, IDLE = 30000, LEARNT = 20 };

static const int64_t US = 1000;
static struct stepaf_verdict_usual usual;
static struct stepaf_verdict_usual_peer usual_peer;

/* What both ranks see of an operation, whose parts take that long. */
static struct stepaf_verdict_seen see(int64_t there, int64_t queue, int64_t work, int64_t back)
{
    return (struct stepaf_verdict_seen){.idle = IDLE,
                                        .took = POST + there + queue + work + back,
                                        .post = POST,
                                        .way = there + queue + work + back,
                                        .there = there,
                                        .bound = US,
                                        .queue = queue,
                                        .work = work};
}

static struct stepaf_verdict_seen see_usual(void)
{
    return see(WAY, QUEUE, WORK, WAY);
}

static void learn_usual(void)
{
    memset(&usual, 0, sizeof(usual));
    memset(&usual_peer, 0, sizeof(usual_peer));
    for (int i = 0; i < LEARNT; i++) {
        struct stepaf_verdict_seen seen = see(WAY + i % 3 * 100, QUEUE, WORK + i % 5 * 100, WAY);
        struct stepaf_verdict_spent spent = stepaf_verdict_split(&seen);
        stepaf_median_add(&usual.took, seen.took);
        stepaf_median_add(&usual.idle, seen.idle);
        stepaf_median_add(&usual.post, seen.post);
        stepaf_verdict_learn(&usual_peer, &spent);
    }
}

static stepaf_verdict_t judge(const struct stepaf_verdict_seen *seen)
{
    stepaf_verdict_t verdict = {.phase = 77};

    stepaf_verdict_judge(seen, &usual, &usual_peer, &verdict);
    return verdict;
}

static void the_median_is_that_of_the_last(void)
{
    struct stepaf_median median = {0};

    stepaf_median_add(&median, 7);
    CU_ASSERT_EQUAL(median.median, 7);
    for (int i = 0; i < STEPAF_MEDIAN_SAMPLES; i++)
        stepaf_median_add(&median, i);
    CU_ASSERT_EQUAL(median.median, (STEPAF_MEDIAN_SAMPLES - 1) / 2);
    CU_ASSERT_EQUAL(median.least, 0);
    stepaf_median_add(&median, STEPAF_MEDIAN_SAMPLES); /* in the place of the 0 */
    CU_ASSERT_EQUAL(median.least, 1);
    for (int i = 0; i < STEPAF_MEDIAN_SAMPLES; i++)
        stepaf_median_add(&median, i % 2 ? INT64_MAX : -5);
    CU_ASSERT_EQUAL(median.median, 0);
    stepaf_median_add(&median, 5000000000);
    CU_ASSERT_EQUAL(median.ns[(median.n - 1) % STEPAF_MEDIAN_SAMPLES], UINT32_MAX);
    median.n = UINT32_MAX; /* samples, after a year */
    for (int i = 0; i < 2 * STEPAF_MEDIAN_SAMPLES; i++)
        stepaf_median_add(&median, 9);
    CU_ASSERT_EQUAL(median.median, 9);
}

static void nothing_is_late_before_the_usual_is_known(void)
{
    memset(&usual, 0, sizeof(usual));
    for (int i = 0; i < STEPAF_VERDICT_SURE; i++) {
        CU_ASSERT_EQUAL(stepaf_verdict_late_took(&usual), INT64_MAX);
        CU_ASSERT_EQUAL(stepaf_verdict_late_idle(&usual), INT64_MAX);
        stepaf_median_add(&usual.took, 100 * US);
        stepaf_median_add(&usual.idle, 10 * US);
    }
    CU_ASSERT_EQUAL(stepaf_verdict_late_took(&usual), 200 * US);
    CU_ASSERT_EQUAL(stepaf_verdict_late_idle(&usual), 110 * US);
}

/* Give @a seen a delay of one kind. */
static void put_in(struct stepaf_verdict_seen *seen, stepaf_verdict_phase_t phase, int64_t ns)
{
    bool in_way = phase != STEPAF_VERDICT_START;

    seen->took += in_way ? ns : 0;
    seen->way += in_way ? ns : 0;
    switch (phase) {
    case STEPAF_VERDICT_START:
        seen->idle += ns;
        break;
    case STEPAF_VERDICT_THERE:
        seen->there += ns;
        break;
    case STEPAF_VERDICT_FFN_QUEUE: /* half of it before it has noticed */
        seen->there += ns / 2;
        seen->ffn_gap += ns / 2;
        seen->queue += ns - ns / 2;
        break;
    case STEPAF_VERDICT_FFN_WORK:
        seen->work += ns;
        break;
    case STEPAF_VERDICT_WAIT:
        seen->own_gap += ns;
        break;
    case STEPAF_VERDICT_STARVED:
        seen->own_gap += ns;
        seen->in_wait += ns;
        break;
    default: /* STEPAF_VERDICT_BACK has no sign of its own */
        break;
    }
}

static const stepaf_verdict_phase_t phases[] = {
    STEPAF_VERDICT_START, STEPAF_VERDICT_THERE, STEPAF_VERDICT_FFN_QUEUE, STEPAF_VERDICT_FFN_WORK,
    STEPAF_VERDICT_BACK,  STEPAF_VERDICT_WAIT,  STEPAF_VERDICT_STARVED};

enum { N_PHASES = sizeof(phases) / sizeof(phases[0]) };

static void each_kind_is_found(void)
{
    learn_usual();
    for (int i = 0; i < N_PHASES; i++)
        for (int size = 2; size <= 10; size += 8) {
            struct stepaf_verdict_seen seen = see_usual();
            int64_t ns = size * (int64_t)usual.took.median;
            put_in(&seen, phases[i], ns);
            stepaf_verdict_t verdict = judge(&seen);
            CU_ASSERT_EQUAL(verdict.phase, phases[i]);
            CU_ASSERT(verdict.over_ns[phases[i]] > ns - 2 * US &&
                      verdict.over_ns[phases[i]] < ns + 2 * US);
            CU_ASSERT(verdict.over_ns[STEPAF_VERDICT_UNKNOWN] < 2 * US);
        }
}

/* A rail that had half of it is named, of the way that it is about. */
static void a_late_rail_is_named(void)
{
    learn_usual();
    int64_t ns = 4 * (int64_t)usual.took.median;
    for (int i = 0; i < N_PHASES; i++) {
        struct stepaf_verdict_seen seen = see_usual();
        put_in(&seen, phases[i], ns);
        seen.rail_there = (struct stepaf_verdict_late_rail){1, ns};
        seen.rail_back = (struct stepaf_verdict_late_rail){2, ns};
        CU_ASSERT_EQUAL(judge(&seen).rail, phases[i] == STEPAF_VERDICT_THERE  ? 1
                                           : phases[i] == STEPAF_VERDICT_BACK ? 2
                                                                              : -1);
        seen.rail_there.ns = seen.rail_back.ns = ns / 4;
        CU_ASSERT_EQUAL(judge(&seen).rail, -1);
        seen.rail_there.ns = seen.rail_back.ns = 0;
        CU_ASSERT_EQUAL(judge(&seen).rail, -1);
    }
    /* Which way it was, the clocks do not tell; the rail is known by one clock. */
    struct stepaf_verdict_seen seen = see_usual();
    put_in(&seen, STEPAF_VERDICT_THERE, ns);
    seen.bound = ns;
    seen.rail_there = (struct stepaf_verdict_late_rail){1, ns};
    seen.rail_back = (struct stepaf_verdict_late_rail){2, US};
    stepaf_verdict_t verdict = judge(&seen);
    CU_ASSERT_EQUAL(verdict.phase, STEPAF_VERDICT_NETWORK);
    CU_ASSERT_EQUAL(verdict.rail, 1);
}

/* The larger one has the verdict, and both their times. A rank's own two ways of being away are one
 * gap. */
static void two_at_once_are_found(void)
{
    learn_usual();
    for (int i = 0; i < N_PHASES; i++)
        for (int j = 0; j < N_PHASES; j++) {
            struct stepaf_verdict_seen seen = see_usual();
            int64_t more = 7 * (int64_t)usual.took.median, less = 3 * (int64_t)usual.took.median;
            bool same =
                i == j || (phases[i] >= STEPAF_VERDICT_WAIT && phases[j] >= STEPAF_VERDICT_WAIT);
            if (same)
                continue;
            put_in(&seen, phases[i], more);
            put_in(&seen, phases[j], less);
            stepaf_verdict_t verdict = judge(&seen);
            CU_ASSERT_EQUAL(verdict.phase, phases[i]);
            CU_ASSERT(verdict.over_ns[phases[i]] > more - 2 * US);
            CU_ASSERT(verdict.over_ns[phases[j]] > less - 2 * US);
        }
}

/* What was slow for half a minute, all of it or the FFN rank alone, hides nothing that is slow
 * now. */
static void what_was_slow_before_is_no_measure(void)
{
    for (int all = 0; all <= 1; all++)
        for (int i = 0; i < N_PHASES; i++) {
            memset(&usual, 0, sizeof(usual));
            memset(&usual_peer, 0, sizeof(usual_peer));
            for (int n = 0; n < 2 * STEPAF_MEDIAN_SAMPLES; n++) {
                bool was_slow = n < STEPAF_MEDIAN_SAMPLES;
                int64_t ways = was_slow && all ? 4 * WAY : WAY;
                struct stepaf_verdict_seen seen = see(ways, was_slow && all ? 4 * QUEUE : QUEUE,
                                                      was_slow ? 4 * WORK : WORK, ways);
                struct stepaf_verdict_spent spent = stepaf_verdict_split(&seen);
                stepaf_median_add(&usual.lately, seen.took);
                if (!was_slow)
                    continue;
                stepaf_median_add(&usual.took, seen.took);
                stepaf_median_add(&usual.idle, seen.idle);
                stepaf_median_add(&usual.post, seen.post);
                stepaf_verdict_learn(&usual_peer, &spent);
            }
            struct stepaf_verdict_seen seen = see_usual();
            int64_t ns = 2 * seen.took;
            put_in(&seen, phases[i], ns);
            CU_ASSERT(seen.took >= stepaf_verdict_late_took(&usual) ||
                      seen.idle >= stepaf_verdict_late_idle(&usual));
            stepaf_verdict_t verdict = judge(&seen);
            CU_ASSERT_EQUAL(verdict.phase, phases[i]);
            CU_ASSERT(verdict.over_ns[phases[i]] > ns / 2);
        }
}

/* What is slow since a moment ago is late for a while, and a few that are quick change nothing. */
static void what_is_slow_lately_is_not_usual_yet(void)
{
    learn_usual();
    for (int i = 0; i < STEPAF_MEDIAN_SAMPLES; i++)
        stepaf_median_add(&usual.lately, 4 * (int64_t)usual.took.median);
    CU_ASSERT_EQUAL(stepaf_verdict_late_took(&usual), 2 * (int64_t)usual.took.median);
    memset(&usual.lately, 0, sizeof(usual.lately));
    for (int i = 0; i < STEPAF_MEDIAN_SAMPLES; i++) {
        CU_ASSERT_EQUAL(stepaf_verdict_late_took(&usual), 2 * (int64_t)usual.took.median);
        stepaf_median_add(&usual.lately, 50 * US);
    }
    CU_ASSERT_EQUAL(stepaf_verdict_late_took(&usual), 100 * US);
}

static void clocks_that_are_not_known_accuse_neither_way(void)
{
    learn_usual();
    for (int64_t bound = -1; bound <= 1000000 * US; bound = bound < 0 ? US : bound * 10)
        for (int i = 0; i < N_PHASES; i++) {
            struct stepaf_verdict_seen seen = see_usual();
            int64_t ns = 4 * (int64_t)usual.took.median;
            bool is_way = phases[i] == STEPAF_VERDICT_THERE || phases[i] == STEPAF_VERDICT_BACK;
            put_in(&seen, phases[i], ns);
            seen.bound = bound;
            stepaf_verdict_t verdict = judge(&seen);
            bool told = bound >= 0 && 2 * bound + 2 * US < ns;
            CU_ASSERT_EQUAL(verdict.phase, is_way && !told ? STEPAF_VERDICT_NETWORK : phases[i]);
        }
}

/* Wherever the offset is, within its bound: what is said of a direction is so. */
static void no_error_of_a_clock_turns_a_verdict_round(void)
{
    learn_usual();
    for (int64_t off = -300 * US; off <= 300 * US; off += 25 * US) {
        struct stepaf_verdict_seen seen = see_usual();
        put_in(&seen, STEPAF_VERDICT_THERE, 400 * US);
        seen.there += off;
        seen.bound = off < 0 ? -off : off;
        CU_ASSERT_NOT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_BACK);
        seen = see_usual();
        put_in(&seen, STEPAF_VERDICT_BACK, 400 * US);
        seen.there += off;
        seen.bound = off < 0 ? -off : off;
        CU_ASSERT_NOT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_THERE);
    }
}

/* The network may have been late as well, but nobody knows. */
static void the_network_is_not_accused_of_what_may_have_been_a_gap(void)
{
    struct stepaf_verdict_seen seen = see_usual();

    learn_usual();
    put_in(&seen, STEPAF_VERDICT_THERE, 500 * US);
    seen.ffn_gap = 600 * US;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_FFN_QUEUE);
    seen = see_usual();
    put_in(&seen, STEPAF_VERDICT_BACK, 500 * US);
    seen.own_gap = 600 * US;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_WAIT);
}

static void what_the_peer_does_not_tell_is_unknown(void)
{
    struct stepaf_verdict_seen seen = see_usual();

    learn_usual();
    put_in(&seen, STEPAF_VERDICT_THERE, 500 * US);
    seen.ffn_gap = -1;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_UNKNOWN);
    seen = see_usual();
    put_in(&seen, STEPAF_VERDICT_FFN_WORK, 500 * US);
    seen.ffn_gap = -1;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_FFN_WORK);
    seen.queue = seen.work = -1;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_UNKNOWN);
    seen = see_usual();
    put_in(&seen, STEPAF_VERDICT_START, 500 * US);
    seen.queue = seen.work = seen.ffn_gap = -1;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_START);
}

/* Of a peer that little is known of, nothing is said. */
static void an_unknown_peer_is_not_accused(void)
{
    struct stepaf_verdict_seen seen = see_usual();

    learn_usual();
    memset(&usual_peer, 0, sizeof(usual_peer));
    put_in(&seen, STEPAF_VERDICT_FFN_WORK, 500 * US);
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_UNKNOWN);
}

static void who_had_no_core_is_not_the_caller(void)
{
    struct stepaf_verdict_seen seen = see_usual();

    learn_usual();
    put_in(&seen, STEPAF_VERDICT_START, 500 * US);
    seen.starved = 100 * US;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_START);
    seen.starved = 500 * US;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_STARVED);
    seen = see_usual();
    put_in(&seen, STEPAF_VERDICT_WAIT, 500 * US);
    seen.starved = 500 * US;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_STARVED);
    seen = see_usual();
    put_in(&seen, STEPAF_VERDICT_FFN_WORK, 500 * US);
    seen.starved = 500 * US;
    CU_ASSERT_EQUAL(judge(&seen).phase, STEPAF_VERDICT_FFN_WORK);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the median is that of the last", the_median_is_that_of_the_last},
        {"nothing is late before the usual is known", nothing_is_late_before_the_usual_is_known},
        {"each kind is found", each_kind_is_found},
        {"a late rail is named", a_late_rail_is_named},
        {"two at once are found", two_at_once_are_found},
        {"what was slow before is no measure", what_was_slow_before_is_no_measure},
        {"what is slow lately is not usual yet", what_is_slow_lately_is_not_usual_yet},
        {"clocks that are not known accuse neither way",
         clocks_that_are_not_known_accuse_neither_way},
        {"no error of a clock turns a verdict round", no_error_of_a_clock_turns_a_verdict_round},
        {"the network is not accused of what may have been a gap",
         the_network_is_not_accused_of_what_may_have_been_a_gap},
        {"what the peer does not tell is unknown", what_the_peer_does_not_tell_is_unknown},
        {"an unknown peer is not accused", an_unknown_peer_is_not_accused},
        {"who had no core is not the caller", who_had_no_core_is_not_the_caller},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
