/* SPDX-License-Identifier: Apache-2.0 */
/* What all kernels share: lines, patience, and the pieces of sending and taking that do not
 * depend on how a launch is told of its tensors. FLOW is stepaf_flow or stepaf_any_flow. */
#ifndef STEPAF_DEVICE_KERNELS_COMMON_CUH
#define STEPAF_DEVICE_KERNELS_COMMON_CUH

#include "device/kernels.h"
#include "device/kernels_words.cuh"
#include <device/kernels_machine.cuh>

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned OCTET = 8; /* threads that write a line */
constexpr unsigned GROUP_LINES = STEPAF_GROUP_LINES;
constexpr unsigned GROUP_PIECES = STEPAF_WARP - 1; /* of 16 bytes */
constexpr unsigned GROUP_DATA = GROUP_LINES * STEPAF_LINE_DATA;
constexpr unsigned GROUP_BYTES = GROUP_LINES * STEPAF_LINE_BYTES;
constexpr unsigned BATCH = 4;  /* groups that are waited for at once */
constexpr unsigned LOOKS = 64; /* polls between looks at the clock */

/* The number of the operation behind @a count others. Where registers are few, the compiler would
 * keep @a count beside it, and make it anew. */
__device__ __forceinline__ uint32_t number_after(uint32_t count)
{
    uint32_t n = (count + 1) & STEPAF_COUNT_MASK;

    hide(n);
    return n;
}

/* As stepaf_stamp; @a n is a number. */
template <class FLOW> __device__ __forceinline__ uint64_t make_stamp(const FLOW &flow, uint32_t n)
{
    return static_cast<uint64_t>(flow.epoch) << 32 | n;
}

/* The first thing that goes wrong is noted; from then on nothing is done for this plan. Whoever sees
 * that must find it noted, since its stream goes on, and the host looks. False: another is at it. */
template <class FLOW> __device__ bool note_fault(const FLOW &flow, uint32_t fault, uint32_t peer)
{
    if (atomicExch(&flow.failed[1], 1))
        return false;
    volatile stepaf_gpu_watch *watch = flow.watch;
    watch->peer = peer;
    watch->slot = flow.slot;
    __threadfence_system();
    watch->fault = fault;
    __threadfence_system();
    *static_cast<volatile uint32_t *>(flow.failed) = 1;
    return true;
}

/* Ask now and then whether waiting still makes sense. */
template <class FLOW> class Patience
{
  public:
    __device__ explicit Patience(const FLOW &flow) : flow_(flow)
    {
    }

    /* One poll was in vain. True: give up. */
    __device__ __forceinline__ bool over(uint32_t peer)
    {
        return ++polls_ % LOOKS == 0 && look(peer);
    }

  private:
    __device__ __noinline__ bool look(uint32_t peer)
    {
        if (load_volatile(flow_.failed))
            return true;
        if (polls_ % (LOOKS * 16) == 0 && load_volatile(&flow_.watch->abort))
            return note_fault(flow_, STEPAF_FAULT_ABORTED, peer);
        if (!began_)
            began_ = now_ns();
        /* Signed: the timer may be set back a little. */
        if (!flow_.timeout_ns ||
            static_cast<int64_t>(now_ns() - began_) < static_cast<int64_t>(flow_.timeout_ns))
            return false;
        return note_fault(flow_, STEPAF_FAULT_TIMEOUT, peer);
    }

    const FLOW &flow_;
    uint64_t began_ = 0;
    uint32_t polls_ = 0;
};

/* ---- sending ---- */

/* What one send has to know: the stamp, and whether the plan has failed. Both are on their way from
 * memory while the first piece of the tensor is: they are looked at only when it is stored. */
struct Send {
    uint64_t stamp;
    uint32_t failed;
};

__device__ __forceinline__ uint32_t line_stamp(uint64_t stamp)
{
    return static_cast<uint32_t>(stamp) | STEPAF_LINE_MARK;
}

__device__ __forceinline__ bool ends_line()
{
    return threadIdx.x % OCTET == OCTET - 1;
}

