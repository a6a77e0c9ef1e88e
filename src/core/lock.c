/* SPDX-License-Identifier: Apache-2.0 */
/* The context's lock: taking it, and sleeping while waiting. A ticket's last bits say which
 * sleepers to wake. */
#include "core/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/time.h"

enum { SPINS = 200, YIELDS = 16 };

static uint32_t bit_of(uint32_t ticket)
{
    return 1u << ticket % 32;
}

/* Sleep until a ticket other than @a serving is served, or a little longer. */
static void sleep_until(struct stepaf_lock *lock, uint32_t serving, uint32_t ticket)
{
    atomic_fetch_add(&lock->sleepers, 1);
    /* Returns immediately if lock->serving has changed. */
    (void)syscall(SYS_futex, &lock->serving, FUTEX_WAIT_BITSET_PRIVATE, serving, NULL, NULL,
                  bit_of(ticket));
    atomic_fetch_sub(&lock->sleepers, 1);
}

/* Wake the thread that sleeps until @a ticket is served. */
static void wake(struct stepaf_lock *lock, uint32_t ticket)
{
    (void)syscall(SYS_futex, &lock->serving, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL,
                  bit_of(ticket));
}

void stepaf_lock_take(struct stepaf_lock *lock)
{
    uint32_t ticket = atomic_fetch_add_explicit(&lock->next, 1, memory_order_relaxed);
    uint32_t serving;

    for (unsigned tries = 0;
         (serving = atomic_load_explicit(&lock->serving, memory_order_acquire)) != ticket;
         tries++) {
        if (tries < SPINS)
            stepaf_cpu_relax();
        else if (tries < SPINS + YIELDS)
            sched_yield();
        else
            sleep_until(lock, serving, ticket);
    }
}

void stepaf_lock_give(struct stepaf_lock *lock)
{
    uint32_t next = atomic_load_explicit(&lock->serving, memory_order_relaxed) + 1;

    /* Before reading the sleepers: a thread that is not counted yet will see the new value. */
    atomic_exchange(&lock->serving, next);
    if (__builtin_expect(atomic_load(&lock->sleepers) != 0, 0))
        wake(lock, next);
}
