/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's attention side: waiting, and looking at what came. */
#include "random_attention.h"

void a_give_up(struct a_slot *slot)
{
    stepaf_status_t status = stepaf_cancel(slot->request);

    if (status == STEPAF_OK)
        slot->given_up = true;
    else
        HS_STATUS(status, STEPAF_ERR_STATE);
}

/* Whether FFN ranks give the operation up. */
static bool dropped(const struct r_model *model, const struct r_op *op)
{
    for (int f = 0; f < model->ffn; f++)
        if (op->drop[f])
            return true;
    return false;
}

/* One answered tensor: its size, its bytes and nothing beyond. */
static bool look_at(struct hs_job *job, const struct r_model *model, int index,
                    const struct a_slot *slot, int f, int i, const stepaf_tensor_info_t *info)
{
    const struct r_plan *plan = &model->plans[index];
    const struct r_key *key = &plan->pull[f][i];
    const struct r_op *op = &slot->op;
    unsigned char *target = a_plans[index].target[f][i];
    unsigned char *data = target + op->slot * key->max;
    size_t bytes = op->skip[f] ? 0 : op->pull[f][i];
    bool good = HS_INT(info->bytes, ==, bytes) && HS_TRUE(info->key == key->id) &&
                HS_INT(info->max_bytes, ==, key->max);

    if (key->max > 0)
        good &= HS_TRUE(info->data == data);
    if (good && bytes > 0 && bytes % key->row == 0)
        good &= HS_INT(info->shape[0], ==, bytes / key->row) &&
                HS_INT(info->dtype, ==, key->params.dtype);
    good = good &&
           hs_verify("answer", data, bytes, r_stream(model, key->id, job->index, f, op->ordinal)) &&
           (slot->dirty || hs_verify_poison("answer", data + bytes, key->max - bytes)) &&
           r_guarded("destination", target, plan->depth * key->max);
    return good ||
           HS_FAILED("plan %d operation %u, FFN rank %d, pull tensor %d", index, op->ordinal, f, i);
}

static bool look_at_all(struct hs_job *job, const struct r_model *model, int index,
                        struct a_slot *slot)
{
    const struct r_plan *plan = &model->plans[index];
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    for (int f = 0; f < model->ffn; f++) {
        bool gone = slot->op.drop[f];
        stepaf_status_t want = gone ? STEPAF_ERR_CANCELED : STEPAF_OK;
        if (!HS_STATUS(stepaf_request_peer(slot->request, r_real_rank(model, f)), want))
            return HS_FAILED("plan %d operation %u, FFN rank %d", index, slot->op.ordinal, f);
        for (int i = 0; i < plan->n_pull; i++)
            if (!HS_STATUS(stepaf_request_tensor(slot->request, f * plan->n_pull + i, &info),
                           want) ||
                (!gone && !look_at(job, model, index, slot, f, i, &info)))
                return false;
    }
    return true;
}

/* The final status is known. */
static bool conclude(struct hs_job *job, const struct r_model *model, int index,
                     struct a_slot *slot, stepaf_status_t status)
{
    bool drop = dropped(model, &slot->op), good;

    slot->busy = false;
    if (slot->given_up) {
        slot->dirty = true;
        return HS_STATUS(status, STEPAF_ERR_CANCELED);
    }
    if (!HS_STATUS(status, drop ? STEPAF_ERR_CANCELED : STEPAF_OK))
        return HS_FAILED("plan %d operation %u (drop %d)", index, slot->op.ordinal, drop);
    if (drop) {
        /* The result may be known before the other ranks have answered. */
        slot->dirty = true;
        return true;
    }
    good = look_at_all(job, model, index, slot);
    slot->dirty = false;
    if (r_chance(&a_dice, 3)) {
        HS_REFUSED(stepaf_wait(slot->request, 0), STEPAF_ERR_STATE);
        HS_REFUSED(stepaf_test(slot->request), STEPAF_ERR_STATE);
        HS_REFUSED(stepaf_cancel(slot->request), STEPAF_ERR_STATE);
    }
    return good;
}

