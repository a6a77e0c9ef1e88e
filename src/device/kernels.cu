/* SPDX-License-Identifier: Apache-2.0 */
/* What runs on the GPU: sending, waiting, unpacking. kernels.h says how tensors travel.
 *
 * Blocks are single warps of at most 32 registers (nvcc -maxrregcount=32), so that they find room beside kernels that fill
 * every multiprocessor. Only the gate waits for a peer without a bound but the deadline, and it is
 * one block: the multiprocessors are left to others until the data is on its way. */
#include "device/kernels.h"

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned OCTET = 8;       /* threads that write a line */
constexpr unsigned LINE_WORDS = 15; /* of a tensor */
constexpr unsigned GROUP_LINES = STEPAF_GROUP_LINES;
constexpr unsigned GROUP_WORDS = GROUP_LINES * LINE_WORDS;
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

/* The lane that this block works for. */
__device__ __forceinline__ unsigned find_lane(const stepaf_flow &flow)
{
    unsigned i = 0;

    while (blockIdx.x - flow.lanes[i].first >= flow.lanes[i].n) /* also where it is below first */
        i++;
    return i;
}

__device__ __forceinline__ uint64_t make_stamp(const stepaf_flow &flow, uint32_t n)
{
    return static_cast<uint64_t>(flow.epoch) << 32 | n;
}

/* The first thing that goes wrong is noted; from then on nothing is done for this plan. */
__device__ void note_fault(const stepaf_flow &flow, uint32_t fault, uint32_t peer)
{
    if (atomicExch(flow.failed, 1))
        return;
    volatile stepaf_gpu_watch *watch = flow.watch;
    watch->peer = peer;
    watch->slot = flow.slot;
    __threadfence_system();
    watch->fault = fault;
    __threadfence_system();
}

/* Ask now and then whether waiting still makes sense. */
class Patience
{
  public:
    __device__ explicit Patience(const stepaf_flow &flow) : flow_(flow)
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
        if (polls_ % (LOOKS * 16) == 0 && load_volatile(&flow_.watch->abort)) {
            note_fault(flow_, STEPAF_FAULT_ABORTED, peer);
            return true;
        }
        if (!began_)
            began_ = now_ns();
        if (!flow_.timeout_ns || now_ns() - began_ < flow_.timeout_ns)
            return false;
        note_fault(flow_, STEPAF_FAULT_TIMEOUT, peer);
        return true;
    }

    const stepaf_flow &flow_;
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

template <bool ALIGNED>
__device__ __forceinline__ Pair load_group(const stepaf_lane &lane, uint32_t group, uint64_t stamp)
{
    unsigned sub = threadIdx.x % OCTET;
    uint32_t word = group * GROUP_WORDS + threadIdx.x / OCTET * LINE_WORDS + 2 * sub;
    Pair pair;

    pair.x = load_word<ALIGNED>(lane.data, lane.bytes, word);
    pair.y = sub == OCTET - 1 ? stamp : load_word<ALIGNED>(lane.data, lane.bytes, word + 1);
    return pair;
}

