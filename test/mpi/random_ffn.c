/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's FFN side: receiving, and comparing with the model. */
#include "random_ffn.h"

#include <pthread.h>

enum { HELD_MAX = R_ATTN * R_PLANS * R_DEPTH };

static struct hs_job *f_job;
static const struct r_model *f_model;
static int f_phase;
static struct r_dice main_dice, handler_dice;
/* Plan numbers as the attention ranks count, and of which life of the plan, from 1. */
static struct {
    uint32_t number, life;
} numbers[R_ATTN][R_PLANS];
_Atomic uint32_t f_next[R_ATTN][R_PLANS];
bool f_handler;
static _Atomic int open_plans; /* whose last batch of the phase has not come */

/* Batches that the handler has passed on. */
static pthread_mutex_t inbox_lock = PTHREAD_MUTEX_INITIALIZER;
static struct r_held inbox[HELD_MAX];
static _Atomic int n_inbox;

bool r_ffn_prepare(struct hs_job *job, const struct r_model *model, int phase)
{
    f_job = job;
    f_model = model;
    f_phase = phase;
    if (phase == 0) {
        main_dice.state = hs_mix(model->seed + 2000 + (unsigned)job->rank);
        handler_dice.state = hs_mix(model->seed + 3000 + (unsigned)job->rank);
        if (!r_answer_prepare(job, model))
            return false;
    }
    return f_buffers_prepare(job, model, phase);
}

/* Find which of the model's plans a batch belongs to, by its first key. */
static int find_plan(stepaf_batch_h batch, const stepaf_batch_info_t *info)
{
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};

    if (!HS_OK(info->n_tensors > 0 ? stepaf_batch_tensor(batch, 0, &tensor)
                                   : stepaf_batch_answer(batch, 0, &tensor)))
        return -1;
    for (int p = 0; p < f_model->n_plans; p++) {
        const struct r_plan *plan = &f_model->plans[p];
        bool pushes = plan->n_push > 0;
        uint64_t key = pushes ? plan->push[0].id : plan->pull[f_job->index][0].id;
        if (pushes == (info->n_tensors > 0) && key == tensor.key)
            return p;
    }
    return -1;
}

/* The next operation of the plan that this rank must see, passing over those that skip it or may
 * have been canceled. */
static bool match(struct r_held *held, const stepaf_batch_info_t *info)
{
    uint32_t at = atomic_load(&f_next[held->attn][held->plan]);
    uint32_t until = f_model->until[held->attn][held->plan][f_phase];

    for (; at < until; at++) {
        r_model_op(f_model, held->attn, held->plan, at, &held->op);
        if (held->op.sequence == info->sequence && !held->op.skip[f_job->index])
            break;
        if (!held->op.skip[f_job->index] && !held->op.canceled)
            break;
    }
    if (at >= until || held->op.sequence != info->sequence)
        return HS_FAILED("attention rank %d plan %d: batch %u came, expected %u, phase ends at %u",
                         held->attn, held->plan, info->sequence, held->op.sequence, until);
    uint32_t length = f_model->plans[held->plan].life;
    uint32_t life = length > 0 ? at / length + 1 : 1;
    if (numbers[held->attn][held->plan].life != life)
        numbers[held->attn][held->plan].number = info->plan;
    numbers[held->attn][held->plan].life = life;
    atomic_store(&f_next[held->attn][held->plan], at + 1);
    return HS_INT(info->plan, ==, numbers[held->attn][held->plan].number);
}

