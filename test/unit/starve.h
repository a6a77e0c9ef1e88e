/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out. A program whose link wraps the allocator (STARVE_LDFLAGS) can make any
 * one allocation of its own objects, including the library's, fail; allocations of shared
 * libraries for themselves are unaffected, except the nodes of their trees (tsearch). */
#ifndef STEPAF_TEST_STARVE_H
#define STEPAF_TEST_STARVE_H

#include <stdbool.h>
#include <stdint.h>

/* Count allocations from here on, and make the @a nth of them fail, from 1; 0: none. @a lasting:
 * also all later ones, until starve_feed. */
void starve_begin(uint64_t nth, bool lasting);
void starve_feed(void);

/* The same for system calls, where starve_calls.c is linked: the @a nth fails, once. */
void starve_begin_calls(uint64_t nth);
/* Internal: return whether this call fails. */
bool starve_denies(void);

/* Return whether the failure has occurred. */
bool starve_has_struck(void);

/* Stop. */
void starve_end(void);

/* Return whether some allocations are not freed yet. */
bool starve_is_owed(void);

/* Return how many are not freed, and print their numbers. */
unsigned starve_leaks(void);

#endif