template <bool ALIGNED>
__device__ __forceinline__ void send_lines(const stepaf_lane &lane, unsigned chunk,
                                           const Send &send)
{
    uint32_t n_groups = (lane.bytes + GROUP_DATA - 1) / GROUP_DATA;
    uint8_t *mine = lane.lines + 16 * threadIdx.x;

    if (chunk == 0)
        send_head<ALIGNED>(lane, send);
    for (uint32_t group = chunk; group < n_groups; group += 2 * lane.n) {
        uint32_t other = group + lane.n;
        Pair one = load_group<ALIGNED>(lane, group, send.stamp), two = {0, 0};
        if (other < n_groups)
            two = load_group<ALIGNED>(lane, other, send.stamp);
        if (send.failed)
            return;
        store_pair(mine + static_cast<uint64_t>(group) * GROUP_BYTES, one);
        if (other < n_groups)
            store_pair(mine + static_cast<uint64_t>(other) * GROUP_BYTES, two);
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

/* Whether this block is the last of its lane's: then all bytes are where they go. */
__device__ __forceinline__ bool is_last(const stepaf_flow &flow, unsigned i)
{
    const stepaf_lane &lane = flow.lanes[i];
    uint32_t before = 0;

    __threadfence_system();
    __syncwarp();
    if (lane.n > 1 && threadIdx.x == 0)
        before = atomicInc(&flow.done[i], lane.n - 1u);
    before = __shfl_sync(ALL, before, 0);
    __threadfence_system();
    return lane.n == 1 || before == lane.n - 1u;
}

template <bool ALIGNED>
__device__ __forceinline__ void send_share(const stepaf_flow &flow, const Send &send)
{
    unsigned i = find_lane(flow);
    const stepaf_lane &lane = flow.lanes[i];
    unsigned chunk = blockIdx.x - lane.first;

    if (lane.way == STEPAF_WAY_LINES) {
        send_lines<ALIGNED>(lane, chunk, send);
    } else if (lane.way == STEPAF_WAY_HEAD) {
        send_head<ALIGNED>(lane, send);
    } else if (!send.failed) {
        copy_share<ALIGNED>(lane.lines, lane.data, lane.bytes, chunk, lane.n);
        if (is_last(flow, i))
            send_head<ALIGNED>(lane, send);
    }
}

/* ---- receiving ---- */

/* Whether a head tells of the operation that is waited for. */
__device__ __forceinline__ bool is_told(uint64_t its, uint64_t stamp)
{
    return its == stamp || static_cast<uint32_t>(its) == STEPAF_TOLD;
}

/* Four heads a warp: wait, and take what is in them. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_heads(const stepaf_flow &flow, uint64_t stamp,
                                           uint32_t *landed)
{
    unsigned i = threadIdx.x / OCTET, sub = threadIdx.x % OCTET;
    unsigned last = threadIdx.x % STEPAF_WARP | (OCTET - 1); /* of this octet, in its warp */
    bool mine = i < flow.n_lanes, there;
    const stepaf_lane &lane = flow.lanes[mine ? i : 0];
    Patience patience(flow);
    Pair pair;

    for (;;) {
        pair = load_pair(lane.head + 16 * sub);
        there = is_told(__shfl_sync(ALL, pair.y, last), stamp) || !mine;
        if (__all_sync(ALL, there))
            break;
        if (__any_sync(ALL, !there && sub == 0 && patience.over(lane.peer)))
            return false;
    }
    if (static_cast<uint32_t>(pair.y) == STEPAF_TOLD) /* of the last in each octet */
        pair.x = pair.y >> 32;
    uint32_t bytes = static_cast<uint32_t>(__shfl_sync(ALL, pair.x, last));
    if (!mine)
        return true;
    if (bytes > lane.bytes)
        bytes = lane.bytes;
    if (sub == 0)
        landed[i] = flow.landed[i] = bytes;
    if (lane.way == STEPAF_WAY_INLET) /* for unpacking: see there */
        __threadfence();
    if (sub == OCTET - 1 && pair.y != stamp)
        store_pair(lane.head + 16 * sub, {bytes, 0}); /* the next one will be told so, too */
    if (lane.way == STEPAF_WAY_HEAD && sub < OCTET - 1) {
        store_word<ALIGNED>(lane.data, bytes, 2 * sub, pair.x);
        store_word<ALIGNED>(lane.data, bytes, 2 * sub + 1, pair.y);
    }
    return true;
}

/* Whether every line of the group that this warp has loaded is there. */
__device__ __forceinline__ bool is_there(const Pair &pair, uint64_t stamp)
{
    return __all_sync(ALL, threadIdx.x % OCTET != OCTET - 1 || pair.y == stamp);
}

template <bool ALIGNED>
__device__ __forceinline__ void store_group(const stepaf_lane &lane, uint32_t bytes, uint32_t group,
                                            const Pair &pair)
{
    unsigned sub = threadIdx.x % OCTET;
    uint32_t line = threadIdx.x % STEPAF_WARP / OCTET;
    uint32_t word = group * GROUP_WORDS + line * LINE_WORDS + 2 * sub;

    store_word<ALIGNED>(lane.data, bytes, word, pair.x);
    if (sub != OCTET - 1)
        store_word<ALIGNED>(lane.data, bytes, word + 1, pair.y);
}

/* Wait for two groups at a time, the share @a chunk of @a n. False: given up. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_lines(const stepaf_flow &flow, const stepaf_lane &lane,
                                           uint32_t bytes, unsigned chunk, unsigned n,
                                           uint64_t stamp)
{
    uint32_t n_groups = (bytes + GROUP_DATA - 1) / GROUP_DATA;
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

/* All that the gate does: heads, then lines, if they are few. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_all(const stepaf_flow &flow, uint64_t stamp, uint32_t *landed)
{
    unsigned warp = threadIdx.x / STEPAF_WARP, n_warps = blockDim.x / STEPAF_WARP;
    bool ok = true;

    if (warp * GROUP_LINES < flow.n_lanes)
        ok = take_heads<ALIGNED>(flow, stamp, landed);
    if (!flow.gate_takes)
        return ok;
    ok = __syncthreads_and(ok);
    for (unsigned i = 0; ok && i < flow.n_lanes; i++)
        if (flow.lanes[i].way == STEPAF_WAY_LINES)
            ok = take_lines<ALIGNED>(flow, flow.lanes[i], landed[i], warp, n_warps, stamp);
    return ok;
}

template <bool ALIGNED>
__device__ __forceinline__ bool unpack(const stepaf_flow &flow, uint64_t stamp)
{
    unsigned i = find_lane(flow);
    const stepaf_lane &lane = flow.lanes[i];
    unsigned chunk = blockIdx.x - lane.first;
    uint32_t bytes;

    /* An inlet's head may be in host memory, from where all blocks would fetch it one after the
     * other, a microsecond each. */
    if (lane.way == STEPAF_WAY_INLET)
        bytes = load_volatile(&flow.landed[i]);
    else
        bytes = static_cast<uint32_t>(load_pair(lane.head + STEPAF_HEAD_DATA).x);

    if (bytes > lane.bytes)
        bytes = lane.bytes;
    if (lane.way == STEPAF_WAY_LINES)
        return take_lines<ALIGNED>(flow, lane, bytes, chunk, lane.n, stamp);
    copy_share<ALIGNED>(lane.data, lane.lines, bytes, chunk, lane.n);
    return true;
}

