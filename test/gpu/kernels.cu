/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that follow from a number, on the GPU: see kernels.h. */
#include "kernels.h"

namespace
{

constexpr unsigned THREADS = 256;
constexpr unsigned BLOCKS_MAX = 64;
constexpr unsigned char POISON = 0xA5;

__device__ uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ bool is_word(const unsigned char *at, uint32_t left)
{
    return left >= 8 && reinterpret_cast<uintptr_t>(at) % 8 == 0;
}

__device__ void store(unsigned char *at, uint32_t left, uint64_t word)
{
    if (is_word(at, left)) {
        *reinterpret_cast<uint64_t *>(at) = word;
        return;
    }
    for (uint32_t i = 0; i < 8 && i < left; i++)
        at[i] = static_cast<unsigned char>(word >> (8 * i));
}

__device__ void note_first(gx_tally *tally, uint64_t at, unsigned is, unsigned should)
{
    if (atomicExch(&tally->claimed, 1) != 0)
        return;
    tally->first_op = tally->seen;
    tally->first_piece = blockIdx.y;
    tally->first_at = at;
    tally->is = is;
    tally->should = should;
}

/* Compare up to eight bytes; how many are wrong. */
__device__ unsigned compare(const unsigned char *at, uint32_t left, uint64_t word, gx_tally *tally,
                            uint64_t offset)
{
    unsigned wrong = 0;

    if (is_word(at, left) && *reinterpret_cast<const uint64_t *>(at) == word)
        return 0;
    for (uint32_t i = 0; i < 8 && i < left; i++) {
        unsigned should = static_cast<unsigned>(word >> (8 * i)) & 0xff, is = at[i];
        if (is == should)
            continue;
        wrong++;
        note_first(tally, offset + i, is, should);
    }
    return wrong;
}

__global__ void fill(const gx_work work)
{
    const gx_piece &piece = work.pieces[blockIdx.y];
    uint64_t seed = mix(piece.place ^ mix(work.tally->sent));
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;

    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i * 8 < piece.bytes; i += stride)
        store(piece.data + i * 8, static_cast<uint32_t>(piece.bytes - i * 8), mix(seed + i));
}

__global__ void check(const gx_work work)
{
    const gx_piece &piece = work.pieces[blockIdx.y];
    gx_tally *tally = work.tally;
    uint64_t seed = mix(piece.place ^ mix(tally->seen)), poison = 0x0101010101010101ull * POISON;
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    unsigned wrong = 0, spilled = 0;

    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i * 8 < piece.bytes; i += stride) {
        uint32_t left = static_cast<uint32_t>(piece.bytes - i * 8);
        wrong += compare(piece.data + i * 8, left, mix(seed + i), tally, i * 8);
        store(piece.data + i * 8, left, poison);
    }
    if (blockIdx.x == 0) {
        uint64_t beyond = static_cast<uint64_t>(piece.bytes) + GX_BEYOND;
        uint64_t end = beyond < piece.room ? beyond : piece.room;
        for (uint64_t i = piece.bytes + threadIdx.x; i < end; i += blockDim.x) {
            if (piece.data[i] == POISON)
                continue;
            spilled++;
            note_first(tally, i, piece.data[i], POISON);
            piece.data[i] = POISON;
        }
    }
    if (wrong > 0)
        atomicAdd(&tally->wrong, static_cast<unsigned long long>(wrong));
    if (spilled > 0)
        atomicAdd(&tally->spilled, static_cast<unsigned long long>(spilled));
    if (blockIdx.x > 0 || threadIdx.x > 0)
        return;
    atomicAdd(&tally->bytes, static_cast<unsigned long long>(piece.bytes));
    if (piece.landed != nullptr && *piece.landed != piece.bytes) {
        atomicAdd(&tally->sizes, 1ull);
        note_first(tally, 0, *piece.landed, piece.bytes);
    }
}

__global__ void count(unsigned long long *counter)
{
    *counter += 1;
}

__global__ void delay(uint64_t ns)
{
    uint64_t began, now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - began < ns);
}

dim3 grid_of(const gx_work *work)
{
    uint64_t largest = 0;

    for (uint32_t i = 0; i < work->n; i++)
        if (work->pieces[i].bytes > largest)
            largest = work->pieces[i].bytes;
    uint64_t blocks = (largest + THREADS * 8 - 1) / (THREADS * 8);
    if (blocks < 1)
        blocks = 1;
    if (blocks > BLOCKS_MAX)
        blocks = BLOCKS_MAX;
    return dim3(static_cast<unsigned>(blocks), work->n);
}

} // namespace

cudaError_t gx_launch_fill(const struct gx_work *work, cudaStream_t stream)
{
    if (work->n == 0)
        return cudaSuccess;
    fill<<<grid_of(work), THREADS, 0, stream>>>(*work);
    return cudaGetLastError();
}

cudaError_t gx_launch_check(const struct gx_work *work, cudaStream_t stream)
{
    if (work->n == 0)
        return cudaSuccess;
    check<<<grid_of(work), THREADS, 0, stream>>>(*work);
    return cudaGetLastError();
}

cudaError_t gx_launch_count(unsigned long long *counter, cudaStream_t stream)
{
    count<<<1, 1, 0, stream>>>(counter);
    return cudaGetLastError();
}

cudaError_t gx_launch_delay(uint32_t us, cudaStream_t stream)
{
    delay<<<1, 1, 0, stream>>>(static_cast<uint64_t>(us) * 1000);
    return cudaGetLastError();
}

cudaError_t gx_load_kernels(void)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, fill);

    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, check);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, count);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, delay);
    return error;
}