static bool look_at_tensor(const struct r_held *held, const stepaf_tensor_info_t *tensor, int i)
{
    const struct r_key *key = &f_model->plans[held->plan].push[i];
    size_t bytes = held->op.push[f_job->index][i];
    bool shaped = key->params.field_mask & STEPAF_KEY_SHAPE;
    bool good = HS_TRUE(tensor->key == key->id) && HS_INT(tensor->bytes, ==, bytes) &&
                HS_INT(tensor->max_bytes, ==, key->max) &&
                HS_INT(tensor->mem_kind, ==, STEPAF_MEM_HOST);

    if (!good)
        return false;
    if (bytes % key->row == 0) {
        good = HS_INT(tensor->dtype, ==, key->params.dtype) &&
               HS_INT(tensor->ndim, ==, shaped ? key->params.ndim : 1) &&
               HS_INT(tensor->shape[0], ==, bytes / key->row);
        for (int d = 1; good && d < tensor->ndim; d++)
            good = HS_INT(tensor->shape[d], ==, key->params.shape[d]);
    } else {
        good = HS_INT(tensor->ndim, ==, 1) && HS_INT(tensor->shape[0], ==, bytes);
    }
    unsigned char *at = f_buffer_place(held, i);
    return good && (at == NULL || bytes == 0 || HS_TRUE(tensor->data == at));
}

bool r_held_intact(const struct r_held *held, const char *when)
{
    const struct r_plan *plan = &f_model->plans[held->plan];
    int ffn = plan->scatter && !held->op.plain ? f_job->index : -1;
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};

    if (!HS_OK(stepaf_batch_query(held->batch, &info)) ||
        !HS_INT(info.n_tensors, ==, plan->n_push) || !HS_INT(info.n_answers, ==, plan->n_pull))
        return false;
    for (int i = 0; i < plan->n_push; i++)
        if (!HS_OK(stepaf_batch_tensor(held->batch, i, &tensor)) ||
            !look_at_tensor(held, &tensor, i) ||
            !hs_verify(when, tensor.data, tensor.bytes,
                       r_stream(f_model, plan->push[i].id, held->attn, ffn, held->op.ordinal)))
            return HS_FAILED("attention rank %d plan %d operation %u tensor %d", held->attn,
                             held->plan, held->op.ordinal, i);
    for (int i = 0; i < plan->n_pull; i++) {
        const struct r_key *key = &plan->pull[f_job->index][i];
        if (!HS_OK(stepaf_batch_answer(held->batch, i, &tensor)) ||
            !HS_TRUE(tensor.key == key->id) || !HS_TRUE(tensor.data == NULL) ||
            !HS_INT(tensor.dtype, ==, key->params.dtype) ||
            !HS_INT(tensor.max_bytes, >=, held->op.pull[f_job->index][i]))
            return false;
    }
    return true;
}

/* Take in a batch: which one it is, and whether it is as it must be. */
static bool arrive(stepaf_batch_h batch, struct r_held *held)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};

    if (!HS_OK(stepaf_batch_query(batch, &info)))
        return false;
    if (!HS_INT(info.attention_rank % f_model->lanes, ==, f_model->lane))
        return false;
    *held = (struct r_held){.batch = batch, .attn = info.attention_rank / f_model->lanes};
    if (!HS_INT(held->attn, >=, 0) || !HS_INT(held->attn, <, f_model->attn))
        return false;
    held->plan = find_plan(batch, &info);
    if (held->plan < 0)
        return HS_FAILED("a batch of attention rank %d with unknown keys", held->attn);
    if (!match(held, &info) || !r_held_intact(held, "arrived"))
        return false;
    if (held->op.closing)
        atomic_fetch_sub(&open_plans, 1);
    return true;
}

static void handler(stepaf_batch_h batch, void *arg)
{
    struct r_held held;

    HS_TRUE(arg == &handler_dice);
    if (!arrive(batch, &held))
        return;
    if (r_chance(&handler_dice, 40) && r_answer_one(&held, &handler_dice, true))
        return;
    pthread_mutex_lock(&inbox_lock);
    inbox[n_inbox++] = held;
    pthread_mutex_unlock(&inbox_lock);
}

static int drain_inbox(struct r_held *held)
{
    int n;

    if (f_job->ctx != NULL)
        HS_OK(stepaf_progress(f_job->ctx));
    pthread_mutex_lock(&inbox_lock);
    n = n_inbox;
    for (int i = 0; i < n; i++)
        held[i] = inbox[i];
    n_inbox = 0;
    pthread_mutex_unlock(&inbox_lock);
    return n;
}

