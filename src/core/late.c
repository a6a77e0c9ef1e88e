/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that complete before all peers have answered, and what late peers owe. */
#include "core/late.h"
#include "core/ctx.h"
#include "core/send.h"
#include "core/table.h"
#include "core/trace.h"

void stepaf_plan_need(struct stepaf_plan_obj *plan, uint32_t n, int64_t patience_us)
{
    plan->partial.n_odd -= plan->partial.n_answers > 0;
    plan->partial.n_answers = n == plan->ctx->n_peers ? 0 : n;
    plan->partial.patience_us = patience_us;
    plan->partial.n_odd += plan->partial.n_answers > 0;
}

bool stepaf_late_is_out(const struct stepaf_plan_obj *plan, uint32_t p)
{
    if (plan->next->op_peers[p].held)
        return true;
    for (uint32_t s = 0; plan->partial.n_owed && s < plan->depth; s++) {
        const struct stepaf_op_peer *op_peer = &plan->ops[s].op_peers[p];
        if (stepaf_op_peer_owes(op_peer) && !((op_peer->owed ^ plan->seq) & STEPAF_IMM_SEQ_MASK))
            return true;
    }
    return false;
}

void stepaf_late_leave_out(struct stepaf_plan_obj *plan)
{
    struct stepaf_op *op = plan->next;

    for (uint32_t p = 0; p < plan->ctx->n_peers; p++) {
        struct stepaf_op_peer *op_peer = &op->op_peers[p];
        bool is_out = stepaf_late_is_out(plan, p);
        if (op_peer->held && op_peer->state != STEPAF_OP_PEER_LEFT_OUT) {
            op_peer->owed = op->seq;
            op_peer->answered = op->trace.started;
            plan->partial.n_owed++;
            plan->partial.n_odd++;
        }
        op_peer->state = is_out ? STEPAF_OP_PEER_LEFT_OUT : STEPAF_OP_PEER_NONE;
    }
}

void stepaf_late_forget(struct stepaf_op *op, struct stepaf_op_peer *op_peer)
{
    if (stepaf_op_peer_owes(op_peer)) {
        op->plan->partial.n_owed--;
        op->plan->partial.n_odd--;
    }
    stepaf_op_give_back(op, op_peer);
}

/* Count the bytes of a late answer. Return false if its sizes are impossible. */
static bool count_bytes(const struct stepaf_plan_obj *plan, struct stepaf_op_peer *op_peer,
                        const struct stepaf_msg *msg)
{
    const struct stepaf_pull *pull = &plan->pull[op_peer->peer->index * plan->n_pull];
    uint64_t sum = msg->n ? 0 : op_peer->pull_sum;

    if (msg->n && msg->n != plan->n_pull)
        return false;
    for (uint32_t i = 0; i < msg->n; i++) {
        if (msg->word[STEPAF_MSG_SIZES + i] > pull[i].bytes)
            return false;
        sum += msg->word[STEPAF_MSG_SIZES + i];
    }
    op_peer->peer->bytes_received += sum;
    return true;
}

bool stepaf_late_take(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, msg->plan);

    if (!plan || msg->slot >= plan->depth)
        return false;
    struct stepaf_op *op = &plan->ops[msg->slot];
    struct stepaf_op_peer *op_peer = &op->op_peers[peer->index];
    if (!stepaf_op_peer_owes(op_peer) || op_peer->owed != msg->seq ||
        op_peer->post.state == STEPAF_POST_QUEUED)
        return false;
    bool is_answer = msg->type == STEPAF_MSG_RESPONSE;
    if (is_answer && !count_bytes(plan, op_peer, msg)) {
        ctx->counters.dropped_malformed++;
        return true;
    }
    stepaf_post_complete(&op_peer->post);
    if (is_answer) {
        ctx->counters.late++;
        stepaf_trace_put(&ctx->trace, stepaf_ticks(), op_peer->owed, 0, op_peer->stamp);
    }
    if (!is_answer || msg->flags & STEPAF_MSG_RELEASED)
        stepaf_late_forget(op, op_peer);
    return true;
}

const struct stepaf_peer *stepaf_late_first(const struct stepaf_op *op)
{
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++) {
        const struct stepaf_op_peer *op_peer = &op->op_peers[p];
        if (op_peer->held || stepaf_op_peer_is_open(op_peer))
            return op_peer->peer;
    }
    return NULL;
}
