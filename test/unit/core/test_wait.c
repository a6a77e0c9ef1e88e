/* SPDX-License-Identifier: Apache-2.0 */
/* How a thread waits. Nothing is timed: a clock whose ticks are few or many stands for time. */
#include <stdlib.h>

#include "core/progress.h"
#include "core/wait.h"
#include "fake.h"
#include "unit.h"

enum { MANY = 100000000 }; /* polls that no wait here comes near */

static struct fake_job *begin(const char *backoff)
{
    setenv("STEPAF_BACKOFF", backoff, 1);
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1);
    unsetenv("STEPAF_BACKOFF");
    job->ctx->polling.oversubscribed = false;
    return job;
}

/* Idle until the deadline; return how often that was possible. */
static int idle_until_end(struct fake_job *job, struct stepaf_waiter *waiter, int64_t timeout_us)
{
    int n = 0;

    while (n < MANY && stepaf_waiter_idle(job->ctx, waiter, timeout_us))
        n++;
    return n;
}

static void a_poll_never_waits(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    for (int i = 0; i < 10; i++)
        CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &waiter, 0));
    CU_ASSERT_EQUAL(job->ctx->counters.yields, 0);
    fake_close(job);
}

static void poll(struct fake_job *job, int n)
{
    for (int i = 0; i < n; i++)
        (void)stepaf_core_progress(job->ctx);
}

static void pass(struct fake_job *job, double us)
{
    uint64_t ticks = (uint64_t)(us * job->ctx->clock.own.ticks_per_us);

    job->ctx->polling.vain_since -= ticks;
    job->ctx->polling.came -= ticks;
    job->ctx->polling.checked -= ticks;
    job->ctx->polling.look_at -= ticks;
}

/* Who only ever polls would not notice a dead peer: once nothing has come for a while, a poll
 * looks; not before, since a look is a system call. How many polls there were does not matter. */
static void polls_look_for_dead_peers(void)
{
    struct fake_job *job = begin("auto");

    job->ctx->clock.own.ticks_per_us = 1e8; /* a millisecond is long */
    job->ctx->polling.checked = stepaf_ticks();
    poll(job, 1000);
    CU_ASSERT_EQUAL(job->n_idle, 0);
    for (int n = 0; n < 3; n++) {
        pass(job, 50000);
        poll(job, 1);
        CU_ASSERT_EQUAL(job->n_idle, n + 1);
        poll(job, 1000);
        CU_ASSERT_EQUAL(job->n_idle, n + 1);
    }
    fake_close(job);
}

/* How long the caller was away after something had come says nothing of its peers. */
static void a_pause_is_no_vain_wait(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_msg pong = {.type = STEPAF_MSG_PONG};

    job->ctx->clock.own.ticks_per_us = 1e8;
    job->ctx->polling.checked = stepaf_ticks();
    for (int n = 0; n < 3; n++) {
        fake_say(job, 0, &pong);
        poll(job, 1);
        pass(job, 5000);
        poll(job, 1); /* in vain, for the first time */
        CU_ASSERT_EQUAL(job->n_idle, 0);
    }
    fake_close(job);
}

/* Nor would who always has something to do with others. */
static void so_do_polls_that_bring_something(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_msg pong = {.type = STEPAF_MSG_PONG};

    job->ctx->clock.own.ticks_per_us = 1e8; /* a millisecond is long */
    job->ctx->polling.checked = stepaf_ticks();
    for (int i = 0; i < 300; i++) {
        fake_say(job, 0, &pong);
        poll(job, 1);
    }
    CU_ASSERT_EQUAL(job->n_idle, 0);
    pass(job, 1e5); /* a tenth of a second */
    for (int i = 0; i < 3; i++) {
        fake_say(job, 0, &pong);
        poll(job, 1);
    }
    CU_ASSERT_EQUAL(job->n_idle, 1);
    fake_close(job);
}

static void a_wait_looks_too_but_not_always(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    job->ctx->clock.own.ticks_per_us = 1e9; /* a second lasts for ever */
    job->ctx->polling.checked = stepaf_ticks();
    for (int i = 0; i < 1000; i++)
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
    CU_ASSERT_EQUAL(job->n_idle, 0);
    job->ctx->clock.own.ticks_per_us = 1e-9; /* it is over at once */
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &(struct stepaf_waiter){.polls = 1000}, 1000000));
    CU_ASSERT_EQUAL(job->n_idle, 1);
    fake_close(job);
}

/* Who has waited for long sleeps for long, but not once something has come: in a commit of many keys
 * that is a part of what a ring holds, and each sleep would be one. */