/* Receive by stepaf_recv; how many were added to @a held, -1: failed. */
static int receive(int mode, int64_t timeout_us, struct r_held *held)
{
    stepaf_batch_h batches[R_ATTN];
    int n = 0, capacity = 1 + (int)(r_throw(&main_dice) % R_ATTN);
    stepaf_status_t status = STEPAF_ERR_TIMEOUT;
    bool each = false;

    if (mode == MODE_EACH) {
        uint32_t flags = r_chance(&main_dice, 50) ? STEPAF_RECV_SKIP_LOST : 0;
        status =
            stepaf_recv(f_job->ctx, STEPAF_FROM_EACH, flags, timeout_us / 4, batches, R_ATTN, &n);
        each = status == STEPAF_OK;
        if (each && !HS_INT(n, ==, f_model->attn))
            return -1;
    }
    if (status == STEPAF_ERR_TIMEOUT)
        status = stepaf_recv(f_job->ctx, STEPAF_FROM_ANY, 0, timeout_us, batches, capacity, &n);
    if (status == STEPAF_ERR_TIMEOUT)
        return 0;
    if (!HS_OK(status) || !HS_INT(n, >=, 1) || !HS_INT(n, <=, each ? R_ATTN : capacity))
        return -1;
    for (int i = 0; i < n; i++)
        if (!arrive(batches[i], &held[i]) || (each && !HS_INT(held[i].attn, ==, i)))
            return -1;
    return n;
}

/* Answer and release some of what is held; how many are left. */
static int answer_some(struct r_held *held, int n_held, bool idle)
{
    if (n_held > 1 && r_chance(&main_dice, 50))
        r_answer_many(held, n_held, &main_dice);
    for (int turns = idle ? n_held : 1; turns > 0 && n_held > 0; turns--) {
        int at = (int)(r_throw(&main_dice) % (unsigned)n_held);
        if (r_answer_one(&held[at], &main_dice, false))
            held[at] = held[--n_held];
    }
    return n_held;
}

bool r_ffn_run(struct hs_job *job, const struct r_model *model, int phase)
{
    static struct r_held held[2 * HELD_MAX];
    int mode = (int)((model->seed + (unsigned)phase + (unsigned)job->index) % MODE_END);
    long long steps = r_model_steps(model, phase), turns = 0;
    size_t before = 0;
    int n_held = 0, open = 0;

    for (int a = 0; a < model->attn; a++)
        for (int p = 0; p < model->n_plans; p++)
            open += model->until[a][p][phase] > (phase ? model->until[a][p][phase - 1] : 0);
    atomic_store(&open_plans, open);
    f_handler = mode == MODE_HANDLER;
    if (f_handler)
        HS_OK(stepaf_batch_set_handler(job->ctx, handler, &handler_dice));
    hs_step("serving batches");
    while (atomic_load(&open_plans) > 0 || n_held > 0 || n_inbox > 0) {
        int n = mode == MODE_HANDLER ? drain_inbox(held + n_held)
                                     : receive(mode, n_held > 0 ? 0 : 20000, held + n_held);
        if (n < 0 || hs_failed() || hs_hopeless(job))
            return false;
        n_held += n;
        if (n == 0 && n_held == 0)
            hs_yield();
        if (n_held > 0 && (n == 0 || r_chance(&main_dice, 60)))
            n_held = answer_some(held, n_held, n == 0);
        if (++turns == steps / 4)
            before = hs_resident_bytes();
    }
    if (mode == MODE_HANDLER)
        HS_OK(stepaf_batch_set_handler(job->ctx, NULL, NULL));
    if (phase == model->phases - 1 && steps >= 20000 && before > 0)
        HS_INT(hs_resident_bytes(), <=, before + 512 * 1024);
    return !hs_failed();
}

void r_ffn_end(struct hs_job *job)
{
    f_buffers_check();
    hs_close(job);
    r_answer_end(job);
    f_buffers_end();
}
