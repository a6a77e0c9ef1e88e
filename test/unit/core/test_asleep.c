/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping until a transport wakes the thread. Nothing is timed: threads wake each other. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/wait.h"
#include "fake.h"
#include "unit.h"

static unsigned n_looks; /* of progress, since the transport was armed */
static unsigned n_old;   /* of these, with a stamp that is older */

static void on_progress(struct fake_job *job)
{
    n_looks += job->n_armed > 0;
    n_old += job->n_armed > 0 && job->ctx->up.polled;
}

/* A job whose threads sleep as soon as they wait. */
static struct fake_job *begin(void)
{
    setenv("STEPAF_BACKOFF", "sleep", 1);
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1),
                    *counterpart = fake_open(STEPAF_ATTENTION, 1, 1);
    unsetenv("STEPAF_BACKOFF");

    fake_key(job, counterpart, 1, STEPAF_PUSH, 64, 1);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_close(counterpart);
    job->ctx->polling.oversubscribed = false;
    job->ctx->env.spin_us = 0;
    job->ctx->env.sleep_after_us = 0;
    job->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CU_ASSERT_FATAL(job->wake_fd > 0);
    job->on_progress = on_progress;
    job->n_armed = 0;
    n_looks = n_old = 0;
    return job;
}

static void end(struct fake_job *job)
{
    close(job->wake_fd);
    fake_close(job);
}

/* What came between the last look and the arming would else be slept on. */
static void it_looks_once_more_when_armed(void)
{
    struct fake_job *job = begin();
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 60000000));
    CU_ASSERT_EQUAL(job->n_armed, 1);
    CU_ASSERT_EQUAL(n_looks, 1);
    CU_ASSERT_EQUAL(n_old, 0); /* to arm may have taken long */
    CU_ASSERT_EQUAL(job->ctx->counters.yields, 1);
    CU_ASSERT_FALSE(job->ctx->polling.asleep);
    end(job);
}

static void a_transport_may_have_nothing_to_sleep_on(void)
{
    struct fake_job *job = begin();
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    int fd = job->wake_fd;

    job->wake_fd = 0;
    CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 60000000));
    CU_ASSERT_EQUAL(job->n_armed, 1);
    CU_ASSERT_EQUAL(n_looks, 0);
    job->wake_fd = fd;
    end(job);
}

/* Arming makes the descriptor unreadable, for the thread that sleeps on it already, too. */
static void a_second_sleeper_leaves_the_first_alone(void)
{
    struct fake_job *job = begin();
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    job->ctx->polling.asleep = true;
    CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 60000000));
    CU_ASSERT_EQUAL(job->n_armed, 0);
    CU_ASSERT_TRUE(job->ctx->polling.asleep);
    job->ctx->polling.asleep = false;
    end(job);
}

/* Who does not sleep asks for nothing. */
static void spinning_arms_nothing(void)
{
    struct fake_job *job = begin();
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    job->ctx->env.spin_us = 1000000;
    for (int i = 0; i < 10; i++)
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 60000000));
    job->ctx->env.spin_us = 0;
    job->ctx->env.sleep_after_us = 3600000000;
    for (int i = 0; i < 10; i++)
        CU_ASSERT_TRUE(stepaf_waiter_idle(job->ctx, &waiter, 60000000));
    CU_ASSERT_EQUAL(job->n_armed, 0);
    end(job);
}

static void *wait_long(void *arg)
{
    struct fake_job *job = arg;
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    stepaf_lock_enter(&job->ctx->lock);
    for (int i = 0; i < 20; i++)
        (void)stepaf_waiter_idle(job->ctx, &waiter, 1000000);
    stepaf_lock_leave(&job->ctx->lock);
    return NULL;
}

/* Nor is the stamp of a wait that is over one for what comes later. */
static void no_stamp_stays_behind_a_wait(void)
{
    struct fake_job *job = begin();
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    job->ctx->env.spin_us = 1000000;
    waiter.began = stepaf_ticks();
    waiter.deadline = waiter.began;
    CU_ASSERT_FALSE(stepaf_waiter_idle(job->ctx, &waiter, 1));
    CU_ASSERT_EQUAL(job->ctx->up.polled, 0);
    end(job);
}

/* Others go on meanwhile: the lock is free, and a second thread may wait as well. */
static void two_threads_may_sleep(void)
{
    struct fake_job *job = begin();
    pthread_t threads[2];

    job->ctx->lock.used = true;
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, wait_long, job), 0);
    for (int i = 0; i < 100; i++)
        (void)eventfd_write(job->wake_fd, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT(job->n_armed >= 20 && job->n_armed <= 40);
    CU_ASSERT_EQUAL(job->ctx->lock.next, job->ctx->lock.serving);
    CU_ASSERT_FALSE(job->ctx->polling.asleep);
    end(job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it looks once more when armed", it_looks_once_more_when_armed},
        {"a transport may have nothing to sleep on", a_transport_may_have_nothing_to_sleep_on},
        {"a second sleeper leaves the first alone", a_second_sleeper_leaves_the_first_alone},
        {"spinning arms nothing", spinning_arms_nothing},
        {"no stamp stays behind a wait", no_stamp_stays_behind_a_wait},
        {"two threads may sleep", two_threads_may_sleep},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
