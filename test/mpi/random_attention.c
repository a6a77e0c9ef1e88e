/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's attention side: plans, starts and the memory that they use. */
#include "random_attention.h"

#include <stdlib.h>
#include <string.h>

struct a_plan a_plans[R_PLANS];
struct r_dice a_dice;

/* Pieces of memory of one plan: called twice, see r_arena_take. */
static void lay_out(const struct r_model *model, int index)
{
    const struct r_plan *plan = &model->plans[index];
    struct a_plan *mine = &a_plans[index];

    for (int i = 0; i < plan->n_push; i++) {
        mine->planned[i] = r_arena_take(&mine->arena, plan->push[i].max);
        for (unsigned slot = 0; slot < plan->depth; slot++)
            for (int f = 0; f < (plan->scatter ? model->ffn : 1); f++)
                mine->slots[slot].source[f][i] = r_arena_take(&mine->arena, plan->push[i].max);
    }
    for (int f = 0; f < model->ffn; f++)
        for (int i = 0; i < plan->n_pull; i++)
            mine->target[f][i] = r_arena_take(&mine->arena, plan->depth * plan->pull[f][i].max);
}

static void list_tensors(const struct r_model *model, int index, stepaf_tensor_t *push,
                         stepaf_tensor_t *pull)
{
    const struct r_plan *plan = &model->plans[index];
    struct a_plan *mine = &a_plans[index];

    for (int i = 0; i < plan->n_push; i++)
        push[i] = (stepaf_tensor_t){plan->push[i].id, mine->planned[i], plan->planned[i]};
    for (int f = 0; f < model->ffn; f++)
        for (int i = 0; i < plan->n_pull; i++) {
            const struct r_key *key = &plan->pull[f][i];
            pull[f * plan->n_pull + i] =
                (stepaf_tensor_t){key->id, key->max > 0 ? mine->target[f][i] : NULL, key->max};
        }
}

static bool make_plan(struct hs_job *job, const struct r_model *model, int index)
{
    const struct r_plan *plan = &model->plans[index];
    stepaf_tensor_t push[R_PUSH], pull[R_FFN * R_PULL];
    stepaf_plan_h handle = NULL;

    if (plan->one_shot)
        return true;
    list_tensors(model, index, push, pull);
    if (!HS_OK(stepaf_plan_create(job->ctx, push, plan->n_push, pull, plan->n_pull * model->ffn,
                                  plan->scatter ? STEPAF_PLAN_SCATTER : 0, &handle)))
        return false;
    a_plans[index].handle = handle;
    return HS_INT(stepaf_plan_depth(handle), ==, plan->depth);
}

/* A plan can be destroyed only when its last batches have been released. */
static bool end_plan(struct hs_job *job, struct a_plan *mine)
{
    int64_t deadline = hs_now_ns() + 20000000000LL;
    stepaf_status_t status;

    if (mine->handle == NULL)
        return true;
    while ((status = stepaf_plan_destroy(mine->handle)) == STEPAF_ERR_STATE) {
        if (hs_now_ns() > deadline)
            break;
        HS_OK(stepaf_progress(job->ctx));
        hs_yield();
    }
    if (!HS_OK(status))
        return false;
    HS_REFUSED(stepaf_plan_destroy(mine->handle), STEPAF_ERR_HANDLE);
    mine->handle = NULL;
    return true;
}

bool r_attention_prepare(struct hs_job *job, const struct r_model *model, int phase)
{
    if (phase == 0)
        a_dice.state = hs_mix(model->seed + 1000 + (unsigned)job->rank);
    for (int i = 0; i < model->n_plans; i++) {
        const struct r_plan *plan = &model->plans[i];
        struct a_plan *mine = &a_plans[i];

        /* The memory of a one-shot plan stays in use by the context's copy of the plan. */
        if (plan->last == phase - 1 && !plan->one_shot) {
            if (!end_plan(job, mine))
                return false;
            r_arena_end(job, &mine->arena);
        }
        if (plan->first != phase)
            continue;
        lay_out(model, i);
        if (!r_arena_make(job, &mine->arena, plan->registered))
            return false;
        lay_out(model, i);
        if (plan->early && !make_plan(job, model, i))
            return false;
    }
    return true;
}

