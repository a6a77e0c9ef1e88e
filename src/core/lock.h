/* SPDX-License-Identifier: Apache-2.0 */
/* The context's lock: a ticket lock, used only in contexts that several threads may enter. A call
 * holds the lock while it polls and posts, including copies through shared memory. A commit holds
 * the lock from the time when all peers have entered it to its end: nothing that it announces may
 * change. A thread that waits long sleeps until its turn: the holder may have lost its core, and
 * where threads outnumber cores, threads that only yield would get the core back repeatedly before
 * the thread whose turn it is. */
#ifndef STEPAF_CORE_LOCK_H
#define STEPAF_CORE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stepaf_lock {
    bool used;
    _Atomic uint32_t next;
    _Atomic uint32_t serving;
    _Atomic uint32_t sleepers;
};

/* Take or give back a lock that is used. */
void stepaf_lock_take(struct stepaf_lock *lock);
void stepaf_lock_give(struct stepaf_lock *lock);

static inline void stepaf_lock_enter(struct stepaf_lock *lock)
{
    if (__builtin_expect(lock->used, 0))
        stepaf_lock_take(lock);
}

static inline void stepaf_lock_leave(struct stepaf_lock *lock)
{
    if (__builtin_expect(lock->used, 0))
        stepaf_lock_give(lock);
}

#endif
