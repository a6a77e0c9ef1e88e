/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out. A program whose link wraps the allocator (STARVE_LDFLAGS) can have any one
 * allocation of its own objects, the library's among them, fail; what shared libraries allocate for
 * themselves is left alone, but for the nodes of their trees (tsearch). */
#ifndef STEPAF_TEST_STARVE_H
#define STEPAF_TEST_STARVE_H

#include <stdbool.h>
#include <stdint.h>

/* Count allocations from here on, and have the @a nth of them fail, from 1; 0: none. @a lasting:
 * and all that come after it, until starve_feed. */
void starve_begin(uint64_t nth, bool lasting);
void starve_feed(void);

/* The same for system calls, where starve_calls.c is linked: the @a nth fails, once. */
void starve_begin_calls(uint64_t nth);
/* Inside: whether this one does. */
bool starve_denies(void);

/* Whether it has failed. */
bool starve_has_struck(void);

/* Stop. */
void starve_end(void);

/* Whether some of them are not freed yet. */
bool starve_is_owed(void);

/* How many of them are not freed, whose numbers are said. */
unsigned starve_leaks(void);

#endif
