/* SPDX-License-Identifier: Apache-2.0 */
#include "api/advance.h"
#include "core/ctx.h"
#include "core/lock.h"
#include "core/progress.h"
#include "core/thread.h"

bool stepaf_api_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us)
{
    unsigned n = timeout_us ? stepaf_core_progress_waiting(ctx) : stepaf_core_progress(ctx);

    if (!stepaf_list_empty(&ctx->inbox.ready) && ctx->inbox.handler) {
        stepaf_waiter_away(ctx, waiter, timeout_us);
        stepaf_lock_leave(&ctx->lock);
        stepaf_core_dispatch(ctx);
        stepaf_lock_enter(&ctx->lock);
    }
    return n ? stepaf_waiter_busy(ctx, waiter, timeout_us)
             : stepaf_waiter_idle(ctx, waiter, timeout_us);
}
