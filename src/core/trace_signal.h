/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_SIGNAL: traces are written while the job runs. The handler counts, and does nothing
 * else. Ranks check the count where they look for dead peers, so nothing of it is on the path of an
 * operation. */
#ifndef STEPAF_CORE_TRACE_SIGNAL_H
#define STEPAF_CORE_TRACE_SIGNAL_H

#include <stdatomic.h>

#include "core/ctx.h"

/* Signals that this process has received. */
extern _Atomic uint32_t stepaf_trace_n_signals;

/* Handle signals from now on, if the settings say so; the trace exists. A signal that arrives
 * before there are peers is handled once there are. All contexts of the process share the handler.
 * If the program already has one, that is logged, and the program's stays. */
void stepaf_trace_signal_begin(struct stepaf_ctx *ctx);
/* The last context gives the signal back: it is ignored from then on. */
void stepaf_trace_signal_end(struct stepaf_ctx *ctx);
void stepaf_trace_signal_heed(struct stepaf_ctx *ctx);

/* The context's lock is held. */
static inline void stepaf_trace_signal_look(struct stepaf_ctx *ctx)
{
    if (ctx->trace.heeds && ctx->peers &&
        atomic_load_explicit(&stepaf_trace_n_signals, memory_order_relaxed) != ctx->trace.n_heeded)
        stepaf_trace_signal_heed(ctx);
}

#endif
