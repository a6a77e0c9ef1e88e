/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_SIGNAL: traces are left while the job runs. The handler counts, and does nothing
 * else; ranks look at the count where they look for dead peers, so nothing of it is on the way of
 * an operation. */
#ifndef STEPAF_CORE_TRACE_SIGNAL_H
#define STEPAF_CORE_TRACE_SIGNAL_H

#include <stdatomic.h>

#include "core/ctx.h"

/* Signals that this process has had. */
extern _Atomic uint32_t stepaf_trace_n_signals;

/* Heed signals from now on, if the settings say so; there is the trace. What comes before there are
 * peers is heeded then. The handler is that of all contexts of the process; where the program has
 * one already, that is said, and it stays. */
void stepaf_trace_signal_begin(struct stepaf_ctx *ctx);
/* The last context gives it back: it is ignored then. */
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
