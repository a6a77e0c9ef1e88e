/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the epoch: exchanges in a commit, who is a member, and what callers see of it. */
#include "core/members.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "boot/member_net_return.h"
#include "core/ctx.h"
#include "core/news.h"
#include "core/op.h"
#include "core/peer.h"
#include "core/plan.h"
#include "core/table.h"
#include "core/wait.h"

enum { LOOK_MS = 1 };

/* The first commit includes all ranks, and there are no links to check before it ends. */
static bool is_first_commit(struct stepaf_ctx *ctx)
{
    return !ctx->job.members.is_guest &&
           !atomic_load_explicit(&ctx->commit.n_done, memory_order_relaxed);
}

bool stepaf_members_call(struct stepaf_ctx *ctx)
{
    if (!ctx->job.members.net || is_first_commit(ctx))
        return false;
    stepaf_core_look_for_lost(ctx);
    return stepaf_member_net_is_called(ctx->job.members.net);
}

/* ---- by the bootstrap ---- */

static stepaf_status_t exchange_by_boot(struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                        void **all_p, size_t *offsets_p, int64_t timeout_us)
{
    stepaf_status_t status = ctx->job.boot.allgather(ctx->job.boot.self, data, bytes, all_p,
                                                     offsets_p, timeout_us > 0 ? timeout_us : 0);

    if (!status)
        memcpy(ctx->job.members.present, ctx->job.members.is, (size_t)ctx->job.boot.size);
    return status;
}

/* ---- among the members ---- */

static stepaf_status_t refuse_alone(const struct stepaf_ctx *ctx,
                                    const struct stepaf_consensus *consensus)
{
    int n = 0, n_there = 0, lost = -1;

    if (consensus->is_starved)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    if (consensus->is_too_large)
        return stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_COMMIT,
                                "the adverts of all ranks are more than %zu bytes, which is the "
                                "most after a loss: declare fewer keys",
                                consensus->value_max);
    if (consensus->is_out)
        return stepaf_error_set(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT,
                                "the other ranks have given up this rank: they could not reach it, "
                                "or one of its links has failed");
    for (int r = 0; r < ctx->job.boot.size; r++) {
        n += consensus->is_member[r];
        n_there += consensus->is_member[r] && !stepaf_consensus_has_lost(consensus, r);
        if (lost < 0 && consensus->is_member[r] && stepaf_consensus_has_lost(consensus, r))
            lost = r;
    }
    return stepaf_error_set(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT,
                            "of %d ranks %d are left: only more than half can go on, or half with "
                            "the first rank; the first lost one is world rank %d: %.100s",
                            n, n_there, lost, lost < 0 ? "" : stepaf_members_why(ctx, lost));
}

static stepaf_status_t refuse_late(const struct stepaf_ctx *ctx)
{
    int rank = stepaf_member_net_awaited(ctx->job.members.net);
    struct stepaf_who who = {-1, -1, rank};

    if (atomic_load(&ctx->threads.closing))
        return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_COMMIT,
                                "another thread finalizes the context");
    const char *hindrance = rank < 0 ? "" : stepaf_member_net_hindrance(ctx->job.members.net, rank);
    if (*hindrance)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                "this rank did not reach world rank %d in time: %.140s", rank,
                                hindrance);
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT, who,
                                 "world rank %d did not enter the members' agreement in time",
                                 rank);
}

/* How long this rank waits for returned ranks to answer the question that it asks as the leader. */
struct patience {
    int64_t until_ns;
    bool leads, proposes; /* which question that is */
    uint32_t n_lost;      /* after a loss, whoever is left has time anew */
};

static bool is_same_question(const struct patience *patience,
                             const struct stepaf_consensus *consensus)
{
    return patience->leads == consensus->lead.leads &&
           patience->proposes == consensus->lead.proposes;
}

static void renew_patience(struct patience *patience, const struct stepaf_consensus *consensus,
                           int64_t deadline_ns)
{
    *patience = (struct patience){.until_ns = stepaf_halfway_ns(deadline_ns),
                                  .leads = consensus->lead.leads,
                                  .proposes = consensus->lead.proposes,
                                  .n_lost = consensus->n_lost};
}

/* Declare the returned ranks lost that have not answered this rank's question for half of the time
 * that was left. Only the leader knows who has answered; the others wait for the leader, which is
 * no returned rank as long as another member is left. */
