/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

namespace
{

constexpr unsigned THREADS = 256;
constexpr unsigned MAX_BLOCKS = 128; /* of a piece */

__device__ inline uint64_t now_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* As the check on the host: the finalizer of a counter-based generator. */
__device__ inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

__device__ inline uint64_t word_of(uint64_t seed, uint64_t index)
{
    return mix(seed + (index + 1) * 0x9e3779b97f4a7c15u);
}

/* Return the place of this block's row of the piece, for the operation in flight. */
__device__ inline uint8_t *place_of(const perf_gpu_pieces &pieces, uint64_t turn)
{
    const perf_gpu_piece &piece = pieces.pieces[blockIdx.y];

    return piece.data + turn % pieces.depth * piece.pitch;
}

__global__ void __launch_bounds__(THREADS) fill(const __grid_constant__ perf_gpu_pieces pieces)
{
    const perf_gpu_piece &piece = pieces.pieces[blockIdx.y];
    const uint64_t turn = *pieces.turn;
    const uint64_t seed = mix(piece.seed ^ turn);
    const bool spoil = pieces.corrupt > 0 && (turn + 1) % pieces.corrupt == 0;
    uint8_t *data = place_of(pieces, turn);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % 8 == 0;

    for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i * 8 < piece.bytes;
         i += static_cast<uint64_t>(gridDim.x) * THREADS) {
        uint64_t word = word_of(seed, i);
        uint64_t left = piece.bytes - i * 8;

        if (spoil && i == piece.bytes / 16)
            word ^= 1;
        if (aligned && left >= 8) {
            reinterpret_cast<uint64_t *>(data)[i] = word;
            continue;
        }
        for (unsigned b = 0; b < 8 && b < left; b++)
            data[i * 8 + b] = static_cast<uint8_t>(word >> 8 * b);
    }
}

__device__ inline unsigned differing_bytes(uint64_t difference)
{
    unsigned n = 0;

    for (; difference != 0; difference >>= 8)
        n += (difference & 0xff) != 0;
    return n;
}

__global__ void __launch_bounds__(THREADS) verify(const __grid_constant__ perf_gpu_pieces pieces)
{
    const perf_gpu_piece &piece = pieces.pieces[blockIdx.y];
    const uint64_t turn = *pieces.turn;
    const uint64_t seed = mix(piece.seed ^ turn);
    const uint8_t *data = place_of(pieces, turn);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % 8 == 0;
    unsigned long long wrong = 0;

    for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i * 8 < piece.bytes;
         i += static_cast<uint64_t>(gridDim.x) * THREADS) {
        uint64_t word = word_of(seed, i);
        uint64_t left = piece.bytes - i * 8;

        if (aligned && left >= 8) {
            uint64_t is = __ldcv(reinterpret_cast<const unsigned long long *>(data) + i);

            if (is != word)
                wrong += differing_bytes(is ^ word);
            continue;
        }
        for (unsigned b = 0; b < 8 && b < left; b++)
            wrong += __ldcv(data + i * 8 + b) != static_cast<uint8_t>(word >> 8 * b);
    }
    if (pieces.landed != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
        const uint32_t *landed =
            pieces.landed + turn % pieces.depth * pieces.landed_pitch + blockIdx.y;

        if (__ldcv(landed) != piece.bytes)
            wrong += piece.bytes;
    }
    if (wrong > 0)
        atomicAdd(reinterpret_cast<unsigned long long *>(pieces.wrong), wrong);
}

__global__ void count_turn(uint64_t *turn)
{
    ++*turn;
}

__global__ void __launch_bounds__(32)
    hold(const volatile uint32_t *go, uint32_t ticket, uint64_t limit_ns)
{
    const uint64_t start = now_ns();

    while (static_cast<int32_t>(*go - ticket) < 0 && now_ns() - start < limit_ns)
        __nanosleep(200);
}

/* An SM's registers are four parts of 16,384, and a warp's are in one of them: three warps of
 * 160 leave 1,024 in each part, enough for one more warp of 32. */
constexpr unsigned LOAD_THREADS = 384;
constexpr unsigned TILE_M = 12, TILE_N = 10;
constexpr unsigned LOAD_SHARED = 200 << 10;
constexpr unsigned SHARED_FLOATS = LOAD_SHARED / sizeof(float);
constexpr unsigned STEPS = 64; /* between reads of the clock */

