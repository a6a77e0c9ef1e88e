/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_BASE_ROUND_H
#define STEPAF_BASE_ROUND_H

#include <stdint.h>

/* The next multiple of @a unit. */
static inline uint64_t stepaf_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

#endif
