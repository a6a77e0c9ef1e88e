/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU for src/device/cuda/kernels.cu to run on in a test, in place of the header of the same name there.
 *
 * Each CUDA thread is a fiber, and they take turns where it hurts: before each load, and at each meeting
 * (votes, shuffles, barriers). What store_pair stores comes to memory later, in any order, if no fence is
 * between: nothing larger than that is seen whole. Whoever does not come to a meeting that others wait
 * at, or comes to another one, is found.
 *
 * Kernels may be in streams, as programmatic successors too: see machine.h. */
#ifndef STEPAF_DEVICE_KERNELS_MACHINE_CUH
#define STEPAF_DEVICE_KERNELS_MACHINE_CUH

#include <stdint.h>

#define __device__
#define __global__
#define __shared__ \
    static __attribute__((section("of_blocks"))) /* machine.h gives each block its own */
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;

struct uint4 {
    uint32_t x, y, z, w;
};

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

static inline uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Let others go on. */
void machine_yield();
/* Store 16 bytes some time before the thread's next fence, or its end. */
void machine_store(uint8_t *at, const void *bytes);
void machine_fence();
/* The next kernel of the stream may begin; wait until the one before has ended. */
void machine_let_begin();
void machine_await_before();
/* Whether a load has to do with memory that may be read. */
void machine_check(const uint8_t *at);
/* Come to a meeting of the threads of a warp that are in @a mask, or, with none, of the whole block;
 * return what @a value of thread @a from is (its number in the warp), or all votes, or their number. */
enum Meeting { SHUFFLE = 1, VOTE, WARP, BLOCK };
uint64_t machine_meet(Meeting meeting, uint32_t mask, uint64_t value, unsigned from);
uint64_t machine_now_ns();

template <class T> T __shfl_sync(uint32_t mask, T value, unsigned from)
{
    return static_cast<T>(machine_meet(SHUFFLE, mask, static_cast<uint64_t>(value), from));
}

static inline uint32_t __ballot_sync(uint32_t mask, bool vote)
{
    return static_cast<uint32_t>(machine_meet(VOTE, mask, vote, 0));
}

static inline bool __all_sync(uint32_t mask, bool vote)
{
    return __ballot_sync(mask, vote) == mask;
}

static inline bool __any_sync(uint32_t mask, bool vote)
{
    return __ballot_sync(mask, vote) != 0;
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    machine_meet(WARP, mask, 0, 0);
}

static inline int __syncthreads_and(int vote)
{
    return machine_meet(BLOCK, 0, vote != 0, 0) == blockDim.x;
}

static inline int __syncthreads_or(int vote)
{
    return machine_meet(BLOCK, 0, vote != 0, 0) != 0;
}

static inline void __syncthreads()
{
    machine_meet(BLOCK, 0, 0, 0);
}

static inline int __popcll(unsigned long long bits)
{
    return __builtin_popcountll(bits);
}

static inline int __ffsll(long long bits)
{
    return __builtin_ffsll(bits);
}

static inline void __threadfence()
{
    machine_fence();
}

static inline void __threadfence_system()
{
    machine_fence();
}

template <class T, class U> T atomicExch(T *at, U value)
{
    T was = *at;

    *at = value;
    return was;
}

template <class T, class U> T atomicOr(T *at, U bits)
{
    T was = *at;

    *at |= bits;
    return was;
}

template <class T, class U> T atomicAdd(T *at, U value)
{
    T was = *at;

    *at = was + value;
    return was;
}

static inline uint32_t atomicInc(uint32_t *at, uint32_t last)
{
    uint32_t was = *at;

    *at = was >= last ? 0 : was + 1;
    return was;
}

namespace
{

struct Pair {
    uint64_t x, y;
};

void store_pair(uint8_t *at, Pair pair)
{
    machine_store(at, &pair);
}

Pair load_pair(const uint8_t *at)
{
    Pair pair;

    machine_check(at);
    machine_yield();
    __builtin_memcpy(&pair, at, sizeof pair);
    return pair;
}

void store_whole(uint8_t *at, uint4 bytes)
{
    machine_store(at, &bytes);
}

uint64_t load_flag(const uint8_t *at)
{
    uint64_t value;

    machine_yield();
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

uint32_t load_volatile(const uint32_t *at)
{
    machine_yield();
    return *static_cast<const volatile uint32_t *>(at);
}

uint32_t load_acquire(const uint32_t *at)
{
    return load_volatile(at);
}

void let_successor_begin()
{
    machine_let_begin();
}

void await_predecessor()
{
    machine_await_before();
}

uint64_t now_ns()
{
    return machine_now_ns();
}

void hide(uint32_t &)
{
}

void make_here(uint32_t &)
{
}

void make_here(uint8_t *&)
{
}

} // namespace

#endif
