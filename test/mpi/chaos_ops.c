/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks exchange meanwhile, and what every byte of it has to be. */
#include <stdlib.h>
#include <string.h>

#include "chaos.h"

enum {
    PUSH_KEY = 10,
    PULL_KEY = 20,
    PUSHED_WORDS = 4,
    ANSWER_WORDS = 2,
    SCATTERED = 2,
    BATCHES = 8
};

static const size_t plan_bytes[CHAOS_PLANS] = {200, 6000, 70000};

/* ---- the model ---- */

/* What a push, or an answer of @a ffn, has behind its head. */
static uint64_t model_of(int attention, uint64_t number, int ffn, int is_answer)
{
    return hs_mix((uint64_t)attention * 1000003 + number * 2 + (uint64_t)is_answer) +
           (uint64_t)ffn * 7919;
}

static void fill_push_of(const struct chaos *chaos, unsigned char *to, size_t bytes, int plan,
                         uint64_t number, int ffn)
{
    uint64_t head[PUSHED_WORDS] = {(uint64_t)chaos->job->index, number,
                                   (uint64_t)(atomic_load(&chaos->me->done) + 1), (uint64_t)plan};

    memcpy(to, head, sizeof(head));
    hs_fill(to + sizeof(head), bytes - sizeof(head), model_of(chaos->job->index, number, ffn, 0));
}

/* Who has committed as often as this rank says so; whoever has just returned learns it. */
static bool agree_on_done(struct chaos *chaos, uint64_t said)
{
    int done = atomic_load(&chaos->me->done);

    if (!said)
        return true; /* it has just returned itself */
    if (done < 0) {
        atomic_store(&chaos->me->done, (int)said - 1);
        return true;
    }
    return HS_INT((int)said - 1, ==, done);
}

/* ---- set-up ---- */

static bool prepare_plan(struct chaos *chaos, int p)
{
    struct chaos_plan *plan = &chaos->plans[p];
    struct hs_job *job = chaos->job;
    size_t slices = CHAOS_DEPTH * (p == SCATTERED ? (size_t)job->peers : 1);
    stepaf_key_params_t depth = {.field_mask = STEPAF_KEY_DEPTH, .depth = CHAOS_DEPTH};
    stepaf_tensor_t pulls[HS_MAX_RANKS];
    void *place = NULL;

    plan->bytes = plan_bytes[p];
    if (!HS_OK(stepaf_key_declare(job->ctx, (uint64_t)(PUSH_KEY + p), STEPAF_PUSH, plan->bytes,
                                  &depth)) ||
        !HS_OK(stepaf_key_declare(job->ctx, (uint64_t)(PULL_KEY + p), STEPAF_PULL, plan->bytes,
                                  &depth)))
        return false;
    if (job->role == STEPAF_FFN)
        return true;
    if (!HS_OK(stepaf_alloc(job->ctx, plan->bytes * (slices + CHAOS_DEPTH * (size_t)job->peers),
                            STEPAF_MEM_HOST, &place)))
        return false;
    plan->source = place;
    plan->target = plan->source + slices * plan->bytes;
    stepaf_tensor_t push = {(uint64_t)(PUSH_KEY + p), plan->source, plan->bytes};
    for (int i = 0; i < job->peers; i++)
        pulls[i] =
            (stepaf_tensor_t){(uint64_t)(PULL_KEY + p),
                              plan->target + (size_t)i * CHAOS_DEPTH * plan->bytes, plan->bytes};
    return HS_OK(stepaf_plan_create(job->ctx, &push, 1, pulls, job->peers,
                                    p == SCATTERED ? STEPAF_PLAN_SCATTER : 0, &plan->plan));
}

bool chaos_ops_prepare(struct chaos *chaos)
{
    void *place = NULL;

    chaos->n_ops = (uint64_t)chaos->life << 32;
    for (int p = 0; p < CHAOS_PLANS; p++)
        if (!prepare_plan(chaos, p))
            return false;
    if (chaos->job->role == STEPAF_FFN &&
        !HS_OK(stepaf_alloc(chaos->job->ctx, plan_bytes[CHAOS_PLANS - 1], STEPAF_MEM_HOST, &place)))
        return false;
    chaos->answer = place;
    return true;
}

/* ---- attention ranks ---- */

bool chaos_may_be_lost(const struct chaos *chaos, int world)
{
    const struct chaos_rank_page *its = &chaos->page->ranks[world], *me = chaos->me;

    return atomic_load(&its->place) != CHAOS_SERVING ||
           atomic_load(&me->faults) > atomic_load(&me->faults_before) || /* all may, to this one */
           atomic_load(&chaos->page->last_ops) >= chaos_n_attention(chaos->page) || /* all leave */
           atomic_load(&its->faults) > atomic_load(&its->faults_before);
}

