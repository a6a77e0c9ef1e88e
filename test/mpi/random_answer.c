/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's FFN side: answers and releases, in every way that there is. */
#include "random_ffn.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 6 };

static struct hs_job *job_;
static const struct r_model *model_;
static struct r_arena arenas[2];
static unsigned char *sources[R_ATTN][R_PLANS][R_DEPTH][R_PULL];

/* Sources of stepaf_respond_many: one block for each plan, in use until the next batches of the
 * slots that it answered have come. */
static struct {
    unsigned char *data[R_PULL];
    int n;
    struct {
        int attn;
        uint32_t ordinal;
    } users[MANY];
} blocks[R_PLANS];

static void lay_out(void)
{
    for (int p = 0; p < model_->n_plans; p++) {
        const struct r_plan *plan = &model_->plans[p];
        struct r_arena *arena = &arenas[p % 2];
        for (int i = 0; i < plan->n_pull; i++) {
            size_t max = plan->pull[job_->index][i].max;
            for (int a = 0; a < model_->attn; a++)
                for (unsigned slot = 0; slot < plan->depth; slot++)
                    sources[a][p][slot][i] = r_arena_take(arena, max);
            blocks[p].data[i] = r_arena_take(arena, plan->many ? MANY * max : 0);
        }
    }
}

bool r_answer_prepare(struct hs_job *job, const struct r_model *model)
{
    job_ = job;
    model_ = model;
    lay_out();
    if (!r_arena_make(job, &arenas[0], false) || !r_arena_make(job, &arenas[1], true))
        return false;
    lay_out();
    return true;
}

void r_answer_end(struct hs_job *job)
{
    (void)job; /* finalized: the registration has ended with it */
    free(arenas[1].block);
}

static void fill(const struct r_held *held, int i, void *data)
{
    uint64_t key = model_->plans[held->plan].pull[job_->index][i].id;
    hs_fill(data, held->op.pull[job_->index][i],
            r_stream(model_, key, held->attn, job_->index, held->op.ordinal));
}

/* Nobody may wait for a canceled operation any more. */
static bool sent(const struct r_held *held, stepaf_status_t status)
{
    if (status == STEPAF_ERR_CANCELED && held->op.canceled)
        return false;
    if (!HS_OK(status))
        HS_FAILED("answering attention rank %d plan %d operation %u", held->attn, held->plan,
                  held->op.ordinal);
    return status == STEPAF_OK;
}

/* The source may be overwritten once its request is complete. */
static void reuse(stepaf_request_h request, const struct r_held *held, struct r_dice *dice)
{
    stepaf_status_t status = STEPAF_INPROGRESS;
    int64_t deadline = hs_now_ns() + 60000000000LL * hs_slow();

    if (r_chance(dice, 50))
        status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    while (status == STEPAF_INPROGRESS && hs_now_ns() < deadline) {
        status = stepaf_test(request);
        HS_OK(stepaf_progress(job_->ctx));
    }
    /* A cancel may cross the answer on its way. */
    if ((!held->op.canceled || status != STEPAF_ERR_CANCELED) && !HS_OK(status))
        return;
    for (int i = 0; i < model_->plans[held->plan].n_pull; i++)
        memset(sources[held->attn][held->plan][held->op.slot][i], R_SCRIBBLE,
               held->op.pull[job_->index][i]);
}

