/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of ordinary plans: sending, waiting, unpacking. kernels.h says how tensors travel.
 *
 * Blocks are single warps of at most 32 registers (nvcc -maxrregcount=32), so that they find room
 * beside kernels that fill every multiprocessor. The gate, which waits for peers, is one block: the
 * multiprocessors are left to others until the data is in flight. It has no more registers either,
 * though 40 would make 8 bytes 0.03 us faster: it must find room, too. */
#include "device/cuda/kernels_chunks.cuh"
#include "device/cuda/kernels_pieces.cuh"

namespace
{

/* Return the tensor that this block works for. */
__device__ __forceinline__ unsigned find_tensor(const stepaf_kernel_args &args)
{
    unsigned i = 0;

    /* Also goes on where the block is below first. */
    while (blockIdx.x - args.tensors[i].first >= args.tensors[i].n)
        i++;
    return i;
}

/* ---- sending ---- */

/* Send a tensor that fits into its head. All its loads are in flight at the same time. The compiler
 * would wait directly behind a load for words that are the same in all threads, to move them to
 * uniform registers, but it does not know that a block is one warp. */
template <bool ALIGNED>
__device__ __forceinline__ void send_head(const stepaf_kernel_args &args,
                                          const stepaf_kernel_tensor &tensor, uint64_t stamp)
{
    uint32_t failed = load_volatile(args.failed + threadIdx.x / STEPAF_WARP);
    HeadWords words = load_head_words<ALIGNED>(tensor);

    store_head(tensor, words, {stamp, failed});
}

template <bool ALIGNED, bool CHUNKS>
__device__ __forceinline__ void send_share(const stepaf_kernel_args &args, unsigned i,
                                           const stepaf_kernel_tensor &tensor, uint32_t proto,
                                           const Send &before)
{
    unsigned chunk = blockIdx.x - tensor.first;

    if (proto == STEPAF_PROTO_LL)
        return send_pieces<ALIGNED>(tensor, chunk, before, args.failed);
    if (proto == STEPAF_PROTO_INLINE)
        return send_head<ALIGNED>(args, tensor, before.stamp);
    Send send = {before.stamp, load_volatile(args.failed)};
    if (CHUNKS && (proto == STEPAF_PROTO_CHUNKS || proto == STEPAF_PROTO_PARTS)) {
        send_chunks<ALIGNED>(tensor, chunk, send);
    } else if (!__any_sync(ALL, send.failed != 0)) {
        if (!CHUNKS || proto != STEPAF_PROTO_RDMA)
            copy_share<ALIGNED>(tensor.body, tensor.data, tensor.bytes, chunk, tensor.n);
        bool last = is_last(args, i, tensor);
        if (CHUNKS && proto == STEPAF_PROTO_RDMA)
            tell_source(tensor, send);
        if (last)
            tell(tensor, send);
    }
}

/* ---- receiving ---- */

/* Wait for four heads per warp, and take what is in them. @a marked: this thread must clear a mark
 * once no other thread looks at it any more. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_heads(const stepaf_kernel_args &args, uint64_t stamp,
                                           uint32_t *landed, bool alone, bool &marked)
{
    unsigned i = threadIdx.x / OCTET, sub = threadIdx.x % OCTET;
    unsigned last = threadIdx.x % STEPAF_WARP | (OCTET - 1); /* of this octet, in its warp */
    bool mine = i < args.n_tensors, there;
    const stepaf_kernel_tensor &tensor = args.tensors[mine ? i : 0];
    uint8_t *head = tensor.head + 16 * sub, *data = tensor.data;
    uint32_t proto = tensor.proto, room = tensor.bytes;
    const uint8_t *leader = nullptr;
    Patience patience(args);
    Pair pair;