template <bool ALIGNED>
__device__ __forceinline__ void send_head(const stepaf_lane &lane, const Send &send)
{
    unsigned t = threadIdx.x;
    uint32_t at = t * STEPAF_HEAD_PIECE;
    Pair pair = {0, 0};

    if (t >= OCTET)
        return;
    if (lane.way == STEPAF_WAY_HEAD && t < OCTET - 1) {
        uint32_t first = load_half<ALIGNED>(lane.data, lane.bytes, at);
        uint32_t second = load_half<ALIGNED>(lane.data, lane.bytes, at + 4);
        uint32_t third = load_half<ALIGNED>(lane.data, lane.bytes, at + 8);
        pair.x = static_cast<uint64_t>(second) << 32 | first;
        pair.y = static_cast<uint64_t>(line_stamp(send.stamp)) << 32 | third;
    }
    if (t == OCTET - 1)
        pair = {lane.bytes, send.stamp};
    if (!send.failed)
        store_pair(lane.head + 16 * t, pair);
}

/* ---- lines: kernels.h has how a warp shares out four of them ---- */

__device__ __forceinline__ uint32_t groups_of(uint32_t bytes)
{
    return (bytes + GROUP_DATA - 1) / GROUP_DATA;
}

/* This thread's piece of a group; none of the last one's. */
template <bool ALIGNED>
__device__ __forceinline__ Pair load_group(const stepaf_lane &lane, uint32_t group)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    Pair piece = {0, 0};

    if (t < GROUP_PIECES)
        piece = load_piece<ALIGNED>(lane.data, lane.bytes, group * GROUP_PIECES + t);
    return piece;
}

/* From pieces to lines. */
__device__ __forceinline__ Pair put_stamp(Pair piece, uint32_t stamp)
{
    uint32_t high = static_cast<uint32_t>(piece.y >> 32);
    uint32_t first = __shfl_sync(ALL, high, OCTET - 1);
    uint32_t second = __shfl_sync(ALL, high, 2 * OCTET - 1);
    uint32_t third = __shfl_sync(ALL, high, 3 * OCTET - 1);

    if (threadIdx.x % STEPAF_WARP == GROUP_PIECES)
        piece = {static_cast<uint64_t>(second) << 32 | first, third};
    if (ends_line())
        piece.y = static_cast<uint64_t>(stamp) << 32 | static_cast<uint32_t>(piece.y);
    return piece;
}

/* From lines to pieces. */
__device__ __forceinline__ Pair drop_stamp(Pair line)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    uint64_t front = __shfl_sync(ALL, line.x, GROUP_PIECES);
    uint32_t third = __shfl_sync(ALL, static_cast<uint32_t>(line.y), GROUP_PIECES);
    uint32_t mine = t == OCTET - 1       ? static_cast<uint32_t>(front)
                    : t == 2 * OCTET - 1 ? static_cast<uint32_t>(front >> 32)
                                         : third;

    if (ends_line())
        line.y = static_cast<uint64_t>(mine) << 32 | static_cast<uint32_t>(line.y);
    return line;
}

/* By one instruction, so that each line arrives in ascending order. */
__device__ __forceinline__ void store_group(const stepaf_lane &lane, uint32_t group,
                                            const Pair &line)
{
    __syncwarp();
    store_pair(lane.lines + static_cast<uint64_t>(group) * GROUP_BYTES + 16 * threadIdx.x, line);
}

