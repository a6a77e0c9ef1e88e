/* SPDX-License-Identifier: Apache-2.0 */
/* The device of the tests of plans on streams: a GPU with one stream, on which everything is
 * enqueued. It is emulated in memory (machine_cpu.c), or real (test/gpu/machine.c). A process is
 * one rank. */
#ifndef STEPAF_TEST_MACHINE_H
#define STEPAF_TEST_MACHINE_H

#include <stddef.h>

#include <stepaf/stream.h>

#include "mpi/harness.h"

/* Open the GPU, before the job's context is opened; returns false if the test is skipped or has
 * failed. Close the context, after which nothing of it is left on the GPU. */
bool machine_begin(struct hs_job *job);
void machine_end(struct hs_job *job);

stepaf_stream_t machine_stream(void);
/* Wait until the stream is empty; return whether it has work. */
bool machine_pass(void);
bool machine_is_busy(void);

/* Copy synchronously, to GPU memory and from there. */
bool machine_write(void *to, const void *from, size_t bytes);
bool machine_read(void *to, const void *from, size_t bytes);
/* Return the number of this process's allocations; 0 where they are not counted. */
int machine_pieces(void);
/* Enqueue a fill with HS_POISON. */
bool machine_wipe(void *at, size_t bytes);

/* Begin or end the capture of enqueued work as a graph; then enqueue the graph. */
bool machine_capture(bool begins);
bool machine_replay(void);

#endif
