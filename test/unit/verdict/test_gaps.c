/* SPDX-License-Identifier: Apache-2.0 */
/* Since when a rank has not polled: of the gaps that it has noted, which may be thousands. */
#include "core/watch.h"
#include "unit.h"
#include "verdict/ask.h"

enum { FROM = 1000, POLL = 1300, BEGIN = 1 << 20 };

static struct stepaf_watch watch;

static void begin(void)
{
    watch = (struct stepaf_watch){.gaps_from = FROM, .polled = BEGIN, .noted = BEGIN};
}

/* Polls that find nothing, each that long after the one before, until @a end. */
static uint64_t poll_until(uint64_t now, uint64_t end, uint64_t every)
{
    for (; now < end; now += every)
        stepaf_watch_poll(&watch, now, watch.noted);
    return now;
}

static void a_gap_is_found(void)
{
    begin();
    uint64_t now = poll_until(BEGIN + 10, BEGIN + 100000, 100);
    uint64_t back = now + 50000;
    /* The poll there brings something, which has come at a time in the gap. */
    stepaf_watch_poll(&watch, back + 10, back);
    uint64_t gap = stepaf_watch_gap_before(&watch, back);
    CU_ASSERT(gap >= 50000 && gap <= 50000 + 300);
    CU_ASSERT_EQUAL(stepaf_watch_gap_before(&watch, BEGIN + 50000), 0);
}

/* A rank that takes long for a batch polls all the while. */
static void a_long_gap_outlasts_thousands_of_short_ones(void)
{
    const uint64_t away = 1000 * FROM;

    begin();
    uint64_t now = poll_until(BEGIN + 10, BEGIN + 100000, 100);
    uint64_t back = now + away;
    stepaf_watch_poll(&watch, back + 10, back);
    (void)poll_until(back + 10 + POLL, back + 20 * away, POLL);
    uint64_t gap = stepaf_watch_gap_before(&watch, back);
    CU_ASSERT(gap >= away && gap <= away + 300);
}

static void what_came_between_gaps_came_at_once(void)
{
    begin();
    uint64_t now = poll_until(BEGIN + 10, BEGIN + 100000, 100);
    uint64_t before = now - 100;
    stepaf_watch_poll(&watch, now + 700 * FROM, watch.noted);
    CU_ASSERT(stepaf_watch_gap_before(&watch, before) <= 200);
}

/* What came after the last that is noted may have come since. */
static void a_gap_may_not_be_over(void)
{
    begin();
    uint64_t now = poll_until(BEGIN + 10, BEGIN + 100000, 100);
    uint64_t gap = stepaf_watch_gap_before(&watch, now + 5000);
    CU_ASSERT(gap >= 5000 && gap <= 5300);
}

/* Of a sequence of 32 bits, which is taken up anywhere. */
static void one_is_due_across_the_wrap(void)
{
    struct stepaf_watch_plan watched = stepaf_watch_plan_begin(UINT32_MAX - 1);

    CU_ASSERT_FALSE(stepaf_watch_is_due(&watched, UINT32_MAX - 2));
    CU_ASSERT_TRUE(stepaf_watch_is_due(&watched, UINT32_MAX - 1));
    CU_ASSERT_TRUE(stepaf_watch_is_due(&watched, 0));
    watched.next = 3;
    CU_ASSERT_FALSE(stepaf_watch_is_due(&watched, UINT32_MAX));
    CU_ASSERT_FALSE(stepaf_watch_is_due(&watched, 2));
    CU_ASSERT_TRUE(stepaf_watch_is_due(&watched, 4));
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a gap is found", a_gap_is_found},
        {"a long gap outlasts thousands of short ones",
         a_long_gap_outlasts_thousands_of_short_ones},
        {"what came between gaps came at once", what_came_between_gaps_came_at_once},
        {"a gap may not be over", a_gap_may_not_be_over},
        {"one is due across the wrap", one_is_due_across_the_wrap},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
