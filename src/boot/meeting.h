/* SPDX-License-Identifier: Apache-2.0 */
/* A place in shared memory where processes meet: the local bootstrap's barrier. */
#ifndef STEPAF_BOOT_MEETING_H
#define STEPAF_BOOT_MEETING_H

#include <stdatomic.h>
#include <stdint.h>

/* One word holds the whole state, so that "all have arrived" and "one has given up" exclude each
 * other: bits 0-10 how many have arrived, 11-29 how many meetings there have been (wraps), 30
 * broken because a deadline passed, 31 broken. */
struct stepaf_meeting {
    _Atomic uint32_t state;
};

enum stepaf_meeting_result {
    STEPAF_MEETING_OK,
    STEPAF_MEETING_TIMEOUT, /* not all arrived before the first deadline; broken for good */
    STEPAF_MEETING_BROKEN   /* broken before this one arrived, or by stepaf_meeting_break */
};

/* Most processes that can meet. */
enum { STEPAF_MEETING_MAX = 1024 };

/* A callback that checks, now and then, whether the missing processes can still come. */
struct stepaf_meeting_watch {
    void *arg;
    int (*is_in_vain)(void *arg); /* true: the meeting is broken */
    /* Counts the meetings that this process has been counted in; written only after that: a process
     * that ends before is missing. */
    _Atomic uint32_t *visits;
};

/* Wait until @a n processes have arrived, this one included, or CLOCK_MONOTONIC has passed @a
 * deadline_ns. @a spin: try for some microseconds before giving up the core. */
enum stepaf_meeting_result stepaf_meeting_join(struct stepaf_meeting *meeting, int n, int spin,
                                               const struct stepaf_meeting_watch *watch,
                                               int64_t deadline_ns);

/* Break the meeting for all: a process that waits or arrives later gets STEPAF_MEETING_BROKEN. */
void stepaf_meeting_break(struct stepaf_meeting *meeting);

#endif
