/* SPDX-License-Identifier: Apache-2.0 */
/* The context's lock: a ticket lock, taken only in contexts that several threads may enter. It is
 * held for well under a microsecond. Who has to wait for long sleeps until it is its turn: the holder
 * may have lost its core, and where threads outnumber cores, those that only gave up theirs would
 * get it back again and again before the one whose turn it is. */
#ifndef STEPAF_ENGINE_LOCK_H
#define STEPAF_ENGINE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

struct stepaf_lock {
    bool used;
    _Atomic uint32_t next;
    _Atomic uint32_t serving;
    _Atomic uint32_t sleepers;
};

enum { STEPAF_LOCK_SPINS = 200, STEPAF_LOCK_YIELDS = 16 };

/* Sleep until another one than @a serving is served, or a little longer. */
void stepaf_lock_sleep(struct stepaf_lock *lock, uint32_t serving, uint32_t ticket);
/* Wake whoever sleeps until @a ticket is served. */
void stepaf_lock_wake(struct stepaf_lock *lock, uint32_t ticket);

static inline void stepaf_lock_enter(struct stepaf_lock *lock)
{
    uint32_t serving;

    if (__builtin_expect(!lock->used, 1))
        return;
    uint32_t ticket = atomic_fetch_add_explicit(&lock->next, 1, memory_order_relaxed);
    for (unsigned tries = 0;
         (serving = atomic_load_explicit(&lock->serving, memory_order_acquire)) != ticket;
         tries++) {
        if (tries < STEPAF_LOCK_SPINS)
            stepaf_cpu_relax();
        else if (tries < STEPAF_LOCK_SPINS + STEPAF_LOCK_YIELDS)
            sched_yield();
        else
            stepaf_lock_sleep(lock, serving, ticket);
    }
}

static inline void stepaf_lock_leave(struct stepaf_lock *lock)
{
    if (__builtin_expect(!lock->used, 1))
        return;
    uint32_t next = atomic_load_explicit(&lock->serving, memory_order_relaxed) + 1;
    /* Before it is asked who sleeps: one who is not counted yet will see it. */
    atomic_exchange(&lock->serving, next);
    if (__builtin_expect(atomic_load(&lock->sleepers) != 0, 0))
        stepaf_lock_wake(lock, next);
}

#endif
