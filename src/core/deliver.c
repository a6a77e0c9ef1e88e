/* SPDX-License-Identifier: Apache-2.0 */
/* Upcalls from transports: a message has arrived, a peer is lost. A message is untrusted input: it
 * is compared with what this side knows before it changes anything; otherwise it is counted and
 * dropped. */
#include <stdio.h>

#include "base/log.h"
#include "boot/member_net.h"
#include "core/batch.h"
#include "core/batch_end.h"
#include "core/clock_keep.h"
#include "core/ctx.h"
#include "core/deliver.h"
#include "core/feature.h"
#include "core/news.h"
#include "core/op.h"
#include "core/remote_plan.h"
#include "core/watch.h"

/* Handle LANDED: a part of an operation's data has landed, either a whole tensor of an answer, or a
 * part of a tensor, which concerns only streams. */
static void take_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    if (msg->epoch != (uint16_t)peer->ctx->epoch)
        peer->ctx->counters.dropped_stale++;
    else if (!msg->n && stepaf_is_attention(peer->ctx))
        stepaf_op_landed(peer, msg);
    else
        peer->ctx->feature->landed(peer, msg);
}

static void take_ready(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    peer->ready_epoch = msg->seq;
    peer->ready_status = stepaf_status_from(msg->word[0]);
    if (peer->ready_status)
        peer->ctx->commit.is_refused = true;
}

/* Deliver messages that only an FFN rank receives. Return false if the type is unknown. */
static bool deliver_to_ffn(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    switch (msg->type) {
    case STEPAF_MSG_START:
        stepaf_batch_start(peer, msg);
        return true;
    case STEPAF_MSG_CANCEL:
        stepaf_batch_cancel(peer, msg);
        return true;
    case STEPAF_MSG_PLAN:
        stepaf_remote_plan_open(peer, msg);
        return true;
    case STEPAF_MSG_TENSOR:
        stepaf_remote_plan_tensor(peer, msg);
        return true;
    case STEPAF_MSG_CLOSE:
        stepaf_remote_plan_close(peer, msg);
        return true;
    default:
        return false;
    }
}

/* Deliver messages that only an attention rank receives. Return false if the type is unknown. */
static bool deliver_to_attention(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    switch (msg->type) {
    case STEPAF_MSG_RESPONSE:
        stepaf_op_response(peer, msg);
        return true;
    case STEPAF_MSG_RELEASE:
        stepaf_op_release(peer, msg);
        return true;
    default:
        return false;
    }
}

/* Deliver messages of set-up and departure, which both roles receive. Return false if the type is
 * unknown. */
static bool deliver_control(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    switch (msg->type) {
    case STEPAF_MSG_READY:
        take_ready(peer, msg);
        return true;
    case STEPAF_MSG_QUIESCED:
        peer->quiesced = msg->seq;
        return true;
    case STEPAF_MSG_LANDED:
        take_landed(peer, msg);
        return true;
    case STEPAF_MSG_PING:
        stepaf_clock_ping(peer, msg);
        return true;
    case STEPAF_MSG_PONG:
        stepaf_clock_pong(peer, msg);
        return true;
    case STEPAF_MSG_SYNCED:
        peer->clock.synced = true;
        return true;
    case STEPAF_MSG_ASK:
    case STEPAF_MSG_TELL:
    case STEPAF_MSG_TOLD:
        if (peer->ctx->polling.watch)
            peer->ctx->polling.watch->ops->take(peer->ctx->polling.watch, peer, msg);
        return true;
    case STEPAF_MSG_BYE:
        stepaf_core_lost(&peer->ctx->up, peer->link, "it has finalized");
        return true;
    default:
        return false;
    }
}

void stepaf_core_hear(struct stepaf_ctx *ctx, bool hears)
{
    const uint32_t no_epoch = UINT16_MAX + 1;
    const uint32_t no_start = (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT;

    ctx->commit.hears = hears ? (uint16_t)ctx->epoch : no_epoch;
    ctx->commit.hears_imm = hears ? ctx->epoch & STEPAF_IMM_EPOCH_MASK : no_start;
}

void stepaf_core_deliver(struct stepaf_upcalls *up, struct stepaf_link *link,
                         const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_peer *peer = &ctx->peers[link->peer];
    bool known;

    if (__builtin_expect(peer->lost, 0))
        return;
    if (__builtin_expect(msg->type >= STEPAF_MSG_READY, 0)) {
        known = deliver_control(peer, msg);
    } else if (__builtin_expect(msg->epoch != ctx->commit.hears, 0)) {
        ctx->counters.dropped_stale++;
        return;
    } else {
        known =
            stepaf_is_attention(ctx) ? deliver_to_attention(peer, msg) : deliver_to_ffn(peer, msg);
    }
    if (__builtin_expect(!known, 0))
        ctx->counters.dropped_malformed++;
}

void stepaf_core_lost(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_peer *peer = &ctx->peers[link->peer];

    if (peer->lost)
        return;
    peer->lost = true;
    link->dead = true; /* posts queued for this link go nowhere from now on */
    snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
    ctx->n_alive--;
    ctx->counters.peers_lost += !peer->is_out; /* a peer that is out was never here */
    stepaf_log_info(STEPAF_WHO_FORMAT " is lost: %s", STEPAF_WHO_ARGS(peer->who), reason);
    /* Two losses are not reported to the members. A rank that has decided that this rank leaves
     * closes its link, perhaps before this rank knows of the decision. A process that has only just
     * returned does not report the ranks that it cannot reach (wireup/agree_return.h). */
    if (ctx->job.members.net && !ctx->job.members.will.leaves && !ctx->job.members.is_on_trial) {
        stepaf_member_net_lose(ctx->job.members.net, peer->who.world_rank, reason);
        stepaf_core_notice_lost(ctx);
    } else {
        stepaf_core_tell_news(ctx);
    }
    ctx->feature->peer_lost(peer);
    if (stepaf_is_attention(ctx))
        stepaf_op_peer_lost(peer);
    else
        stepaf_batches_peer_lost(peer);
}

void stepaf_core_refused(struct stepaf_upcalls *up, struct stepaf_post *post)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_peer *peer = &ctx->peers[post->link->peer];

    stepaf_log_warn("a tensor for " STEPAF_WHO_FORMAT
                    " is in registered memory that is no longer mapped: plan %u, slot %u",
                    STEPAF_WHO_ARGS(peer->who), post->msg.plan, post->msg.slot);
    if (stepaf_is_attention(ctx))
        stepaf_op_refused(peer, post);
    else
        stepaf_batch_refused(peer, post);
}
