/* SPDX-License-Identifier: Apache-2.0 */
/* What all kernels share: patience, and the parts of sending and taking that do not depend on how a
 * launch is told of its tensors. ARGS is stepaf_kernel_args or stepaf_any_args. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_COMMON_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_COMMON_CUH

#include "device/cuda/kernels_words.cuh"
#include "device/kernels.h"
#include <device/cuda/kernels_machine.cuh>

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned OCTET = 8; /* threads that write a head with a tensor in it, or poll one */
constexpr unsigned LAST = STEPAF_WARP - 1;
constexpr unsigned GROUP_PIECES = STEPAF_GROUP_DATA / 16;
constexpr uint64_t THERE = UINT64_C(1) << 63; /* in a piece's second word */
constexpr unsigned LOOKS = 64;                /* polls between looks at the clock */

/* Return the number of the operation behind @a count others. If registers are few, the compiler
 * would keep @a count as well, and compute the number again. */
__device__ __forceinline__ uint32_t number_after(uint32_t count)
{
    uint32_t n = (count + 1) & STEPAF_COUNT_MASK;

    hide(n);
    return n;
}

/* Return what stepaf_stamp returns; @a n is a number. */
template <class ARGS> __device__ __forceinline__ uint64_t make_stamp(const ARGS &args, uint32_t n)
{
    return static_cast<uint64_t>(args.epoch) << 32 | n;
}

/* Note the first fault; from then on nothing is done for this plan. A thread that sees the plan's
 * failure must find the fault noted, since its stream goes on, and the host looks. Returns false if
 * another thread is noting one. */
template <class ARGS> __device__ bool note_fault(const ARGS &args, uint32_t fault, uint32_t peer)
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

/* Check now and then whether waiting still makes sense. */
template <class ARGS> class Patience
{
  public:
    __device__ explicit Patience(const ARGS &args) : args_(args)
    {
    }

    /* Count a poll that was in vain. Returns true to give up. */
    __device__ __forceinline__ bool over(uint32_t peer)
    {
        if (++polls_ % LOOKS != 0)
            return false;
        began_ = look(args_, polls_, began_, peer);
        return began_ == 0;
    }

  private:
    /* Return when waiting began; 0 to give up. Not a method, so that the members stay in
     * registers. */
    static __device__ __noinline__ uint64_t look(const ARGS &args, uint32_t polls, uint64_t began,
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

    const ARGS &args_;
    uint64_t began_ = 0;
    uint32_t polls_ = 0;
};

/* ---- sending ---- */

/* What one send needs to know. The plan's failure is loaded at the same time as the first piece of
 * the tensor; it is looked at only when that piece, or a head, is stored. */
struct Send {
    uint64_t stamp;
    uint32_t failed;
};

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

/* Return whether this block is the last of those that share tensor @a i: then all bytes are where
 * they go. */
template <class ARGS>
__device__ __forceinline__ bool is_last(const ARGS &args, unsigned i,
                                        const stepaf_kernel_tensor &tensor)
{
    uint32_t before = 0;

    __threadfence_system();
    __syncwarp();
    if (tensor.n > 1 && threadIdx.x == 0)
        before = atomicInc(&args.done[i], tensor.n - 1u);
    before = __shfl_sync(ALL, before, 0);
    __threadfence_system();
    return tensor.n == 1 || before == tensor.n - 1u;
}

} // namespace

#endif
