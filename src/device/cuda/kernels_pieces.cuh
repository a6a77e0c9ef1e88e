/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that go by LL, in groups of pieces that themselves say that they are there: kernels.h has
 * what a group is. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_PIECES_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_PIECES_CUH

#include "device/cuda/kernels_heads.cuh"

namespace
{

/* This thread's two pieces of a group: the one of its number, and the 32nd from there. */
struct Group {
    Pair low, high;
};

__device__ __forceinline__ uint32_t groups_of(uint32_t bytes)
{
    return (bytes + STEPAF_GROUP_DATA - 1) / STEPAF_GROUP_DATA;
}

/* Return whether all of a group is in the tensor. Nearly all groups are, and have a path with few
 * instructions. */
__device__ __forceinline__ bool is_whole(uint32_t bytes, uint32_t group)
{
    return (group + 1) * STEPAF_GROUP_DATA <= bytes;
}

__device__ __forceinline__ uint8_t *piece_at(const stepaf_kernel_tensor &tensor, uint32_t group)
{
    return tensor.data + group * STEPAF_GROUP_DATA + 16 * (threadIdx.x % STEPAF_WARP);
}

/* Load a group's pieces as they are in the tensor; the last thread's second piece is not part of
 * it. */
template <bool ALIGNED>
__device__ __forceinline__ Group load_tensor(const stepaf_kernel_tensor &tensor, uint32_t group)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint32_t first = group * GROUP_PIECES + t;

    if (ALIGNED && is_whole(tensor.bytes, group)) {
        const uint8_t *at = piece_at(tensor, group);
        Pair low = load_whole_piece(at), high = {0, 0};
        if (t != LAST)
            high = load_whole_piece(at + STEPAF_GROUP_BYTES / 2);
        return {low, high};
    }
    Group its = {load_piece<ALIGNED>(tensor.data, tensor.bytes, first), {0, 0}};

    if (t != LAST)
        its.high = load_piece<ALIGNED>(tensor.data, tensor.bytes, first + STEPAF_WARP);
    return its;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_tensor(const stepaf_kernel_tensor &tensor, uint32_t bytes,
                                             uint32_t group, const Group &its)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint32_t first = group * GROUP_PIECES + t;

    if (ALIGNED && is_whole(bytes, group)) {
        uint8_t *at = piece_at(tensor, group);
        store_whole_piece(at, its.low);
        if (t != LAST)
            store_whole_piece(at + STEPAF_GROUP_BYTES / 2, its.high);
        return;
    }
    store_piece<ALIGNED>(tensor.data, bytes, first, its.low);
    if (t != LAST)
        store_piece<ALIGNED>(tensor.data, bytes, first + STEPAF_WARP, its.high);
}

/* Put THERE into each piece; the displaced bits are in the last one. */
__device__ __forceinline__ Group set_there(Group its)
{
    uint32_t lows = __ballot_sync(ALL, (its.low.y & THERE) != 0);
    uint32_t highs = __ballot_sync(ALL, (its.high.y & THERE) != 0);

    if (threadIdx.x % STEPAF_WARP == LAST)
        its.high.x = static_cast<uint64_t>(highs) << 32 | lows;
    its.low.y |= THERE;
    its.high.y |= THERE;
    return its;
}

__device__ __forceinline__ bool is_there(const Group &its)
{
    return (its.low.y & its.high.y & THERE) != 0;
}

/* Restore the pieces as they were in the tensor. */
__device__ __forceinline__ Group restore(Group its)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint32_t lows = __shfl_sync(ALL, static_cast<uint32_t>(its.high.x), LAST);
    uint32_t highs = __shfl_sync(ALL, static_cast<uint32_t>(its.high.x >> 32), LAST);

    its.low.y = (its.low.y & ~THERE) | static_cast<uint64_t>(lows >> t) << 63;
    its.high.y = (its.high.y & ~THERE) | static_cast<uint64_t>(highs >> t) << 63;
    return its;
}

__device__ __forceinline__ uint8_t *group_at(const stepaf_kernel_tensor &tensor, uint32_t group)
{
    return tensor.body + static_cast<uint64_t>(group) * STEPAF_GROUP_BYTES +
           16 * (threadIdx.x % STEPAF_WARP);
}

__device__ __forceinline__ Group load_group(const uint8_t *at)
{
    return {load_pair(at), load_pair(at + STEPAF_GROUP_BYTES / 2)};
}

__device__ __forceinline__ void store_group(uint8_t *at, const Group &its)
{
    store_pair(at, its.low);
    store_pair(at + STEPAF_GROUP_BYTES / 2, its.high);
}

/* Send a share of the pieces. @a before was loaded before the wait, so its failed may be old. With
 * it the head leaves at once, so that the peer has something to begin with. If the plan fails at
 * that moment, its peer waits for the pieces. */
template <bool ALIGNED>
__device__ __forceinline__ void send_pieces(const stepaf_kernel_tensor &tensor, unsigned chunk,
                                            const Send &before, const uint32_t *failed_at)
{
    uint32_t n_groups = groups_of(tensor.bytes), group = chunk, failed;
    Group its = {{0, 0}, {0, 0}};

    if (chunk == 0 && n_groups)
        tell(tensor, before);
    if (group < n_groups)
        its = load_tensor<ALIGNED>(tensor, group);
    failed = load_volatile(failed_at);
    if (__any_sync(ALL, failed != 0))
        return;
    if (!n_groups && chunk == 0)
        tell(tensor, before);
    while (group < n_groups) {
        store_group(group_at(tensor, group), set_there(its));
        group += tensor.n;
        if (group < n_groups)
            its = load_tensor<ALIGNED>(tensor, group);
    }
}

/* Take share @a chunk of @a n. This thread's pieces of the first group are loaded already: @a its.
 * A group is polled until all of it is there, and left as the next operation must find it. Returns
 * false if it has given up. */
template <bool ALIGNED, class ARGS>
__device__ __forceinline__ bool take_pieces(const ARGS &args, const stepaf_kernel_tensor &tensor,
                                            uint32_t bytes, unsigned chunk, unsigned n, Group its)
{
    uint32_t n_groups = groups_of(bytes);
    uint8_t *from = group_at(tensor, chunk);
    Patience patience(args);

    make_here(from);
    for (uint32_t group = chunk; group < n_groups; group += n) {
        while (!__all_sync(ALL, is_there(its))) {
            if (__any_sync(ALL, threadIdx.x % STEPAF_WARP == 0 && patience.over(tensor.peer)))
                return false;
            its = load_group(from);
        }
        store_group(from, {{0, 0}, {0, 0}});
        store_tensor<ALIGNED>(tensor, bytes, group, restore(its));
        from += n * STEPAF_GROUP_BYTES;
        if (group + n < n_groups)
            its = load_group(from);
    }
    return true;
}

} // namespace

#endif
