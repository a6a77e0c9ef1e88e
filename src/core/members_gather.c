/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers, and exchanges outside of commits, that members make by themselves. */
#include "core/members_gather.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include <stepaf/boot.h>

#include "base/error.h"
#include "base/time.h"
#include "boot/member_net_gather.h"
#include "core/ctx.h"
#include "core/members.h"
#include "core/wait.h"

enum {
    LOOK_US = 1000,    /* maximum: another thread may have consumed the wake-up */
    HINT_NS = 50000000 /* interval of hints from the first member about the rank it waits for */
};

/* One gathering at one rank. */
struct gather {
    struct stepaf_ctx *ctx;
    struct stepaf_member_group group;
    uint32_t epoch;
    int64_t hint_ns; /* when the next hint is due */
    int awaited;
};

static stepaf_group_t group_of(int channel)
{
    return channel == STEPAF_GATHER_MAP ? STEPAF_GROUP_WORLD : (stepaf_group_t)channel;
}

bool stepaf_members_gather_is_due(const struct stepaf_ctx *ctx)
{
    return ctx->job.members.net && ctx->job.members.has_changed;
}

static stepaf_status_t refuse_lost(const struct gather *gather, int rank)
{
    struct stepaf_who who = stepaf_who_is(gather->ctx, rank);

    if (rank == gather->ctx->job.boot.rank)
        return stepaf_error_set(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_NONE,
                                "the other ranks have given up this rank: they could not reach it, "
                                "or one of its links has failed");
    return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_NONE, who,
                                 STEPAF_WHO_FORMAT " was lost before it arrived: %.160s",
                                 STEPAF_WHO_ARGS(who), stepaf_members_why(gather->ctx, rank));
}

static stepaf_status_t refuse_slow(const struct gather *gather)
{
    struct stepaf_who who = stepaf_who_is(gather->ctx, gather->awaited);

    if (atomic_load(&gather->ctx->threads.closing))
        return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_NONE,
                                "another thread finalizes the context");
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_NONE, who,
                                 STEPAF_WHO_FORMAT " has not arrived in time",
                                 STEPAF_WHO_ARGS(who));
}

/* List the members of the group, in order. Return false if out of memory. */
static bool list_members(struct gather *gather)
{
    const struct stepaf_ctx_job *job = &gather->ctx->job;
    stepaf_group_t group = group_of(gather->group.channel);
    int *ranks = malloc(((size_t)job->group_size[group] + 1) * sizeof(*ranks));

    for (int i = 0; ranks && i < job->group_size[group]; i++)
        if (job->members.is[job->groups[group][i]])
            ranks[gather->group.n++] = job->groups[group][i];
    gather->group.ranks = ranks;
    return ranks != NULL;
}

/* Check what has arrived of the gathering. The lock is held. */
static stepaf_status_t look_at_gather(struct gather *gather)
{
    struct stepaf_ctx *ctx = gather->ctx;
    struct stepaf_member_net *net = ctx->job.members.net;
    int rank = -1;

    stepaf_core_look_for_lost(ctx);
    stepaf_member_net_pump(net);
    if (ctx->epoch != gather->epoch)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "another thread has entered a commit meanwhile");
    stepaf_status_t status = stepaf_member_gather_look(net, &gather->group, &rank);
    if (status == STEPAF_ERR_PEER_LOST)
        return refuse_lost(gather, rank);
    if (status == STEPAF_ERR_NO_MEMORY)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    gather->awaited = rank;
    if (status == STEPAF_INPROGRESS && stepaf_monotonic_ns() >= gather->hint_ns) {
        stepaf_member_gather_hint(net, &gather->group, rank);
        gather->hint_ns = stepaf_monotonic_ns() + HINT_NS;
    }
    return status;
}

static void pause_for_us(const struct gather *gather, int64_t us)
{
    struct pollfd one = {.fd = stepaf_member_net_fd(gather->ctx->job.members.net),
                         .events = POLLIN};

    (void)ppoll(&one, 1, &(struct timespec){0, us * 1000}, NULL);
}

static stepaf_status_t await_all(struct gather *gather, int64_t deadline_ns)
{
    struct stepaf_ctx *ctx = gather->ctx;

    for (;;) {
        int64_t pause_us = stepaf_boot_advance();
        stepaf_lock_enter(&ctx->lock);
        stepaf_status_t status = look_at_gather(gather);
        if (status == STEPAF_INPROGRESS && (pause_us < 0 || stepaf_monotonic_ns() >= deadline_ns))
            status = refuse_slow(gather);
        stepaf_lock_leave(&ctx->lock);
        if (status != STEPAF_INPROGRESS)
            return status;
        if (pause_us)
            pause_for_us(gather, pause_us < LOOK_US ? pause_us : LOOK_US);
    }
}

stepaf_status_t stepaf_members_gather(struct stepaf_ctx *ctx, int channel, const void *words,
                                      size_t bytes, void **all_p, size_t *offsets_p,
                                      int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);
    struct gather gather = {.ctx = ctx, .group.channel = channel, .awaited = ctx->job.boot.rank};
    struct stepaf_member_net *net = ctx->job.members.net;
    stepaf_status_t status = STEPAF_OK;

    stepaf_lock_enter(&ctx->lock);
    gather.epoch = ctx->epoch;
    if (!list_members(&gather) ||
        !stepaf_member_gather_begin(net, &gather.group, ctx->epoch, words, bytes))
        status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
    stepaf_lock_leave(&ctx->lock);
    if (!status)
        status = await_all(&gather, deadline_ns);
    stepaf_lock_enter(&ctx->lock);
    if (!status && all_p)
        status = stepaf_member_net_deal(net, stepaf_member_gather_value(net, channel), all_p,
                                        offsets_p, NULL);
    stepaf_lock_leave(&ctx->lock);
    free((void *)(uintptr_t)gather.group.ranks);
    return status;
}
