/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of plans that take the next batch of any one peer: see the end of kernels.h. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_ANY_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_ANY_CUH

#include "device/cuda/kernels_chunks.cuh"
#include "device/cuda/kernels_pieces.cuh"

namespace
{

/* A batch and its peer. */
struct Batch {
    uint32_t n; /* operation in its slot */
    uint32_t peer, slot;
};

__device__ __forceinline__ uint8_t *entry_at(const stepaf_any_args &args, uint32_t seq)
{
    return reinterpret_cast<uint8_t *>(&args.ring[seq & args.ring_mask]);
}

__device__ __forceinline__ Batch batch_of(const Pair &entry)
{
    return {static_cast<uint32_t>(entry.x >> 32), static_cast<uint32_t>(entry.x >> 8) & 0xffffff,
            static_cast<uint32_t>(entry.x) & 0xff};
}

/* Return tensor @a i of a batch. */
__device__ __forceinline__ stepaf_kernel_tensor tensor_of(const stepaf_any_args &args,
                                                          const Batch &batch, uint32_t i)
{
    const stepaf_any_tensor &entry = args.tensors[batch.peer * args.n_each + i];
    uint64_t slot = batch.slot;
    stepaf_kernel_tensor tensor = entry.tensor;

    tensor.head += slot * entry.head_stride;
    tensor.body += slot * entry.body_stride;
    tensor.data += slot * entry.data_stride;
    tensor.n = args.shares[i].n;
    return tensor;
}

/* Return the head of the other tensor that gets TOLD_ALL for tensor @a i, or NULL. */
__device__ __forceinline__ const uint8_t *leader_of(const stepaf_any_args &args, const Batch &batch,
                                                    uint32_t i)
{
    uint32_t at = batch.peer * args.n_each + i, copied = args.tensors[at].tensor.copied;

    if (!copied || copied == at + 1)
        return nullptr;
    const stepaf_any_tensor &entry = args.tensors[copied - 1];
    return entry.tensor.head + static_cast<uint64_t>(batch.slot) * entry.head_stride;
}

__device__ __forceinline__ uint32_t *landed_of(const stepaf_any_args &args, const Batch &batch,
                                               uint32_t i)
{
    return &args.landed[batch.slot * args.landed_stride + batch.peer * args.n_each + i];
}

/* Return the tensor that this block works for. */
__device__ __forceinline__ uint32_t find_share(const stepaf_any_args &args)
{
    uint32_t i = 0;

    while (blockIdx.x - args.shares[i].first >= args.shares[i].n)
        i++;
    return i;
}

/* ---- sending ---- */

template <bool ALIGNED, bool CHUNKS>
__device__ __forceinline__ void send_batch(const stepaf_any_args &args, const Batch &batch,
                                           const Send &send)
{
    uint32_t i = find_share(args);
    const stepaf_any_share &share = args.shares[i];
    stepaf_kernel_tensor tensor = tensor_of(args, batch, i);
    unsigned chunk = blockIdx.x - share.first;

    if (share.data)
        tensor.data = share.data;
    if (share.bytes != UINT32_MAX)
        tensor.bytes = share.bytes;
    if (tensor.proto == STEPAF_PROTO_LL) {
        send_pieces<ALIGNED>(tensor, chunk, send, args.failed);
    } else if (tensor.proto == STEPAF_PROTO_INLINE) {
        if (chunk == 0)
            store_head(tensor, load_head_words<ALIGNED>(tensor), send);
    } else if (CHUNKS && tensor.proto == STEPAF_PROTO_CHUNKS) {
        send_chunks<ALIGNED>(tensor, chunk, send);
    } else if (!__any_sync(ALL, send.failed != 0)) {
        copy_share<ALIGNED>(tensor.body, tensor.data, tensor.bytes, chunk, tensor.n);
        if (is_last(args, i, tensor))
            tell(tensor, send);
    }
}

/* ---- receiving ---- */

/* Return the first peer, from @a turn on, with all of its heads in @a told; n_peers if there is
 * none. */
__device__ __forceinline__ uint32_t choose(const stepaf_any_args &args, uint64_t told,
                                           uint32_t turn)
{
    uint64_t all = (UINT64_C(1) << args.n_each) - 1;

    for (uint32_t i = 0; told && i < args.n_peers; i++) {
        uint32_t peer = turn + i < args.n_peers ? turn + i : turn + i - args.n_peers;
        uint64_t mask = all << (peer * args.n_each);
        if ((told & mask) == mask)
            return peer;
    }
    return args.n_peers;
}

/* Poll the next heads of all peers, an octet each, until one peer has sent all of its heads.
 * @a leader: the head that may announce the octet's tensor, too, or NULL. The octet's share of its
 * head is then in @a pair. Returns n_peers if it has given up. */
__device__ __forceinline__ uint32_t await_batch(const stepaf_any_args &args, const uint8_t *head,
                                                uint8_t proto, const uint8_t *leader, bool mine,
                                                uint64_t stamp, Pair &pair)
{
    __shared__ unsigned long long told[3]; /* of this round, of the next, of one that is over */
    uint32_t turn = args.next[args.n_peers].slot;
    Patience patience(args);

    if (threadIdx.x == 0)
        told[0] = 0;
    __syncthreads();
    for (unsigned round = 0;; round = round == 2 ? 0 : round + 1) {
        pair = load_pair(head);
        bool there = has_come_whole(has_come(pair, proto, stamp, leader));
        if (mine && there && threadIdx.x % OCTET == 0)
            atomicOr(&told[round], 1ull << threadIdx.x / OCTET);
        if (threadIdx.x == 0)
            told[round == 2 ? 0 : round + 1] = 0;
        if (__syncthreads_or(threadIdx.x == 0 && patience.over(turn | STEPAF_WATCH_ANY)))
            return args.n_peers;
        uint32_t peer = choose(args, told[round], turn);
        if (peer < args.n_peers)
            return peer;
    }
}

/* Take the tensor if it is in its head, and make the head ready for the next one. All threads have
 * looked at the head. */
template <bool ALIGNED>
__device__ __forceinline__ void take_head(const stepaf_kernel_tensor &tensor, uint32_t bytes,
                                          const Pair &pair)
{
    if (ends_head() && is_mark(pair.y))
        clear_mark(tensor.head);
    if (tensor.proto == STEPAF_PROTO_INLINE)
        take_from_head<ALIGNED>(tensor.data, bytes, pair);
}

/* Wait for a batch. Take its heads and the gate's pieces, a warp for each group. Everything that
 * can be looked up before the batch is there is looked up before. */
template <bool ALIGNED>
__device__ __forceinline__ bool take_batch(const stepaf_any_args &args, Batch &batch)
{
    __shared__ uint32_t landed[STEPAF_ANY_TENSORS];
    __shared__ Batch taken;
    unsigned i = threadIdx.x / OCTET, warp = threadIdx.x / STEPAF_WARP;
    unsigned last = threadIdx.x % STEPAF_WARP | (OCTET - 1);
    bool mine = i < args.n_peers * args.n_each;
    uint32_t peer = mine ? i / args.n_each : 0, index = mine ? i % args.n_each : 0;
    Batch own = {number_after(args.next[peer].rounds), peer, args.next[peer].slot};
    uint64_t stamp = make_stamp(args, own.n);
    stepaf_kernel_tensor awaited = tensor_of(args, own, index);
    Pair pair;

    uint32_t first = await_batch(args, awaited.head + threadIdx.x % OCTET * 16, awaited.proto,
                                 leader_of(args, own, index), mine, stamp, pair);
    if (first == args.n_peers)
        return false;
    uint32_t bytes = __shfl_sync(ALL, bytes_of(pair, stamp, awaited.planned), last);
    if (mine && peer == first) {
        bytes = min(bytes, awaited.bytes);
        if (threadIdx.x % OCTET == 0)
            landed[index] = *landed_of(args, own, index) = bytes;
        if (threadIdx.x % OCTET == 0 && index == 0)
            taken = own;
        take_head<ALIGNED>(awaited, bytes, pair);
    }
    __syncthreads();
    batch = taken;
    for (uint32_t k = 0, group = warp; args.gate_takes && k < args.n_each; k++) {
        stepaf_kernel_tensor tensor = tensor_of(args, batch, k);
        uint32_t n = tensor.proto == STEPAF_PROTO_LL && !tensor.n ? groups_of(landed[k]) : 0;
        if (group < n)
            return take_pieces<ALIGNED>(args, tensor, landed[k], group, n,
                                        load_group(group_at(tensor, group)));
        group -= n;
    }
    return true;
}

/* By one thread: note whose turn is next; then let others see the batch. */
__device__ __forceinline__ void note_batch(const stepaf_any_args &args, const Batch &batch,
                                           uint32_t seq)
{
    bool wraps = batch.slot + 1 == args.depth;

    args.next[batch.peer] = {wraps ? batch.n : batch.n - 1, wraps ? 0 : batch.slot + 1};
    args.next[args.n_peers].slot = batch.peer + 1 < args.n_peers ? batch.peer + 1 : 0;
    args.origin[0] = batch.peer;
    args.origin[1] = batch.slot;
    args.counts[0] = seq;
    if (!args.gate_ends) /* otherwise the kernels that follow wait for the end of this one */
        __threadfence();
    store_pair(entry_at(args, seq),
               {static_cast<uint64_t>(batch.n) << 32 | batch.peer << 8 | batch.slot,
                make_stamp(args, seq)});
}

/* Wait until the gate has noted batch @a seq. Not long, since the gate lets this kernel begin. */
__device__ __forceinline__ bool await_entry(const stepaf_any_args &args, uint32_t seq, Pair &entry)
{
    Patience patience(args);

    while ((entry = load_pair(entry_at(args, seq))).y != make_stamp(args, seq))
        if (patience.over(STEPAF_WATCH_ANY))
            return false;
    __threadfence();
    return true;
}

template <bool ALIGNED, bool CHUNKS>
__device__ __forceinline__ bool unpack_batch(const stepaf_any_args &args, const Batch &batch)
{
    uint32_t i = find_share(args);
    stepaf_kernel_tensor tensor = tensor_of(args, batch, i);
    unsigned chunk = blockIdx.x - args.shares[i].first;
    uint32_t bytes = load_volatile(landed_of(args, batch, i));

    if (tensor.proto == STEPAF_PROTO_LL)
        return chunk >= groups_of(bytes) ||
               take_pieces<ALIGNED>(args, tensor, bytes, chunk, tensor.n,
                                    load_group(group_at(tensor, chunk)));
    if (CHUNKS && tensor.proto == STEPAF_PROTO_CHUNKS)
        return take_chunks<ALIGNED>(args, tensor, bytes, make_stamp(args, batch.n), chunk);
    if (tensor.proto == STEPAF_PROTO_BCOPY)
        copy_share<ALIGNED>(tensor.data, tensor.body, bytes, chunk, tensor.n);
    return true;
}

/* ---- kernels ---- */

/* Launched as a successor. But values read before all earlier work is done may be old: the kernel
 * before may be another send, which counts as it ends. */
template <bool CHUNKS> __device__ __forceinline__ void send_all_any(const stepaf_any_args &args)
{
    uint32_t *count = &args.counts[1 + blockIdx.x];
    uint32_t guess = number_after(load_volatile(count));

    let_successor_begin();
    await_predecessor();
    uint32_t failed = load_volatile(args.failed);
    uint32_t seq = number_after(load_volatile(count));
    Pair entry = load_pair(entry_at(args, guess)); /* in flight together with the count */
    if (seq != guess)
        entry = load_pair(entry_at(args, seq));
    Batch batch = batch_of(entry);
    /* Nothing was received: the graph answers more than it receives. */
    uint32_t none = entry.y != make_stamp(args, seq);
    Send send = {make_stamp(args, batch.n), failed | none};
    if (args.aligned)
        send_batch<true, CHUNKS>(args, batch, send);
    else
        send_batch<false, CHUNKS>(args, batch, send);
    __syncwarp(); /* all threads have read it */
    if (threadIdx.x == 0 && !send.failed)
        *count = seq;
}

template <bool CHUNKS> __device__ __forceinline__ void unpack_all_any(const stepaf_any_args &args)
{
    uint32_t *count = &args.counts[1 + blockIdx.x];
    /* Counted before the wait: between two of these kernels is a gate, which is no successor. */
    uint32_t seq = number_after(load_volatile(count));
    bool ok = !load_volatile(args.failed);
    Pair entry = {0, 0};

    let_successor_begin();
    ok = __all_sync(ALL, ok && await_entry(args, seq, entry));
    if (ok) {
        ok = args.aligned ? unpack_batch<true, CHUNKS>(args, batch_of(entry))
                          : unpack_batch<false, CHUNKS>(args, batch_of(entry));
        __syncwarp(); /* all threads have read it */
        if (ok && threadIdx.x == 0)
            *count = seq;
    }
    await_predecessor();
}

} // namespace

