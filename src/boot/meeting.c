/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* syscall */

#include "boot/meeting.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stepaf/boot.h>

#include "base/time.h"

#define COUNT_MASK ((uint32_t)0x7ff)
#define ROUND_STEP ((uint32_t)0x800)
#define ROUND_MASK ((uint32_t)0x3ffff800)
#define LATE ((uint32_t)0x40000000)
#define BROKEN ((uint32_t)0x80000000)

enum {
    SPINS = 2000, /* with a pause each: some 20 to 80 us */
    YIELDS = 50,
    LOOK_US = 20000 /* between checks of missing processes */
};

/* Sleep until the deadline, or for @a pause_us. */
static void sleep_while(struct stepaf_meeting *meeting, uint32_t state, int64_t deadline_ns,
                        int64_t pause_us)
{
    int64_t now_ns = stepaf_monotonic_ns();

    if (pause_us < (deadline_ns - now_ns) / 1000)
        deadline_ns = now_ns + pause_us * 1000;
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    /* The bit set variant accepts an absolute time of CLOCK_MONOTONIC. Whatever it returns, the
     * caller checks again. */
    syscall(SYS_futex, &meeting->state, FUTEX_WAIT_BITSET, state, &deadline, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

static void wake_all(struct stepaf_meeting *meeting)
{
    syscall(SYS_futex, &meeting->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void stepaf_meeting_break(struct stepaf_meeting *meeting)
{
    atomic_fetch_or(&meeting->state, BROKEN);
    wake_all(meeting);
}

/* Count this process in, in round *round_p; the last one begins the next round instead. Returns 0
 * if the meeting is broken. */
static int arrive(struct stepaf_meeting *meeting, int n, uint32_t *round_p, int *is_last_p)
{
    uint32_t state = atomic_load(&meeting->state);
    uint32_t next;
    do {
        if (state & BROKEN)
            return 0;
        *round_p = state & ROUND_MASK;
        *is_last_p = (int)(state & COUNT_MASK) + 1 >= n;
        next = *is_last_p ? (state + ROUND_STEP) & ROUND_MASK : state + 1;
    } while (!atomic_compare_exchange_weak(&meeting->state, &state, next));
    return 1;
}

/* Return the result that a waiting process reads from the state; -1: none yet. A completed round
 * counts, even if the meeting was broken since. */
static int outcome(uint32_t state, uint32_t round)
{
    if ((state & ROUND_MASK) != round)
        return STEPAF_MEETING_OK;
    if (state & BROKEN)
        return state & LATE ? STEPAF_MEETING_TIMEOUT : STEPAF_MEETING_BROKEN;
    return -1;
}

/* Break the meeting, unless the last process has arrived in the meantime; @a how is LATE or
 * nothing. */
static enum stepaf_meeting_result break_meeting(struct stepaf_meeting *meeting, uint32_t round,
                                                uint32_t how)
{
    uint32_t state = atomic_load(&meeting->state);
    do {
        int result = outcome(state, round);
        if (result >= 0)
            return (enum stepaf_meeting_result)result;
    } while (!atomic_compare_exchange_weak(&meeting->state, &state, state | BROKEN | how));
    wake_all(meeting);
    return how ? STEPAF_MEETING_TIMEOUT : STEPAF_MEETING_BROKEN;
}

enum stepaf_meeting_result stepaf_meeting_join(struct stepaf_meeting *meeting, int n, int spin,
                                               const struct stepaf_meeting_watch *watch,
                                               int64_t deadline_ns)
{
    uint32_t round;
    int is_last;
    if (!arrive(meeting, n, &round, &is_last))
        return STEPAF_MEETING_BROKEN;
    atomic_fetch_add(watch->visits, 1);
    if (is_last) {
        wake_all(meeting);
        return STEPAF_MEETING_OK;
    }

    int64_t look_ns = stepaf_monotonic_ns() + LOOK_US * 1000LL;
    int spins = spin ? SPINS : 0;
    for (int tries = 0;; tries++) {
        uint32_t state = atomic_load(&meeting->state);
        int result = outcome(state, round);
        if (result >= 0)
            return (enum stepaf_meeting_result)result;
        if (tries < spins) {
            stepaf_cpu_relax();
            continue;
        }
        int64_t pause_us = stepaf_boot_advance(), now_ns = stepaf_monotonic_ns();
        if (pause_us < 0 || now_ns >= deadline_ns)
            return break_meeting(meeting, round, LATE);
        if (now_ns >= look_ns) {
            if (watch->is_in_vain(watch->arg))
                return break_meeting(meeting, round, 0);
            look_ns = now_ns + LOOK_US * 1000LL;
        }
        if (tries < spins + YIELDS)
            sched_yield();
        else
            sleep_while(meeting, state, deadline_ns, pause_us < LOOK_US ? pause_us : LOOK_US);
    }
}
