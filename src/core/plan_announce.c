/* SPDX-License-Identifier: Apache-2.0 */
/* Announcing plans at an attention rank: once FFN ranks can know everything that a plan names,
 * compile what its starts have in common, and announce the plan. */
#include <stdlib.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/plan.h"
#include "core/plan_announce.h"
#include "core/plan_ready.h"
#include "core/region.h"
#include "core/send.h"
#include "core/start.h"
#include "core/table.h"
#include "core/trace.h"

static bool announce_tensor(struct stepaf_peer *peer, const struct stepaf_plan_obj *plan,
                            uint8_t index, const struct stepaf_push *push,
                            const struct stepaf_pull *pull)
{
    const struct stepaf_key *key = push ? push->key : pull->key;
    uint64_t offset = 0;
    struct stepaf_msg msg = {
        .type = STEPAF_MSG_TENSOR,
        .flags = pull ? STEPAF_MSG_PULL_SIDE : 0,
        .epoch = (uint16_t)plan->ctx->epoch,
        .plan = (uint16_t)plan->index,
        .slot = index,
    };

    msg.word[0] = (uint32_t)key->id;
    msg.word[1] = (uint32_t)(key->id >> 32);
    msg.word[2] = push ? push->bytes : pull->bytes;
    if (pull && pull->region) {
        offset = (uint64_t)(pull->data - pull->region->mem.base);
        msg.word[3] = pull->region->mem.id;
        msg.word[4] = (uint32_t)offset;
        msg.word[5] = (uint32_t)(offset >> 32);
        msg.word[6] = key->max_bytes;
    }
    return stepaf_core_send(peer, &msg);
}

static bool announce_to(struct stepaf_peer *peer, const struct stepaf_plan_obj *plan)
{
    uint32_t p = peer->index;
    struct stepaf_msg msg = {
        .type = STEPAF_MSG_PLAN,
        .epoch = (uint16_t)plan->ctx->epoch,
        .plan = (uint16_t)plan->index,
        .slot = plan->next->slot,
        .seq = plan->seq,
        .word = {plan->n_push, plan->n_pull, plan->depth},
    };
    bool sent = stepaf_core_send(peer, &msg);

    for (uint8_t i = 0; sent && i < plan->n_push; i++)
        sent = announce_tensor(peer, plan, i, &plan->push[i], NULL);
    for (uint8_t i = 0; sent && i < plan->n_pull; i++)
        sent = announce_tensor(peer, plan, i, NULL, &plan->pull[p * plan->n_pull + i]);
    return sent;
}

static void add_stamp(struct stepaf_plan_obj *plan, uint32_t event, uint32_t peer, uint32_t tensor,
                      uint32_t bytes)
{
    plan->stamps.at[plan->stamps.n].bytes = bytes;
    plan->stamps.at[plan->stamps.n++].word = stepaf_trace_word(event, plan->index, peer, tensor);
}

/* Compile the trace records of a start. */
static void compile_stamps(struct stepaf_plan_obj *plan)
{
    uint32_t also = plan->stamps.is_small && plan->n_push ? STEPAF_TRACE_STARTED : 0;

    plan->stamps.n = 0;
    if (!also)
        add_stamp(plan, STEPAF_EVENT_START, STEPAF_TRACE_ALL, STEPAF_TRACE_WHOLE, 0);
    if (!plan->n_push)
        add_stamp(plan, STEPAF_EVENT_NOTIFIED, STEPAF_TRACE_EACH, STEPAF_TRACE_WHOLE, 0);
    for (uint32_t i = 0; i < plan->n_push; i++, also = 0) {
        if (i + 1 == plan->n_push)
            also |= STEPAF_TRACE_NOTIFIED;
        add_stamp(plan, STEPAF_EVENT_POSTED | also, STEPAF_TRACE_EACH, i, plan->push[i].bytes);
    }
}

void stepaf_op_drop_templates(struct stepaf_op *op)
{
    for (unsigned t = 0; t < STEPAF_MAX_TRANSPORTS; t++) {
        free(op->templates[t]);
        op->templates[t] = NULL;
    }
    op->template_bytes = 0;
}

/* Let each transport prepare a template of its posts, from the first post of a live peer. */
static bool make_templates(struct stepaf_op *op)
{
    for (uint32_t p = 0; p < op->plan->ctx->n_peers; p++) {
        const struct stepaf_link *link = op->posts[p]->link;
        if (op->plan->ctx->peers[p].lost)
            continue;
        void **template = &op->templates[link->transport->index];
        size_t bytes = 0;
        if (!*template)
            *template = link->ops->make_template(op->posts[p], &bytes);
        op->template_bytes += bytes;
    }
    return op->template_bytes > 0;
}

/* Compile everything that starts of this epoch have in common. */
static void compile_plan(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx *ctx = plan->ctx;

    plan->imm = stepaf_imm_make(STEPAF_IMM_START, plan->index, 0, ctx->epoch);
    plan->push_bytes = 0;
    for (int i = 0; i < plan->n_push; i++)
        plan->push_bytes += plan->push[i].bytes;
    plan->stamps.is_small = plan->push_bytes * ctx->n_peers <= STEPAF_SMALL_BYTES;
    compile_stamps(plan);
    for (int s = 0; s < plan->depth; s++) {
        struct stepaf_op *op = &plan->ops[s];
        stepaf_op_drop_templates(op);
        stepaf_op_compile(op);
        if (!plan->cached.is && !plan->proxied.is && make_templates(op))
            stepaf_op_compile(op);
    }
}

void stepaf_plan_announce_end(const struct stepaf_plan_obj *plan, uint32_t n)
{
    struct stepaf_ctx *ctx = plan->ctx;
    struct stepaf_msg msg = {
        .type = STEPAF_MSG_CLOSE, .epoch = (uint16_t)ctx->epoch, .plan = (uint16_t)plan->index};

    for (uint32_t p = 0; p < n; p++)
        if (!stepaf_plan_leaves_out(plan, p))
            stepaf_core_tell(&ctx->peers[p], &msg);
}

stepaf_status_t stepaf_plan_announce(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx *ctx = plan->ctx;

    compile_plan(plan);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        if (!peer->lost && !stepaf_plan_leaves_out(plan, p) && !announce_to(peer, plan)) {
            stepaf_plan_announce_end(plan, p + 1); /* the peer may know a part of the plan */
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        }
    }
    plan->usable = ctx->epoch;
    return STEPAF_OK;
}

static int compare_ages(const void *one, const void *other)
{
    const struct stepaf_plan_obj *a = *(struct stepaf_plan_obj *const *)one;
    const struct stepaf_plan_obj *b = *(struct stepaf_plan_obj *const *)other;
    uint32_t its = stepaf_plan_age(a), others = stepaf_plan_age(b);

    return (its > others) - (its < others);
}

stepaf_status_t stepaf_plans_announce(struct stepaf_ctx *ctx)
{
    struct stepaf_plan_obj **plans =
        calloc((size_t)ctx->tables.plans.n + 1, sizeof(struct stepaf_plan_obj *));
    stepaf_status_t status = STEPAF_OK;
    uint32_t n = 0;

    if (!plans)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && stepaf_plan_ready(plan))
            plans[n++] = plan;
    }
    qsort(plans, n, sizeof(struct stepaf_plan_obj *), compare_ages);
    for (uint32_t i = 0; i < n && !status; i++)
        status = stepaf_plan_announce(plans[i]);
    free(plans);
    return status;
}
