/* SPDX-License-Identifier: Apache-2.0 */
#include "convert.h"

#include <string.h>

int convert_knows(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_F16 || dtype == SAFETENSORS_BF16;
}

size_t convert_bytes(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F32 ? 4 : 2;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float convert_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0x1f)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    /* Zero, or below the normal range: fraction units of 2^-24, exact in float32. */
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
}

void convert_to_float(enum safetensors_dtype dtype, const uint8_t *stored, size_t count,
                      float *values_p)
{
    if (dtype == SAFETENSORS_F32) {
        memcpy(values_p, stored, count * sizeof(float));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = (uint16_t)(stored[2 * i] | stored[2 * i + 1] << 8);
        values_p[i] =
            dtype == SAFETENSORS_BF16 ? from_bits((uint32_t)bits << 16) : convert_half(bits);
    }
}

int convert_all_finite(const float *values, size_t count)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        found |= (bits & 0x7f800000) == 0x7f800000;
    }
    return !found;
}