static void what_comes_makes_sleeps_short_again(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_msg pong = {.type = STEPAF_MSG_PONG};
    struct stepaf_waiter waiter = {.began = 1, .deadline = UINT64_MAX / 2, .polls = 5};
    int64_t deadline_ns = stepaf_monotonic_ns() + 1000000000;

    fake_say(job, 0, &pong);
    CU_ASSERT_TRUE(stepaf_core_advance(job->ctx, &waiter, deadline_ns));
    CU_ASSERT_EQUAL(waiter.began, 0);
    CU_ASSERT_EQUAL(waiter.polls, 0);
    CU_ASSERT_TRUE(stepaf_core_advance(job->ctx, &waiter, deadline_ns));
    CU_ASSERT(waiter.began > 0);
    fake_say(job, 0, &pong);
    CU_ASSERT_FALSE(stepaf_core_advance(job->ctx, &waiter, stepaf_monotonic_ns()));
    fake_close(job);
}

/* What the launcher reports: ranks of this world and of another, twice, and its own. */
static int report(void *self, int *ranks_p, int capacity)
{
    static const int ranks[] = {-1, 7, 3, 2, 0, 2};
    int n = 0;

    (void)self;
    for (; n < capacity && n < (int)(sizeof ranks / sizeof *ranks); n++)
        ranks_p[n] = ranks[n];
    return n;
}

/* Only peers are lost by it, each once, and none before there is a link to it. */
static void the_launcher_can_report_a_loss(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 3, 2),
                    *counterpart = fake_open(STEPAF_ATTENTION, 3, 2);
    double ticks_per_us = job->ctx->clock.own.ticks_per_us;

    job->ctx->job.boot.lost = report;
    job->ctx->clock.own.ticks_per_us = 1e-9; /* deadlines are over at once */
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &(struct stepaf_waiter){.polls = 1000}, 1000000));
    CU_ASSERT_EQUAL(job->ctx->n_alive, 3);
    job->ctx->job.boot.lost = NULL;
    job->ctx->clock.own.ticks_per_us = ticks_per_us;
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    job->ctx->job.boot.lost = report;
    job->ctx->clock.own.ticks_per_us = 1e-9;
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &(struct stepaf_waiter){.polls = 1000}, 1000000));
    CU_ASSERT_EQUAL(job->ctx->n_alive, 1);
    CU_ASSERT_TRUE(job->ctx->peers[0].lost && job->ctx->peers[2].lost);
    CU_ASSERT_STRING_EQUAL(job->ctx->peers[2].reason, "the bootstrap reports that it died");
    CU_ASSERT_FALSE(job->ctx->peers[1].lost);
    job->ctx->clock.own.ticks_per_us = ticks_per_us;
    fake_close(job);
    fake_close(counterpart);
}

/* Where ranks have but the peers of their lane, a reported rank is no index of a peer. */
static void a_loss_in_another_lane_is_none(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 3, 2),
                    *counterpart = fake_open(STEPAF_ATTENTION, 3, 2);
    double ticks_per_us = job->ctx->clock.own.ticks_per_us;
    struct stepaf_mesh mesh = job->ctx->job.mesh;

    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    for (uint32_t lane = 0; lane < 2; lane++) {
        job->ctx->job.mesh =
            (struct stepaf_mesh){.lanes = 2, .lane = lane}; /* of ranks 0 and 2; of 1 */
        job->ctx->job.boot.lost = report;
        job->ctx->clock.own.ticks_per_us = 1e-9;
        CU_ASSERT_FALSE(
            stepaf_waiter_idle(job->ctx, &(struct stepaf_waiter){.polls = 1000}, 1000000));
        for (unsigned p = 0; p < 3; p++)
            CU_ASSERT_EQUAL(job->ctx->peers[p].lost, lane == 0 && p < 2);
        CU_ASSERT_EQUAL(job->n_severed, lane == 0 ? 2 : 0);
        job->ctx->clock.own.ticks_per_us = ticks_per_us;
        job->ctx->job.mesh = mesh;
        fake_close(job);
        fake_close(counterpart);
        if (lane == 0) {
            job = fake_open(STEPAF_FFN, 3, 2);
            counterpart = fake_open(STEPAF_ATTENTION, 3, 2);
            CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
        }
    }
}

static void a_deadline_ends_the_wait(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    int64_t before_ns = stepaf_monotonic_ns();
    int n = idle_until_end(job, &waiter, 2000);

    CU_ASSERT(n > 0 && n < MANY);
    CU_ASSERT(stepaf_monotonic_ns() - before_ns >= 1990000);
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &waiter, 2000)); /* and stays passed */
    fake_close(job);
}

