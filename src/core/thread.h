/* SPDX-License-Identifier: Apache-2.0 */
/* The handler, and the progress thread, which calls it as well. */
#ifndef STEPAF_CORE_THREAD_H
#define STEPAF_CORE_THREAD_H

#include "core/ctx.h"

/* Call the handler for batches that are ready; the lock is not held. */
void stepaf_core_dispatch(struct stepaf_ctx *ctx);
/* Whether another thread calls the handler. */
bool stepaf_core_is_dispatching(const struct stepaf_ctx *ctx);
/* Whether this thread does: the call comes from the handler itself. No lock is needed. */
bool stepaf_core_in_handler(const struct stepaf_ctx *ctx);
/* Start the progress thread. */
stepaf_status_t stepaf_core_thread_start(struct stepaf_ctx *ctx);
/* Ask it to stop, without waiting for that. */
void stepaf_core_thread_ask(struct stepaf_ctx *ctx);
/* Stop it. False: it is still in a call of the handler when @a deadline_ns has passed, and
 * continues. */
bool stepaf_core_thread_stop(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* Leave a thread that has not stopped to itself: it ends when the handler returns. */
void stepaf_core_thread_abandon(struct stepaf_ctx *ctx);

#endif
