/* SPDX-License-Identifier: Apache-2.0 */
/* A place in shared memory where processes meet: the local bootstrap's barrier. */
#ifndef STEPAF_BOOT_MEETING_H
#define STEPAF_BOOT_MEETING_H

#include <stdatomic.h>
#include <stdint.h>

/* One word says it all, so that "all have come" and "somebody has given up" exclude each other:
 * bits 0-10 how many have come, 11-29 how many meetings there have been (wraps), 30 broken because
 * a deadline passed, 31 broken. */
struct stepaf_meeting {
    _Atomic uint32_t state;
};

enum stepaf_meeting_result {
    STEPAF_MEETING_OK,
    STEPAF_MEETING_TIMEOUT, /* not all came before the first one's deadline; broken for good */
    STEPAF_MEETING_BROKEN   /* broken before this one came, or by stepaf_meeting_break */
};

/* Most that can meet. */
enum { STEPAF_MEETING_MAX = 1024 };

/* Who looks, now and then, whether those that are missing can still come. */
struct stepaf_meeting_watch {
    void *arg;
    int (*is_in_vain)(void *arg); /* true: the meeting is broken */
    /* Counts the meetings that this one has been counted in, only once it has: who ends before that
     * is missing. */
    _Atomic uint32_t *visits;
};

/* Wait until @a n have come, this one included, or CLOCK_MONOTONIC has passed @a deadline_ns.
 * @a spin: try for some microseconds before giving up the core. */
enum stepaf_meeting_result stepaf_meeting_join(struct stepaf_meeting *meeting, int n, int spin,
                                               const struct stepaf_meeting_watch *watch,
                                               int64_t deadline_ns);

/* Give up on behalf of all: who waits, and who comes later, gets STEPAF_MEETING_BROKEN. */
void stepaf_meeting_break(struct stepaf_meeting *meeting);

#endif
