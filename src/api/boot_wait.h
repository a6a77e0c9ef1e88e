/* SPDX-License-Identifier: Apache-2.0 */
/* Going on while a collective call waits in the bootstrap. */
#ifndef STEPAF_API_BOOT_WAIT_H
#define STEPAF_API_BOOT_WAIT_H

#include "core/ctx.h"

/* Between begin and end, whatever this thread calls of the bootstrap lets the rank go on: without a
 * progress thread, operations make progress and the handler is called. The program may interrupt
 * that. The lock is not held. The end returns @a status, or that of an interrupted wait. */
void stepaf_boot_wait_begin(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_boot_wait_end(stepaf_status_t status, stepaf_phase_t phase);

#endif
