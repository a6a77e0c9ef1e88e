/* SPDX-License-Identifier: Apache-2.0 */
/* What runs on the GPU: sending, waiting, unpacking. kernels.h says how tensors travel.
 *
 * Blocks are single warps of at most 32 registers (nvcc -maxrregcount=32), so that they find room beside
 * kernels that fill every multiprocessor. The gate waits for peers, and it is one block: the
 * multiprocessors are left to others until the data is on its way. It has no more registers either,
 * though 40 would make 8 bytes 0.03 us faster: it has to find room, too.
 */
#include "device/cuda/kernels_chunks.cuh"

namespace
{

/* The lane that this block works for. */
__device__ __forceinline__ unsigned find_lane(const stepaf_kernel_args &args)
{
    unsigned i = 0;

    while (blockIdx.x - args.lanes[i].first >= args.lanes[i].n) /* also where it is below first */
        i++;
    return i;
}

/* ---- sending ---- */

/* A tensor that its head has room for. All that this takes is on its way from memory at once: the compiler
 * would wait right behind the load for words that are the same in all threads, to move them to uniform
 * registers, but of a block it does not know that it is a warp. */
template <bool ALIGNED>
__device__ __forceinline__ Send send_head(const stepaf_kernel_args &args,
                                          const stepaf_kernel_tensor &lane, const uint32_t *count)
{
    unsigned none = threadIdx.x / STEPAF_WARP;
    uint32_t before = load_volatile(count + none), failed = load_volatile(args.failed + none);
    HeadWords words = load_head_words<ALIGNED>(lane);
    Send send = {make_stamp(args, number_after(before)), failed};

    store_head(lane, words, send);
    return send;
}

template <bool ALIGNED, bool CHUNKS>
__device__ __forceinline__ Send send_share(const stepaf_kernel_args &args, unsigned i,
                                           const stepaf_kernel_tensor &lane, uint32_t proto,
                                           const uint32_t *count)
{
    unsigned chunk = blockIdx.x - lane.first;

    if (proto == STEPAF_PROTO_INLINE)
        return send_head<ALIGNED>(args, lane, count);
    uint32_t before = load_volatile(count);
    Send send = {make_stamp(args, number_after(before)), load_volatile(args.failed)};
    if (proto == STEPAF_PROTO_LL) {
        send_pieces<ALIGNED>(lane, chunk, send);
    } else if (CHUNKS && (proto == STEPAF_PROTO_CHUNKS || proto == STEPAF_PROTO_PARTS)) {
        send_chunks<ALIGNED>(lane, chunk, send);
    } else if (!__any_sync(ALL, send.failed != 0)) {
        if (proto != STEPAF_PROTO_RDMA)
            copy_share<ALIGNED>(lane.body, lane.data, lane.bytes, chunk, lane.n);
        bool last = is_last(args, i, lane);
        if (proto == STEPAF_PROTO_RDMA)
            tell_source(lane, send);
        if (last)
            tell(lane, send);
    }
    return send;
}

/* ---- receiving ---- */

/* Four heads a warp: wait, and take what is in them. Whether this thread has to clear a mark then, as
 * soon as no other looks at it any more, is in @a marked. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_heads(const stepaf_kernel_args &args, uint64_t stamp,
                                           uint32_t *landed, bool &marked)
{
    unsigned i = threadIdx.x / OCTET, sub = threadIdx.x % OCTET;
    unsigned last = threadIdx.x % STEPAF_WARP | (OCTET - 1); /* of this octet, in its warp */
    bool mine = i < args.n_lanes, there;
    const stepaf_kernel_tensor &lane = args.lanes[mine ? i : 0];
    uint8_t *head = lane.head + 16 * sub, *data = lane.data;
    uint32_t proto = lane.proto, room = lane.bytes;
    const uint8_t *leader = nullptr;
    Patience patience(args);
    Pair pair;

