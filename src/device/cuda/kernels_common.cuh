/* SPDX-License-Identifier: Apache-2.0 */
/* What all kernels share: patience, and those parts of sending and taking that do not depend on how a
 * launch is told of its tensors. FLOW is stepaf_kernel_args or stepaf_any_args. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_COMMON_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_COMMON_CUH

#include "device/cuda/kernels_words.cuh"
#include "device/kernels.h"
#include <device/cuda/kernels_machine.cuh>

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned OCTET = 8; /* threads that write a head with a tensor in it, or look at one */
constexpr unsigned LAST = STEPAF_WARP - 1;
constexpr unsigned GROUP_PIECES = STEPAF_GROUP_DATA / 16;
constexpr uint64_t THERE = UINT64_C(1) << 63; /* in a piece's second word */
constexpr unsigned LOOKS = 64;                /* polls between looks at the clock */

/* The number of the operation behind @a count others. Where registers are few, the compiler would
 * keep @a count beside it, and make it anew. */
__device__ __forceinline__ uint32_t number_after(uint32_t count)
{
    uint32_t n = (count + 1) & STEPAF_COUNT_MASK;

    hide(n);
    return n;
}

/* As stepaf_stamp; @a n is a number. */
template <class FLOW> __device__ __forceinline__ uint64_t make_stamp(const FLOW &args, uint32_t n)
{
    return static_cast<uint64_t>(args.epoch) << 32 | n;
}

/* The first thing that goes wrong is noted; from then on nothing is done for this plan. Whoever sees
 * that must find it noted, since its stream goes on, and the host looks. False: another is at it. */
template <class FLOW> __device__ bool note_fault(const FLOW &args, uint32_t fault, uint32_t peer)
{
    if (atomicExch(&args.failed[1], 1))
        return false;
    volatile stepaf_gpu_watch *watch = args.watch;
    watch->peer = peer;
    watch->slot = args.slot;
    __threadfence_system();
    watch->fault = fault;
    __threadfence_system();
    *static_cast<volatile uint32_t *>(args.failed) = 1;
    return true;
}

/* Ask now and then whether waiting still makes sense. */
template <class FLOW> class Patience
{
  public:
    __device__ explicit Patience(const FLOW &args) : flow_(args)
    {
    }

    /* One poll was in vain. True: give up. */
    __device__ __forceinline__ bool over(uint32_t peer)
    {
        if (++polls_ % LOOKS != 0)
            return false;
        began_ = look(flow_, polls_, began_, peer);
        return began_ == 0;
    }

  private:
    /* When waiting began; 0: give up. Not a method, so that the members stay in registers. */
    static __device__ __noinline__ uint64_t look(const FLOW &args, uint32_t polls, uint64_t began,
                                                 uint32_t peer)
    {
        uint64_t now = now_ns();

        if (load_volatile(args.failed))
            return 0;
        if (polls % (LOOKS * 16) == 0 && load_volatile(&args.watch->abort) &&
            note_fault(args, STEPAF_FAULT_ABORTED, peer))
            return 0;
        if (!began)
            return now;
        /* Signed: the timer may be set back a little. */
        if (args.timeout_ns &&
            static_cast<int64_t>(now - began) >= static_cast<int64_t>(args.timeout_ns) &&
            note_fault(args, STEPAF_FAULT_TIMEOUT, peer))
            return 0;
        return began;
    }

    const FLOW &flow_;
    uint64_t began_ = 0;
    uint32_t polls_ = 0;
};

/* ---- sending ---- */

/* What one send has to know. Whether the plan has failed is on its way from memory while the first piece
 * of the tensor is: it is looked at only when that is stored, or a head. */
struct Send {
    uint64_t stamp;
    uint32_t failed;
};

/* Of a piece in a head. */
__device__ __forceinline__ uint32_t piece_stamp(uint64_t stamp)
{
    return static_cast<uint32_t>(stamp) | STEPAF_HEAD_MARK;
}

__device__ __forceinline__ bool ends_head()
{
    return threadIdx.x % OCTET == OCTET - 1;
}

/* What this thread puts of the tensor into a head. */
struct HeadWords {
    uint32_t first, second, third;
};

/* Of a tensor in a head: where its last bytes begin, if they are no whole word. For those is a way of its own,
 * which whole words do not come by. */
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
__device__ __forceinline__ HeadWords load_head_words(const stepaf_kernel_tensor &lane)
{
    uint32_t at = threadIdx.x * STEPAF_HEAD_PIECE;

    if (threadIdx.x >= OCTET - 1)
        return {0, 0, 0};
    if (ALIGNED)
        return load_aligned_words(lane.data, lane.bytes, at);
    return {load_word<false, uint32_t>(lane.data, lane.bytes, at),
            load_word<false, uint32_t>(lane.data, lane.bytes, at + 4),
            load_word<false, uint32_t>(lane.data, lane.bytes, at + 8)};
}

