/* SPDX-License-Identifier: Apache-2.0 */
/* Members in the public interface: states, reasons, address, notification. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include <stepaf/members.h>

#include "api/fill.h"
#include "api/handles.h"
#include "base/fork.h"
#include "boot/member_net_return.h"
#include "core/members.h"

static _Thread_local char reason_text[STEPAF_REASON_MAX];

/* Count the states of all ranks. */
static void count_states(const struct stepaf_ctx *ctx, stepaf_members_t *facts)
{
    for (int rank = 0; rank < ctx->job.boot.size; rank++) {
        stepaf_member_state_t state = stepaf_members_state(ctx, rank);
        facts->n_in += state == STEPAF_MEMBER_IN || state == STEPAF_MEMBER_SLOW ||
                       state == STEPAF_MEMBER_LEAVES;
        facts->n_slow += state == STEPAF_MEMBER_SLOW;
        facts->n_lost += state == STEPAF_MEMBER_LOST;
        facts->n_out += state == STEPAF_MEMBER_OUT || state == STEPAF_MEMBER_LEFT;
        facts->n_leaving += state == STEPAF_MEMBER_LEAVES;
        facts->n_left += state == STEPAF_MEMBER_LEFT;
        facts->n_asking += state == STEPAF_MEMBER_ASKS;
    }
}

stepaf_status_t stepaf_members_query(stepaf_context_h handle, stepaf_members_t *members_p,
                                     stepaf_member_state_t *states_p, int capacity)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);
    stepaf_members_t facts = {.size = sizeof(facts)};

    if (status)
        return status;
    if (!members_p || capacity < 0) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  members_p ? "capacity is negative" : "members_p is NULL");
        goto out;
    }
    facts.epoch = atomic_load_explicit(&ctx->commit.n_done, memory_order_relaxed);
    facts.changes = ctx->job.members.n_changes;
    count_states(ctx, &facts);
    status =
        stepaf_fill(members_p, "stepaf_members_t", STEPAF_FIRST_MEMBERS, &facts, sizeof(facts));
    for (int rank = 0; !status && states_p && rank < capacity && rank < ctx->job.boot.size; rank++)
        states_p[rank] = stepaf_members_state(ctx, rank);
out:
    stepaf_leave(ctx);
    return status;
}

const char *stepaf_members_reason(stepaf_context_h handle, int world_rank)
{
    struct stepaf_ctx *ctx;

    if (stepaf_enter_context(handle, &ctx))
        return NULL;
    bool is_valid = world_rank >= 0 && world_rank < ctx->job.boot.size;
    stepaf_member_state_t state =
        is_valid ? stepaf_members_state(ctx, world_rank) : STEPAF_MEMBER_IN;
    bool is_there =
        state == STEPAF_MEMBER_IN || state == STEPAF_MEMBER_SLOW || state == STEPAF_MEMBER_LEAVES;
    snprintf(reason_text, sizeof(reason_text), "%s",
             is_there ? "" : stepaf_members_why(ctx, world_rank));
    stepaf_leave(ctx);
    return is_valid ? reason_text : NULL;
}

stepaf_status_t stepaf_members_address(stepaf_context_h handle, char *text_p, size_t bytes)
{
    char text[STEPAF_MEMBER_NET_ADDRESS_MAX];
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (!text_p)
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "text_p is NULL");
    else if (!ctx->job.members.net)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                  "the ranks of this job cannot connect to each other: %.200s",
                                  ctx->job.members.mute);
    else if (!ctx->job.members.has_cards)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                  "no process can take a lost rank's place: the job has no secret "
                                  "(STEPAF_SECRET, STEPAF_SECRET_FILE)");
    if (!status)
        stepaf_member_net_address(ctx->job.members.net, text);
    if (!status && strlen(text) >= bytes)
        status = stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE,
                                  "the text requires %zu bytes", strlen(text) + 1);
    if (!status)
        strcpy(text_p, text);
    stepaf_leave(ctx);
    return status;
}

int stepaf_members_fd(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx;

    if (stepaf_enter_context(handle, &ctx))
        return -1;
    if (ctx->job.members.event_fd < 0) {
        stepaf_fork_begin();
        ctx->job.members.event_fd = stepaf_fork_end(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    int fd = ctx->job.members.event_fd;
    stepaf_leave(ctx);
    return fd;
}

stepaf_status_t stepaf_members_set_callback(stepaf_context_h handle, stepaf_members_cb_t callback,
                                            void *arg)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    ctx->job.members.callback = callback;
    ctx->job.members.callback_arg = arg;
    stepaf_leave(ctx);
    return STEPAF_OK;
}