static void lose_patience(struct stepaf_ctx *ctx, struct patience *patience, int64_t deadline_ns)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    const struct stepaf_consensus *consensus = stepaf_member_net_consensus(members->net);

    if (!is_same_question(patience, consensus) || patience->n_lost != consensus->n_lost)
        renew_patience(patience, consensus, deadline_ns);
    if (!members->tests_returned || stepaf_monotonic_ns() < patience->until_ns)
        return;
    /* The loss of the last silent rank leads to the next question, which nobody has answered. */
    for (int r = 0; r < ctx->job.boot.size && is_same_question(patience, consensus); r++)
        if (members->returned[r] && stepaf_member_net_is_silent(members->net, r))
            stepaf_member_net_lose(members->net, r,
                                   "it has not answered in the commit in which it returned");
}

/* Wait for the members' decision. Links are not read meanwhile: messages from peers may be of an
 * epoch that they have entered already, and stay unread until this rank enters it too. */
static void await_decision(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_member_net *net = ctx->job.members.net;
    struct pollfd polled = {.fd = stepaf_member_net_fd(net), .events = POLLIN};
    struct patience patience;

    renew_patience(&patience, stepaf_member_net_consensus(net), deadline_ns);
    while (stepaf_member_net_consensus(net)->state == STEPAF_CONSENSUS_OPEN &&
           stepaf_monotonic_ns() < deadline_ns && !atomic_load(&ctx->threads.closing) &&
           !stepaf_interrupted()) {
        (void)poll(&polled, 1, LOOK_MS);
        stepaf_core_look_for_lost(ctx);
        lose_patience(ctx, &patience, deadline_ns);
    }
}

static stepaf_status_t exchange_by_consensus(struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                             void **all_p, size_t *offsets_p, int64_t deadline_ns)
{
    struct stepaf_member_net *net = ctx->job.members.net;
    const struct stepaf_consensus *consensus = stepaf_member_net_consensus(net);

    stepaf_member_net_decide(net, data, bytes);
    await_decision(ctx, deadline_ns);
    if (consensus->state == STEPAF_CONSENSUS_DONE)
        return stepaf_member_net_decision(net, all_p, offsets_p, ctx->job.members.present);
    return consensus->state == STEPAF_CONSENSUS_FAILED ? refuse_alone(ctx, consensus)
                                                       : refuse_late(ctx);
}

stepaf_status_t stepaf_members_exchange(struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                        void **all_p, size_t *offsets_p, int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);
    struct stepaf_member_net *net = ctx->job.members.net;

    if (!net || is_first_commit(ctx))
        return exchange_by_boot(ctx, data, bytes, all_p, offsets_p, timeout_us);
    stepaf_member_net_next(net);
    if (stepaf_members_call(ctx))
        return exchange_by_consensus(ctx, data, bytes, all_p, offsets_p, deadline_ns);
    stepaf_status_t status = exchange_by_boot(ctx, data, bytes, all_p, offsets_p, timeout_us);
    if (!status)
        stepaf_member_net_learn(net, *all_p,
                                offsets_p); /* others may not have seen its end, and ask for it */
    if (!status || stepaf_monotonic_ns() >= deadline_ns)
        return status;
    /* A rank has left the exchange, or the exchange has failed: the members may still complete
     * it. */
    stepaf_error_t error = *stepaf_last_error();
    stepaf_status_t again = exchange_by_consensus(ctx, data, bytes, all_p, offsets_p, deadline_ns);
    return again == STEPAF_ERR_TIMEOUT ? stepaf_error_raise(&error) : again;
}

/* ---- who is a member ---- */

bool stepaf_members_lacks(const struct stepaf_ctx *ctx, int world_rank)
{
    return ctx->job.members.is[world_rank] && !ctx->job.members.present[world_rank];
}

int stepaf_members_first_lacking(const struct stepaf_ctx *ctx)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (stepaf_members_lacks(ctx, r))
            return r;
    return -1;
}

static const struct stepaf_peer *find_peer_of(const struct stepaf_ctx *ctx, int world_rank)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].who.world_rank == world_rank)
            return &ctx->peers[p];
    return NULL;
}

const char *stepaf_members_why(const struct stepaf_ctx *ctx, int world_rank)
{
    const struct stepaf_peer *peer = find_peer_of(ctx, world_rank);
    const char *reason =
        ctx->job.members.net ? stepaf_member_net_reason(ctx->job.members.net, world_rank) : "";

    if (peer && peer->lost)
        reason = peer->reason;
    return *reason ? reason : "other ranks have lost it";
}