__global__ void __maxnreg__(160) matrix_load(const __grid_constant__ perf_gpu_load load)
{
    extern __shared__ float tile[];
    const uint64_t start = now_ns();
    const float4 *operand = reinterpret_cast<const float4 *>(load.operand);
    const unsigned n_operand = PERF_GPU_LOAD_OPERAND / sizeof(float4);
    unsigned from = (blockIdx.x * 977 + threadIdx.x) % n_operand;
    float sum[TILE_M][TILE_N] = {};
    float total = 0.0f;

    if (*static_cast<const volatile uint32_t *>(load.stop) == load.ticket)
        return;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *static_cast<volatile uint32_t *>(load.started) = load.ticket;
        __threadfence_system();
    }
    for (unsigned i = threadIdx.x; i < SHARED_FLOATS; i += LOAD_THREADS)
        tile[i] = static_cast<float>(i & 15);
    __syncthreads();
    do {
        const float4 fresh = operand[from];

        from = (from + LOAD_THREADS * 131) % n_operand;
        tile[threadIdx.x * 4] = fresh.x + fresh.y + fresh.z + fresh.w;
        __syncthreads();
#pragma unroll 2
        for (unsigned k = 0; k < STEPS; k++) {
            const float *a = tile + (threadIdx.x + k * 512) % (SHARED_FLOATS - 32);
            const float *b = tile + (threadIdx.x * 3 + k * 640) % (SHARED_FLOATS - 32);
            float left[TILE_M], right[TILE_N];

#pragma unroll
            for (unsigned i = 0; i < TILE_M; i++)
                left[i] = a[i];
#pragma unroll
            for (unsigned i = 0; i < TILE_N; i++)
                right[i] = b[i];
#pragma unroll
            for (unsigned i = 0; i < TILE_M; i++) {
#pragma unroll
                for (unsigned j = 0; j < TILE_N; j++)
                    sum[i][j] += left[i] * right[j];
            }
        }
        __syncthreads();
    } while (now_ns() - start < load.block_ns);
    for (unsigned i = 0; i < TILE_M; i++) {
        for (unsigned j = 0; j < TILE_N; j++)
            total += sum[i][j];
    }
    if (total == -1.0f) /* never true, but the compiler does not know */
        *load.sink = total;
}

/* ---- the floor ---- */

constexpr uint64_t FLAG_ROOM = 128;
constexpr unsigned LEG_THREADS = 512;

/* The best of several values, as measured on an H100 (bench/results/cuda-h100.md). */
__host__ __device__ inline uint64_t chunk_of(uint64_t bytes)
{
    return bytes <= 4 << 20 ? 4096 : 16384;
}

__host__ __device__ inline uint64_t chunks_of(uint64_t bytes)
{
    return bytes > 0 ? (bytes + chunk_of(bytes) - 1) / chunk_of(bytes) : 1;
}

__device__ inline uint64_t load_flag(const uint8_t *at)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

/* Called by all threads of a block; both are multiples of 16. */
__device__ inline void copy_chunk(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    uint64_t whole = bytes / 16 * 16;

    for (uint64_t i = threadIdx.x * 16; i < whole; i += blockDim.x * 16)
        *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
    for (uint64_t i = whole + threadIdx.x; i < bytes; i += blockDim.x)
        to[i] = from[i];
}

__global__ void __launch_bounds__(LEG_THREADS) store_leg(const __grid_constant__ perf_gpu_leg leg)
{
    const uint64_t n = leg.counts[blockIdx.x] + 1, chunk = chunk_of(leg.bytes);

    for (uint64_t c = blockIdx.x; c < chunks_of(leg.bytes); c += gridDim.x) {
        uint8_t *box = leg.box + c * (chunk + FLAG_ROOM);

        copy_chunk(box, leg.data + c * chunk, min(chunk, leg.bytes - c * chunk));
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence_system();
            *reinterpret_cast<volatile uint64_t *>(box + chunk) = n;
        }
    }
    if (threadIdx.x == 0)
        leg.counts[blockIdx.x] = n;
}