extern "C" __global__ void stepaf_send_any(const __grid_constant__ stepaf_any_args args)
{
    send_all_any<false>(args);
}

extern "C" __global__ void stepaf_send_any_chunks(const __grid_constant__ stepaf_any_args args)
{
    send_all_any<true>(args);
}

extern "C" __global__ void __launch_bounds__(512, 4) /* 4 per multiprocessor: 32 registers */
    stepaf_gate_any(const __grid_constant__ stepaf_any_args args)
{
    uint32_t seq = number_after(args.counts[0]);
    bool ok = __syncthreads_and(!load_volatile(args.failed));
    Batch batch = {0, 0, 0};

    if (args.gate_ends)
        let_successor_begin();
    if (ok)
        ok = args.aligned ? take_batch<true>(args, batch) : take_batch<false>(args, batch);
    ok = __syncthreads_and(ok);
    if (ok && threadIdx.x == 0)
        note_batch(args, batch, seq);
    if (!args.gate_ends)
        let_successor_begin();
}

extern "C" __global__ void stepaf_unpack_any(const __grid_constant__ stepaf_any_args args)
{
    unpack_all_any<false>(args);
}

extern "C" __global__ void stepaf_unpack_any_chunks(const __grid_constant__ stepaf_any_args args)
{
    unpack_all_any<true>(args);
}

#endif
