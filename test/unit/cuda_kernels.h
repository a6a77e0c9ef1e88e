/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU does with what is enqueued, in C and by one thread: all streams are one, in order. With
 * it, stream plans exchange tensors where there is no GPU. Any thread may enqueue. */
#ifndef STEPAF_TEST_CUDA_KERNELS_H
#define STEPAF_TEST_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/kernels.h"

/* Start and end the thread. The end waits until all is done. */
void cuda_kernels_begin(void);
/* Whoever enqueues more than @a room that is not done yet has to wait. */
void cuda_kernels_limit(unsigned room);
void cuda_kernels_end(void);

/* The function of a kernel's name. */
const char *cuda_kernels_find(const char *name);

/* Enqueue. */
void cuda_kernels_launch(const char *function, const void *flow, uint32_t blocks);
void cuda_kernels_copy(void *dst, const void *src, size_t bytes);
void cuda_kernels_store(uint64_t *at, uint64_t value);
void cuda_kernels_call(void (*call)(void *arg, uint64_t n), void *arg, uint64_t n);

/* As a graph: keep what is enqueued from now on, without doing it; then do all of it @a times times.
 * Of a call, n grows by @a step each time. */
void cuda_kernels_record(void);
void cuda_kernels_replay(unsigned times, uint64_t step);

/* How much has been enqueued, and done; false if that is not all of it after @a timeout_ms. */
uint64_t cuda_kernels_enqueued(void);
uint64_t cuda_kernels_done(void);
bool cuda_kernels_sync(unsigned timeout_ms);

#endif