void r_attention_end(struct hs_job *job, const struct r_model *model)
{
    for (int i = 0; i < model->n_plans; i++)
        end_plan(job, &a_plans[i]);
    hs_close(job); /* before registered memory goes */
    for (int i = 0; i < model->n_plans; i++)
        free(a_plans[i].arena.block);
}

/* The source of tensor @a i for FFN rank @a f in this operation. */
static unsigned char *source(const struct r_plan *plan, struct a_plan *mine, unsigned slot,
                             bool plain, int f, int i)
{
    return plain ? mine->planned[i] : mine->slots[slot].source[plan->scatter ? f : 0][i];
}

/* Sources may be written again once the library says so. */
static bool sources_free(struct hs_job *job, struct a_slot *slot)
{
    int64_t deadline = hs_now_ns() + 20000000000LL;

    while (slot->unsent) {
        stepaf_status_t status = stepaf_request_sent(slot->request);
        if (status == STEPAF_OK)
            slot->unsent = false;
        else if (!HS_INT(status, ==, STEPAF_INPROGRESS) || hs_now_ns() > deadline)
            return HS_FAILED("sources of operation %u are never free", slot->op.ordinal);
        HS_OK(stepaf_progress(job->ctx));
    }
    return true;
}

static bool all_sources_free(struct hs_job *job, const struct r_plan *plan, struct a_plan *mine)
{
    for (unsigned slot = 0; slot < plan->depth; slot++)
        if (!sources_free(job, &mine->slots[slot]))
            return false;
    return true;
}

/* Write what the operation pushes, and list it as stepaf_start_with wants it. */
static int fill(struct hs_job *job, const struct r_model *model, int index, struct a_slot *slot,
                stepaf_tensor_t *push)
{
    const struct r_plan *plan = &model->plans[index];
    const struct r_op *op = &slot->op;
    bool sliced = plan->scatter && !op->plain;
    int n = 0;

    for (int f = 0; f < (sliced ? model->ffn : 1); f++)
        for (int i = 0; i < plan->n_push; i++) {
            unsigned char *data = source(plan, &a_plans[index], op->slot, op->plain, f, i);
            hs_fill(data, op->push[f][i],
                    r_stream(model, plan->push[i].id, job->index, sliced ? f : -1, op->ordinal));
            push[n++] = (stepaf_tensor_t){plan->push[i].id, data, op->push[f][i]};
        }
    for (int f = 0; f < model->ffn; f++)
        for (int i = 0; i < plan->n_pull; i++) {
            size_t max = plan->pull[f][i].max;
            if (!slot->dirty)
                memset(a_plans[index].target[f][i] + op->slot * max, HS_POISON, max);
        }
    return n;
}

static void scribble(const struct r_model *model, int index, struct a_slot *slot)
{
    const struct r_plan *plan = &model->plans[index];

    if (stepaf_request_sent(slot->request) != STEPAF_OK)
        return;
    slot->unsent = false;
    for (int f = 0; f < (plan->scatter ? model->ffn : 1); f++)
        for (int i = 0; i < plan->n_push; i++)
            memset(source(plan, &a_plans[index], slot->op.slot, slot->op.plain, f, i), R_SCRIBBLE,
                   slot->op.push[f][i]);
}