/* What is on its way in a slot must not change: some ranks may not even have taken it. */
static bool await_slot(struct chaos_plan *plan, int slot)
{
    stepaf_status_t status =
        plan->requests[slot] ? stepaf_request_sent(plan->requests[slot]) : STEPAF_OK;

    if (status == STEPAF_INPROGRESS)
        status = stepaf_wait_rest(plan->requests[slot], STEPAF_TIMEOUT_DEFAULT);
    return status == STEPAF_ERR_HANDLE || HS_OK(status);
}

/* PEER_LOST is final, and true, if it is somebody who may be lost. */
static bool accept_lost(struct chaos *chaos, stepaf_status_t status, const char *what)
{
    int world = stepaf_last_error()->peer_world_rank;

    if (status != STEPAF_ERR_PEER_LOST)
        return HS_FAILED("%s: %s: %s", what, stepaf_status_name(status), stepaf_last_error()->text);
    if (world < 0 || world >= chaos_places(chaos->page))
        return HS_FAILED("%s: nobody is named: %s", what, stepaf_last_error()->text);
    return chaos_may_be_lost(chaos, world) ||
           HS_FAILED("%s: world rank %d lives: %s", what, world, stepaf_last_error()->text);
}

/* The sources of the next operation of plan @a p, which is in @a slot. */
static void fill_slot(struct chaos *chaos, int p, int slot, stepaf_start_params_t *params)
{
    struct chaos_plan *plan = &chaos->plans[p];
    int slices = p == SCATTERED ? chaos->job->peers : 1;

    for (int i = 0; i < slices; i++) {
        unsigned char *source = plan->source + (size_t)(slot * slices + i) * plan->bytes;
        fill_push_of(chaos, source, plan->bytes, p, plan->numbers[slot],
                     p == SCATTERED ? stepaf_peer_rank(chaos->job->ctx, i) : HS_MAX_RANKS);
        plan->push[i] = (stepaf_tensor_t){(uint64_t)(PUSH_KEY + p), source, plan->bytes};
    }
    params->push = plan->push;
    params->n_push = slices;
    params->field_mask |= STEPAF_START_PARAM_PUSH;
}

/* *slot_p: -1 if it could not be started, for a reason. */
static bool start_one(struct chaos *chaos, int p, bool for_some, int *slot_p)
{
    struct chaos_plan *plan = &chaos->plans[p];
    int slot = (int)(plan->n % CHAOS_DEPTH);
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_WAIT | STEPAF_START_SKIP_LOST};

    *slot_p = -1;
    if (!await_slot(plan, slot))
        return false;
    plan->numbers[slot] = chaos->n_ops++;
    fill_slot(chaos, p, slot, &params);
    if (for_some) {
        params.field_mask |= STEPAF_START_PARAM_ANSWERS | STEPAF_START_PARAM_PATIENCE;
        params.n_answers = chaos->job->peers - 1;
        params.patience_us = (int64_t)chaos_draw(&chaos->dice, 300);
    }
    stepaf_status_t status = stepaf_start_with(plan->plan, &params, &plan->requests[slot]);
    if (status) {
        chaos_count(chaos->page->ops, status);
        return accept_lost(chaos, status, "a start");
    }
    plan->n++;
    *slot_p = slot;
    return HS_INT(stepaf_request_slot(plan->requests[slot]), ==, slot);
}

/* One answer: it is right, or it will not come, for a reason. */
static bool check_peer(struct chaos *chaos, int p, int slot, int i, bool for_some)
{
    struct chaos_plan *plan = &chaos->plans[p];
    int ffn = stepaf_peer_rank(chaos->job->ctx, i);
    int world = stepaf_world_rank(chaos->job->ctx, STEPAF_GROUP_FFN, ffn);
    stepaf_status_t status = stepaf_request_peer(plan->requests[slot], ffn);
    uint64_t head[ANSWER_WORDS];

    if (status == STEPAF_INPROGRESS && !for_some)
        status = stepaf_wait_peer(plan->requests[slot], ffn, STEPAF_TIMEOUT_DEFAULT);
    chaos_count(chaos->page->answers, status);
    if (for_some && (status == STEPAF_INPROGRESS || status == STEPAF_ERR_WOULD_BLOCK))
        return true;
    if (status == STEPAF_ERR_PEER_LOST)
        return chaos_may_be_lost(chaos, world) ||
               HS_FAILED("world rank %d lives, and is lost to an operation", world);
    if (!HS_OK(status))
        return false;
    const unsigned char *is = plan->target + (size_t)(i * CHAOS_DEPTH + slot) * plan->bytes;
    memcpy(head, is, sizeof(head));
    atomic_fetch_add(&chaos->page->bytes, (int64_t)plan->bytes);
    return HS_INT(head[1], ==, plan->numbers[slot]) &&
           hs_verify("an answer", is + sizeof(head), plan->bytes - sizeof(head),
                     model_of(chaos->job->index, plan->numbers[slot], ffn, 1)) &&
           agree_on_done(chaos, head[0]);
}

