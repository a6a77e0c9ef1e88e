/* SPDX-License-Identifier: Apache-2.0 */
/* What all kernels share: words, lines, patience, and the pieces of sending and taking that do not
 * depend on how a launch is told of its tensors. FLOW is stepaf_flow or stepaf_any_flow. */
#ifndef STEPAF_DEVICE_KERNELS_COMMON_CUH
#define STEPAF_DEVICE_KERNELS_COMMON_CUH

#include "device/kernels.h"

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned OCTET = 8; /* threads that write a line */
constexpr unsigned GROUP_LINES = STEPAF_GROUP_LINES;
constexpr unsigned GROUP_PIECES = STEPAF_WARP - 1; /* of 16 bytes */
constexpr unsigned GROUP_DATA = GROUP_LINES * STEPAF_LINE_DATA;
constexpr unsigned GROUP_BYTES = GROUP_LINES * STEPAF_LINE_BYTES;
constexpr unsigned LOOKS = 64; /* polls between looks at the clock */

struct Pair {
    uint64_t x, y;
};

/* Eight threads store a line, or load one, by one instruction: it is not torn. */
__device__ __forceinline__ void store_pair(uint8_t *at, Pair pair)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(pair.x), "l"(pair.y)
                 : "memory");
}

__device__ __forceinline__ Pair load_pair(const uint8_t *at)
{
    Pair pair;

    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(pair.x), "=l"(pair.y)
                 : "l"(at)
                 : "memory");
    return pair;
}

/* Where kernels can be programmatic successors. Elsewhere the host launches none as such. */
__device__ __forceinline__ void let_successor_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void await_predecessor()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t load_volatile(const uint32_t *at)
{
    return *static_cast<const volatile uint32_t *>(at);
}

/* What is read behind it is at least as new. */
__device__ __forceinline__ uint32_t load_acquire(const uint32_t *at)
{
    uint32_t value;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

__device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

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

/* The number of the operation behind @a count others. Where registers are few, the compiler would
 * keep @a count beside it, and make it anew. */
__device__ __forceinline__ uint32_t number_after(uint32_t count)
{
    uint32_t n = (count + 1) & STEPAF_COUNT_MASK;

    asm("" : "+r"(n));
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

template <bool ALIGNED>
__device__ __forceinline__ void send_head(const stepaf_lane &lane, const Send &send)
{
    unsigned t = threadIdx.x;
    Pair pair = {0, 0};

    if (t >= OCTET)
        return;
    if (lane.way == STEPAF_WAY_HEAD && t < OCTET - 1) {
        pair.x = load_word<ALIGNED>(lane.data, lane.bytes, 2 * t);
        pair.y = load_word<ALIGNED>(lane.data, lane.bytes, 2 * t + 1);
    }
    if (t == OCTET - 1)
        pair = {lane.bytes, send.stamp};
    if (!send.failed)
        store_pair(lane.head + 16 * t, pair);
}

/* ---- lines: kernels.h has how a warp shares out four of them ---- */

__device__ __forceinline__ uint32_t line_stamp(uint64_t stamp)
{
    return static_cast<uint32_t>(stamp) | STEPAF_LINE_MARK;
}

__device__ __forceinline__ bool ends_line()
{
    return threadIdx.x % OCTET == OCTET - 1;
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

template <bool ALIGNED>
__device__ __forceinline__ void send_lines(const stepaf_lane &lane, unsigned chunk,
                                           const Send &send)
{
    uint32_t n_groups = (lane.bytes + GROUP_DATA - 1) / GROUP_DATA;
    uint32_t stamp = line_stamp(send.stamp);
    uint8_t *mine = lane.lines + 16 * threadIdx.x;

    if (chunk == 0)
        send_head<ALIGNED>(lane, send);
    for (uint32_t group = chunk; group < n_groups; group += 2 * lane.n) {
        uint32_t other = group + lane.n;
        bool both = other < n_groups;
        Pair one = load_group<ALIGNED>(lane, group), two = {0, 0};
        if (both)
            two = load_group<ALIGNED>(lane, other);
        if (send.failed)
            return;
        store_pair(mine + static_cast<uint64_t>(group) * GROUP_BYTES, put_stamp(one, stamp));
        if (both)
            store_pair(mine + static_cast<uint64_t>(other) * GROUP_BYTES, put_stamp(two, stamp));
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
    const uint8_t *words = head + STEPAF_HEAD_DATA;

    return static_cast<uint32_t>(load_pair(words).y) == STEPAF_TOLD_ALL;
}

/* The next operation may be told of so, too. */
__device__ __forceinline__ void clear_mark(uint8_t *head)
{
    store_pair(head + STEPAF_HEAD_DATA, {0, 0});
}

/* The bytes of a tensor that is there, from the last two words of its head. */
__device__ __forceinline__ uint32_t bytes_of(const Pair &words, uint64_t stamp, uint32_t planned)
{
    if (words.y == stamp)
        return static_cast<uint32_t>(words.x);
    return is_mark(words.y) ? static_cast<uint32_t>(words.y >> 32) : planned;
}

/* Whether every line of the group that this warp has loaded is there. */
__device__ __forceinline__ bool is_there(const Pair &line, uint32_t stamp)
{
    return __all_sync(ALL, !ends_line() || static_cast<uint32_t>(line.y >> 32) == stamp);
}

template <bool ALIGNED>
__device__ __forceinline__ void store_group(const stepaf_lane &lane, uint32_t bytes, uint32_t group,
                                            const Pair &line)
{
    unsigned t = threadIdx.x % STEPAF_WARP;
    Pair piece = drop_stamp(line);

    if (t < GROUP_PIECES)
        store_piece<ALIGNED>(lane.data, bytes, group * GROUP_PIECES + t, piece);
}

/* Wait for two groups at a time, the share @a chunk of @a n. False: given up. */
template <bool ALIGNED, class FLOW>
__device__ __forceinline__ bool take_lines(const FLOW &flow, const stepaf_lane &lane,
                                           uint32_t bytes, unsigned chunk, unsigned n,
                                           uint64_t operation)
{
    uint32_t n_groups = (bytes + GROUP_DATA - 1) / GROUP_DATA;
    uint32_t stamp = line_stamp(operation);
    const uint8_t *mine = lane.lines + 16 * (threadIdx.x % STEPAF_WARP);
    Patience patience(flow);

    for (uint32_t group = chunk; group < n_groups; group += 2 * n) {
        uint32_t other = group + n;
        bool both = other < n_groups;
        Pair one, two;
        do {
            one = load_pair(mine + static_cast<uint64_t>(group) * GROUP_BYTES);
            two = both ? load_pair(mine + static_cast<uint64_t>(other) * GROUP_BYTES) : one;
            if (is_there(one, stamp) && is_there(two, stamp))
                break;
            if (__any_sync(ALL, threadIdx.x % STEPAF_WARP == 0 && patience.over(lane.peer)))
                return false;
        } while (true);
        store_group<ALIGNED>(lane, bytes, group, one);
        if (both)
            store_group<ALIGNED>(lane, bytes, other, two);
    }
    return true;
}

} // namespace

#endif
