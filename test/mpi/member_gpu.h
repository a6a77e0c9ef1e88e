/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of ranks that die, return and join: made of memory (member_gpu_cpu.c), or one that is there
 * (test/gpu/member_gpu.c). A process is one rank. */
#ifndef STEPAF_TEST_MEMBER_GPU_H
#define STEPAF_TEST_MEMBER_GPU_H

#include "harness.h"

/* Before there is a context. */
void member_gpu_begin(struct hs_job *job);
/* Close the job's context; nothing of the GPU is left then. */
void member_gpu_end(struct hs_job *job);

/* As hs_fill and hs_verify, in the GPU's memory. */
void member_gpu_fill(void *at, size_t bytes, uint64_t seed);
bool member_gpu_verify(const char *what, const void *at, size_t bytes, uint64_t seed);
uint32_t member_gpu_read(const uint32_t *at);
/* How many pieces of its memory this process has; 0 where that is not counted. */
int member_gpu_pieces(void);

/* Its one stream, as calls name it; and until it has nothing left. */
void *member_gpu_stream(void);
bool member_gpu_sync(unsigned timeout_ms);

/* What is enqueued between the two is a graph, and is not done; false: there is none. */
void member_gpu_record(void);
bool member_gpu_record_end(void);
void member_gpu_replay(void);

#endif