/* ---- kernels ---- */

/* Launched as a successor: it may begin while the kernel before it ends. */
__device__ __forceinline__ void send_all(const stepaf_flow &flow)
{
    uint32_t *count = &flow.counts[1 + blockIdx.x];
    uint32_t n = *count + 1;

    let_successor_begin();
    await_predecessor();
    Send send = {make_stamp(flow, n), load_volatile(flow.failed)};
    if (flow.aligned)
        send_share<true>(flow, send);
    else
        send_share<false>(flow, send);
    if (threadIdx.x == 0 && !send.failed)
        *count = n;
}

__device__ __forceinline__ void gate(const stepaf_flow &flow)
{
    __shared__ uint32_t landed[STEPAF_FLOW_LANES];
    uint32_t n = flow.counts[0] + 1;
    bool ok = __syncthreads_and(!load_volatile(flow.failed));

    if (flow.gate_ends) /* else unpacking begins when there is something to unpack */
        let_successor_begin();
    if (ok)
        ok = flow.aligned ? take_all<true>(flow, make_stamp(flow, n), landed)
                          : take_all<false>(flow, make_stamp(flow, n), landed);
    ok = __syncthreads_and(ok);
    if (!flow.gate_ends)
        let_successor_begin();
    if (ok && threadIdx.x == 0)
        flow.counts[0] = n;
}

/* Launched as the gate's successor: it begins when the heads are there. */
__device__ __forceinline__ void unpack_all(const stepaf_flow &flow)
{
    uint32_t *count = &flow.counts[1 + blockIdx.x];
    uint32_t n = *count + 1;
    bool ok = !load_volatile(flow.failed);

    let_successor_begin();
    if (ok)
        ok = flow.aligned ? unpack<true>(flow, make_stamp(flow, n))
                          : unpack<false>(flow, make_stamp(flow, n));
    if (ok && threadIdx.x == 0)
        *count = n;
    await_predecessor();
}

__device__ __forceinline__ const stepaf_flow &flow_of(const stepaf_flow_few &few)
{
    return reinterpret_cast<const stepaf_flow &>(few);
}

} // namespace

extern "C" __global__ void stepaf_send(const __grid_constant__ stepaf_flow flow)
{
    send_all(flow);
}

extern "C" __global__ void stepaf_send_few(const __grid_constant__ stepaf_flow_few flow)
{
    send_all(flow_of(flow));
}

extern "C" __global__ void __launch_bounds__(512)
    stepaf_gate(const __grid_constant__ stepaf_flow flow)
{
    gate(flow);
}

extern "C" __global__ void __launch_bounds__(512)
    stepaf_gate_few(const __grid_constant__ stepaf_flow_few flow)
{
    gate(flow_of(flow));
}

extern "C" __global__ void stepaf_unpack(const __grid_constant__ stepaf_flow flow)
{
    unpack_all(flow);
}

extern "C" __global__ void stepaf_unpack_few(const __grid_constant__ stepaf_flow_few flow)
{
    unpack_all(flow_of(flow));
}
