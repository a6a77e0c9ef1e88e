/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a tensor, which may begin and end anywhere, by words, halves of them and pieces of two. */
#ifndef STEPAF_DEVICE_KERNELS_WORDS_CUH
#define STEPAF_DEVICE_KERNELS_WORDS_CUH

#include <device/kernels_machine.cuh>

namespace
{

/* Word @a i of a tensor: the last one may be short, and a tensor may begin anywhere. */
template <bool ALIGNED>
__device__ __forceinline__ uint64_t load_word(const uint8_t *data, uint32_t bytes, uint32_t i)
{
    uint32_t at = i * 8;
    uint64_t word = 0;

    if (ALIGNED && at + 8 <= bytes)
        return *reinterpret_cast<const uint64_t *>(data + at);
#pragma unroll 1
    for (uint32_t b = 0; b < 8 && at + b < bytes; b++)
        word |= static_cast<uint64_t>(data[at + b]) << (8 * b);
    return word;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_word(uint8_t *data, uint32_t bytes, uint32_t i, uint64_t word)
{
    uint32_t at = i * 8;

    if (ALIGNED && at + 8 <= bytes) {
        *reinterpret_cast<uint64_t *>(data + at) = word;
        return;
    }
#pragma unroll 1
    for (uint32_t b = 0; b < 8 && at + b < bytes; b++)
        data[at + b] = static_cast<uint8_t>(word >> (8 * b));
}

/* Four bytes, in the same way. */
template <bool ALIGNED>
__device__ __forceinline__ uint32_t load_half(const uint8_t *data, uint32_t bytes, uint32_t at)
{
    uint32_t half = 0;

    if (ALIGNED && at + 4 <= bytes)
        return *reinterpret_cast<const uint32_t *>(data + at);
#pragma unroll 1
    for (uint32_t b = 0; b < 4 && at + b < bytes; b++)
        half |= static_cast<uint32_t>(data[at + b]) << (8 * b);
    return half;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_half(uint8_t *data, uint32_t bytes, uint32_t at,
                                           uint32_t half)
{
    if (ALIGNED && at + 4 <= bytes) {
        *reinterpret_cast<uint32_t *>(data + at) = half;
        return;
    }
#pragma unroll 1
    for (uint32_t b = 0; b < 4 && at + b < bytes; b++)
        data[at + b] = static_cast<uint8_t>(half >> (8 * b));
}

/* Piece @a i of a tensor: two words. */
template <bool ALIGNED>
__device__ __forceinline__ Pair load_piece(const uint8_t *data, uint32_t bytes, uint32_t i)
{
    Pair piece;

    if (ALIGNED && i * 16 + 16 <= bytes) {
        uint4 whole = *reinterpret_cast<const uint4 *>(data + i * 16);
        piece.x = static_cast<uint64_t>(whole.y) << 32 | whole.x;
        piece.y = static_cast<uint64_t>(whole.w) << 32 | whole.z;
        return piece;
    }
    piece.x = load_word<ALIGNED>(data, bytes, 2 * i);
    piece.y = load_word<ALIGNED>(data, bytes, 2 * i + 1);
    return piece;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_piece(uint8_t *data, uint32_t bytes, uint32_t i,
                                            const Pair &piece)
{
    if (ALIGNED && i * 16 + 16 <= bytes) {
        *reinterpret_cast<uint4 *>(data + i * 16) =
            make_uint4(static_cast<uint32_t>(piece.x), static_cast<uint32_t>(piece.x >> 32),
                       static_cast<uint32_t>(piece.y), static_cast<uint32_t>(piece.y >> 32));
        return;
    }
    store_word<ALIGNED>(data, bytes, 2 * i, piece.x);
    store_word<ALIGNED>(data, bytes, 2 * i + 1, piece.y);
}

} // namespace

#endif
