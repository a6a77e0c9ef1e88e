/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_FILE: writes the rings of all ranks, at the end or at a signal, to one file for
 * Perfetto. Ranks do not wait for each other: each adds its own events, and the file is valid after
 * each addition. */
#ifndef STEPAF_CORE_TRACE_FILE_H
#define STEPAF_CORE_TRACE_FILE_H

#include <stdio.h>

#include "core/ctx.h"

/* Return whether there is anything to write, and a file to write to. */
bool stepaf_trace_file_is_on(const struct stepaf_ctx *ctx);

/* Check whether the file can be written, without changing it. Called before ranks meet. */
stepaf_status_t stepaf_trace_file_check(const struct stepaf_ctx *ctx);

/* Begin the file anew and remove the files of signals, if @a anew: the first rank of each node does
 * so for the first context of its process, if the job does. Called once ranks have met, before any
 * rank has events to add. */
void stepaf_trace_file_begin(struct stepaf_ctx *ctx, bool anew);

/* Add this rank's events. Failures are logged. */
void stepaf_trace_file_add(struct stepaf_ctx *ctx);
/* Add this rank's current events to the file with .@a n behind its name. A thread,
 * ctx->trace.saver, does it; that saver is done with the previous file. Failures are logged. The
 * lock is held. */
void stepaf_trace_file_add_now(struct stepaf_ctx *ctx, uint32_t n);
/* Return how many files of signals exist, without a gap. */
uint32_t stepaf_trace_file_n_signals(const struct stepaf_ctx *ctx);

/* trace_events.c: sort @a n records and print them as events of Chrome's trace event format,
 * separated by commas. The first event names the rank, so that there is always one. Overwrites the
 * fields of records that are not printed. */
void stepaf_trace_events_print(const struct stepaf_ctx *ctx, stepaf_trace_record_t *records,
                               size_t n, FILE *stream);

#endif
