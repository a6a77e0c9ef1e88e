/* SPDX-License-Identifier: Apache-2.0 */
/* The lock: one at a time, in the order in which they came, also for those that sleep. */
#include <pthread.h>
#include <unistd.h>

#include "core/lock.h"
#include "unit.h"

enum { THREADS = 40, ROUNDS = 500 }; /* more than there are bits to wake one by */

static struct stepaf_lock lock;
static unsigned long count;
static int order[THREADS], n_order;

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        stepaf_lock_enter(&lock);
        unsigned long before = count;
        if (i % 100 == 0)
            sched_yield(); /* the holder loses its core */
        count = before + 1;
        stepaf_lock_leave(&lock);
    }
    return NULL;
}

static void none_is_counted_twice_or_lost(void)
{
    pthread_t threads[THREADS];

    lock = (struct stepaf_lock){.used = true};
    count = 0;
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT_EQUAL(count, (unsigned long)THREADS * ROUNDS);
    CU_ASSERT_EQUAL(atomic_load(&lock.sleepers), 0);
}

static void *take_turn(void *arg)
{
    stepaf_lock_enter(&lock);
    order[n_order++] = *(const int *)arg;
    stepaf_lock_leave(&lock);
    return NULL;
}

static void sleepers_come_in_order(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];

    lock = (struct stepaf_lock){.used = true};
    n_order = 0;
    stepaf_lock_enter(&lock);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, take_turn, &numbers[i]), 0);
        /* It has come, and has gone to sleep. */
        while (atomic_load(&lock.sleepers) != (uint32_t)i + 1)
            usleep(100);
    }
    stepaf_lock_leave(&lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL(order[i], i);
}

static void one_that_is_not_used_is_none(void)
{
    lock = (struct stepaf_lock){.used = false};
    stepaf_lock_enter(&lock);
    stepaf_lock_enter(&lock);
    stepaf_lock_leave(&lock);
    CU_ASSERT_EQUAL(atomic_load(&lock.next), 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"none is counted twice or lost", none_is_counted_twice_or_lost},
        {"sleepers come in order", sleepers_come_in_order},
        {"one that is not used is none", one_that_is_not_used_is_none},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
