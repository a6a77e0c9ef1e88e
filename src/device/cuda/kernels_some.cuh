/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of plans that need only some answers: see the end of kernels.h. They are separate, so
 * that the other kernels stay the same. Each waits for all earlier work of the stream, so it may be
 * launched as a successor or not. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_SOME_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_SOME_CUH

namespace
{

/* Load a mask as another kernel, or the host, has left it. */
__device__ __forceinline__ uint64_t load_mask(const uint64_t &mask)
{
    return *static_cast<const volatile uint64_t *>(&mask);
}

__device__ __forceinline__ void add_bits(uint64_t &mask, uint64_t bits)
{
    atomicOr(reinterpret_cast<unsigned long long *>(&mask), bits);
}

__device__ __forceinline__ unsigned count_bits(uint64_t mask)
{
    return static_cast<unsigned>(__popcll(mask));
}

__device__ __forceinline__ uint32_t first_of(uint64_t mask)
{
    return static_cast<uint32_t>(__ffsll(static_cast<long long>(mask)) - 1);
}

__device__ __forceinline__ uint64_t mask_of(unsigned n)
{
    return n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
}

/* ---- receiving ---- */

enum Outcome { WAIT, DONE, OVER };

/* What the deciding thread knows of a wait. */
struct Wait {
    uint64_t began, now;
    uint64_t wanted; /* peers that it is for */
    uint64_t gone;
    uint32_t polls;
};

/* Return the peers whose tensors are all announced. @a told: one bit per tensor. */
__device__ __forceinline__ uint64_t find_whole(uint64_t told, unsigned n_each, unsigned n_tensors)
{
    uint64_t each = mask_of(n_each), whole = 0;

    for (unsigned peer = 0, at = 0; at < n_tensors; peer++, at += n_each)
        if ((told >> at & each) == each)
            whole |= UINT64_C(1) << peer;
    return whole;
}

/* Stop waiting for @a peers. Returns false if too few are left, because of @a fault. */
__device__ __forceinline__ bool give_up(const stepaf_kernel_args &args, Wait &wait, uint64_t peers)
{
    stepaf_some &some = *args.awaited;

    wait.gone |= peers;
    add_bits(some.gone, peers);
    return args.n_tensors / some.n_each - count_bits(wait.gone) >= some.need;
}

/* End the plan. If another thread is ending it, the outcome follows when that thread has noted
 * why. */
__device__ __forceinline__ Outcome fail_some(const stepaf_kernel_args &args, uint32_t fault,
                                             uint64_t peers)
{
    return note_fault(args, fault, first_of(peers)) ? OVER : WAIT;
}

/* Now and then: find out whether something has happened that no head announces. */
__device__ __noinline__ Outcome look_around(const stepaf_kernel_args &args, Wait &wait,
                                            uint64_t missing)
{
    if (load_volatile(args.failed))
        return OVER;
    if (load_volatile(&args.watch->abort))
        return fail_some(args, STEPAF_FAULT_ABORTED, missing);
    uint64_t lost = load_mask(args.watch->lost) & missing;
    if (lost && !give_up(args, wait, lost))
        return fail_some(args, STEPAF_FAULT_ABORTED, lost);
    return WAIT;
}

/* By one thread: decide what to do now that these tensors' heads are there. */
template <bool SETTLES>
__device__ __forceinline__ Outcome judge(const stepaf_kernel_args &args, Wait &wait, uint64_t told,
                                         uint64_t &whole)
{
    const stepaf_some &some = *args.awaited;
    uint64_t deadline = SETTLES ? args.timeout_ns / 2 : args.timeout_ns;

    whole = find_whole(told, some.n_each, args.n_tensors) & wait.wanted & ~wait.gone;
    uint64_t missing = wait.wanted & ~wait.gone & ~whole;
    if (!missing)
        return DONE;
    wait.now = now_ns();
    if (!wait.began)
        wait.began = wait.now;
    /* Signed: the timer may be set back a little. */
    int64_t waited = static_cast<int64_t>(wait.now - wait.began);
    if (!SETTLES && count_bits(whole) >= some.need &&
        waited >= static_cast<int64_t>(some.patience_ns))
        return DONE;
    Outcome outcome = ++wait.polls % LOOKS ? WAIT : look_around(args, wait, missing);
    if (outcome != WAIT || !deadline || waited < static_cast<int64_t>(deadline))
        return outcome;
    if (SETTLES && give_up(args, wait, missing & ~wait.gone))
        return WAIT; /* for nobody: there is another round */
    return fail_some(args, STEPAF_FAULT_TIMEOUT, missing);
}

/* Wait for heads, an octet each, until there is an outcome. Then the octet's share of its head is
 * in @a pair, and the peers whose tensors must be taken are in @a chosen. A peer that was announced
 * stays so. */
template <bool SETTLES>
__device__ __forceinline__ Outcome await_some(const stepaf_kernel_args &args, uint64_t stamp,
                                              uint64_t wanted, Wait &wait, uint64_t &chosen,
                                              Pair &pair)
{
    __shared__ unsigned long long told;
    __shared__ uint64_t whole;
    __shared__ Outcome outcome;
    unsigned i = threadIdx.x / OCTET;
    const stepaf_kernel_tensor &tensor = args.tensors[i < args.n_tensors ? i : 0];
    const uint8_t *leader = nullptr;

    if (ends_head() && tensor.copied && tensor.copied != i + 1)
        leader = args.tensors[tensor.copied - 1].head;
    wait = {0, 0, wanted, load_mask(args.awaited->gone), 0};
    if (threadIdx.x == 0)
        told = 0;
    __syncthreads();
    for (;;) {
        pair = load_pair(tensor.head + 16 * (threadIdx.x % OCTET));
        bool there = has_come_whole(has_come(pair, tensor.proto, stamp, leader));
        if (there && i < args.n_tensors && threadIdx.x % OCTET == 0)
            atomicOr(&told, 1ull << i);
        __syncthreads();
        if (threadIdx.x == 0)
            outcome = judge<SETTLES>(args, wait, told, whole);
        __syncthreads();
        if (outcome != WAIT)
            break;
    }
    chosen = whole;
    return outcome;
}

/* Take the tensors in the chosen peers' heads, and make the heads ready for the next operation: all
 * threads have looked at them. Nothing has arrived from the other peers. */
template <bool ALIGNED>
__device__ __forceinline__ void take_chosen(const stepaf_kernel_args &args, uint64_t stamp,
                                            uint64_t chosen, const Pair &pair)
{
    unsigned i = threadIdx.x / OCTET, last = threadIdx.x % STEPAF_WARP | (OCTET - 1);
    const stepaf_kernel_tensor &tensor = args.tensors[i < args.n_tensors ? i : 0];
    uint32_t bytes = __shfl_sync(ALL, bytes_of(pair, stamp, tensor.planned), last);

    if (i >= args.n_tensors)
        return;
    bool is_chosen = chosen >> (i / args.awaited->n_each) & 1;
    bytes = is_chosen ? min(bytes, tensor.bytes) : 0;
    if (threadIdx.x % OCTET == 0)
        args.landed[i] = bytes;
    if (!is_chosen)
        return;
    if (tensor.proto == STEPAF_PROTO_INLINE)
        take_from_head<ALIGNED>(tensor.data, bytes, pair);
    if (ends_head() && is_mark(pair.y))
        clear_mark(tensor.head);
}

__device__ __forceinline__ void take_chosen_as(const stepaf_kernel_args &args, uint64_t stamp,
                                               uint64_t chosen, const Pair &pair)
{
    if (args.aligned)
        take_chosen<true>(args, stamp, chosen, pair);
    else
        take_chosen<false>(args, stamp, chosen, pair);
}

/* Wait until enough answers are there. */
__device__ __forceinline__ void gate_some(const stepaf_kernel_args &args)
{
    await_predecessor();
    uint32_t n = number_after(load_volatile(args.counts));
    stepaf_some &some = *args.awaited;
    stepaf_some_slot &slot = some.slots[args.slot];
    uint64_t all = mask_of(args.n_tensors / some.n_each), chosen;
    Wait wait;
    Pair pair;

    if (!__syncthreads_and(!load_volatile(args.failed)) ||
        await_some<false>(args, make_stamp(args, n), all, wait, chosen, pair) == OVER)
        return;
    take_chosen_as(args, make_stamp(args, n), chosen, pair);
    if (threadIdx.x != 0)
        return;
    slot.mask = slot.now = chosen;
    slot.given_up = wait.gone;
    slot.late = load_mask(some.late);
    slot.missing = all & ~wait.gone & ~chosen;
    args.watch->answers[args.slot].mask = chosen;
    args.watch->answers[args.slot].given_up = wait.gone;
    args.counts[0] = n;
}

/* Before the slot is used again: wait until its late peers have answered, or are given up. */
__device__ __forceinline__ void settle(const stepaf_kernel_args &args)
{
    await_predecessor();
    uint32_t n = load_volatile(args.counts);
    stepaf_some &some = *args.awaited;
    stepaf_some_slot &slot = some.slots[args.slot];
    uint64_t late = load_mask(slot.missing), chosen;
    Wait wait;
    Pair pair;

    bool ok = __syncthreads_and(!load_volatile(args.failed));
    if (threadIdx.x == 0)
        slot.now = 0;
    if (!late || !ok ||
        await_some<true>(args, make_stamp(args, n), late, wait, chosen, pair) == OVER)
        return;
    take_chosen_as(args, make_stamp(args, n), chosen, pair);
    if (threadIdx.x != 0)
        return;
    slot.now = chosen;
    slot.missing = 0;
    atomicAdd(reinterpret_cast<unsigned long long *>(&some.late),
              static_cast<unsigned long long>(count_bits(chosen)));
}

template <bool ALIGNED, bool CHUNKS>
__device__ __forceinline__ void unpack_tensor(const stepaf_kernel_args &args, unsigned i)
{
    const stepaf_kernel_tensor &tensor = args.tensors[i];
    unsigned chunk = blockIdx.x - tensor.first;
    uint32_t bytes = load_volatile(&args.landed[i]);

    if (tensor.proto == STEPAF_PROTO_LL) {
        if (chunk < groups_of(bytes))
            take_pieces<ALIGNED>(args, tensor, bytes, chunk, tensor.n,
                                 load_group(group_at(tensor, chunk)));
    } else if (CHUNKS && tensor.proto == STEPAF_PROTO_CHUNKS) {
        take_chunks<ALIGNED>(args, tensor, bytes, make_stamp(args, load_volatile(args.counts)),
                             chunk);
    } else {
        copy_share<ALIGNED>(tensor.data, tensor.body, bytes, chunk, tensor.n);
    }
}

/* Launched behind either of them. */
template <bool CHUNKS> __device__ __forceinline__ void unpack_some(const stepaf_kernel_args &args)
{
    unsigned i = find_tensor(args);

    await_predecessor();
    uint64_t now = load_mask(args.awaited->slots[args.slot].now);
    uint32_t failed = load_volatile(args.failed);
    if (__any_sync(ALL, failed != 0) || !(now >> args.tensors[i].peer & 1))
        return;
    if (args.aligned)
        unpack_tensor<true, CHUNKS>(args, i);
    else
        unpack_tensor<false, CHUNKS>(args, i);
}

/* ---- sending ---- */

/* Launched behind settle: nothing goes to peers that were given up. */
template <bool CHUNKS> __device__ __forceinline__ void send_some(const stepaf_kernel_args &args)
{
    unsigned i = find_tensor(args);
    stepaf_kernel_tensor tensor = args.tensors[i];
    uint32_t before = 0;

    await_predecessor();
    if (threadIdx.x == 0)
        before = atomicAdd(&args.counts[1 + blockIdx.x], 1u);
    uint32_t failed = load_volatile(args.failed);
    uint64_t gone = load_mask(args.asked->gone);
    Send send = {make_stamp(args, number_after(__shfl_sync(ALL, before, 0))), failed};
    if (__any_sync(ALL, failed != 0) || (gone >> tensor.peer & 1))
        return;
    if (args.aligned)
        send_share<true, CHUNKS>(args, i, tensor, tensor.proto, send);
    else
        send_share<false, CHUNKS>(args, i, tensor, tensor.proto, send);
}

} // namespace

