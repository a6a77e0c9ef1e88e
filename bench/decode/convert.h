/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of stored numbers to float32. */
#ifndef DECODE_CONVERT_H
#define DECODE_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "safetensors.h"

/* Whether convert_to_float knows @a dtype: F32, F16 and BF16. */
int convert_knows(enum safetensors_dtype dtype);

/* Bytes of one number of a dtype that convert_knows. */
size_t convert_bytes(enum safetensors_dtype dtype);

/* Convert @a count numbers; @a stored needs no alignment. */
void convert_to_float(enum safetensors_dtype dtype, const uint8_t *stored, size_t count,
                      float *values_p);

/* Whether all of them are finite. */
int convert_all_finite(const float *values, size_t count);

/* Convert one half-precision number. */
float convert_half(uint16_t half);

#endif
