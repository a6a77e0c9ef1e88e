/* SPDX-License-Identifier: Apache-2.0 */
/* The batch handler, and the progress thread, which also calls it. */
#ifndef STEPAF_CORE_THREAD_H
#define STEPAF_CORE_THREAD_H

#include "core/ctx.h"

/* Call the handler for ready batches. The lock is not held. */
void stepaf_core_dispatch(struct stepaf_ctx *ctx);
/* Return whether another thread is calling the handler. */
bool stepaf_core_is_dispatching(const struct stepaf_ctx *ctx);
/* Return whether this thread is in the handler. No lock is needed. */
bool stepaf_core_in_handler(const struct stepaf_ctx *ctx);
/* Start the progress thread. */
stepaf_status_t stepaf_core_thread_start(struct stepaf_ctx *ctx);
/* Ask the progress thread to stop, without waiting. */
void stepaf_core_thread_ask(struct stepaf_ctx *ctx);
/* Stop the progress thread. Return false if it is still in a call of the handler at @a deadline_ns;
 * the thread then continues. */
bool stepaf_core_thread_stop(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* Detach a thread that has not stopped: it ends when the handler returns. */
void stepaf_core_thread_abandon(struct stepaf_ctx *ctx);

#endif
