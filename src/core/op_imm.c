/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in 32 bits: the path of most answers. */
#include "core/imm.h"
#include "core/op_answer.h"
#include "core/send.h"
#include "core/table.h"

/* Return the operation in flight that an answer in 32 bits names; NULL: none. */
static __attribute__((noinline)) struct stepaf_op *find_short(const struct stepaf_ctx *ctx,
                                                              uint32_t imm)
{
    const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, stepaf_imm_plan(imm));
    const struct stepaf_op *op = plan ? plan->ops : NULL;

    if (!plan)
        return NULL;
    for (uint32_t s = 0; s < plan->depth; s++, op++)
        if (op->imm == (imm & STEPAF_IMM_SAME_MASK) && op->generation)
            return (struct stepaf_op *)op;
    return NULL;
}

/* Count an answer in 32 bits: planned sizes, and times too short to be reported. */
static inline void count_planned(struct stepaf_op_peer *op_peer)
{
    op_peer->peer->bytes_received += op_peer->pull_sum;
    op_peer->queue_ns = UINT32_MAX;
    op_peer->work_ns = UINT32_MAX;
}

/* Take an answer as planned, for an operation that needs it. Other operations have odd parts. */
static inline __attribute__((always_inline)) void take_planned_answer(
    struct stepaf_ctx *ctx, struct stepaf_op *op, struct stepaf_op_peer *op_peer, uint32_t imm,
    enum stepaf_op_taking taking)
{
    count_planned(op_peer);
    stepaf_op_take_answer(ctx, op, op_peer, imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_RELEASED,
                          taking, ctx->up.polled);
}

/* Take an answer as planned on the slow path, or 32 bits that are no such answer. */
static __attribute__((noinline)) void deliver_unusual(struct stepaf_ctx *ctx,
                                                      struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_op *op = find_short(ctx, imm);
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[link->peer] : NULL;

    if (!op_peer || !stepaf_op_peer_is_awaited(op_peer) || !stepaf_imm_is_answer(imm)) {
        stepaf_imm_deliver(&ctx->up, link, imm);
        return;
    }
    stepaf_post_complete(&op_peer->post);
    if (op_peer->odd)
        stepaf_op_set_sizes(op, op_peer, NULL);
    count_planned(op_peer);
    bool released = imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_RELEASED;
    if (op->plan->on_gpu && !stepaf_op_is_there(op, op_peer, released))
        return;
    stepaf_op_take_unusual(ctx, op, op_peer, released);
}

/* Return whether 32 bits are an answer as planned to @a op, which a thread waits for. The 32 bits
 * of its START are the same except for the code. */
static inline bool is_usual_answer(const struct stepaf_op *op, const struct stepaf_op_peer *op_peer,
                                   uint32_t imm)
{
    return op->imm == (imm & STEPAF_IMM_SAME_MASK) && stepaf_imm_is_answer(imm) &&
           op_peer->state_if_usual == STEPAF_OP_PEER_WAITING &&
           op_peer->post.state == STEPAF_POST_SENT;
}

/* Upcall. The operation that a thread waits for is the most likely case. */
void stepaf_op_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_op *op = ctx->polling.hint_op;
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[link->peer] : NULL;

    if (__builtin_expect(op_peer && is_usual_answer(op, op_peer, imm), 1))
        take_planned_answer(ctx, op, op_peer, imm, STEPAF_OP_AS_PLANNED);
    else
        deliver_unusual(ctx, link, imm);
}

static void deliver_imm_observed(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_op *op = ctx->polling.hint_op;
    struct stepaf_op_peer *op_peer = op ? &op->op_peers[link->peer] : NULL;

    if (__builtin_expect(op_peer && is_usual_answer(op, op_peer, imm), 1))
        take_planned_answer(ctx, op, op_peer, imm, STEPAF_OP_OBSERVED);
    else
        deliver_unusual(ctx, link, imm);
}

stepaf_deliver_imm_fn *stepaf_op_deliver_imm_observed(const struct stepaf_ctx *ctx)
{
    return ctx->up.deliver_imm == stepaf_op_deliver_imm ? deliver_imm_observed
                                                        : ctx->up.deliver_imm;
}