/* A waiter keeps its first deadline; callers pass what is left, which differs from call to call. */
static void the_first_deadline_counts(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    int n = 0;

    job->ctx->clock.own.ticks_per_us = 1e-9;
    while (n < MANY && stepaf_waiter_idle(job->ctx, &waiter, 1))
        n++;
    CU_ASSERT(n < MANY);
    job->ctx->clock.own.ticks_per_us = 1e9;
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
    fake_close(job);
}

static void minus_one_is_the_setting(void)
{
    setenv("STEPAF_TIMEOUT_US", "1234", 1);
    struct fake_job *job = begin("auto");
    unsetenv("STEPAF_TIMEOUT_US");
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    CU_ASSERT_EQUAL(stepaf_timeout_us(job->ctx, STEPAF_TIMEOUT_DEFAULT), 1234);
    CU_ASSERT_EQUAL(stepaf_timeout_us(job->ctx, INT64_MIN), 1234);
    CU_ASSERT_EQUAL(stepaf_timeout_us(job->ctx, 0), 0);
    CU_ASSERT_EQUAL(stepaf_timeout_us(job->ctx, 77), 77);
    CU_ASSERT(idle_until_end(job, &waiter, STEPAF_TIMEOUT_DEFAULT) < MANY);
    fake_close(job);
}

/* "For ever" is what a large number means to callers, however many ticks it makes. */
static void long_timeouts_do_not_wrap(void)
{
    static const int64_t long_us[] = {INT64_MAX,        INT64_MAX - 1,    INT64_MAX / 2,
                                      INT64_MAX / 3,    INT64_MAX / 1000, INT64_MAX / 1500,
                                      INT64_MAX / 4000, 1000000000000000};

    for (size_t i = 0; i < sizeof long_us / sizeof *long_us; i++) {
        struct fake_job *job = begin("auto");
        struct stepaf_waiter waiter = stepaf_waiter_begin();
        int n = 0;
        while (n < 1000 && stepaf_waiter_idle(job->ctx, &waiter, long_us[i]))
            n++;
        CU_ASSERT_EQUAL(n, 1000);
        fake_close(job);
    }
}

static void spinning_keeps_the_core(void)
{
    struct fake_job *job = begin("spin");
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    CU_ASSERT(idle_until_end(job, &waiter, 3000) < MANY);
    CU_ASSERT_EQUAL(job->ctx->counters.yields, 0);
    fake_close(job);
}

/* Where ranks outnumber cores, the third look in vain gives the core up. */
static void a_crowd_yields_at_once(void)
{
    static const char *const modes[] = {"auto", "yield", "sleep"};

    for (int i = 0; i < 3; i++) {
        struct fake_job *job = begin(modes[i]);
        struct stepaf_waiter waiter = stepaf_waiter_begin();
        job->ctx->polling.oversubscribed = true;
        job->ctx->clock.own.ticks_per_us = 1e9; /* no time passes */
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
        CU_ASSERT_EQUAL(job->ctx->counters.yields, 0);
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
        CU_ASSERT_EQUAL(job->ctx->counters.yields, 1);
        fake_close(job);
    }
}

static void without_a_crowd_it_spins_first(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    job->ctx->clock.own.ticks_per_us = 1e9;
    for (int i = 0; i < 1000; i++)
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
    CU_ASSERT_EQUAL(job->ctx->counters.yields, 0);
    job->ctx->env.spin_us = 0;
    CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
    CU_ASSERT_EQUAL(job->ctx->counters.yields, 1);
    fake_close(job);
}

/* A caller that waits again and again, each time for a moment, idles as long as in one wait, unless
 * something comes: then it has idled since. It has idled for so long already that it may lose its
 * core between two waits. */
static void waits_that_time_out_add_up(void)
{
    struct fake_job *job = begin("auto");
    struct stepaf_ctx_polling *polling = &job->ctx->polling;
    uint64_t before = stepaf_ticks_of_us(job->ctx, 100000000);
    uint64_t a_wait = stepaf_ticks_of_us(job->ctx, 1000);

    polling->came = stepaf_ticks() - 2 * before;
    polling->timed_out_at = stepaf_ticks();
    polling->idle_for = before;
    for (unsigned n = 1; n <= 3; n++) {
        CU_ASSERT(idle_until_end(job, &(struct stepaf_waiter){0}, 1000) < MANY);
        CU_ASSERT(polling->idle_for >= before + n * a_wait);
    }
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
    CU_ASSERT(waiter.began - waiter.idle_since >= before + 3 * a_wait);
    polling->came = stepaf_ticks();
    waiter.deadline = polling->came;
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &waiter, 1000000));
    CU_ASSERT_EQUAL(polling->idle_for, polling->timed_out_at - polling->came);
    fake_close(job);
}

