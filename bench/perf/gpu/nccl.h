/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL as a contender: ncclSend and ncclRecv on the library's buffers, in the same streams and,
 * on request, captured in the same way. Each microbatch has a communicator of its own, as NCCL
 * keeps the operations of a communicator in order. A build without NCCL has nccl_none.c, which
 * rejects it. */
#ifndef PERF_GPU_NCCL_H
#define PERF_GPU_NCCL_H

#include "perf/buffers.h"
#include "perf/gpu/device.h"

struct perf_gpu_nccl;

/* "2.28.3"; NULL where this build has none. */
const char *perf_gpu_nccl_version(void);

/* Meet all ranks in NCCL, for one row only: NCCL keeps its knowledge of the memory that a graph
 * uses, and the next row's memory may have the same address. Collective; -1 with a sentence on
 * every rank. */
int perf_gpu_nccl_open(struct perf_gpu *gpu, const struct perf_case *c,
                       const struct perf_buffers *buffers, struct perf_gpu_nccl **nccl_p);

/* Call after its graphs have ended. Collective if @a all_well: else a rank may be lost. NULL is
 * ignored. */
void perf_gpu_nccl_close(struct perf_gpu_nccl *nccl, int all_well);

/* Enqueue this rank's part of @a ops operations, one in flight: NCCL executes a stream in order,
 * so that a second one would have to be sent before the first one's answer is awaited, which the
 * other side would never reach. -1 with a sentence. */
int perf_gpu_nccl_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream);

#endif
