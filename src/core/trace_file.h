/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_FILE: what the rings of all ranks hold at the end, or at a signal, as one file for
 * Perfetto. Ranks do not wait for each other: each adds its own events to the file, which is
 * complete after each. */
#ifndef STEPAF_CORE_TRACE_FILE_H
#define STEPAF_CORE_TRACE_FILE_H

#include <stdio.h>

#include "core/ctx.h"

/* Whether there is anything to write, and a file to write to. */
bool stepaf_trace_file_is_on(const struct stepaf_ctx *ctx);

/* Before ranks meet: whether the file can be written, without touching its contents. */
stepaf_status_t stepaf_trace_file_check(const struct stepaf_ctx *ctx);

/* The first rank of each node begins a new file, and removes those of signals, for the first
 * context of its process, if the job does: @a anew. Called once ranks have met, and none has
 * anything to add yet. */
void stepaf_trace_file_begin(struct stepaf_ctx *ctx, bool anew);

/* Add this rank's events. Errors are logged. */
void stepaf_trace_file_add(struct stepaf_ctx *ctx);
/* Add this rank's current events to the file with .@a n after its name, with a thread,
 * ctx->trace.saver, which is done with the file before. Errors are logged. The lock is held. */
void stepaf_trace_file_add_now(struct stepaf_ctx *ctx, uint32_t n);
/* How many files of signals there are, without a gap. */
uint32_t stepaf_trace_file_n_signals(const struct stepaf_ctx *ctx);

/* trace_events.c: sort @a n records and print them as events of Chrome's trace event format, with a
 * comma between each two. The first names the rank, so that there is always one. */
void stepaf_trace_events_print(const struct stepaf_ctx *ctx, stepaf_trace_record_t *records,
                               size_t n, FILE *stream);

#endif
