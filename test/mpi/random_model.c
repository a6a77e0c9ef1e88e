/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's model: keys, plans and operations from a seed. Pure. */
#include "random.h"

static uint64_t range(struct r_dice *dice, uint64_t from, uint64_t to)
{
    return from + r_throw(dice) % (to - from + 1);
}

/* A size up to @a limit, small ones more often. */
static size_t some_bytes(struct r_dice *dice, size_t limit)
{
    int bits = 0;

    while (((size_t)2 << bits) <= limit)
        bits++;
    size_t top = (size_t)1 << range(dice, 0, (uint64_t)bits);
    size_t bytes = range(dice, top, 2 * top - 1);
    return bytes < limit ? bytes : limit;
}

/* @a rows 0: any number. */
static void make_key(struct r_dice *dice, const struct r_model *model, stepaf_direction_t way,
                     int64_t rows, struct r_key *key)
{
    static uint64_t next;
    stepaf_key_params_t *params = &key->params;
    uint64_t number = next++;

    key->id = number == 0   ? (uint64_t)(unsigned)model->lane
              : number == 1 ? UINT64_MAX - (uint64_t)(unsigned)model->lane
                            : hs_mix(model->seed + number);
    key->depth = (unsigned)range(dice, 1, R_DEPTH);
    key->direction = way;
    params->field_mask = STEPAF_KEY_DEPTH;
    params->depth = key->depth;
    if (rows == 0 && r_chance(dice, 25)) { /* just bytes, perhaps none */
        key->row = 1;
        key->max = r_chance(dice, 15) ? 0 : some_bytes(dice, model->small);
    } else {
        params->field_mask |= STEPAF_KEY_SHAPE | STEPAF_KEY_DTYPE;
        params->dtype = (stepaf_dtype_t)range(dice, 0, STEPAF_DTYPE_LAST - 1);
        params->ndim = (int)range(dice, 1, 4);
        key->row = stepaf_dtype_bytes(params->dtype);
        for (int i = 1; i < params->ndim; i++) {
            params->shape[i] = (int64_t)range(dice, 1, i == 1 ? 33 : 3);
            key->row *= (size_t)params->shape[i];
        }
        size_t most = model->small / key->row;
        params->shape[0] = rows > 0 ? rows : (int64_t)some_bytes(dice, most > 0 ? most : 1);
        key->max = key->row * (size_t)params->shape[0];
    }
    key->given = !(params->field_mask & STEPAF_KEY_SHAPE) || r_chance(dice, 30) ? key->max : 0;
    key->own_recv = key->max > 0 && r_chance(dice, 40) ? (int)range(dice, 1, 2) : 0;
}

static void make_pulls(struct r_dice *dice, const struct r_model *model, struct r_plan *plan)
{
    bool alike = r_chance(dice, 50);

    for (int f = 0; f < model->ffn; f++)
        for (int i = 0; i < plan->n_pull; i++) {
            struct r_key *key = &plan->pull[f][i];
            if (f > 0 && alike)
                *key = plan->pull[0][i];
            else
                make_key(dice, model, STEPAF_PULL, plan->many ? plan->push[0].params.shape[0] : 0,
                         key);
            if (key->depth < plan->depth)
                plan->depth = key->depth;
        }
}

static void make_plan(struct r_dice *dice, const struct r_model *model, int phase,
                      struct r_plan *plan)
{
    plan->first = phase;
    plan->last = r_chance(dice, 50) ? phase : model->phases - 1;
    plan->n_push = (int)range(dice, 0, R_PUSH);
    plan->n_pull = (int)range(dice, plan->n_push == 0, R_PULL);
    plan->depth = R_DEPTH;
    plan->many = plan->n_push > 0 && plan->n_pull > 0 && r_chance(dice, 40);
    plan->scatter = plan->n_push > 0 && r_chance(dice, 35);
    plan->one_shot = !plan->scatter && r_chance(dice, 15);
    plan->early = r_chance(dice, 50);
    plan->registered = r_chance(dice, 35);
    plan->life = plan->one_shot || r_chance(dice, 60) ? 0 : (uint32_t)range(dice, 20, 300);
    for (int i = 0; i < plan->n_push; i++) {
        struct r_key *key = &plan->push[i];
        do
            make_key(dice, model, STEPAF_PUSH,
                     plan->many && i == 0 ? (int64_t)range(dice, 1, 9) : 0, key);
        while (i == 0 && key->max == 0);
        plan->planned[i] = r_chance(dice, 60) ? key->max : range(dice, i == 0, key->max);
        if (plan->many && i == 0)
            plan->planned[i] = key->max;
        if (key->depth < plan->depth)
            plan->depth = key->depth;
    }
    make_pulls(dice, model, plan);
}