extern "C" __global__ void stepaf_send_some(const __grid_constant__ stepaf_kernel_args args)
{
    send_some<false>(args);
}

extern "C" __global__ void stepaf_send_some_few(const __grid_constant__ stepaf_kernel_args_few args)
{
    send_some<false>(args_of(args));
}

extern "C" __global__ void stepaf_send_some_chunks(const __grid_constant__ stepaf_kernel_args args)
{
    send_some<true>(args);
}

extern "C" __global__ void stepaf_send_some_chunks_few(
    const __grid_constant__ stepaf_kernel_args_few args)
{
    send_some<true>(args_of(args));
}

extern "C" __global__ void __launch_bounds__(512, 4) /* so many: 32 registers */
    stepaf_gate_some(const __grid_constant__ stepaf_kernel_args args)
{
    gate_some(args);
}

extern "C" __global__ void __launch_bounds__(512, 4)
    stepaf_gate_some_few(const __grid_constant__ stepaf_kernel_args_few args)
{
    gate_some(args_of(args));
}

extern "C" __global__ void stepaf_unpack_some(const __grid_constant__ stepaf_kernel_args args)
{
    unpack_some<false>(args);
}

extern "C" __global__ void stepaf_unpack_some_few(
    const __grid_constant__ stepaf_kernel_args_few args)
{
    unpack_some<false>(args_of(args));
}

extern "C" __global__ void stepaf_unpack_some_chunks(
    const __grid_constant__ stepaf_kernel_args args)
{
    unpack_some<true>(args);
}

extern "C" __global__ void stepaf_unpack_some_chunks_few(
    const __grid_constant__ stepaf_kernel_args_few args)
{
    unpack_some<true>(args_of(args));
}

extern "C" __global__ void __launch_bounds__(512, 4)
    stepaf_settle(const __grid_constant__ stepaf_kernel_args args)
{
    settle(args);
}

extern "C" __global__ void __launch_bounds__(512, 4)
    stepaf_settle_few(const __grid_constant__ stepaf_kernel_args_few args)
{
    settle(args_of(args));
}

#endif
