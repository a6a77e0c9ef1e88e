/* SPDX-License-Identifier: Apache-2.0 */
/* What the calling thread's rank does while a bootstrap's function waits: see
 * stepaf_boot_advance. */
#ifndef STEPAF_BOOT_BOOT_ADVANCE_H
#define STEPAF_BOOT_BOOT_ADVANCE_H

#include <stdint.h>

/* Returns what stepaf_boot_advance does. */
typedef int64_t (*stepaf_boot_advance_t)(void *arg);

/* From now on stepaf_boot_advance calls @a advance in this thread; NULL ends that. */
void stepaf_boot_set_advance(stepaf_boot_advance_t advance, void *arg);

#endif
