/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: what is enqueued is done in order, by a thread for each stream. Any thread may
 * enqueue. */
#ifndef STEPAF_TEST_CPU_QUEUE_H
#define STEPAF_TEST_CPU_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/kernels.h"

/* Begin; no stream has anything. The end waits until all is done. */
void cpu_queue_begin(void);
void cpu_queue_end(void);
/* Whoever enqueues more than @a room in a stream that is not done yet has to wait. */
void cpu_queue_limit(unsigned room);

/* Enqueue in a stream, which may be any address. */
void cpu_queue_launch(void *stream, enum stepaf_kernel kernel,
                      const struct stepaf_kernel_args *args, uint32_t blocks);
/* Another program, whose @a args are copied. */
void cpu_queue_run(void *stream, void (*program)(const void *args), const void *args, size_t bytes);
void cpu_queue_copy(void *stream, void *dst, const void *src, size_t bytes);
void cpu_queue_store(void *stream, uint64_t *at, uint64_t value);
void cpu_queue_call(void *stream, void (*call)(void *arg, uint64_t n), void *arg, uint64_t n);

/* A mark: where a stream is now. Whether the stream has come by; and have another wait for that. */
struct cpu_mark {
    void *stream;
    uint64_t at;
};
struct cpu_mark cpu_queue_mark(void *stream);
bool cpu_queue_has_come_by(struct cpu_mark mark);
void cpu_queue_await(void *stream, struct cpu_mark mark);

/* As a graph: keep what is enqueued from now on, without doing it; then do all of it @a times
 * times. Of a call, n grows by @a step each time. */
void cpu_queue_record(void);
void cpu_queue_replay(unsigned times, uint64_t step);

/* How much is enqueued and not done, in all streams; false if there is any after @a timeout_ms. */
uint64_t cpu_queue_left(void);
bool cpu_queue_sync(unsigned timeout_ms);

#endif
