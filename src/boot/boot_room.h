/* SPDX-License-Identifier: Apache-2.0 */
/* Space for ranks that arrive later: after the ranks that a bootstrap knows, a job has rank numbers
 * that no process has yet. In exchanges these ranks contribute nothing, and barriers do not wait
 * for them. */
#ifndef STEPAF_BOOT_BOOT_ROOM_H
#define STEPAF_BOOT_BOOT_ROOM_H

#include <stepaf/boot.h>

struct stepaf_boot_room {
    stepaf_boot_t inner; /* the job's bootstrap, which does not know the added ranks */
    int size;            /* with the added ranks */
};

/* Add @a n rank numbers to *boot. @a room must stay in place as long as *boot is used. */
void stepaf_boot_room_add(struct stepaf_boot_room *room, int n, stepaf_boot_t *boot);

#endif
