/* SPDX-License-Identifier: Apache-2.0 */
/* The median of the last samples of a time. */
#ifndef STEPAF_VERDICT_MEDIAN_H
#define STEPAF_VERDICT_MEDIAN_H

#include <stdint.h>

enum { STEPAF_MEDIAN_SAMPLES = 31 };

struct stepaf_median {
    uint32_t n;      /* samples, ever */
    uint32_t median; /* ns */
    uint32_t least;  /* likewise */
    uint32_t ns[STEPAF_MEDIAN_SAMPLES];
};

/* What is longer than 4 s counts as that, what is negative as 0. */
void stepaf_median_add(struct stepaf_median *median, int64_t ns);

#endif
