/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of 32 bits back to a message. What the 32 bits omit follows from the state of the
 * plan: the upper bits of the sequence from what is expected or in flight, the slot from the
 * sequence. */
#include "core/imm.h"
#include "core/ctx.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "core/table.h"

enum { SEQ_MASK = STEPAF_IMM_SEQ_MASK, EPOCH_MASK = STEPAF_IMM_EPOCH_MASK };

/* Expand a START at an FFN rank: the next operation of the plan, or a later one, since scattered
 * operations may skip this rank. */
static bool expand_start(const struct stepaf_peer *peer, uint32_t low, struct stepaf_msg *msg)
{
    const struct stepaf_remote_plan *remote =
        msg->plan < peer->n_remotes ? peer->remotes[msg->plan] : NULL;

    if (!remote)
        return false;
    uint32_t ahead = (low - remote->seq) & SEQ_MASK;
    if (ahead > SEQ_MASK / 2)
        return false; /* an earlier operation */
    msg->seq = remote->seq + ahead;
    msg->slot = (uint8_t)((remote->slot + ahead) % remote->depth);
    return true;
}

/* Find, at an attention rank, an operation that the peer owes to a plan. */
static bool find_owed(const struct stepaf_plan_obj *plan, const struct stepaf_peer *peer,
                      uint32_t low, struct stepaf_msg *msg)
{
    for (uint8_t s = 0; s < plan->depth; s++) {
        const struct stepaf_op_peer *op_peer = &plan->ops[s].op_peers[peer->index];
        if (stepaf_op_peer_owes(op_peer) && (op_peer->owed & SEQ_MASK) == low) {
            msg->seq = op_peer->owed;
            msg->slot = s;
            return true;
        }
    }
    return false;
}

/* Expand an answer at an attention rank: to an owed operation, or to one of the plan's last
 * operations, as many as the plan has slots. */
static bool expand_response(const struct stepaf_peer *peer, uint32_t low, struct stepaf_msg *msg)
{
    const struct stepaf_plan_obj *plan = stepaf_table_get(&peer->ctx->tables.plans, msg->plan);

    if (!plan)
        return false;
    if (plan->partial.n_owed && find_owed(plan, peer, low, msg))
        return true;
    uint32_t behind = (plan->seq - low) & SEQ_MASK;
    if (!behind || behind > plan->depth)
        return false;
    msg->seq = plan->seq - behind;
    msg->slot = (uint8_t)((plan->next->slot + plan->depth - behind) % plan->depth);
    return true;
}

bool stepaf_imm_decode(const struct stepaf_ctx *ctx, const struct stepaf_link *link, uint32_t imm,
                       struct stepaf_msg *msg_p)
{
    const struct stepaf_peer *peer = &ctx->peers[link->peer];
    uint32_t code = imm >> STEPAF_IMM_CODE_SHIFT, low = imm >> STEPAF_IMM_SEQ_SHIFT & SEQ_MASK;

    if ((imm & EPOCH_MASK) != (ctx->epoch & EPOCH_MASK))
        return false;
    stepaf_msg_head(msg_p, code == STEPAF_IMM_START ? STEPAF_MSG_START : STEPAF_MSG_RESPONSE,
                    code == STEPAF_IMM_RELEASED ? STEPAF_MSG_RELEASED : 0, ctx->epoch,
                    stepaf_imm_plan(imm), 0, 0);
    if (code == STEPAF_IMM_START) {
        msg_p->n_words = 0;
        return !stepaf_is_attention(ctx) && expand_start(peer, low, msg_p);
    }
    msg_p->n_words = STEPAF_MSG_SIZES;
    msg_p->word[STEPAF_MSG_QUEUE] = UINT32_MAX;
    msg_p->word[STEPAF_MSG_WORK] = UINT32_MAX;
    return code != STEPAF_IMM_OTHER && stepaf_is_attention(ctx) &&
           expand_response(peer, low, msg_p);
}

void stepaf_imm_deliver(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_msg msg;

    if (stepaf_imm_decode(ctx, link, imm, &msg))
        up->deliver(up, link, &msg);
    else
        ctx->counters.dropped_stale++;
}
