/* SPDX-License-Identifier: Apache-2.0 */
/* An end to what has no deadline of its own: the floors, MPI, and the ranks' waiting for each
 * other. The loops that are measured need not look at a clock for it. */
#ifndef PERF_GUARD_H
#define PERF_GUARD_H

/* Unless perf_unguard comes first, end the process in @a seconds, with @a text on standard
 * error. */
void perf_guard(unsigned seconds, const char *text);
void perf_unguard(void);

/* What it would say from now on. */
void perf_guard_say(const char *text);

#endif
