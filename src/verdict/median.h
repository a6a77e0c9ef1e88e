/* SPDX-License-Identifier: Apache-2.0 */
/* The median and minimum of the last samples of a time. */
#ifndef STEPAF_VERDICT_MEDIAN_H
#define STEPAF_VERDICT_MEDIAN_H

#include <stdint.h>

enum { STEPAF_MEDIAN_SAMPLES = 31 };

struct stepaf_median {
    uint32_t n;      /* samples ever added */
    uint32_t median; /* ns */
    uint32_t least;  /* ns, minimum */
    uint32_t ns[STEPAF_MEDIAN_SAMPLES];
};

/* Add a sample. Samples longer than 4 s count as 4 s, negative ones as 0. */
void stepaf_median_add(struct stepaf_median *median, int64_t ns);

#endif
