/* SPDX-License-Identifier: Apache-2.0 */
/* A time limit for what has no deadline of its own: the floors, MPI, and the ranks' waiting for
 * each other. The measured loops then need not read a clock. */
#ifndef PERF_GUARD_H
#define PERF_GUARD_H

/* Unless perf_unguard is called first, end the process after @a seconds, with @a text on
 * standard error. */
void perf_guard(unsigned seconds, const char *text);
void perf_unguard(void);

/* For a failed process that waits until the others are notified. Unless perf_unguard is called
 * first, print @a text on standard error after a second, and end the process @a seconds later. */
void perf_guard_failed(unsigned seconds, const char *text);

#endif