bool r_plan_used(const struct r_model *model, int plan, int phase)
{
    return model->plans[plan].first <= phase && phase <= model->plans[plan].last;
}

long long r_model_steps(const struct r_model *model, int phase)
{
    /* The last phase is the long one: growth of memory is looked for there. */
    long long few = model->ops / (4 * model->phases);
    return phase < model->phases - 1 ? few : model->ops - few * (model->phases - 1);
}

int r_model_step(const struct r_model *model, int attn, int phase, long long step)
{
    uint64_t who = (uint64_t)(unsigned)attn << 8 | (unsigned)phase;
    uint64_t number = hs_mix(hs_mix(model->seed ^ hs_mix(who)) ^ (uint64_t)step);
    int used = 0, plan = 0;

    for (int i = 0; i < model->n_plans; i++)
        used += r_plan_used(model, i, phase);
    for (int nth = (int)(number % (unsigned)used); nth >= 0; plan++)
        nth -= r_plan_used(model, plan, phase);
    return plan - 1;
}

void r_model_make(struct r_model *model)
{
    struct r_dice dice = {hs_mix(model->seed)};

    for (int phase = 0; phase < model->phases; phase++)
        for (int i = 0; i < R_PLANS / R_PHASES; i++)
            make_plan(&dice, model, phase, &model->plans[model->n_plans++]);
    for (int attn = 0; attn < model->attn; attn++) {
        uint32_t count[R_PLANS] = {0};
        for (int phase = 0; phase < model->phases; phase++) {
            long long steps = r_model_steps(model, phase);
            for (long long step = 0; step < steps; step++)
                count[r_model_step(model, attn, phase, step)]++;
            for (int i = 0; i < model->n_plans; i++)
                model->until[attn][i][phase] = count[i];
        }
    }
}

/* Bytes of a tensor of at most @a limit. */
static uint32_t pick(struct r_dice *dice, const struct r_key *key, size_t limit, bool whole)
{
    uint64_t kind = r_throw(dice) % 8;
    size_t bytes = kind == 0 ? 0 : kind == 1 ? 1 : kind <= 3 ? limit : range(dice, 0, limit);

    if (bytes > limit)
        bytes = limit;
    if (whole || kind >= 5)
        bytes -= bytes % key->row;
    return (uint32_t)bytes;
}

static bool is_closing(const struct r_model *model, int attn, int plan, uint32_t ordinal)
{
    for (int phase = 0; phase < model->phases; phase++)
        if (model->until[attn][plan][phase] == ordinal + 1)
            return true;
    return false;
}

void r_model_op(const struct r_model *model, int attn, int plan_index, uint32_t ordinal,
                struct r_op *op)
{
    const struct r_plan *plan = &model->plans[plan_index];
    uint64_t who = (uint64_t)(unsigned)attn << 8 | (unsigned)plan_index;
    struct r_dice dice = {hs_mix(hs_mix(~model->seed ^ who) ^ ordinal)};

    op->ordinal = ordinal;
    op->sequence = plan->life ? ordinal % plan->life : ordinal;
    op->slot = op->sequence % plan->depth;
    op->closing = is_closing(model, attn, plan_index, ordinal);
    op->plain = !plan->one_shot && r_chance(&dice, 50);
    op->canceled = r_chance(&dice, 2) && !op->closing;
    for (int f = 0; f < model->ffn; f++) {
        bool nothing = plan->scatter && !op->closing && r_chance(&dice, 20);
        uint32_t sum = 0;
        for (int i = 0; i < plan->n_push; i++) {
            uint32_t bytes = pick(&dice, &plan->push[i], plan->planned[i], plan->many && i == 0);
            if (i == 0 && bytes == 0 && op->closing)
                bytes = (uint32_t)(plan->many ? plan->push[0].row : 1);
            if (op->plain)
                bytes = (uint32_t)plan->planned[i];
            else if (!plan->scatter && f > 0)
                bytes = op->push[0][i];
            else if (nothing)
                bytes = 0;
            op->push[f][i] = bytes;
            sum += bytes;
        }
        op->skip[f] = plan->scatter && sum == 0;
        op->drop[f] = plan->n_pull > 0 && !op->skip[f] && r_chance(&dice, 1) && !op->closing;
        for (int i = 0; i < plan->n_pull; i++) {
            const struct r_key *key = &plan->pull[f][i];
            op->pull[f][i] = pick(&dice, key, key->max, false);
            if (plan->many)
                op->pull[f][i] = (uint32_t)(op->push[f][0] / plan->push[0].row * key->row);
        }
    }
}
