/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of a rank while a collective call waits in the bootstrap. */
#ifndef STEPAF_API_BOOT_WAIT_H
#define STEPAF_API_BOOT_WAIT_H

#include "core/ctx.h"

/* Between begin and end, this thread's calls of the bootstrap make progress for the rank: without a
 * progress thread, operations advance and the handler is called. The program may interrupt the
 * calls, in which the lock is not held. stepaf_boot_wait_end returns @a status, or the status of an
 * interrupted wait. */
void stepaf_boot_wait_begin(struct stepaf_ctx *ctx);
/* Between begin and end, with the lock held: send what is queued, in the same way. @a timeout_us: at
 * most. Return what is left of it; -1: the program has interrupted the call, and the failure of @a
 * phase is set. */
int64_t stepaf_boot_wait_flush(struct stepaf_ctx *ctx, int64_t timeout_us, stepaf_phase_t phase);
stepaf_status_t stepaf_boot_wait_end(stepaf_status_t status, stepaf_phase_t phase);

#endif