/* Wait for any one of all; true if it was the wanted one. */
static bool wait_any(struct hs_job *job, const struct r_model *model, const struct a_slot *wanted)
{
    stepaf_request_h requests[R_PLANS * R_DEPTH] = {0};
    int plans[R_PLANS * R_DEPTH], slots[R_PLANS * R_DEPTH], n = 0, index = -1;
    stepaf_status_t status;

    for (int i = 0; i < model->n_plans; i++)
        for (unsigned slot = 0; slot < model->plans[i].depth; slot++) {
            if (!a_plans[i].slots[slot].busy && !r_chance(&a_dice, 5))
                continue;
            /* Those that were waited for already are passed over, and so is NULL. */
            requests[n] = a_plans[i].slots[slot].busy ? a_plans[i].slots[slot].request : NULL;
            plans[n] = i;
            slots[n++] = (int)slot;
        }
    status = stepaf_wait_any(requests, n, STEPAF_TIMEOUT_DEFAULT, &index);
    if (status == STEPAF_ERR_TIMEOUT || index < 0 || index >= n || requests[index] == NULL) {
        HS_FAILED("wait_any of %d: %s, index %d: %s", n, stepaf_status_name(status), index,
                  stepaf_last_error()->text);
        return true;
    }
    struct a_slot *slot = &a_plans[plans[index]].slots[slots[index]];
    conclude(job, model, plans[index], slot, status);
    return slot == wanted;
}

/* Look at single tensors as they land. */
static void poll_tensors(struct hs_job *job, const struct r_model *model, int index,
                         struct a_slot *slot)
{
    const struct r_plan *plan = &model->plans[index];
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    for (int f = 0; f < model->ffn; f++)
        for (int i = 0; i < plan->n_pull; i++) {
            stepaf_status_t status =
                stepaf_request_tensor(slot->request, f * plan->n_pull + i, &info);
            if (status == STEPAF_OK && !slot->given_up)
                look_at(job, model, index, slot, f, i, &info);
            else if (status != STEPAF_INPROGRESS && !slot->given_up && !slot->op.drop[f])
                HS_STATUS(status, STEPAF_OK);
        }
}

bool a_finish(struct hs_job *job, const struct r_model *model, int index, unsigned number)
{
    struct a_slot *slot = &a_plans[index].slots[number];
    int64_t deadline = hs_now_ns() + 20000000000LL * hs_slow();
    unsigned how = (unsigned)(r_throw(&a_dice) % 100);
    stepaf_status_t status;

    hs_step("waiting for an operation");
    if (slot->op.canceled && !slot->given_up)
        a_give_up(slot);
    if (how < 40)
        return conclude(job, model, index, slot,
                        stepaf_wait(slot->request, STEPAF_TIMEOUT_DEFAULT));
    if (how < 60) {
        while (!wait_any(job, model, slot))
            if (hs_failed())
                return false;
        return !hs_failed();
    }
    while ((status = stepaf_test(slot->request)) == STEPAF_INPROGRESS) {
        if (how < 75)
            poll_tensors(job, model, index, slot);
        if (hs_now_ns() > deadline)
            return HS_FAILED("plan %d operation %u does not end", index, slot->op.ordinal);
        hs_yield();
    }
    return conclude(job, model, index, slot, status);
}

bool a_finish_some(struct hs_job *job, const struct r_model *model)
{
    int first = (int)(r_throw(&a_dice) % (unsigned)model->n_plans);

    for (int turn = 0; turn < model->n_plans; turn++) {
        int i = (first + turn) % model->n_plans;
        unsigned depth = model->plans[i].depth;
        unsigned at = (unsigned)(r_throw(&a_dice) % depth);
        for (unsigned slot = 0; slot < depth; slot++)
            if (a_plans[i].slots[(at + slot) % depth].busy)
                return a_finish(job, model, i, (at + slot) % depth);
    }
    return true;
}