/* True if the batch is released with its answer. */
static bool respond(struct r_held *held, struct r_dice *dice, bool in_handler)
{
    const struct r_plan *plan = &model_->plans[held->plan];
    stepaf_tensor_t tensors[R_PULL];
    stepaf_request_h request = NULL;
    uint32_t flags = r_chance(dice, 50) ? STEPAF_RESPOND_RELEASE : 0;
    /* The handler may answer the slot's next batch, from the same source, once this one is
     * released. */
    bool ask = !in_handler && !(f_handler && flags) && r_chance(dice, 30);

    for (int i = 0; i < plan->n_pull; i++) {
        uint32_t bytes = held->op.pull[job_->index][i];
        unsigned char *source = sources[held->attn][held->plan][held->op.slot][i];
        fill(held, i, source);
        tensors[i] =
            (stepaf_tensor_t){plan->pull[job_->index][i].id, bytes > 0 ? source : NULL, bytes};
    }
    if ((flags & STEPAF_RESPOND_RELEASE) && !r_held_intact(held, "before answer and release"))
        return false;
    held->answered = true;
    if (!sent(held,
              stepaf_respond(held->batch, tensors, plan->n_pull, flags, ask ? &request : NULL)))
        return false;
    if (ask)
        reuse(request, held, dice);
    if ((flags & STEPAF_RESPOND_RELEASE) && r_chance(dice, 5))
        HS_REFUSED(stepaf_release(held->batch), STEPAF_ERR_HANDLE);
    if (!(flags & STEPAF_RESPOND_RELEASE) && r_chance(dice, 5) && !held->op.canceled)
        HS_REFUSED(stepaf_respond(held->batch, tensors, plan->n_pull, 0, NULL), STEPAF_ERR_STATE);
    return flags & STEPAF_RESPOND_RELEASE;
}

bool r_answer_one(struct r_held *held, struct r_dice *dice, bool to_the_end)
{
    bool answer = !held->answered && !held->op.drop[job_->index];

    if (model_->plans[held->plan].n_pull == 0 && r_chance(dice, 50))
        answer = false; /* nothing is expected: releasing it says all */
    if (answer) {
        if (respond(held, dice, to_the_end))
            return true;
        if (!to_the_end && r_chance(dice, 50))
            return false;
    }
    if (!r_held_intact(held, "before release"))
        return true;
    HS_OK(stepaf_release(held->batch));
    if (r_chance(dice, 3))
        HS_REFUSED(stepaf_release(held->batch), STEPAF_ERR_HANDLE);
    return true;
}

static bool block_free(int p)
{
    const struct r_plan *plan = &model_->plans[p];

    for (int i = 0; i < blocks[p].n; i++) {
        uint32_t next = atomic_load(&f_next[blocks[p].users[i].attn][p]);
        uint32_t old = blocks[p].users[i].ordinal;
        if (next <= old + plan->depth &&
            (plan->life == 0 || next == 0 || (next - 1) / plan->life == old / plan->life))
            return false;
    }
    return true;
}

static bool fit(const struct r_held *held, int plan)
{
    return held->plan == plan && !held->answered && !held->op.canceled &&
           !held->op.drop[job_->index];
}

int r_answer_many(struct r_held *held, int n_held, struct r_dice *dice)
{
    stepaf_batch_h batches[MANY];
    stepaf_status_t results[MANY];
    stepaf_tensor_t tensors[R_PULL];
    struct r_held *members[MANY];
    uint32_t rows[MANY];
    size_t at[R_PULL] = {0};
    int n = 0, p = held[r_throw(dice) % (unsigned)n_held].plan;
    const struct r_plan *plan = &model_->plans[p];

    if (!plan->many || !block_free(p))
        return 0;
    for (int h = 0; h < n_held && n < MANY; h++)
        if (fit(&held[h], p))
            members[n++] = &held[h];
    if (n == 0)
        return 0;
    for (int m = 0; m < n; m++) {
        batches[m] = members[m]->batch;
        rows[m] = (uint32_t)(members[m]->op.push[job_->index][0] / plan->push[0].row);
        blocks[p].users[m].attn = members[m]->attn;
        blocks[p].users[m].ordinal = members[m]->op.ordinal;
        members[m]->answered = true;
        for (int i = 0; i < plan->n_pull; i++) {
            fill(members[m], i, blocks[p].data[i] + at[i]);
            at[i] += members[m]->op.pull[job_->index][i];
        }
    }
    blocks[p].n = n;
    for (int i = 0; i < plan->n_pull; i++)
        tensors[i] = (stepaf_tensor_t){
            plan->pull[job_->index][i].id, blocks[p].data[i],
            r_chance(dice, 50) ? at[i] : (size_t)n * plan->pull[job_->index][i].max};
    HS_OK(stepaf_respond_many(batches, n, tensors, plan->n_pull, r_chance(dice, 50) ? rows : NULL,
                              0, results));
    for (int m = 0; m < n; m++)
        HS_OK(results[m]);
    return n;
}
