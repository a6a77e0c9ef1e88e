/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's own instructions (PTX ISA 8.3). Everything else in the kernels is plain CUDA C++, so a
 * test can replace this file with a machine of its own. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_MACHINE_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_MACHINE_CUH

#include <stdint.h>

namespace
{

struct Pair {
    uint64_t x, y;
};

/* Store, or load, a thread's 16 bytes at once: true on existing GPUs, though PTX does not promise
 * it. */
__device__ __forceinline__ void store_pair(uint8_t *at, Pair pair)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(pair.x), "l"(pair.y)
                 : "memory");
}

/* Store 16 bytes that nobody looks for before a fence. */
__device__ __forceinline__ void store_whole(uint8_t *at, uint4 bytes)
{
    *reinterpret_cast<uint4 *>(at) = bytes;
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
    uint32_t value;

    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

/* Load a value; what is read behind it is at least as new. */
__device__ __forceinline__ uint32_t load_acquire(const uint32_t *at)
{
    uint32_t value;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

/* Load what another GPU, or the host, has stored; what is read behind it is at least as new. */
__device__ __forceinline__ uint64_t load_flag(const uint8_t *at)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

__device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Hide a value from the compiler, which then keeps it. */
__device__ __forceinline__ void hide(uint32_t &value)
{
    asm("" : "+r"(value));
}

/* Hide a value that is made here, before what follows. Parameters must be fetched, too, and the
 * compiler would fetch them again at each use. */
__device__ __forceinline__ void make_here(uint32_t &value)
{
    asm volatile("" : "+r"(value));
}

__device__ __forceinline__ void make_here(uint8_t *&value)
{
    size_t at = __cvta_generic_to_global(value); /* else: no longer known to be global */

    asm volatile("" : "+l"(at));
    value = static_cast<uint8_t *>(__cvta_global_to_generic(at));
}

} // namespace

#endif
