/* SPDX-License-Identifier: Apache-2.0 */
/* Load and store bytes of a tensor, which may begin and end anywhere, by words of 4 or 8 bytes, and
 * pieces of 16. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_WORDS_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_WORDS_CUH

#include <device/cuda/kernels_machine.cuh>

namespace
{

/* Load the bytes of a tensor from @a at on, as many as a WORD has. The last word may have fewer; a
 * tensor may begin anywhere. */
template <bool ALIGNED, class WORD>
__device__ __forceinline__ WORD load_word(const uint8_t *data, uint32_t bytes, uint32_t at)
{
    constexpr uint32_t SIZE = sizeof(WORD);
    WORD word = 0;

    if (ALIGNED && at + SIZE <= bytes)
        return *reinterpret_cast<const WORD *>(data + at);
#pragma unroll 1
    for (uint32_t b = 0; b < SIZE && at + b < bytes; b++)
        word |= static_cast<WORD>(data[at + b]) << (8 * b);
    return word;
}

template <bool ALIGNED, class WORD>
__device__ __forceinline__ void store_word(uint8_t *data, uint32_t bytes, uint32_t at, WORD word)
{
    constexpr uint32_t SIZE = sizeof(WORD);

    if (ALIGNED && at + SIZE <= bytes) {
        *reinterpret_cast<WORD *>(data + at) = word;
        return;
    }
#pragma unroll 1
    for (uint32_t b = 0; b < SIZE && at + b < bytes; b++)
        data[at + b] = static_cast<uint8_t>(word >> (8 * b));
}

/* Load a piece of a tensor, two words, at a multiple of 16. */
__device__ __forceinline__ Pair load_whole_piece(const uint8_t *at)
{
    uint4 whole = *reinterpret_cast<const uint4 *>(at);

    return {static_cast<uint64_t>(whole.y) << 32 | whole.x,
            static_cast<uint64_t>(whole.w) << 32 | whole.z};
}

__device__ __forceinline__ void store_whole_piece(uint8_t *at, const Pair &piece)
{
    *reinterpret_cast<uint4 *>(at) =
        make_uint4(static_cast<uint32_t>(piece.x), static_cast<uint32_t>(piece.x >> 32),
                   static_cast<uint32_t>(piece.y), static_cast<uint32_t>(piece.y >> 32));
}

/* Load piece @a i of a tensor. */
template <bool ALIGNED>
__device__ __forceinline__ Pair load_piece(const uint8_t *data, uint32_t bytes, uint32_t i)
{
    Pair piece;

    if (ALIGNED && i * 16 + 16 <= bytes)
        return load_whole_piece(data + i * 16);
    piece.x = load_word<ALIGNED, uint64_t>(data, bytes, i * 16);
    piece.y = load_word<ALIGNED, uint64_t>(data, bytes, i * 16 + 8);
    return piece;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_piece(uint8_t *data, uint32_t bytes, uint32_t i,
                                            const Pair &piece)
{
    if (ALIGNED && i * 16 + 16 <= bytes) {
        store_whole_piece(data + i * 16, piece);
        return;
    }
    store_word<ALIGNED>(data, bytes, i * 16, piece.x);
    store_word<ALIGNED>(data, bytes, i * 16 + 8, piece.y);
}

} // namespace

#endif
