/* SPDX-License-Identifier: Apache-2.0 */
/* Room for ranks that come later: behind the ranks that a bootstrap knows, a job has numbers that
 * nobody has yet. In exchanges they have said nothing, and barriers do not wait for them. */
#ifndef STEPAF_BOOT_BOOT_ROOM_H
#define STEPAF_BOOT_BOOT_ROOM_H

#include <stepaf/boot.h>

struct stepaf_boot_room {
    stepaf_boot_t inner; /* the job's bootstrap, which knows nothing of them */
    int size;            /* with them */
};

/* Add @a n numbers to *boot. @a room stays where it is as long as *boot is used. */
void stepaf_boot_room_add(struct stepaf_boot_room *room, int n, stepaf_boot_t *boot);

#endif
