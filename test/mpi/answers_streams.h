/* SPDX-License-Identifier: Apache-2.0 */
/* What answers_streams runs on: a GPU with one stream, on which all is enqueued. */
#ifndef STEPAF_TEST_ANSWERS_STREAMS_H
#define STEPAF_TEST_ANSWERS_STREAMS_H

#include <stddef.h>

#include <stepaf/stream.h>

#include "mpi/harness.h"

/* Open the job's context and the GPU; false: it is skipped, or has failed. Then the end. */
bool machine_begin(struct hs_job *job);
void machine_end(struct hs_job *job);

stepaf_stream_t machine_stream(void);
/* Wait until the stream has nothing left; whether it has something. */
bool machine_pass(void);
bool machine_is_busy(void);

/* Copy at once, to GPU memory and from there. */
bool machine_write(void *to, const void *from, size_t bytes);
bool machine_read(void *to, const void *from, size_t bytes);
/* Enqueue: fill with HS_POISON. */
bool machine_wipe(void *at, size_t bytes);

/* Keep what is enqueued from now on as a graph, or until now; then enqueue that. */
bool machine_capture(bool begins);
bool machine_replay(void);

#endif
