/* SPDX-License-Identifier: Apache-2.0 */
/* How long a runnable thread has waited for a core, as counted by the kernel. Makes system
 * calls. */
#ifndef STEPAF_VERDICT_STARVE_H
#define STEPAF_VERDICT_STARVE_H

#include "verdict/verdict.h"

/* Return the nanoseconds that the calling thread has waited since the last call, beyond its usual
 * wait where cores are shared; -1: unknown. @a now: ticks. A result less than @a fresh_us old is
 * returned again. */
int64_t stepaf_starve_read(struct stepaf_verdict_state *state, uint64_t now, int64_t fresh_us);

#endif