/* A head with a tensor in it. */
__device__ __forceinline__ void store_head(const stepaf_kernel_tensor &lane, const HeadWords &words,
                                           const Send &send)
{
    Pair pair = {static_cast<uint64_t>(words.second) << 32 | words.first,
                 static_cast<uint64_t>(piece_stamp(send.stamp)) << 32 | words.third};

    if (threadIdx.x >= OCTET || send.failed)
        return;
    if (ends_head())
        pair = {lane.bytes, send.stamp};
    store_pair(lane.head + 16 * threadIdx.x, pair);
}

/* A head alone. */
__device__ __forceinline__ void tell(const stepaf_kernel_tensor &lane, const Send &send)
{
    if (threadIdx.x == 0 && !send.failed)
        store_pair(lane.head + STEPAF_HEAD_TELLS, {lane.bytes, send.stamp});
}

/* RDMA: where the source is. All that was written to it before this kernel can be seen by then. */
__device__ __forceinline__ void tell_source(const stepaf_kernel_tensor &lane, const Send &send)
{
    uint64_t guarded = static_cast<uint64_t>(lane.guarded) << 63;

    if (threadIdx.x == 0)
        store_pair(lane.head + STEPAF_HEAD_SOURCE,
                   {reinterpret_cast<uint64_t>(lane.data) | guarded, send.stamp});
}

/* ---- pieces: kernels.h has what a group of them is ---- */

/* This thread's two of a group: the one of its number, and the 32nd from there. */
struct Group {
    Pair low, high;
};

__device__ __forceinline__ uint32_t groups_of(uint32_t bytes)
{
    return (bytes + STEPAF_GROUP_DATA - 1) / STEPAF_GROUP_DATA;
}

/* As they are in the tensor; the last thread's second is not of it. */
template <bool ALIGNED>
__device__ __forceinline__ Group load_tensor(const stepaf_kernel_tensor &lane, uint32_t group)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint32_t first = group * GROUP_PIECES + t;
    Group its = {load_piece<ALIGNED>(lane.data, lane.bytes, first), {0, 0}};

    if (t != LAST)
        its.high = load_piece<ALIGNED>(lane.data, lane.bytes, first + STEPAF_WARP);
    return its;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_tensor(const stepaf_kernel_tensor &lane, uint32_t bytes,
                                             uint32_t group, const Group &its)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint32_t first = group * GROUP_PIECES + t;

    store_piece<ALIGNED>(lane.data, bytes, first, its.low);
    if (t != LAST)
        store_piece<ALIGNED>(lane.data, bytes, first + STEPAF_WARP, its.high);
}

/* Put THERE into each; what that displaces is in the last one. */
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

/* As it was in the tensor. */
__device__ __forceinline__ Group restore(Group its)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint32_t lows = __shfl_sync(ALL, static_cast<uint32_t>(its.high.x), LAST);
    uint32_t highs = __shfl_sync(ALL, static_cast<uint32_t>(its.high.x >> 32), LAST);

    its.low.y = (its.low.y & ~THERE) | static_cast<uint64_t>(lows >> t) << 63;
    its.high.y = (its.high.y & ~THERE) | static_cast<uint64_t>(highs >> t) << 63;
    return its;
}

__device__ __forceinline__ uint8_t *group_at(const stepaf_kernel_tensor &lane, uint32_t group)
{
    return lane.body + static_cast<uint64_t>(group) * STEPAF_GROUP_BYTES +
           16 * (threadIdx.x % STEPAF_WARP);
}

__device__ __forceinline__ Group load_group(const stepaf_kernel_tensor &lane, uint32_t group)
{
    const uint8_t *at = group_at(lane, group);

    return {load_pair(at), load_pair(at + STEPAF_GROUP_BYTES / 2)};
}

__device__ __forceinline__ void store_group(const stepaf_kernel_tensor &lane, uint32_t group,
                                            const Group &its)
{
    uint8_t *at = group_at(lane, group);

    store_pair(at, its.low);
    store_pair(at + STEPAF_GROUP_BYTES / 2, its.high);
}

/* @a before is of before the wait: its failed may be old. With it the head goes on its way at once, since
 * the peer has something to begin. If a plan fails right then, its peer waits for the pieces. */
template <bool ALIGNED>
__device__ __forceinline__ void send_pieces(const stepaf_kernel_tensor &lane, unsigned chunk,
                                            const Send &before, const uint32_t *failed_at)
{
    uint32_t n_groups = groups_of(lane.bytes), group = chunk, failed;
    Group its = {{0, 0}, {0, 0}};

    if (chunk == 0 && n_groups)
        tell(lane, before);
    if (group < n_groups)
        its = load_tensor<ALIGNED>(lane, group);
    failed = load_volatile(failed_at);
    if (__any_sync(ALL, failed != 0))
        return;
    if (!n_groups && chunk == 0)
        tell(lane, before);
    while (group < n_groups) {
        store_group(lane, group, set_there(its));
        group += lane.n;
        if (group < n_groups)
            its = load_tensor<ALIGNED>(lane, group);
    }
}

