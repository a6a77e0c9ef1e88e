/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping where a lock is waited for. A ticket's last bits say whom to wake. */
#include "engine/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t bit_of(uint32_t ticket)
{
    return 1u << ticket % 32;
}

void stepaf_lock_sleep(struct stepaf_lock *lock, uint32_t serving, uint32_t ticket)
{
    atomic_fetch_add(&lock->sleepers, 1);
    /* Returns at once if that has changed. */
    (void)syscall(SYS_futex, &lock->serving, FUTEX_WAIT_BITSET_PRIVATE, serving, NULL, NULL,
                  bit_of(ticket));
    atomic_fetch_sub(&lock->sleepers, 1);
}

void stepaf_lock_wake(struct stepaf_lock *lock, uint32_t ticket)
{
    (void)syscall(SYS_futex, &lock->serving, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL,
                  bit_of(ticket));
}