void stepaf_members_adopt(struct stepaf_ctx *ctx)
{
    bool is_news = stepaf_members_first_lacking(ctx) >= 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        int rank = peer->who.world_rank;
        bool has_left =
            ctx->job.members.net && stepaf_member_net_has_left(ctx->job.members.net, rank);
        if (!ctx->job.members.present[rank] && !peer->lost && peer->link && has_left)
            /* a rank that has left writes nothing any more */
            ctx->up.lost(&ctx->up, peer->link, "it has left");
        else if (!ctx->job.members.present[rank] && !peer->lost && peer->link)
            stepaf_peer_fail(peer, "the others go on without it");
        peer->is_out = !ctx->job.members.present[rank];
    }
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (!ctx->job.members.present[r])
            ctx->job.members.is[r] = 0;
    for (int r = 0; r < ctx->job.boot.size; r++)
        ctx->job.members.has_changed =
            ctx->job.members.has_changed || !ctx->job.members.is[r] || ctx->job.members.returned[r];
    if (ctx->job.members.net)
        stepaf_member_net_set_members(ctx->job.members.net, ctx->job.members.is);
    if (is_news)
        stepaf_core_tell_news(ctx);
}

void stepaf_members_settled(struct stepaf_ctx *ctx)
{
    if (ctx->job.members.net && ctx->job.mesh.lanes == 1)
        stepaf_member_net_forget(ctx->job.members.net);
}

/* ---- what callers see ---- */

/* Return whether an FFN rank has owed an answer for too long. */
static bool is_slow(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer, uint64_t now)
{
    uint64_t late = (uint64_t)((double)ctx->env.slow_us * ctx->clock.own.ticks_per_us);

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        for (int s = 0; plan && !plan->stream && s < plan->depth; s++) {
            const struct stepaf_op *op = &plan->ops[s];
            const struct stepaf_op_peer *op_peer = &op->op_peers[peer->index];
            bool owes = stepaf_op_peer_owes(op_peer);
            uint64_t since = owes ? op_peer->answered : op->trace.started;
            if ((owes || op_peer->state == STEPAF_OP_PEER_WAITING) && now - since > late)
                return true;
        }
    }
    return false;
}

uint32_t stepaf_members_n_returns(const struct stepaf_ctx *ctx, uint32_t world_rank)
{
    const struct stepaf_member_net *net = ctx->job.members.net;
    uint32_t n_after_first = net ? stepaf_member_net_consensus(net)->lives[world_rank] - 1 : 0;
    bool is_later = (int)world_rank >= ctx->job.n_started; /* it had no process at first */

    return n_after_first - (is_later && n_after_first);
}

stepaf_member_state_t stepaf_members_state(const struct stepaf_ctx *ctx, int world_rank)
{
    const struct stepaf_peer *peer = find_peer_of(ctx, world_rank);

    if (ctx->job.members.net && stepaf_member_net_is_wanted(ctx->job.members.net, world_rank))
        return STEPAF_MEMBER_ASKS;
    if (!ctx->job.members.is[world_rank])
        return ctx->job.members.net && stepaf_member_net_has_left(ctx->job.members.net, world_rank)
                   ? STEPAF_MEMBER_LEFT
                   : STEPAF_MEMBER_OUT;
    if ((peer && peer->lost) ||
        (ctx->job.members.net &&
         stepaf_consensus_has_lost(stepaf_member_net_consensus(ctx->job.members.net), world_rank)))
        return STEPAF_MEMBER_LOST;
    if (ctx->job.members.net && stepaf_member_net_leaves(ctx->job.members.net, world_rank))
        return STEPAF_MEMBER_LEAVES;
    return peer && stepaf_is_attention(ctx) && is_slow(ctx, peer, stepaf_ticks())
               ? STEPAF_MEMBER_SLOW
               : STEPAF_MEMBER_IN;
}

/* A callback that this thread is in. A callback may poll another context, which then calls its
 * own. */
struct callback_frame {
    const struct stepaf_ctx *ctx;
    const struct callback_frame *outer;
};

static _Thread_local const struct callback_frame *innermost;

bool stepaf_members_in_callback(const struct stepaf_ctx *ctx)
{
    const struct callback_frame *frame = innermost;

    while (frame && frame->ctx != ctx)
        frame = frame->outer;
    return frame != NULL;
}

void stepaf_members_dispatch(struct stepaf_ctx *ctx)
{
    if (!atomic_load_explicit(&ctx->job.members.is_news, memory_order_relaxed) ||
        !atomic_exchange(&ctx->job.members.is_news, false))
        return;
    stepaf_lock_enter(&ctx->lock);
    stepaf_members_cb_t callback = ctx->job.members.callback;
    void *arg = ctx->job.members.callback_arg;
    stepaf_lock_leave(&ctx->lock);
    if (!callback || atomic_load(&ctx->threads.closing))
        return;
    const struct callback_frame frame = {ctx, innermost};
    innermost = &frame;
    callback(stepaf_handle_make(STEPAF_HANDLE_CONTEXT, ctx->handle.slot, 0, ctx->handle.generation),
             arg);
    innermost = frame.outer;
}
