/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of plans on streams run on: a GPU with one stream, on which all is enqueued. It is
 * made of memory (machine_cpu.c), or a real one (test/gpu/machine.c). A process is one rank. */
#ifndef STEPAF_TEST_MACHINE_H
#define STEPAF_TEST_MACHINE_H

#include <stddef.h>

#include <stepaf/stream.h>

#include "mpi/harness.h"

/* Take the GPU, before the job's context is opened; false: the test is skipped, or has failed.
 * Close the context, of which nothing is left on the GPU then. */
bool machine_begin(struct hs_job *job);
void machine_end(struct hs_job *job);

stepaf_stream_t machine_stream(void);
/* Wait until the stream has nothing left; whether it has something. */
bool machine_pass(void);
bool machine_is_busy(void);

/* Copy at once, to GPU memory and from there. */
bool machine_write(void *to, const void *from, size_t bytes);
bool machine_read(void *to, const void *from, size_t bytes);
/* How many pieces of its memory this process has; 0 where that is not counted. */
int machine_pieces(void);
/* Enqueue: fill with HS_POISON. */
bool machine_wipe(void *at, size_t bytes);

/* Keep what is enqueued from now on as a graph, or until now; then enqueue that. */
bool machine_capture(bool begins);
bool machine_replay(void);

#endif
