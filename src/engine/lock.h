/* SPDX-License-Identifier: Apache-2.0 */
/* The context's lock: a ticket lock, taken only in contexts that several threads may enter. It is
 * held for well under a microsecond; who has to wait for long gives up its core, since the holder
 * may have lost its own. */
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
};

static inline void stepaf_lock_enter(struct stepaf_lock *lock)
{
    if (__builtin_expect(!lock->used, 1))
        return;
    uint32_t ticket = atomic_fetch_add_explicit(&lock->next, 1, memory_order_relaxed);
    for (unsigned spins = 0; atomic_load_explicit(&lock->serving, memory_order_acquire) != ticket;
         spins++) {
        if (spins < 200)
            stepaf_cpu_relax();
        else
            sched_yield();
    }
}

static inline void stepaf_lock_leave(struct stepaf_lock *lock)
{
    if (__builtin_expect(!lock->used, 1))
        return;
    uint32_t ticket = atomic_load_explicit(&lock->serving, memory_order_relaxed);
    atomic_store_explicit(&lock->serving, ticket + 1, memory_order_release);
}

#endif
