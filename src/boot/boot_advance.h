/* SPDX-License-Identifier: Apache-2.0 */
/* What the calling thread's rank does while a function of a bootstrap waits: see
 * stepaf_boot_advance. */
#ifndef STEPAF_BOOT_BOOT_ADVANCE_H
#define STEPAF_BOOT_BOOT_ADVANCE_H

#include <stdint.h>

/* Return the result of stepaf_boot_advance. */
typedef int64_t (*stepaf_boot_advance_t)(void *arg);

/* Set the function that stepaf_boot_advance calls in this thread from now on. NULL: none. */
void stepaf_boot_set_advance(stepaf_boot_advance_t advance, void *arg);

#endif
