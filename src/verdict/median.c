/* SPDX-License-Identifier: Apache-2.0 */
/* The median and minimum of the last samples. */
#include "verdict/median.h"

#include <string.h>

void stepaf_median_add(struct stepaf_median *median, int64_t ns)
{
    uint32_t sorted[STEPAF_MEDIAN_SAMPLES];
    uint32_t kept;

    median->ns[median->n++ % STEPAF_MEDIAN_SAMPLES] = ns < 0            ? 0
                                                      : ns > UINT32_MAX ? UINT32_MAX
                                                                        : (uint32_t)ns;
    if (!median->n) /* it has wrapped */
        median->n = 2 * STEPAF_MEDIAN_SAMPLES;
    kept = median->n < STEPAF_MEDIAN_SAMPLES ? median->n : STEPAF_MEDIAN_SAMPLES;
    for (uint32_t i = 0; i < kept; i++) { /* few samples, and off the hot path */
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > median->ns[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = median->ns[i];
    }
    median->median = sorted[(kept - 1) / 2];
    median->least = sorted[0];
}
