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

/* Where the piece of this block's row is, of the operation under way. */
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

/* An SM's registers are four parts of 16,384, and a warp's are in one of them: three warps of 160
 * leave 1,024 in each, which is room for one more warp of 32. */
constexpr unsigned LOAD_THREADS = 384;
constexpr unsigned TILE_M = 12, TILE_N = 10;
constexpr unsigned LOAD_SHARED = 200 << 10;
constexpr unsigned SHARED_FLOATS = LOAD_SHARED / sizeof(float);
constexpr unsigned STEPS = 64; /* between looks at the clock */

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
    if (total == -1.0f) /* it cannot be: but the compiler does not know */
        *load.sink = total;
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

/* cudaLaunchKernelEx tells of its own launch alone, where cudaGetLastError may tell of a call
 * before it. */
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
