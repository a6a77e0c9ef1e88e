/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers: processes that have connected to rank 0 of a local job and have not yet said who they
 * are. Rank 0 waits for none of them alone: strangers are polled beside the ranks, and each has its
 * own time limit. */
#ifndef STEPAF_BOOT_BOOT_JOIN_STRANGERS_H
#define STEPAF_BOOT_BOOT_JOIN_STRANGERS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "boot/boot_join.h"

/* If there are more, the oldest must go; if it was a rank, it connects again. */
enum { STEPAF_JOIN_STRANGERS_MAX = 64 };

struct stepaf_join_strangers {
    /* The oldest first. Has space for STEPAF_JOIN_STRANGERS_MAX; the owner polls it. */
    struct pollfd *polled;
    int64_t until_ns[STEPAF_JOIN_STRANGERS_MAX];
    int n;
};

/* Accept a connection to @a listener, if there is one; a connection of another user is closed.
 * Returns an errno if no connection can be accepted and closing strangers would not change that. */
int stepaf_join_let_in(struct stepaf_join_strangers *strangers, int listener);

/* Return the file descriptor of a stranger that has said who it is, which the caller owns from now
 * on; -1 if there is none. Strangers that have sent anything else are closed, and in the end those
 * that have sent nothing in time. */
int stepaf_join_introduced(struct stepaf_join_strangers *strangers,
                           struct stepaf_join_hello *hello_p);

/* Return the time by which the oldest must have said who it is, or @a deadline_ns if that is
 * earlier. */
int64_t stepaf_join_patience(const struct stepaf_join_strangers *strangers, int64_t deadline_ns);

/* Close the oldest, returning false if there is none; close all. */
bool stepaf_join_dismiss_oldest(struct stepaf_join_strangers *strangers);
void stepaf_join_dismiss_all(struct stepaf_join_strangers *strangers);

#endif