    make_here(head);
    make_here(data);
    make_here(proto);
    make_here(room);
    if (ends_head() && tensor.copied && tensor.copied != i + 1) /* not its own, which is in pair */
        leader = args.tensors[tensor.copied - 1].head;
    bool hurry = alone && !args.gate_ends && __all_sync(ALL, !mine || proto < STEPAF_PROTO_BCOPY);
    for (;;) {
        pair = load_pair(head);
        there = has_come(pair, proto, stamp, leader) || !mine;
        if (__all_sync(ALL, there))
            break;
        if (__any_sync(ALL, !there && patience.over(tensor.peer)))
            return false;
    }
    if (hurry) /* unpacking asks for nothing that is found out here */
        let_successor_begin();
    uint32_t bytes = __shfl_sync(ALL, bytes_of(pair, stamp, tensor.planned), last);
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

/* Return whether a gate of one warp waits only for tensors in heads. */
__device__ __forceinline__ bool has_small_alone(const stepaf_kernel_args &args)
{
    unsigned i = threadIdx.x / OCTET;

    return __all_sync(ALL, i >= args.n_tensors || args.tensors[i].proto == STEPAF_PROTO_INLINE);
}

/* Take such tensors. Each instruction behind the last poll adds to the time of the smallest
 * tensors. So what take_heads does for all other tensors is left out, and the rest is prepared
 * before the first poll. */
__device__ __forceinline__ void take_small(const stepaf_kernel_args &args, uint64_t stamp)
{
    unsigned i = threadIdx.x / OCTET, last = threadIdx.x % STEPAF_WARP | (OCTET - 1);
    bool mine = i < args.n_tensors;
    const stepaf_kernel_tensor &tensor = args.tensors[mine ? i : 0];
    uint8_t *head = tensor.head + 16 * (threadIdx.x % OCTET), *data = tensor.data;
    uint8_t *landed = reinterpret_cast<uint8_t *>(&args.landed[i]);
    uint32_t room = mine ? tensor.bytes : 0;
    uint64_t care = ends_head() ? ~UINT64_C(0) : ~UINT64_C(0) << 32;
    uint64_t awaited = ends_head() ? stamp : static_cast<uint64_t>(piece_stamp(stamp)) << 32;
    Patience patience(args);
    Pair pair;

    make_here(head);
    make_here(data);
    make_here(landed);
    make_here(room);
    for (;;) {
        pair = load_pair(head);
        bool there = (pair.y & care) == awaited || !mine;
        if (__all_sync(ALL, there))
            break;
        if (__any_sync(ALL, !there && patience.over(tensor.peer)))
            return;
    }
    uint32_t bytes = min(__shfl_sync(ALL, static_cast<uint32_t>(pair.x), last), room);
    take_from_head<true>(data, bytes, pair);
    if (ends_head() && mine)
        *reinterpret_cast<uint32_t *>(landed) = bytes;
}

/* Do all of the gate's work: heads, then pieces, if they are few. There is one warp for each group
 * of all tensors. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_all(const stepaf_kernel_args &args, uint64_t stamp,
                                         uint32_t *landed, bool alone, bool &marked)
{
    unsigned warp = threadIdx.x / STEPAF_WARP;
    bool ok = true;

    if (warp * (STEPAF_WARP / OCTET) < args.n_tensors)
        ok = take_heads<ALIGNED>(args, stamp, landed, alone, marked);
    if (!args.gate_takes)
        return ok;
    if (!__syncthreads_and(ok))
        return false;
    for (unsigned i = 0, group = warp; i < args.n_tensors; i++) {
        const stepaf_kernel_tensor &tensor = args.tensors[i];
        uint32_t n = tensor.proto == STEPAF_PROTO_LL ? groups_of(landed[i]) : 0;
        if (group < n)
            return take_pieces<ALIGNED>(args, tensor, landed[i], group, n,
                                        load_group(group_at(tensor, group)));
        group -= n;
    }
    return true;
}

/* Bring a tensor to its destination. Everything that must be read is in flight from memory at the
 * same time, @a failed, too. */
template <bool ALIGNED>
__device__ __forceinline__ void unpack(const stepaf_kernel_args &args, uint32_t failed)
{
    unsigned i = find_tensor(args);
    const stepaf_kernel_tensor &tensor = args.tensors[i];
    unsigned chunk = blockIdx.x - tensor.first;
    uint32_t bytes;

    if (tensor.proto == STEPAF_PROTO_LL) {
        Group first = load_group(group_at(tensor, chunk));
        bytes = static_cast<uint32_t>(load_pair(tensor.head + STEPAF_HEAD_TELLS).x);
        if (!__any_sync(ALL, failed != 0))
            take_pieces<ALIGNED>(args, tensor, min(bytes, tensor.bytes), chunk, tensor.n, first);
        return;
    }
    /* A mailbox's head may be in host memory, from where all blocks would fetch it one after the
     * other, a microsecond each. The tensor itself does not say that it is there: it is read after
     * the word of the gate, which has seen the head. */
    bytes = load_acquire(&args.landed[i]);
    if (!__any_sync(ALL, failed != 0))
        copy_share<ALIGNED>(tensor.data, tensor.body, min(bytes, tensor.bytes), chunk, tensor.n);
}

/* Unpack if there are chunks. Each block counts, since the flags of chunks are stamps. Returns
 * false if it has given up. */
template <bool ALIGNED>
__device__ __forceinline__ bool unpack_chunks(const stepaf_kernel_args &args, uint32_t n,
                                              uint32_t failed)
{
    unsigned i = find_tensor(args);
    const stepaf_kernel_tensor &tensor = args.tensors[i];

    if (tensor.proto != STEPAF_PROTO_CHUNKS && tensor.proto != STEPAF_PROTO_PARTS) {
        unpack<ALIGNED>(args, failed);
        return true;
    }
    uint32_t bytes = min(load_acquire(&args.landed[i]), tensor.bytes);
    return !__any_sync(ALL, failed != 0) &&
           take_chunks<ALIGNED>(args, tensor, bytes, make_stamp(args, n),
                                blockIdx.x - tensor.first);
}

/* ---- kernels ---- */

/* Launched as a successor: it may begin while the kernel before it ends, which can be an earlier
 * send. What depends only on the launch is looked up before the wait, since the parameters must be
 * fetched, too. The same holds for the operation's number, since no successor begins before all
 * blocks of this kernel have counted. It is also counted if the plan has failed; then nobody looks
 * at it any more. */
template <bool CHUNKS> __device__ __forceinline__ void send_all(const stepaf_kernel_args &args)
{
    unsigned i = find_tensor(args);
    stepaf_kernel_tensor tensor = args.tensors[i];
    uint32_t proto = tensor.proto, aligned = args.aligned, before = 0;
    Send send;

    make_here(proto);
    make_here(aligned);
    make_here(tensor.data);
    make_here(tensor.bytes);
    if (threadIdx.x == 0)
        before = atomicAdd(&args.counts[1 + blockIdx.x], 1u);
    send.failed = load_volatile(args.failed);
    send.stamp = make_stamp(args, number_after(__shfl_sync(ALL, before, 0)));
    let_successor_begin();
    if (!CHUNKS && aligned && proto == STEPAF_PROTO_INLINE) {
        /* What follows the wait is fetched during it if it is the next in the program, too. */
        await_predecessor();
        send_head<true>(args, tensor, send.stamp);
        return;
    }
    await_predecessor();
    if (aligned)
        send_share<true, CHUNKS>(args, i, tensor, proto, send);
    else
        send_share<false, CHUNKS>(args, i, tensor, proto, send);
}

/* Between a head that comes and the end, or the unpacking that begins, is as little as can be. */
__device__ __forceinline__ void gate(const stepaf_kernel_args &args)
{
    __shared__ uint32_t landed[STEPAF_KERNEL_TENSORS];
    uint32_t n = number_after(load_volatile(args.counts));
    bool alone = blockDim.x == STEPAF_WARP; /* one warp needs no barriers of a block */
    bool ok = !load_volatile(args.failed), marked = false;

    ok = alone ? __all_sync(ALL, ok) : __syncthreads_and(ok);
    if (!ok)
        return;
    if (args.gate_ends) /* otherwise unpacking begins when there is something to unpack */
        let_successor_begin();
    if (threadIdx.x == 0) /* if nothing comes, the plan has failed, and nobody counts any more */
        args.counts[0] = n;
    if (alone && args.aligned && has_small_alone(args))
        return take_small(args, make_stamp(args, n));
    ok = args.aligned ? take_all<true>(args, make_stamp(args, n), landed, alone, marked)
                      : take_all<false>(args, make_stamp(args, n), landed, alone, marked);
    if (!alone)
        ok = __syncthreads_and(ok);
    if (ok && marked)
        clear_mark(args.tensors[threadIdx.x / OCTET].head);
    if (!args.gate_ends)
        let_successor_begin();
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

/* Counted before the wait: between two of these kernels is a gate, which is no successor. */
__device__ __forceinline__ void unpack_all_chunks(const stepaf_kernel_args &args)
{
    uint32_t *count = &args.counts[1 + blockIdx.x];
    uint32_t n = number_after(load_volatile(count)), failed = load_volatile(args.failed);

    let_successor_begin();
    bool ok =
        args.aligned ? unpack_chunks<true>(args, n, failed) : unpack_chunks<false>(args, n, failed);
    __syncwarp(); /* all threads have read it */
    if (ok && threadIdx.x == 0)
        *count = n;
    await_predecessor();
}

__device__ __forceinline__ const stepaf_kernel_args &args_of(const stepaf_kernel_args_few &few)
{
    return reinterpret_cast<const stepaf_kernel_args &>(few);
}

} // namespace

extern "C" __global__ void stepaf_send(const __grid_constant__ stepaf_kernel_args args)
{
    send_all<false>(args);
}

extern "C" __global__ void stepaf_send_few(const __grid_constant__ stepaf_kernel_args_few args)
{
    send_all<false>(args_of(args));
}

extern "C" __global__ void __launch_bounds__(512)
    stepaf_gate(const __grid_constant__ stepaf_kernel_args args)
{
    gate(args);
}

extern "C" __global__ void __launch_bounds__(512)
    stepaf_gate_few(const __grid_constant__ stepaf_kernel_args_few args)
{
    gate(args_of(args));
}

extern "C" __global__ void stepaf_unpack(const __grid_constant__ stepaf_kernel_args args)
{
    unpack_all(args);
}

extern "C" __global__ void stepaf_unpack_few(const __grid_constant__ stepaf_kernel_args_few args)
{
    unpack_all(args_of(args));
}

extern "C" __global__ void stepaf_send_chunks(const __grid_constant__ stepaf_kernel_args args)
{
    send_all<true>(args);
}

extern "C" __global__ void stepaf_send_chunks_few(
    const __grid_constant__ stepaf_kernel_args_few args)
{
    send_all<true>(args_of(args));
}

extern "C" __global__ void stepaf_unpack_chunks(const __grid_constant__ stepaf_kernel_args args)
{
    unpack_all_chunks(args);
}

extern "C" __global__ void stepaf_unpack_chunks_few(
    const __grid_constant__ stepaf_kernel_args_few args)
{
    unpack_all_chunks(args_of(args));
}

#include "device/cuda/kernels_any.cuh"
#include "device/cuda/kernels_some.cuh"
#include "device/cuda/kernels_times.cuh"
