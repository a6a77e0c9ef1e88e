/* SPDX-License-Identifier: Apache-2.0 */
/* Timestamps: when a stream reached a point of an operation. kernels.h says where they go. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_TIMES_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_TIMES_CUH

#include "device/cuda/kernels_heads.cuh"

namespace
{

__device__ __forceinline__ void leave_word(const stepaf_timestamp_args &args, uint32_t kind,
                                           uint32_t op, uint32_t peer, uint64_t word)
{
    uint32_t n = atomicAdd(args.n_timestamps, 1u);
    uint64_t what = static_cast<uint64_t>(peer & 0xffff) << STEPAF_TIMESTAMP_PEER |
                    static_cast<uint64_t>(kind & 0xf) << STEPAF_TIMESTAMP_KIND |
                    static_cast<uint64_t>(op & (STEPAF_TIMESTAMP_OPS - 1)) << STEPAF_TIMESTAMP_OP |
                    ((n + 1) & (STEPAF_TIMESTAMP_NUMBERS - 1));

    store_pair(reinterpret_cast<uint8_t *>(&args.ring[n & args.mask]), {word, what});
}

__device__ __forceinline__ void leave_timestamp(const stepaf_timestamp_args &args, uint32_t kind,
                                                uint32_t op, uint32_t peer, uint64_t time_ns)
{
    const uint64_t bits = (UINT64_C(1) << STEPAF_TIMESTAMP_TIME_BITS) - 1;
    uint64_t upper = op / STEPAF_TIMESTAMP_OPS;

    leave_word(args, kind, op, peer, (time_ns & bits) | upper << STEPAF_TIMESTAMP_TIME_BITS);
}

/* Return the operation that had @a n others before it in its slot. */
__device__ __forceinline__ uint32_t op_of(const stepaf_timestamp_args &args, uint32_t n)
{
    return n * args.depth + args.slot;
}

/* Count one more operation of this kind and slot, which streams keep in order; return which it
 * is. */
__device__ __forceinline__ uint32_t count_op(const stepaf_timestamp_args &args)
{
    uint32_t n = load_volatile(args.n_ops);

    *static_cast<volatile uint32_t *>(args.n_ops) = n + 1;
    return op_of(args, n);
}

/* Return the batch's name behind a gate that takes any peer's batch; otherwise the host's. */
__device__ __forceinline__ uint64_t name_of(const stepaf_timestamp_args &args)
{
    if (args.batches == nullptr)
        return args.name;
    uint32_t at = load_volatile(args.n_batches) & args.batch_mask;
    return load_pair(reinterpret_cast<const uint8_t *>(&args.batches[at])).x;
}

/* Note the time. The next kernel begins only then, as it would without this one: many blocks that
 * wait for a peer's gate would leave no place for others. */
__device__ __forceinline__ void take_time(const stepaf_timestamp_args &args)
{
    await_predecessor();
    uint64_t now = now_ns();

    if (!load_volatile(args.failed)) {
        uint32_t op = count_op(args);
        leave_timestamp(args, args.kind, op, 0, now);
        if (args.named)
            leave_word(args, STEPAF_TIMESTAMP_NAME, op, 0, name_of(args));
    }
    let_successor_begin();
}

/* Wait for all heads of one peer. Returns false if it has given up. */
__device__ __forceinline__ bool await_heads(const stepaf_timestamp_args &args, uint64_t stamp,
                                            uint32_t at, uint32_t peer, bool &at_once)
{
    Patience patience(args);

    at_once = true;
    for (uint32_t i = 0; i < args.n_each; i++) {
        const stepaf_timestamp_head &head = args.heads[at * args.n_each + i];
        while (!is_told(load_pair(head.head + STEPAF_HEAD_TELLS).y, stamp) &&
               !(head.leader != nullptr && tells_all(head.leader))) {
            at_once = false;
            if (patience.over(peer))
                return false;
        }
    }
    return true;
}

/* Note the time of each peer's arrival. The next gate has counted as many operations as are over:
 * its next one is this one. */
__device__ __forceinline__ void note_arrivals(const stepaf_timestamp_args &args)
{
    await_predecessor();
    uint64_t now = now_ns();
    uint32_t at = threadIdx.x;
    bool at_once;

    if (load_volatile(args.failed))
        return;
    uint32_t n = load_volatile(args.n_ops) - !args.begins;
    uint32_t op = op_of(args, n);
    __syncthreads(); /* all threads have read it */
    if (at == 0 && args.begins) {
        *static_cast<volatile uint32_t *>(args.n_ops) = n + 1;
        leave_timestamp(args, STEPAF_TIMESTAMP_WAIT_BEGAN, op, 0, now);
    }
    if (at >= args.n_peers)
        return;
    uint64_t stamp = make_stamp(args, number_after(load_volatile(args.counts)));
    uint32_t peer = args.peers[at];
    if (await_heads(args, stamp, at, peer, at_once))
        leave_timestamp(args, at_once ? STEPAF_TIMESTAMP_WAS_THERE : STEPAF_TIMESTAMP_ARRIVED, op,
                        peer, now_ns());
}

/* Tell the time. On a stream that nobody waits for. */
__device__ __forceinline__ void tell_time(const stepaf_clock_args &args)
{
    uint8_t *answer = reinterpret_cast<uint8_t *>(args.answer);
    uint64_t began = now_ns(), now = began;
    uint32_t told = args.before;

    store_pair(answer, {now, told}); /* the kernel runs */
    while (static_cast<int64_t>(now - began) < static_cast<int64_t>(args.timeout_ns)) {
        uint32_t asked = load_volatile(args.asked);
        now = now_ns();
        if (asked == STEPAF_CLOCK_STOP)
            break;
        if (asked != told)
            store_pair(answer, {now, asked});
        told = asked;
    }
    store_pair(answer, {now, STEPAF_CLOCK_STOP});
}

} // namespace

extern "C" __global__ void stepaf_take_time(const __grid_constant__ stepaf_timestamp_args args)
{
    take_time(args);
}

extern "C" __global__ void __launch_bounds__(64)
    stepaf_arrivals(const __grid_constant__ stepaf_timestamp_args args)
{
    note_arrivals(args);
}

extern "C" __global__ void stepaf_tell_time(const __grid_constant__ stepaf_clock_args args)
{
    tell_time(args);
}

#endif
