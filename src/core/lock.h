/* SPDX-License-Identifier: Apache-2.0 */
/* The context's lock: a ticket lock, taken only in contexts that several threads may enter. It is
 * held for as long as a call looks and posts, copies through shared memory among it; a commit holds
 * it from when all peers have entered it to its end: nothing may change of what it tells. Who has
 * to wait for long sleeps until it is its turn: the holder may have lost its core, and where
 * threads outnumber cores, those that only gave up theirs would get it back again and again before
 * the one whose turn it is. */
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

/* Take, or give back, a lock that is used. */
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