    make_here(head);
    make_here(data);
    make_here(proto);
    make_here(room);
    if (ends_head() && lane.copied && lane.copied != i + 1) /* not its own: that is in pair */
        leader = args.lanes[lane.copied - 1].head;
    for (;;) {
        pair = load_pair(head);
        there = has_come(pair, proto, stamp, leader) || !mine;
        if (__all_sync(ALL, there))
            break;
        if (__any_sync(ALL, !there && patience.over(lane.peer)))
            return false;
    }
    uint32_t bytes = __shfl_sync(ALL, bytes_of(pair, stamp, lane.planned), last);
    if (!mine)
        return true;
    bytes = min(bytes, room);
    if (proto == STEPAF_PROTO_INLINE)
        take_from_head<ALIGNED>(data, bytes, pair);
    if (sub == 0)
        landed[i] = args.landed[i] = bytes;
    if (proto >= STEPAF_PROTO_BCOPY) /* or CHUNKS, for unpacking: see there */
        __threadfence();
    marked = ends_head() && is_mark(pair.y);
    return true;
}

/* All that the gate does: heads, then pieces, if they are few: there is a warp for each group of all
 * tensors. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_all(const stepaf_kernel_args &args, uint64_t stamp,
                                         uint32_t *landed, bool &marked)
{
    unsigned warp = threadIdx.x / STEPAF_WARP;
    bool ok = true;

    if (warp * (STEPAF_WARP / OCTET) < args.n_lanes)
        ok = take_heads<ALIGNED>(args, stamp, landed, marked);
    if (!args.gate_takes)
        return ok;
    if (!__syncthreads_and(ok))
        return false;
    for (unsigned i = 0, group = warp; i < args.n_lanes; i++) {
        const stepaf_kernel_tensor &lane = args.lanes[i];
        uint32_t n = lane.proto == STEPAF_PROTO_LL ? groups_of(landed[i]) : 0;
        if (group < n)
            return take_pieces<ALIGNED>(args, lane, landed[i], group, n, load_group(lane, group));
        group -= n;
    }
    return true;
}

/* Bring a tensor from where it came to. Whatever has to be looked at is on its way from memory at once;
 * @a failed, too. */
template <bool ALIGNED>
__device__ __forceinline__ void unpack(const stepaf_kernel_args &args, uint32_t failed)
{
    unsigned i = find_lane(args);
    const stepaf_kernel_tensor &lane = args.lanes[i];
    unsigned chunk = blockIdx.x - lane.first;
    uint32_t bytes;

    if (lane.proto == STEPAF_PROTO_LL) {
        Group first = load_group(lane, chunk);
        bytes = static_cast<uint32_t>(load_pair(lane.head + STEPAF_HEAD_TELLS).x);
        if (!__any_sync(ALL, failed != 0))
            take_pieces<ALIGNED>(args, lane, min(bytes, lane.bytes), chunk, lane.n, first);
        return;
    }
    /* A mailbox's head may be in host memory, from where all blocks would fetch it one after the
     * other, a microsecond each. The tensor does not say itself that it is there, and is read behind
     * what the gate says, who has seen the head. */
    bytes = load_acquire(&args.landed[i]);
    if (!__any_sync(ALL, failed != 0))
        copy_share<ALIGNED>(lane.data, lane.body, min(bytes, lane.bytes), chunk, lane.n);
}

/* The same where chunks are among it. Each block counts, since their flags are stamps. False: given up. */
template <bool ALIGNED>
__device__ __forceinline__ bool unpack_chunks(const stepaf_kernel_args &args, uint32_t n,
                                              uint32_t failed)
{
    unsigned i = find_lane(args);
    const stepaf_kernel_tensor &lane = args.lanes[i];

    if (lane.proto != STEPAF_PROTO_CHUNKS && lane.proto != STEPAF_PROTO_PARTS) {
        unpack<ALIGNED>(args, failed);
        return true;
    }
    uint32_t bytes = min(load_acquire(&args.landed[i]), lane.bytes);
    return !__any_sync(ALL, failed != 0) &&
           take_chunks<ALIGNED>(args, lane, bytes, make_stamp(args, n), blockIdx.x - lane.first);
}

/* ---- kernels ---- */

/* Launched as a successor: it may begin while the kernel before it ends, which can be the send before it.
 * What depends on the launch alone is looked up before the wait: the parameters have to be fetched, too. */