template <bool ALIGNED>
__device__ __forceinline__ void send_lines(const stepaf_lane &lane, unsigned chunk,
                                           const Send &send)
{
    uint32_t n_groups = groups_of(lane.bytes);
    uint32_t stamp = line_stamp(send.stamp);

    if (chunk == 0)
        send_head<ALIGNED>(lane, send);
    for (uint32_t group = chunk; group < n_groups; group += 2 * lane.n) {
        uint32_t other = group + lane.n;
        bool both = other < n_groups;
        Pair one = load_group<ALIGNED>(lane, group), two = {0, 0};
        if (both)
            two = load_group<ALIGNED>(lane, other);
        if (__any_sync(ALL, send.failed != 0))
            return;
        store_group(lane, group, put_stamp(one, stamp));
        if (both)
            store_group(lane, other, put_stamp(two, stamp));
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
__device__ __forceinline__ bool is_last(const FLOW &flow, unsigned i, const stepaf_lane &lane)
{
    uint32_t before = 0;

    __threadfence_system();
    __syncwarp();
    if (lane.n > 1 && threadIdx.x == 0)
        before = atomicInc(&flow.done[i], lane.n - 1u);
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

/* Whether this octet's head, of which each thread has loaded its @a pair, is there, with the tensor if
 * that is in it; or another one, @a leader, tells of its tensor. By whole warps. */
__device__ __forceinline__ bool has_come(const Pair &pair, uint8_t way, uint64_t stamp,
                                         const uint8_t *leader)
{
    bool mine = way != STEPAF_WAY_HEAD || static_cast<uint32_t>(pair.y >> 32) == line_stamp(stamp);

    if (ends_line())
        mine = is_told(pair.y, stamp) || (leader != nullptr && tells_all(leader));
    uint32_t all = __ballot_sync(ALL, mine);
    return (all >> (threadIdx.x % STEPAF_WARP / OCTET * OCTET) & 0xff) == 0xff;
}

/* The tensor that is in this octet's head. */
template <bool ALIGNED>
__device__ __forceinline__ void take_from_head(uint8_t *data, uint32_t bytes, const Pair &pair)
{
    uint32_t at = threadIdx.x % OCTET * STEPAF_HEAD_PIECE;

    if (ends_line())
        return;
    store_half<ALIGNED>(data, bytes, at, static_cast<uint32_t>(pair.x));
    store_half<ALIGNED>(data, bytes, at + 4, static_cast<uint32_t>(pair.x >> 32));
    store_half<ALIGNED>(data, bytes, at + 8, static_cast<uint32_t>(pair.y));
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

__device__ __forceinline__ Pair load_lines(const stepaf_lane &lane, uint32_t group)
{
    return load_pair(lane.lines + static_cast<uint64_t>(group) * GROUP_BYTES +
                     16 * (threadIdx.x % STEPAF_WARP));
}

template <bool ALIGNED>
__device__ __forceinline__ void take_group(const stepaf_lane &lane, uint32_t bytes, uint32_t group,
                                           const Pair &line)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    Pair piece = drop_stamp(line);

    if (t < GROUP_PIECES)
        store_piece<ALIGNED>(lane.data, bytes, group * GROUP_PIECES + t, piece);
}

/* The stamp of a line of a group; as many threads as it has lines have one each. */
__device__ __forceinline__ const uint32_t *stamp_at(const stepaf_lane &lane, uint32_t group)
{
    const uint8_t *line = lane.lines + static_cast<uint64_t>(group) * GROUP_BYTES +
                          threadIdx.x % GROUP_LINES * STEPAF_LINE_BYTES;

    return reinterpret_cast<const uint32_t *>(line + STEPAF_LINE_DATA);
}

/* Take the share @a chunk of @a n. The stamps of four groups are waited for at once, and nothing else is
 * looked at before they are there. False: given up. */
template <bool ALIGNED, class FLOW>
__device__ __forceinline__ bool take_lines(const FLOW &flow, const stepaf_lane &lane,
                                           uint32_t bytes, unsigned chunk, unsigned n,
                                           uint64_t operation)
{
    uint32_t n_groups = groups_of(bytes), stamp = line_stamp(operation);
    unsigned t = threadIdx.x % STEPAF_WARP;
    Patience patience(flow);

    for (uint32_t group = chunk; group < n_groups; group += BATCH * n) {
        uint32_t watched = group + t / GROUP_LINES % BATCH * n;
        const uint32_t *at = stamp_at(lane, watched < n_groups ? watched : group);
        while (!__all_sync(ALL, load_volatile(at) == stamp))
            if (__any_sync(ALL, t == 0 && patience.over(lane.peer)))
                return false;
        for (uint32_t one = group; one < n_groups && one < group + BATCH * n; one += 2 * n) {
            uint32_t other = one + n < n_groups ? one + n : one;
            Pair lines = load_lines(lane, one), others = load_lines(lane, other);
            take_group<ALIGNED>(lane, bytes, one, lines);
            if (other != one)
                take_group<ALIGNED>(lane, bytes, other, others);
        }
    }
    return true;
}

} // namespace

#endif
