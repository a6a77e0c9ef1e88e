/* SPDX-License-Identifier: Apache-2.0 */
/* The barrier, stepaf_progress, and progress while a rank waits in the bootstrap. */
#include "api/advance.h"
#include "api/boot_wait.h"
#include "api/handles.h"
#include "base/interrupt.h"
#include "base/time.h"
#include "boot/boot_advance.h"
#include "core/members.h"
#include "core/members_gather.h"
#include "core/progress.h"
#include "core/thread.h"

enum {
    VAIN_PAUSE_US = 50, /* pause after a vain poll */
    /* With a progress thread: interval of checks whether the context is being finalized. */
    THREAD_PAUSE_US = 10000
};

/* Return the microseconds to wait, as stepaf_boot_advance defines. */
static int64_t advance_in_boot(void *arg)
{
    struct stepaf_ctx *ctx = arg;

    if (atomic_load(&ctx->threads.closing))
        return -1;
    if (ctx->threads.runs)
        return THREAD_PAUSE_US;
    stepaf_lock_enter(&ctx->lock);
    unsigned n = stepaf_core_progress(ctx);
    bool handle_batches = ctx->inbox.handler && !stepaf_list_empty(&ctx->inbox.ready);
    stepaf_lock_leave(&ctx->lock);
    if (handle_batches)
        stepaf_core_dispatch(ctx);
    return n || handle_batches ? 0 : VAIN_PAUSE_US;
}

void stepaf_boot_wait_begin(struct stepaf_ctx *ctx)
{
    stepaf_interrupt_begin();
    stepaf_boot_set_advance(advance_in_boot, ctx);
}

int64_t stepaf_boot_wait_flush(struct stepaf_ctx *ctx, int64_t timeout_us, stepaf_phase_t phase)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    int64_t began_ns = stepaf_monotonic_ns();
    bool more = true;

    while (more && !stepaf_list_empty(&ctx->net.queued) && !stepaf_interrupted())
        more = stepaf_api_advance(ctx, &waiter, timeout_us);
    if (stepaf_interrupted()) {
        (void)stepaf_error_set(STEPAF_ERR_CANCELED, phase, "the program has interrupted the call");
        return -1;
    }
    int64_t left_us = timeout_us - (stepaf_monotonic_ns() - began_ns) / 1000;
    return left_us > 0 ? left_us : 0;
}

stepaf_status_t stepaf_boot_wait_end(stepaf_status_t status, stepaf_phase_t phase)
{
    stepaf_boot_set_advance(NULL, NULL);
    return stepaf_error_in(stepaf_interrupt_end(status, phase), phase);
}

static stepaf_status_t check_group(const struct stepaf_ctx *ctx, stepaf_group_t group)
{
    if (ctx->state == STEPAF_CTX_LEFT)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_BARRIER,
                                "this rank has left the job");
    if ((unsigned)group > STEPAF_GROUP_FFN)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER, "unknown group");
    if (ctx->job.rank[group] < 0)
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_BARRIER,
                                "this rank is not a member of the group");
    return STEPAF_OK;
}

stepaf_status_t stepaf_barrier(stepaf_context_h handle, stepaf_group_t group, int64_t timeout_us)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = check_group(ctx, group);
    if (status) {
        stepaf_leave(ctx);
        return status;
    }
    stepaf_boot_wait_begin(ctx);
    int64_t left_us =
        stepaf_boot_wait_flush(ctx, stepaf_timeout_us(ctx, timeout_us), STEPAF_PHASE_BARRIER);
    bool is_among_members = stepaf_members_gather_is_due(ctx);
    stepaf_lock_leave(&ctx->lock);
    if (left_us < 0)
        status = STEPAF_ERR_CANCELED;
    else if (is_among_members)
        status = stepaf_members_gather(ctx, STEPAF_GATHER_BARRIER + (int)group, NULL, 0, NULL, NULL,
                                       left_us);
    else
        status = ctx->job.boot.barrier(ctx->job.boot.self, group, ctx->job.groups[group],
                                       ctx->job.group_size[group], left_us);
    status = stepaf_boot_wait_end(status, STEPAF_PHASE_BARRIER);
    stepaf_members_dispatch(ctx);
    stepaf_lock_enter(&ctx->lock);
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_progress(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    (void)stepaf_core_progress(ctx);
    bool handle_batches = ctx->inbox.handler != NULL;
    stepaf_lock_leave(&ctx->lock);
    if (handle_batches)
        stepaf_core_dispatch(ctx);
    stepaf_members_dispatch(ctx);
    stepaf_handle_unpin(ctx);
    return STEPAF_OK;
}
