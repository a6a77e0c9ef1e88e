/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of processing units, and their lists: "0-3,8". Pure, except for cpus_usable. */
#ifndef STEPAF_TOPO_CPUS_H
#define STEPAF_TOPO_CPUS_H

#include <stddef.h>

/* As many as Linux can be built for. */
enum { STEPAF_CPUS_MAX = 8192 };

/* Laid out as the kernel's masks are. */
struct stepaf_cpus {
    unsigned long bits[STEPAF_CPUS_MAX / (8 * sizeof(unsigned long))];
};

/* Parse a list. Blanks at the end are allowed (the kernel's files have a newline). Return 0 if it
 * is no list, is empty or names a unit that cannot be; *cpus_p is undefined then. */
int stepaf_cpus_parse(const char *list, struct stepaf_cpus *cpus_p);

/* Write the list of @a cpus; one that does not fit ends in "...". */
void stepaf_cpus_format(const struct stepaf_cpus *cpus, char *list, size_t capacity);

/* Add the members of @a more to *cpus. */
void stepaf_cpus_add(struct stepaf_cpus *cpus, const struct stepaf_cpus *more);

int stepaf_cpus_count(const struct stepaf_cpus *cpus);

/* The first member that is at least @a from; -1 if there is none. */
int stepaf_cpus_next(const struct stepaf_cpus *cpus, int from);

/* The calling thread's affinity mask. Return 0 if the kernel does not tell. */
int stepaf_cpus_usable(struct stepaf_cpus *cpus_p);

#endif
