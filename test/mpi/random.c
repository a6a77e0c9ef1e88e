/* SPDX-License-Identifier: Apache-2.0 */
/* Random schedules against a model that knows what every byte must be.
 *
 * The run has phases: in each, keys are declared, plans are made before and after the commit, and
 * plans of earlier phases end or go on. Options: --seed S, --ops N (of each attention rank),
 * --max-bytes N (largest tensor), --lanes N (as many as the mesh has). */
#include "random.h"

#include <stdio.h>
#include <stdlib.h>

static bool declare(struct hs_job *job, const struct r_key *key)
{
    return HS_OK(stepaf_key_declare(job->ctx, key->id, key->direction, key->given, &key->params));
}

static bool declare_all(struct hs_job *job, const struct r_model *model, int phase)
{
    for (int p = 0; p < model->n_plans; p++) {
        const struct r_plan *plan = &model->plans[p];
        if (plan->first != phase)
            continue;
        for (int i = 0; i < plan->n_push; i++)
            if (!declare(job, &plan->push[i]))
                return false;
        for (int f = 0; f < model->ffn; f++)
            for (int i = 0; i < plan->n_pull; i++)
                if ((f == 0 || plan->pull[f][i].id != plan->pull[0][i].id) &&
                    !declare(job, &plan->pull[f][i]))
                    return false;
    }
    return true;
}

/* After the last phase. */
static bool check_counters(struct hs_job *job, const struct r_model *model, int phase)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};

    if (phase < model->phases - 1)
        return true;
    HS_OK(stepaf_counters_query(job->ctx, &counters));
    HS_INT(counters.dropped_malformed, ==, 0);
    HS_INT(counters.peers_lost, ==, 0);
    if (job->role == STEPAF_ATTENTION) {
        HS_INT(counters.operations_started, ==, model->ops);
        HS_INT(counters.operations_completed + counters.operations_failed, ==, model->ops);
    }
    return !hs_failed();
}

static bool run_phase(struct hs_job *job, const struct r_model *model, int phase)
{
    bool attention = job->role == STEPAF_ATTENTION;

    hs_step("preparing");
    if (!declare_all(job, model, phase))
        return false;
    if (!(attention ? r_attention_prepare(job, model, phase) : r_ffn_prepare(job, model, phase)))
        return false;
    hs_step("commit");
    if (!HS_OK(stepaf_commit(job->ctx)) || !HS_INT(stepaf_epoch(job->ctx), ==, phase + 1))
        return false;
    if (!(attention ? r_attention_run(job, model, phase) : r_ffn_run(job, model, phase)))
        return false;
    hs_step("end of a phase");
    return check_counters(job, model, phase) && hs_sync(job);
}

/* How many of @a n ranks are in a lane. */
static int in_lane(const struct r_model *model, int n)
{
    return (n - model->lane + model->lanes - 1) / model->lanes;
}

/* From here on the job is this rank's lane of it. */
static void enter_lane(struct hs_job *job, struct r_model *model)
{
    model->lanes = (int)hs_option_int(job, "--lanes", 1);
    model->lane = job->index % model->lanes;
    job->attn = model->attn = in_lane(model, job->attn);
    job->ffn = model->ffn = in_lane(model, job->ffn);
    job->index /= model->lanes;
    HS_INT(job->peers, ==, job->role == STEPAF_FFN ? job->attn : job->ffn);
    HS_INT(stepaf_peer_rank(job->ctx, 0), ==, model->lane);
    model->seed += 0x10000u * (unsigned)model->lane;
}

static void body(struct hs_job *job)
{
    static struct r_model model;

    setenv("STEPAF_TIMEOUT_US", "60000000", 0); /* the machine may be busy */
    if (!hs_open(job))
        return;
    uint64_t seed = (uint64_t)hs_option_int(job, "--seed", 1);
    model.seed = seed;
    model.ops = hs_option_int(job, "--ops", 4000);
    model.small = (size_t)hs_option_int(job, "--max-bytes", 8192);
    model.phases = 3;
    enter_lane(job, &model);
    if (!HS_INT(job->attn, <=, R_ATTN) || !HS_INT(job->ffn, <=, R_FFN) ||
        !HS_INT(model.ops, >=, 4 * model.phases))
        return;
    if (job->index == 0 && job->role == STEPAF_ATTENTION)
        printf("random: --seed %llu --ops %lld --max-bytes %zu, %dA%dF%s\n",
               (unsigned long long)seed, model.ops, model.small, job->attn, job->ffn,
               model.lanes > 1 ? " in a lane" : "");
    fflush(stdout);
    r_model_make(&model);
    for (int phase = 0; phase < model.phases; phase++)
        if (!run_phase(job, &model, phase))
            return;
    if (job->role == STEPAF_ATTENTION)
        r_attention_end(job, &model);
    else
        r_ffn_end(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "random",
                                        .options = "--seed --ops --max-bytes --lanes",
                                        .limit_s = 300,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
