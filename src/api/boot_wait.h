/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of a rank while a collective call waits in the bootstrap. */
#ifndef STEPAF_API_BOOT_WAIT_H
#define STEPAF_API_BOOT_WAIT_H

#include "core/ctx.h"

/* Between begin and end, this thread's calls of the bootstrap make progress for the rank: without a
 * progress thread, operations advance and the handler is called. The program may interrupt the
 * calls. The lock is not held. stepaf_boot_wait_end returns @a status, or the status of an
 * interrupted wait. */
void stepaf_boot_wait_begin(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_boot_wait_end(stepaf_status_t status, stepaf_phase_t phase);

#endif