__global__ void __launch_bounds__(LEG_THREADS) take_leg(const __grid_constant__ perf_gpu_leg leg)
{
    const uint64_t n = leg.counts[blockIdx.x] + 1, chunk = chunk_of(leg.bytes);
    const uint64_t start = now_ns();

    for (uint64_t c = blockIdx.x; c < chunks_of(leg.bytes); c += gridDim.x) {
        const uint8_t *box = leg.box + c * (chunk + FLAG_ROOM);

        if (threadIdx.x == 0) {
            while (load_flag(box + chunk) != n && now_ns() - start < leg.limit_ns) {
            }
            if (load_flag(box + chunk) != n)
                *static_cast<volatile uint32_t *>(leg.late) = 1;
        }
        __syncthreads();
        copy_chunk(leg.data + c * chunk, box, min(chunk, leg.bytes - c * chunk));
        __syncthreads();
    }
    if (threadIdx.x == 0)
        leg.counts[blockIdx.x] = n;
}

unsigned leg_blocks(const perf_gpu_leg &leg)
{
    const uint64_t most = leg.bytes <= 4 << 20 ? PERF_GPU_LEG_BLOCKS / 2 : PERF_GPU_LEG_BLOCKS;
    const uint64_t n = chunks_of(leg.bytes);

    return static_cast<unsigned>(n < most ? n : most);
}

unsigned leg_threads(const perf_gpu_leg &leg)
{
    const uint64_t each = leg.bytes < chunk_of(leg.bytes) ? leg.bytes : chunk_of(leg.bytes);
    const uint64_t threads = (each / 16 + 31) / 32 * 32;

    return static_cast<unsigned>(threads < 32 ? 32 : threads < LEG_THREADS ? threads : LEG_THREADS);
}

unsigned blocks_of(const perf_gpu_pieces &pieces)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < pieces.n; i++) {
        const uint64_t blocks = (pieces.pieces[i].bytes / 8 + THREADS) / THREADS;

        if (blocks > most)
            most = blocks;
    }
    return most < MAX_BLOCKS ? static_cast<unsigned>(most) : MAX_BLOCKS;
}

/* cudaLaunchKernelEx reports its own launch alone, where cudaGetLastError may report an earlier
 * call. */
cudaLaunchConfig_t shape(dim3 blocks, unsigned threads, unsigned shared, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};

    config.gridDim = blocks;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    return config;
}

} // namespace

extern "C" {

cudaError_t perf_gpu_launch_fill(const perf_gpu_pieces *pieces, cudaStream_t stream)
{
    const cudaLaunchConfig_t config =
        shape(dim3(blocks_of(*pieces), pieces->n), THREADS, 0, stream);

    return pieces->n > 0 ? cudaLaunchKernelEx(&config, fill, *pieces) : cudaSuccess;
}

cudaError_t perf_gpu_launch_verify(const perf_gpu_pieces *pieces, cudaStream_t stream)
{
    const cudaLaunchConfig_t config =
        shape(dim3(blocks_of(*pieces), pieces->n), THREADS, 0, stream);

    return pieces->n > 0 ? cudaLaunchKernelEx(&config, verify, *pieces) : cudaSuccess;
}

cudaError_t perf_gpu_launch_turn(uint64_t *turn, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(dim3(1), 1, 0, stream);

    return cudaLaunchKernelEx(&config, count_turn, turn);
}

cudaError_t perf_gpu_launch_hold(const uint32_t *go, uint32_t ticket, uint64_t limit_ns,
                                 cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(dim3(1), 1, 0, stream);

    return cudaLaunchKernelEx(&config, hold, static_cast<const volatile uint32_t *>(go), ticket,
                              limit_ns);
}

uint64_t perf_gpu_leg_box(uint64_t bytes)
{
    return chunks_of(bytes) * (chunk_of(bytes) + FLAG_ROOM);
}

cudaError_t perf_gpu_launch_store(const perf_gpu_leg *leg, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(dim3(leg_blocks(*leg)), leg_threads(*leg), 0, stream);

    return cudaLaunchKernelEx(&config, store_leg, *leg);
}

cudaError_t perf_gpu_launch_take(const perf_gpu_leg *leg, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(dim3(leg_blocks(*leg)), leg_threads(*leg), 0, stream);

    return cudaLaunchKernelEx(&config, take_leg, *leg);
}

cudaError_t perf_gpu_prepare_load(void)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(matrix_load),
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(LOAD_SHARED));
}

cudaError_t perf_gpu_launch_load(const perf_gpu_load *load, uint32_t blocks, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(dim3(blocks), LOAD_THREADS, LOAD_SHARED, stream);

    return cudaLaunchKernelEx(&config, matrix_load, *load);
}

} // extern "C"
