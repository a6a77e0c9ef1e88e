/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of processing units, and their lists: "0-3,8". Pure, except for cpus_usable. */
#ifndef STEPAF_TOPO_CPUS_H
#define STEPAF_TOPO_CPUS_H

#include <stddef.h>

/* The maximum that Linux can be built for. */
enum { STEPAF_CPUS_MAX = 8192 };

/* Same layout as the kernel's masks. */
struct stepaf_cpus {
    unsigned long bits[STEPAF_CPUS_MAX / (8 * sizeof(unsigned long))];
};

/* Parse a list. Blanks at the end are allowed (the kernel's files have a newline). Returns 0 if it
 * is no list, is empty or names an impossible unit; *cpus_p is then undefined. */
int stepaf_cpus_parse(const char *list, struct stepaf_cpus *cpus_p);

/* Write the list of @a cpus. A list that does not fit ends in "...". */
void stepaf_cpus_format(const struct stepaf_cpus *cpus, char *list, size_t capacity);

/* Add the members of @a more to *cpus. */
void stepaf_cpus_add(struct stepaf_cpus *cpus, const struct stepaf_cpus *more);

int stepaf_cpus_count(const struct stepaf_cpus *cpus);

/* Return the first member that is at least @a from; -1 if there is none. */
int stepaf_cpus_next(const struct stepaf_cpus *cpus, int from);

/* Get the calling thread's affinity mask. Returns 0 if the kernel does not tell. */
int stepaf_cpus_usable(struct stepaf_cpus *cpus_p);

#endif
