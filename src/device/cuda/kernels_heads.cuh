/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of mailboxes, and small tensors in them: kernels.h has what is in a head. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_HEADS_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_HEADS_CUH

#include "device/cuda/kernels_common.cuh"

namespace
{

/* ---- sending ---- */

/* Return the stamp of a piece in a head. */
__device__ __forceinline__ uint32_t piece_stamp(uint64_t stamp)
{
    return static_cast<uint32_t>(stamp) | STEPAF_HEAD_MARK;
}

__device__ __forceinline__ bool ends_head()
{
    return threadIdx.x % OCTET == OCTET - 1;
}

/* The words of the tensor that this thread puts into a head. */
struct HeadWords {
    uint32_t first, second, third;
};

/* Return whether this thread has the last bytes of a tensor in a head that are no whole word, and
 * in @a rest where they begin. These bytes have a path of their own, which whole words do not
 * take. */
__device__ __forceinline__ bool has_rest(uint32_t bytes, uint32_t at, uint32_t &rest)
{
    rest = bytes & ~3u;
    return rest != bytes && rest - at < STEPAF_HEAD_PIECE; /* and no less */
}

__device__ __forceinline__ HeadWords load_aligned_words(const uint8_t *data, uint32_t bytes,
                                                        uint32_t at)
{
    const uint32_t *from = reinterpret_cast<const uint32_t *>(data + at);
    HeadWords words = {at + 4 <= bytes ? from[0] : 0, at + 8 <= bytes ? from[1] : 0,
                       at + 12 <= bytes ? from[2] : 0};
    uint32_t rest;

    if (has_rest(bytes, at, rest)) {
        uint32_t word = load_word<true, uint32_t>(data, bytes, rest);
        words.first = rest == at ? word : words.first;
        words.second = rest == at + 4 ? word : words.second;
        words.third = rest == at + 8 ? word : words.third;
    }
    return words;
}

template <bool ALIGNED>
__device__ __forceinline__ HeadWords load_head_words(const stepaf_kernel_tensor &tensor)
{
    uint32_t at = threadIdx.x * STEPAF_HEAD_PIECE;

    if (threadIdx.x >= OCTET - 1)
        return {0, 0, 0};
    if (ALIGNED)
        return load_aligned_words(tensor.data, tensor.bytes, at);
    return {load_word<false, uint32_t>(tensor.data, tensor.bytes, at),
            load_word<false, uint32_t>(tensor.data, tensor.bytes, at + 4),
            load_word<false, uint32_t>(tensor.data, tensor.bytes, at + 8)};
}

/* Store a head with a tensor in it. */
__device__ __forceinline__ void store_head(const stepaf_kernel_tensor &tensor,
                                           const HeadWords &words, const Send &send)
{
    Pair pair = {static_cast<uint64_t>(words.second) << 32 | words.first,
                 static_cast<uint64_t>(piece_stamp(send.stamp)) << 32 | words.third};

    if (threadIdx.x >= OCTET || send.failed)
        return;
    if (ends_head())
        pair = {tensor.bytes, send.stamp};
    store_pair(tensor.head + 16 * threadIdx.x, pair);
}

/* Store a head alone. */
__device__ __forceinline__ void tell(const stepaf_kernel_tensor &tensor, const Send &send)
{
    if (threadIdx.x == 0 && !send.failed)
        store_pair(tensor.head + STEPAF_HEAD_TELLS, {tensor.bytes, send.stamp});
}

/* RDMA: store where the source is. Everything written to the source before this kernel is visible
 * by then. */
__device__ __forceinline__ void tell_source(const stepaf_kernel_tensor &tensor, const Send &send)
{
    uint64_t guarded = static_cast<uint64_t>(tensor.guarded) << 63;

    if (threadIdx.x == 0)
        store_pair(tensor.head + STEPAF_HEAD_SOURCE,
                   {reinterpret_cast<uint64_t>(tensor.data) | guarded, send.stamp});
}

/* ---- receiving ---- */

/* Return whether a head's stamp is a mark, which counts nothing. */
__device__ __forceinline__ bool is_mark(uint64_t its)
{
    return static_cast<uint32_t>(its) >= STEPAF_TOLD_ALL;
}

/* Return whether a head announces the operation that is waited for. */
__device__ __forceinline__ bool is_told(uint64_t its, uint64_t stamp)
{
    return its == stamp || is_mark(its);
}

/* Return whether a head announces everything that copy engines write for its peer. */
__device__ __forceinline__ bool tells_all(const uint8_t *head)
{
    return static_cast<uint32_t>(load_pair(head + STEPAF_HEAD_TELLS).y) == STEPAF_TOLD_ALL;
}

/* Return whether this thread's piece of a head, @a pair, is there, if it must be; or another head,
 * @a leader, announces the tensor. @a leader may be NULL for the other pieces. */
__device__ __forceinline__ bool has_come(const Pair &pair, uint32_t proto, uint64_t stamp,
                                         const uint8_t *leader)
{
    bool stamped = static_cast<uint32_t>(pair.y >> 32) == piece_stamp(stamp);
    bool there = ends_head() ? is_told(pair.y, stamp) : proto != STEPAF_PROTO_INLINE || stamped;

    return there || (leader != nullptr && tells_all(leader));
}

/* Return whether that is so for all threads of this octet. Called by whole warps. */
__device__ __forceinline__ bool has_come_whole(bool mine)
{
    uint32_t all = __ballot_sync(ALL, mine);

    return (all >> (threadIdx.x % STEPAF_WARP / OCTET * OCTET) & 0xff) == 0xff;
}

__device__ __forceinline__ void store_aligned_words(uint8_t *data, uint32_t bytes, uint32_t at,
                                                    const HeadWords &words)
{
    uint32_t *to = reinterpret_cast<uint32_t *>(data + at);
    uint32_t rest;

    if (at + 4 <= bytes)
        to[0] = words.first;
    if (at + 8 <= bytes)
        to[1] = words.second;
    if (at + 12 <= bytes)
        to[2] = words.third;
    if (has_rest(bytes, at, rest))
        store_word<true>(data, bytes, rest,
                         rest == at       ? words.first
                         : rest == at + 4 ? words.second
                                          : words.third);
}

/* Take the tensor that is in this octet's head. */
template <bool ALIGNED>
__device__ __forceinline__ void take_from_head(uint8_t *data, uint32_t bytes, const Pair &pair)
{
    uint32_t at = threadIdx.x % OCTET * STEPAF_HEAD_PIECE;
    HeadWords words = {static_cast<uint32_t>(pair.x), static_cast<uint32_t>(pair.x >> 32),
                       static_cast<uint32_t>(pair.y)};

    if (ends_head())
        return;
    if (ALIGNED) {
        store_aligned_words(data, bytes, at, words);
        return;
    }
    store_word<false>(data, bytes, at, words.first);
    store_word<false>(data, bytes, at + 4, words.second);
    store_word<false>(data, bytes, at + 8, words.third);
}

/* Clear a mark, since the next operation may be announced by one, too. */
__device__ __forceinline__ void clear_mark(uint8_t *head)
{
    store_pair(head + STEPAF_HEAD_TELLS, {0, 0});
}

/* Return the bytes of a tensor that is there, from the last two words of its head. */
__device__ __forceinline__ uint32_t bytes_of(const Pair &words, uint64_t stamp, uint32_t planned)
{
    if (words.y == stamp)
        return static_cast<uint32_t>(words.x);
    return is_mark(words.y) ? static_cast<uint32_t>(words.y >> 32) : planned;
}

} // namespace

#endif
