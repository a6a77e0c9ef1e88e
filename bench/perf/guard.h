/* SPDX-License-Identifier: Apache-2.0 */
/* An end to what has no deadline of its own: the floors, MPI, and the ranks' waiting for each
 * other. The loops that are measured need not look at a clock for it. */
#ifndef PERF_GUARD_H
#define PERF_GUARD_H

/* Unless perf_unguard comes first, end the process in @a seconds, with @a text on standard
 * error. */
void perf_guard(unsigned seconds, const char *text);
void perf_unguard(void);

/* This process has failed, and waits for the others to hear of it. Unless perf_unguard comes
 * first, @a text is on standard error in a second, and the process ends in @a seconds more. */
void perf_guard_failed(unsigned seconds, const char *text);

#endif
