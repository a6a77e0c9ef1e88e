/* SPDX-License-Identifier: Apache-2.0 */
/* How long a thread that could run has waited for a core, as the kernel counts it. Takes system
 * calls. */
#ifndef STEPAF_VERDICT_STARVE_H
#define STEPAF_VERDICT_STARVE_H

#include "verdict/verdict.h"

/* Nanoseconds that the calling thread has waited since the last call, beyond what it usually does
 * where cores are shared; -1: not known. @a now: ticks. What was found less than @a fresh_us ago is
 * told again. */
int64_t stepaf_starve_read(struct stepaf_verdict_state *state, uint64_t now, int64_t fresh_us);

#endif
