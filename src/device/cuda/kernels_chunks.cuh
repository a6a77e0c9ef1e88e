/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that go chunk by chunk through a mailbox in host memory, or part by part through the
 * proxy: kernels.h has the layout. */
#ifndef STEPAF_DEVICE_CUDA_KERNELS_CHUNKS_CUH
#define STEPAF_DEVICE_CUDA_KERNELS_CHUNKS_CUH

#include "device/cuda/kernels_heads.cuh"

namespace
{

constexpr unsigned AT_ONCE = 4; /* pieces that a thread has in flight: host memory is far */

/* A chunk, or a part: its addresses in the mailbox and in the tensor, how many bytes of the tensor
 * are in it, and its flag. */
struct Chunk {
    uint8_t *box, *data, *flag;
    uint32_t bytes;
};

/* Find chunk or part @a chunk. @a tells: from flag to flag, of a part. */
__device__ __forceinline__ Chunk find_chunk(const stepaf_kernel_tensor &tensor, uint32_t bytes,
                                            uint32_t chunk, uint32_t tells)
{
    uint32_t at = chunk * tensor.chunk;
    uint8_t *box = tensor.body + at, *flag = tensor.head + STEPAF_HEAD_BYTES + chunk * tells;

    if (tensor.proto == STEPAF_PROTO_CHUNKS) {
        box += static_cast<uint64_t>(chunk) * STEPAF_CHUNK_TELLS;
        flag = box + tensor.chunk;
    }
    return {box, tensor.data + at, flag, min(bytes - at, tensor.chunk)};
}

/* Copy @a n pieces by one warp. */
__device__ __forceinline__ void copy_pieces(uint8_t *to, const uint8_t *from, uint32_t n)
{
    constexpr unsigned STRIDE = STEPAF_WARP * 16;

    to += threadIdx.x * 16;
    from += threadIdx.x * 16;
    for (int left = static_cast<int>(n - threadIdx.x); left > 0; left -= AT_ONCE * STEPAF_WARP) {
        uint4 pieces[AT_ONCE];
#pragma unroll
        for (int k = 0; k < static_cast<int>(AT_ONCE); k++)
            if (left > k * STEPAF_WARP)
                pieces[k] = *reinterpret_cast<const uint4 *>(from + k * STRIDE);
#pragma unroll
        for (int k = 0; k < static_cast<int>(AT_ONCE); k++)
            if (left > k * STEPAF_WARP)
                store_whole(to + k * STRIDE, pieces[k]);
        to += AT_ONCE * STRIDE;
        from += AT_ONCE * STRIDE;
    }
}

/* Store this block's chunks, each with its flag behind it. */
template <bool ALIGNED>
__device__ __forceinline__ void send_chunks(const stepaf_kernel_tensor &tensor, unsigned block,
                                            const Send &send)
{
    uint32_t n_chunks = (tensor.bytes + tensor.chunk - 1) / tensor.chunk;

    if (block == 0)
        tell(tensor, send);
    if (__any_sync(ALL, send.failed != 0))
        return;
    for (uint32_t i = block; i < n_chunks; i += tensor.n) {
        Chunk chunk = find_chunk(tensor, tensor.bytes, i, STEPAF_PART_TOLD);
        uint32_t whole = ALIGNED ? chunk.bytes / 16 : 0;
        copy_pieces(chunk.box, chunk.data, whole);
#pragma unroll 1
        for (uint32_t k = whole + threadIdx.x; k * 16 < chunk.bytes; k += STEPAF_WARP)
            store_pair(chunk.box + k * 16, load_piece<false>(chunk.data, chunk.bytes, k));
        __threadfence_system();
        __syncwarp();
        if (threadIdx.x == 0)
            store_pair(chunk.flag, {0, send.stamp});
    }
}

/* Take this block's chunks as they arrive. Returns false if it has given up. */
template <bool ALIGNED, class ARGS>
__device__ __forceinline__ bool take_chunks(const ARGS &args, const stepaf_kernel_tensor &tensor,
                                            uint32_t bytes, uint64_t stamp, unsigned block)
{
    uint32_t n_chunks = (bytes + tensor.chunk - 1) / tensor.chunk;
    Patience patience(args);

    for (uint32_t i = block; i < n_chunks; i += tensor.n) {
        Chunk chunk = find_chunk(tensor, bytes, i, STEPAF_PART_TELLS);
        uint32_t whole = ALIGNED ? chunk.bytes / 16 : 0;
        while (!__all_sync(ALL, load_flag(chunk.flag + 8) == stamp))
            if (__any_sync(ALL, threadIdx.x == 0 && patience.over(tensor.peer)))
                return false;
        if (!ALIGNED &&
            tensor.proto == STEPAF_PROTO_PARTS) { /* its place there may be unaligned, too */
            copy_share<false>(chunk.data, chunk.box, chunk.bytes, 0, 1);
            continue;
        }
        copy_pieces(chunk.data, chunk.box, whole);
#pragma unroll 1
        for (uint32_t k = whole + threadIdx.x; k * 16 < chunk.bytes; k += STEPAF_WARP)
            store_piece<false>(chunk.data, chunk.bytes, k, load_pair(chunk.box + k * 16));
    }
    return true;
}

} // namespace

#endif
