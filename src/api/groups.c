/* SPDX-License-Identifier: Apache-2.0 */
/* What a context tells of the job: constant after init, except for the epoch. These functions take
 * no lock, so that they never block; the pin keeps the context alive. */
#include <stepaf/context.h>

#include "api/handles.h"
#include "core/wait.h"

static int leave_with(struct stepaf_ctx *ctx, int fact)
{
    stepaf_handle_unpin(ctx);
    return fact;
}

static struct stepaf_ctx *pin_for(stepaf_context_h handle, stepaf_group_t group)
{
    return (unsigned)group <= STEPAF_GROUP_FFN ? stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT)
                                               : NULL;
}

stepaf_role_t stepaf_role(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? (stepaf_role_t)leave_with(ctx, ctx->role) : STEPAF_ROLE_AUTO;
}

int stepaf_rank(stepaf_context_h handle, stepaf_group_t group)
{
    struct stepaf_ctx *ctx = pin_for(handle, group);

    return ctx ? leave_with(ctx, ctx->job.rank[group]) : -1;
}

int stepaf_size(stepaf_context_h handle, stepaf_group_t group)
{
    struct stepaf_ctx *ctx = pin_for(handle, group);

    return ctx ? leave_with(ctx, ctx->job.group_size[group]) : -1;
}

int stepaf_world_rank(stepaf_context_h handle, stepaf_group_t group, int rank)
{
    struct stepaf_ctx *ctx = pin_for(handle, group);

    if (!ctx)
        return -1;
    bool is_member = rank >= 0 && rank < ctx->job.group_size[group];
    return leave_with(ctx, is_member ? ctx->job.groups[group][rank] : -1);
}

int stepaf_n_peers(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? leave_with(ctx, (int)ctx->n_peers) : -1;
}

int stepaf_peer_rank(stepaf_context_h handle, int index)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx)
        return -1;
    bool is_peer = index >= 0 && (uint32_t)index < ctx->n_peers;
    return leave_with(ctx, is_peer ? ctx->peers[index].who.rank : -1);
}

int stepaf_peer_index(stepaf_context_h handle, int rank)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? leave_with(ctx, stepaf_find_peer(ctx, rank)) : -1;
}

uint32_t stepaf_epoch(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? (uint32_t)leave_with(ctx, (int)ctx->commit.n_done) : 0;
}

int64_t stepaf_default_timeout_us(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx = stepaf_handle_pin(handle, STEPAF_HANDLE_CONTEXT);

    if (!ctx)
        return -1;
    int64_t timeout_us = stepaf_timeout_us(ctx, STEPAF_TIMEOUT_DEFAULT);
    stepaf_handle_unpin(ctx);
    return timeout_us;
}