template <bool CHUNKS> __device__ __forceinline__ void send_all(const stepaf_kernel_args &args)
{
    uint32_t *count = &args.counts[1 + blockIdx.x];
    unsigned i = find_lane(args);
    stepaf_kernel_tensor lane = args.lanes[i];
    uint32_t proto = lane.proto, aligned = args.aligned;

    make_here(proto);
    make_here(aligned);
    make_here(lane.data);
    make_here(lane.bytes);
    let_successor_begin();
    await_predecessor();
    Send send = aligned ? send_share<true, CHUNKS>(args, i, lane, proto, count)
                        : send_share<false, CHUNKS>(args, i, lane, proto, count);
    __syncwarp(); /* all have read it */
    if (threadIdx.x == 0 && !send.failed)
        *count = static_cast<uint32_t>(send.stamp);
}

__device__ __forceinline__ void gate(const stepaf_kernel_args &args)
{
    __shared__ uint32_t landed[STEPAF_KERNEL_TENSORS];
    uint32_t n = number_after(args.counts[0]);
    bool ok = __syncthreads_and(!load_volatile(args.failed)), marked = false;

    if (args.gate_ends) /* else unpacking begins when there is something to unpack */
        let_successor_begin();
    if (ok)
        ok = args.aligned ? take_all<true>(args, make_stamp(args, n), landed, marked)
                          : take_all<false>(args, make_stamp(args, n), landed, marked);
    ok = __syncthreads_and(ok);
    if (ok && marked)
        clear_mark(args.lanes[threadIdx.x / OCTET].head);
    if (!args.gate_ends)
        let_successor_begin();
    if (ok && threadIdx.x == 0)
        args.counts[0] = n;
}

/* Launched as the gate's successor: it begins when the heads are there. */
__device__ __forceinline__ void unpack_all(const stepaf_kernel_args &args)
{
    uint32_t failed = load_volatile(args.failed);

    let_successor_begin();
    if (args.aligned)
        unpack<true>(args, failed);
    else
        unpack<false>(args, failed);
    await_predecessor();
}

/* Before the wait: between two of these is a gate, which is no successor. */
__device__ __forceinline__ void unpack_all_chunks(const stepaf_kernel_args &args)
{
    uint32_t *count = &args.counts[1 + blockIdx.x];
    uint32_t n = number_after(load_volatile(count)), failed = load_volatile(args.failed);

    let_successor_begin();
    bool ok =
        args.aligned ? unpack_chunks<true>(args, n, failed) : unpack_chunks<false>(args, n, failed);
    __syncwarp(); /* all have read it */
    if (ok && threadIdx.x == 0)
        *count = n;
    await_predecessor();
}

__device__ __forceinline__ const stepaf_kernel_args &flow_of(const stepaf_flow_few &few)
{
    return reinterpret_cast<const stepaf_kernel_args &>(few);
}

} // namespace

extern "C" __global__ void stepaf_send(const __grid_constant__ stepaf_kernel_args args)
{
    send_all<false>(args);
}

extern "C" __global__ void stepaf_send_few(const __grid_constant__ stepaf_flow_few args)
{
    send_all<false>(flow_of(args));
}

extern "C" __global__ void __launch_bounds__(512)
    stepaf_gate(const __grid_constant__ stepaf_kernel_args args)
{
    gate(args);
}

extern "C" __global__ void __launch_bounds__(512)
    stepaf_gate_few(const __grid_constant__ stepaf_flow_few args)
{
    gate(flow_of(args));
}

extern "C" __global__ void stepaf_unpack(const __grid_constant__ stepaf_kernel_args args)
{
    unpack_all(args);
}

extern "C" __global__ void stepaf_unpack_few(const __grid_constant__ stepaf_flow_few args)
{
    unpack_all(flow_of(args));
}

extern "C" __global__ void stepaf_send_chunks(const __grid_constant__ stepaf_kernel_args args)
{
    send_all<true>(args);
}

extern "C" __global__ void stepaf_send_chunks_few(const __grid_constant__ stepaf_flow_few args)
{
    send_all<true>(flow_of(args));
}

extern "C" __global__ void stepaf_unpack_chunks(const __grid_constant__ stepaf_kernel_args args)
{
    unpack_all_chunks(args);
}

extern "C" __global__ void stepaf_unpack_chunks_few(const __grid_constant__ stepaf_flow_few args)
{
    unpack_all_chunks(flow_of(args));
}

#include "device/cuda/kernels_any.cuh"
