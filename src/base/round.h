/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_BASE_ROUND_H
#define STEPAF_BASE_ROUND_H

#include <stdint.h>

/* Return @a bytes rounded up to a multiple of @a unit. */
static inline uint64_t stepaf_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Return @a n rounded up to a power of two. */
static inline uint64_t stepaf_round_up_power(uint64_t n)
{
    uint64_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

#endif