/* Copy this block's share of @a bytes. */
template <bool ALIGNED>
__device__ __forceinline__ void copy_share(uint8_t *dst, const uint8_t *src, uint32_t bytes,
                                           unsigned chunk, unsigned n)
{
    constexpr uint32_t STEP = STEPAF_WARP * 16;
    uint32_t whole = ALIGNED ? bytes / 16 * 16 : 0;
    uint64_t stride = static_cast<uint64_t>(n) * STEP;

    for (uint64_t at = chunk * STEP + threadIdx.x * 16; at < whole; at += 2 * stride) {
        uint4 piece[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (at + i * stride < whole)
                piece[i] = *reinterpret_cast<const uint4 *>(src + at + i * stride);
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (at + i * stride < whole)
                *reinterpret_cast<uint4 *>(dst + at + i * stride) = piece[i];
    }
    for (uint64_t at = whole + chunk * STEPAF_WARP + threadIdx.x; at < bytes;
         at += static_cast<uint64_t>(n) * STEPAF_WARP)
        dst[at] = src[at];
}

/* Whether this block is the last of those that share lane @a i: then all bytes are where they go. */
template <class FLOW>
__device__ __forceinline__ bool is_last(const FLOW &args, unsigned i,
                                        const stepaf_kernel_tensor &lane)
{
    uint32_t before = 0;

    __threadfence_system();
    __syncwarp();
    if (lane.n > 1 && threadIdx.x == 0)
        before = atomicInc(&args.done[i], lane.n - 1u);
    before = __shfl_sync(ALL, before, 0);
    __threadfence_system();
    return lane.n == 1 || before == lane.n - 1u;
}

/* ---- receiving ---- */

/* Whether a head's stamp is one that counts nothing. */
__device__ __forceinline__ bool is_mark(uint64_t its)
{
    return static_cast<uint32_t>(its) >= STEPAF_TOLD_ALL;
}

/* Whether a head tells of the operation that is waited for. */
__device__ __forceinline__ bool is_told(uint64_t its, uint64_t stamp)
{
    return its == stamp || is_mark(its);
}

/* Whether a head tells of all that copy engines write for its peer. */
__device__ __forceinline__ bool tells_all(const uint8_t *head)
{
    return static_cast<uint32_t>(load_pair(head + STEPAF_HEAD_TELLS).y) == STEPAF_TOLD_ALL;
}

/* Whether this thread's piece of a head, @a pair, is there, if it has to be; or another head, @a leader,
 * tells of the tensor. For the other pieces it may be NULL. */
__device__ __forceinline__ bool has_come(const Pair &pair, uint32_t proto, uint64_t stamp,
                                         const uint8_t *leader)
{
    bool stamped = static_cast<uint32_t>(pair.y >> 32) == piece_stamp(stamp);
    bool there = ends_head() ? is_told(pair.y, stamp) : proto != STEPAF_PROTO_INLINE || stamped;

    return there || (leader != nullptr && tells_all(leader));
}

/* Whether that is so for all of this octet. By whole warps. */
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

/* The tensor that is in this octet's head. */
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

/* The next operation may be told of so, too. */
__device__ __forceinline__ void clear_mark(uint8_t *head)
{
    store_pair(head + STEPAF_HEAD_TELLS, {0, 0});
}

/* The bytes of a tensor that is there, from the last two words of its head. */
__device__ __forceinline__ uint32_t bytes_of(const Pair &words, uint64_t stamp, uint32_t planned)
{
    if (words.y == stamp)
        return static_cast<uint32_t>(words.x);
    return is_mark(words.y) ? static_cast<uint32_t>(words.y >> 32) : planned;
}

/* Take the share @a chunk of @a n, of whose first group this thread's pieces have been loaded already:
 * @a its. A group is looked at until all of it is there, and left as the next operation has to find it.
 * False: given up. */
template <bool ALIGNED, class FLOW>
__device__ __forceinline__ bool take_pieces(const FLOW &args, const stepaf_kernel_tensor &lane,
                                            uint32_t bytes, unsigned chunk, unsigned n, Group its)
{
    uint32_t n_groups = groups_of(bytes);
    Patience patience(args);

    for (uint32_t group = chunk; group < n_groups; group += n) {
        if (group != chunk)
            its = load_group(lane, group);
        while (!__all_sync(ALL, is_there(its))) {
            if (__any_sync(ALL, threadIdx.x % STEPAF_WARP == 0 && patience.over(lane.peer)))
                return false;
            its = load_group(lane, group);
        }
        store_group(lane, group, {{0, 0}, {0, 0}});
        store_tensor<ALIGNED>(lane, bytes, group, restore(its));
    }
    return true;
}

} // namespace

#endif