static bool end_one(struct chaos *chaos, int p, int slot, bool for_some)
{
    struct chaos_plan *plan = &chaos->plans[p];
    stepaf_status_t status = stepaf_wait(plan->requests[slot], STEPAF_TIMEOUT_DEFAULT);

    chaos_count(chaos->page->ops, status);
    if (status && !accept_lost(chaos, status, "an operation"))
        return false;
    for (int i = 0; i < chaos->job->peers; i++)
        if (!check_peer(chaos, p, slot, i, for_some))
            return false;
    return true;
}

bool chaos_ask(struct chaos *chaos, bool of_all)
{
    int p = of_all ? 0 : (int)chaos_draw(&chaos->dice, CHAOS_PLANS);
    bool for_some = !of_all && chaos->job->peers > 1 && p == 0 && chaos_draw(&chaos->dice, 3) == 0;
    int slots[CHAOS_DEPTH];

    chaos_beat(chaos, "operations");
    for (int i = 0; i < CHAOS_DEPTH; i++)
        if (!start_one(chaos, p, for_some, &slots[i]))
            return false;
    for (int i = 0; i < CHAOS_DEPTH; i++)
        if (slots[i] >= 0 && !end_one(chaos, p, slots[i], for_some))
            return false;
    return true;
}

bool chaos_drain(struct chaos *chaos)
{
    for (int p = 0; p < CHAOS_PLANS; p++)
        for (int slot = 0; slot < CHAOS_DEPTH; slot++) {
            stepaf_request_h request = chaos->plans[p].requests[slot];
            if (request && !HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT)))
                return false;
        }
    return true;
}

/* ---- FFN ranks ---- */

/* Read a batch, and check it; *head_p is its head. */
static bool read_push(struct chaos *chaos, stepaf_batch_h batch, uint64_t *head_p)
{
    stepaf_tensor_info_t in = {.size = sizeof(in)};

    if (!HS_OK(stepaf_batch_tensor(batch, 0, &in)) ||
        !HS_TRUE(in.bytes >= sizeof(uint64_t) * PUSHED_WORDS))
        return false;
    memcpy(head_p, in.data, sizeof(uint64_t) * PUSHED_WORDS);
    if (!HS_TRUE(head_p[3] < CHAOS_PLANS) || !HS_INT(in.key, ==, PUSH_KEY + head_p[3]) ||
        !HS_INT(in.bytes, ==, plan_bytes[head_p[3]]))
        return false;
    atomic_fetch_add(&chaos->page->bytes, (int64_t)in.bytes);
    return hs_verify("a push", (unsigned char *)in.data + sizeof(uint64_t) * PUSHED_WORDS,
                     in.bytes - sizeof(uint64_t) * PUSHED_WORDS,
                     model_of((int)head_p[0], head_p[1],
                              head_p[3] == SCATTERED ? chaos->job->index : HS_MAX_RANKS, 0)) &&
           agree_on_done(chaos, head_p[2]);
}

static bool answer_one(struct chaos *chaos, stepaf_batch_h batch)
{
    uint64_t pushed[PUSHED_WORDS];
    stepaf_request_h request = NULL;

    if (!read_push(chaos, batch, pushed))
        return false;
    if (chaos_draw(&chaos->dice, 20) == 0)
        hs_sleep_us((int64_t)chaos_draw(&chaos->dice, 3000));
    uint64_t head[ANSWER_WORDS] = {(uint64_t)(atomic_load(&chaos->me->done) + 1), pushed[1]};
    stepaf_tensor_t tensor = {PULL_KEY + pushed[3], chaos->answer, plan_bytes[pushed[3]]};
    memcpy(chaos->answer, head, sizeof(head));
    hs_fill(chaos->answer + sizeof(head), tensor.bytes - sizeof(head),
            model_of((int)pushed[0], pushed[1], chaos->job->index, 1));
    stepaf_status_t status = stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &request);
    if (!status)
        status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status == STEPAF_ERR_PEER_LOST)
        (void)stepaf_release(batch);
    atomic_fetch_add(&chaos->page->served, 1);
    return !status || accept_lost(chaos, status, "an answer");
}

bool chaos_serve(struct chaos *chaos, int64_t timeout_us, int *n_p)
{
    stepaf_batch_h batches[BATCHES];

    *n_p = 0;
    chaos_beat(chaos, "serving");
    stepaf_status_t status =
        stepaf_recv(chaos->job->ctx, STEPAF_FROM_ANY, 0, timeout_us, batches, BATCHES, n_p);
    if (status == STEPAF_ERR_TIMEOUT)
        return true;
    if (status)
        return accept_lost(chaos, status, "a receive");
    for (int i = 0; i < *n_p; i++)
        if (!answer_one(chaos, batches[i]))
            return false;
    return true;
}
