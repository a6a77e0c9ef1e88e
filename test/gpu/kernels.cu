/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that follow from a number, on the GPU: see kernels.h. */
#include "kernels_any.h"

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

/* Word @a i of a piece. One in four is all ones, as indices that mean "none" are: what the
 * library's own marks look like. */
__device__ uint64_t word_of(uint64_t seed, uint64_t i)
{
    uint64_t word = mix(seed + i);

    return word % 4 != 0 ? word : ~0ull;
}

/* Operation @a n's bytes. */
__device__ void fill_piece(const gx_piece &piece, unsigned long long n)
{
    uint64_t seed = mix(piece.place ^ mix(n));
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;

    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i * 8 < piece.bytes; i += stride)
        store(piece.data + i * 8, static_cast<uint32_t>(piece.bytes - i * 8), word_of(seed, i));
}

__device__ void check_piece(const gx_piece &piece, unsigned long long n, gx_tally *tally)
{
    uint64_t seed = mix(piece.place ^ mix(n)), poison = 0x0101010101010101ull * POISON;
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    unsigned wrong = 0, spilled = 0;

    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i * 8 < piece.bytes; i += stride) {
        uint32_t left = static_cast<uint32_t>(piece.bytes - i * 8);
        wrong += compare(piece.data + i * 8, left, word_of(seed, i), tally, i * 8);
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

__global__ void fill(const gx_work work)
{
    fill_piece(work.pieces[blockIdx.y], work.tally->sent);
}

__global__ void check(const gx_work work)
{
    check_piece(work.pieces[blockIdx.y], work.tally->seen, work.tally);
}

/* What a batch's tensor number blockIdx.y is, if it is the worker's operation @a n. */
__device__ gx_piece piece_of(const gx_any_work &work, unsigned long long n)
{
    uint32_t peer = work.origin[0], slot = work.origin[1];
    uint32_t at = peer * work.n_each + blockIdx.y;
    const gx_any_piece &any = work.pieces[at];
    const uint32_t *landed = work.landed[slot];
    gx_piece piece = {any.data + static_cast<uint64_t>(slot) * any.pitch, any.place,
                      landed != nullptr ? landed + at : nullptr, any.bytes, any.room};

    if (work.sizes != nullptr)
        piece.bytes = work.sizes[(peer * work.period + n % work.period) * work.n_each + blockIdx.y];
    return piece;
}

__global__ void fill_any(const gx_any_work work)
{
    unsigned long long n = work.counts->answered[work.origin[0]];

    fill_piece(piece_of(work, n), n);
}

__global__ void check_any(const gx_any_work work)
{
    unsigned long long n = work.counts->seen[work.origin[0]];

    check_piece(piece_of(work, n), n, work.tally);
}

/* The same thread sees whether the worker's batches come in their order, slot by slot. */
__global__ void count_any(const gx_any_work work, bool answers)
{
    gx_any_counts *counts = work.counts;
    uint32_t peer = work.origin[0], slot = work.origin[1];
    unsigned long long n = answers ? counts->answered[peer]++ : counts->seen[peer]++;

    counts->misplaced += n % work.depth != slot;
    (answers ? work.tally->sent : work.tally->seen)++;
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

dim3 grid_of_any(const gx_any_work *work)
{
    uint32_t largest = 1;

    for (uint32_t i = 0; i < work->n_each; i++)
        if (work->pieces[i].bytes > largest)
            largest = work->pieces[i].bytes;
    uint32_t blocks = (largest - 1) / (THREADS * 8) + 1;
    return dim3(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX, work->n_each);
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

cudaError_t gx_launch_check_any(const struct gx_any_work *work, cudaStream_t stream)
{
    check_any<<<grid_of_any(work), THREADS, 0, stream>>>(*work);
    count_any<<<1, 1, 0, stream>>>(*work, false);
    return cudaGetLastError();
}

cudaError_t gx_launch_fill_any(const struct gx_any_work *work, cudaStream_t stream)
{
    fill_any<<<grid_of_any(work), THREADS, 0, stream>>>(*work);
    count_any<<<1, 1, 0, stream>>>(*work, true);
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
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, fill_any);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, check_any);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, count_any);
    return error;
}
