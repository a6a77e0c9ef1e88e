/* SPDX-License-Identifier: Apache-2.0 */
/* Those who have connected to rank 0 of a local job and have not said yet who they are. Nobody
 * waits for one of them: they are polled beside the ranks, and each has its time. */
#ifndef STEPAF_BOOT_BOOT_JOIN_STRANGERS_H
#define STEPAF_BOOT_BOOT_JOIN_STRANGERS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "boot/boot_join.h"

/* Of more the oldest has to go; if it was a rank, it comes again. */
enum { STEPAF_JOIN_STRANGERS_MAX = 64 };

struct stepaf_join_strangers {
    struct pollfd *polled; /* the oldest first; room for so many, which is its owner's to poll */
    int64_t until_ns[STEPAF_JOIN_STRANGERS_MAX];
    int n;
};

/* Let in who has connected to @a listener, if anybody has; another user's is sent away. An errno if
 * nobody can be let in, which more descriptors than these hold would not change. */
int stepaf_join_let_in(struct stepaf_join_strangers *strangers, int listener);

/* One that has said who it is: its descriptor, which is the caller's from now on; -1: none has. Who
 * has said anything else is sent away, and in the end those who have said nothing in time. */
int stepaf_join_introduced(struct stepaf_join_strangers *strangers,
                           struct stepaf_join_hello *hello_p);

/* When the first has to have said it, or @a deadline_ns if that is earlier. */
int64_t stepaf_join_patience(const struct stepaf_join_strangers *strangers, int64_t deadline_ns);

/* Send away the oldest, false if there is none; all. */
bool stepaf_join_dismiss_oldest(struct stepaf_join_strangers *strangers);
void stepaf_join_dismiss_all(struct stepaf_join_strangers *strangers);

#endif
