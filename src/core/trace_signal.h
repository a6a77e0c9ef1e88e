/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_SIGNAL: writes traces while the job runs. The signal handler only counts; ranks look
 * at the count where they look for dead peers, so the path of an operation has no code for it. */
#ifndef STEPAF_CORE_TRACE_SIGNAL_H
#define STEPAF_CORE_TRACE_SIGNAL_H

#include <stdatomic.h>

#include "core/ctx.h"

/* Signals that this process has received. */
extern _Atomic uint32_t stepaf_trace_n_signals;

/* React to signals from now on, if the settings say so. The trace is open. Signals that arrive
 * before there are peers are handled once there are. All contexts of the process share the handler.
 * If the program has a handler already, that is logged, and the handler stays. */
void stepaf_trace_signal_begin(struct stepaf_ctx *ctx);
/* Give the handler back with the last context: the signal is ignored from then on. */
void stepaf_trace_signal_end(struct stepaf_ctx *ctx);
void stepaf_trace_signal_heed(struct stepaf_ctx *ctx);

/* Check for new signals. The context's lock is held. */
static inline void stepaf_trace_signal_look(struct stepaf_ctx *ctx)
{
    if (ctx->trace.heeds && ctx->peers &&
        atomic_load_explicit(&stepaf_trace_n_signals, memory_order_relaxed) != ctx->trace.n_heeded)
        stepaf_trace_signal_heed(ctx);
}

#endif