static stepaf_status_t try_start(struct hs_job *job, const struct r_model *model, int index,
                                 struct a_slot *slot, const stepaf_tensor_t *push, int n_push)
{
    const struct r_plan *plan = &model->plans[index];
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_ALL, .push = push, .n_push = n_push, .timeout_us = -1};
    stepaf_tensor_t planned[R_PUSH], pull[R_FFN * R_PULL];

    if (plan->one_shot) {
        list_tensors(model, index, planned, pull);
        return stepaf_push_pull(job->ctx, push, n_push, pull, plan->n_pull * model->ffn,
                                &slot->request);
    }
    if (slot->op.plain && r_chance(&a_dice, 50))
        return stepaf_start(a_plans[index].handle, &slot->request);
    if (slot->op.plain)
        params.push = NULL, params.n_push = 0;
    if (r_chance(&a_dice, 50))
        params.flags = STEPAF_START_WAIT;
    return stepaf_start_with(a_plans[index].handle, &params, &slot->request);
}

/* Start the next operation of a plan. */
static bool start(struct hs_job *job, const struct r_model *model, int index)
{
    const struct r_plan *plan = &model->plans[index];
    struct a_plan *mine = &a_plans[index];
    stepaf_tensor_t push[R_FFN * R_PUSH];
    int64_t deadline = hs_now_ns() + 30000000000LL;
    stepaf_status_t status;
    struct r_op op;

    r_model_op(model, job->index, index, mine->next, &op);
    struct a_slot *slot = &mine->slots[op.slot];
    if (slot->busy && !a_finish(job, model, index, op.slot))
        return false;
    /* The planned source serves all slots. */
    if (!sources_free(job, slot) || (op.plain && !all_sources_free(job, plan, mine)))
        return false;
    if (mine->next > 0 && op.sequence == 0) { /* the plan's life is over */
        for (unsigned i = 0; i < plan->depth; i++)
            if (mine->slots[i].busy && !a_finish(job, model, index, i))
                return false;
        if (!all_sources_free(job, plan, mine) || !end_plan(job, mine))
            return false;
    }
    if (mine->handle == NULL && !make_plan(job, model, index))
        return false;
    slot->op = op;
    int n_push = fill(job, model, index, slot, push);
    while ((status = try_start(job, model, index, slot, push, n_push)) == STEPAF_ERR_WOULD_BLOCK) {
        if (hs_now_ns() > deadline)
            return HS_FAILED("plan %d: its slot is never free", index);
        if (r_chance(&a_dice, 30))
            a_finish_some(job, model);
        HS_OK(stepaf_progress(job->ctx));
    }
    if (!HS_OK(status))
        return false;
    mine->next++;
    slot->busy = slot->unsent = true;
    slot->given_up = false;
    HS_INT(stepaf_request_slot(slot->request), ==, op.slot);
    if (op.canceled && r_chance(&a_dice, 70))
        a_give_up(slot);
    if (r_chance(&a_dice, 70))
        scribble(model, index, slot);
    return true;
}

bool r_attention_run(struct hs_job *job, const struct r_model *model, int phase)
{
    long long steps = r_model_steps(model, phase);
    size_t before = 0;

    for (int i = 0; i < model->n_plans; i++)
        if (model->plans[i].first == phase && !model->plans[i].early && !make_plan(job, model, i))
            return false;
    for (long long step = 0; step < steps; step++) {
        if (!start(job, model, r_model_step(model, job->index, phase, step)))
            return false;
        if (r_chance(&a_dice, 30) && !a_finish_some(job, model))
            return false;
        if (hs_failed())
            return false;
        if (step == steps / 3)
            before = hs_resident_bytes();
    }
    for (int i = 0; i < model->n_plans; i++)
        for (unsigned slot = 0; slot < model->plans[i].depth; slot++) {
            if (a_plans[i].slots[slot].busy && !a_finish(job, model, i, slot))
                return false;
            if (!sources_free(job, &a_plans[i].slots[slot]))
                return false;
        }
    if (phase == model->phases - 1 && steps >= 20000)
        HS_INT(hs_resident_bytes(), <=, before + 512 * 1024);
    return true;
}