/* Return how often a thread that begins to wait sleeps immediately, having idled for @a idle_s until
 * @a away_s ago. */
static unsigned count_sleeps(struct fake_job *job, unsigned idle_s, unsigned away_s, bool has_come,
                             int64_t timeout_us)
{
    uint64_t now = stepaf_ticks(), second = stepaf_ticks_of_us(job->ctx, 1000000);
    unsigned before = job->n_armed;

    job->ctx->polling.timed_out_at = now - away_s * second;
    job->ctx->polling.idle_for = idle_s * second;
    job->ctx->polling.came = has_come ? now : now - (away_s + 1) * second;
    (void)stepaf_waiter_idle(job->ctx, &(struct stepaf_waiter){.polls = 1000}, timeout_us);
    return job->n_armed - before;
}

static void who_has_idled_for_long_sleeps_at_once(void)
{
    struct fake_job *job = begin("auto");

    job->ctx->env.sleep_after_us = 2000000;
    job->ctx->env.spin_us = 0;
    CU_ASSERT_EQUAL(count_sleeps(job, 3, 0, false, 1000000), 1);
    CU_ASSERT_EQUAL(count_sleeps(job, 3, 2, false, 1000000), 1);
    CU_ASSERT_EQUAL(count_sleeps(job, 1, 0, false, 1000000), 0);
    CU_ASSERT_EQUAL(count_sleeps(job, 3, 1, true, 1000000), 0);
    CU_ASSERT_EQUAL(count_sleeps(job, 3, 4, false, 1000000), 0); /* the caller did something else */
    CU_ASSERT_EQUAL(count_sleeps(job, 3, 0, false, 50), 0);      /* a sleep would take longer */
    job->ctx->env.spin_us = 200;
    CU_ASSERT_EQUAL(count_sleeps(job, 3, 0, false, 1000000), 0); /* it spins first */
    fake_close(job);
}

/* The lock is free while a thread idles, and its own again afterwards. */
static void the_lock_is_left_and_taken(void)
{
    static const int64_t timeouts_us[] = {1000000, 1};
    struct fake_job *job = begin("auto");
    struct stepaf_lock *lock = &job->ctx->lock;

    lock->used = true;
    for (int i = 0; i < 2; i++) {
        struct stepaf_waiter waiter = stepaf_waiter_begin();
        stepaf_lock_enter(lock);
        uint32_t tickets = lock->next;
        for (int n = 0; n < 200; n++)
            (void)stepaf_waiter_idle(job->ctx, &waiter, timeouts_us[i]);
        CU_ASSERT(lock->next > tickets);
        CU_ASSERT_EQUAL(lock->next, lock->serving + 1);
        stepaf_lock_leave(lock);
        CU_ASSERT_EQUAL(lock->next, lock->serving);
    }
    fake_close(job);
}

/* From above: what is not there in time is a timeout that names who is missing. */
static void receiving_times_out(void)
{
    struct fake_job *job = begin("auto"), *counterpart = fake_open(STEPAF_ATTENTION, 1, 1);
    stepaf_batch_h batch;
    int n = 5;

    fake_key(job, counterpart, 1, STEPAF_PUSH, 64, 1);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_EACH, 0, 1000, &batch, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_rank, 0);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 1000, &batch, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                    STEPAF_ERR_TIMEOUT);
    CU_ASSERT_EQUAL(n, 5);
    fake_close(job);
    fake_close(counterpart);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a poll never waits", a_poll_never_waits},
        {"polls look for dead peers", polls_look_for_dead_peers},
        {"a pause is no vain wait", a_pause_is_no_vain_wait},
        {"so do polls that bring something", so_do_polls_that_bring_something},
        {"a wait looks too, but not always", a_wait_looks_too_but_not_always},
        {"what comes makes sleeps short again", what_comes_makes_sleeps_short_again},
        {"the launcher can report a loss", the_launcher_can_report_a_loss},
        {"a loss in another lane is none", a_loss_in_another_lane_is_none},
        {"a deadline ends the wait", a_deadline_ends_the_wait},
        {"the first deadline counts", the_first_deadline_counts},
        {"minus one is the setting", minus_one_is_the_setting},
        {"long timeouts do not wrap", long_timeouts_do_not_wrap},
        {"spinning keeps the core", spinning_keeps_the_core},
        {"a crowd yields at once", a_crowd_yields_at_once},
        {"without a crowd it spins first", without_a_crowd_it_spins_first},
        {"waits that time out add up", waits_that_time_out_add_up},
        {"who has idled for long sleeps at once", who_has_idled_for_long_sleeps_at_once},
        {"the lock is left and taken", the_lock_is_left_and_taken},
        {"receiving times out", receiving_times_out},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
