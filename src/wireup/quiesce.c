/* SPDX-License-Identifier: Apache-2.0 */
/* Quiescing before a commit: nothing is in flight, and all peers have sent their last messages. */
#include "wireup/quiesce.h"
#include "core/batch.h"
#include "core/deliver.h"
#include "core/feature.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/wait.h"

/* Return whether a post of the plan still waits for space. */
static bool is_queued(const struct stepaf_plan_obj *plan)
{
    for (int s = 0; s < plan->depth; s++)
        for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
            if (plan->ops[s].op_peers[p].post.state == STEPAF_POST_QUEUED)
                return true;
    return false;
}

/* Let other threads enqueue the rest of what they have begun: they are without the lock, and the
 * commit has begun, so that no other begins. Then let streams pass the work that was enqueued for
 * proxied peers. Messages about it in the middle of a commit would belong to the previous epoch. */
static stepaf_status_t let_pass(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    while (ctx->feature->is_enqueueing(ctx))
        if (!stepaf_core_advance(ctx, &waiter, deadline_ns))
            return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                    "a thread is still enqueueing to a stream plan: the queue of "
                                    "its stream is full");
    while (ctx->feature->is_ahead(ctx))
        if (!stepaf_core_advance(ctx, &waiter, deadline_ns))
            return stepaf_error_set(
                STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                "streams have not completed the operations that were enqueued for proxied peers");
    return STEPAF_OK;
}

/* Check that nothing is in flight that a new epoch would cut off. */
static stepaf_status_t check_quiet(const struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->proxied.is && !is_queued(plan))
            continue; /* its stream plan knows whether it is busy */
        for (int s = 0; plan && s < plan->depth; s++)
            if (stepaf_op_busy(&plan->ops[s]))
                return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                        "operation %u of plan %u is in flight", plan->ops[s].seq,
                                        i);
        if (plan && plan->stream && ctx->feature->plan_busy(plan))
            return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                    "an operation of stream plan %u is in flight", i);
        const struct stepaf_peer *holder = plan ? stepaf_plan_holder(plan) : NULL;
        if (holder)
            return stepaf_error_set_peer(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT, holder->who,
                                         STEPAF_WHO_FORMAT " holds a batch of plan %u",
                                         STEPAF_WHO_ARGS(holder->who), i);
    }
    for (uint32_t i = 0; i < ctx->tables.batches.n; i++) {
        const struct stepaf_batch_obj *batch = stepaf_table_get(&ctx->tables.batches, i);
        if (batch && (batch->remote->proxy ? batch->answer.state == STEPAF_POST_QUEUED
                                           : stepaf_batch_busy(batch)))
            return stepaf_error_set_peer(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                         batch->remote->peer->who,
                                         "a batch of " STEPAF_WHO_FORMAT " is not released",
                                         STEPAF_WHO_ARGS(batch->remote->peer->who));
    }
    return STEPAF_OK;
}

/* Wait until arrived data is in GPU memory. */
static void await_arrivals(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    while (ctx->gpu.n_arriving && stepaf_core_advance(ctx, &waiter, deadline_ns))
        ;
}

/* Messages from before the commit may still wait for space in a queue, releases among them. Send
 * them, send QUIESCED, and wait until all peers have done the same. */
static stepaf_status_t quiesce_peers(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_msg msg = {.type = STEPAF_MSG_QUIESCED, .seq = ++ctx->commit.n};
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    await_arrivals(ctx,
                   deadline_ns); /* a canceled batch is released here, and peers wait for this */
    ctx->commit.has_entered = true;
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        stepaf_core_tell(&ctx->peers[p], &msg);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        while (peer->link && !peer->lost && peer->quiesced != msg.seq)
            if (!stepaf_core_advance(ctx, &waiter, deadline_ns))
                return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT, peer->who,
                                             STEPAF_WHO_FORMAT " did not enter the commit in time",
                                             STEPAF_WHO_ARGS(peer->who));
    }
    await_arrivals(ctx, deadline_ns);
    stepaf_core_flush(ctx, stepaf_left_us(deadline_ns));
    return STEPAF_OK;
}

stepaf_status_t stepaf_commit_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    int64_t now_ns = stepaf_monotonic_ns();
    stepaf_status_t status = let_pass(ctx, now_ns + (deadline_ns - now_ns) / 2);
    stepaf_error_t error = *stepaf_last_error();
    stepaf_status_t quiesced =
        quiesce_peers(ctx, deadline_ns); /* even after a failure: peers wait for that */

    if (quiesced)
        return quiesced;
    ctx->commit.exclusive = true;
    status = status ? stepaf_error_raise(&error) : check_quiet(ctx);
    ctx->gpu.proxies_still = !status;
    if (!status && !stepaf_is_attention(ctx))
        stepaf_core_hear(ctx, false); /* what began now would end with its plan */
    return status;
}
