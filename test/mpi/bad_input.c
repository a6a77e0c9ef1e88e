/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input gets the right status and a sentence, and changes nothing: after each group of tries, a
 * good operation works. Wants at least two FFN ranks. */
#include "bad_input.h"

struct fx_plan bad_plans[BAD_PLANS];

static const struct {
    const char *name;
    void (*run)(struct hs_job *job);
} cases[] = {
    {"handles", bad_handles},
    {"roles", bad_roles},
    {"keys", bad_keys},
    {"memory", bad_memory},
    {"reports", bad_reports},
    {"plans", bad_plan},
    {"starts", bad_start},
    {"requests", bad_request},
    {"receive", bad_receive},
    {"respond", bad_respond},
    {"respond to many", bad_respond_many},
    {"commit", bad_commit},
    {"mismatch", bad_mismatch}, /* last: what was declared stays declared */
};

void bad_remember(struct hs_job *job, struct bad_state *state)
{
    state->counters.size = sizeof(state->counters);
    HS_OK(stepaf_counters_query(job->ctx, &state->counters));
    state->epoch = stepaf_epoch(job->ctx);
}

void bad_unchanged(struct hs_job *job, const struct bad_state *state, const char *what)
{
    struct bad_state now;
    bool good;

    bad_remember(job, &now);
    good = HS_INT(now.epoch, ==, state->epoch) &&
           HS_INT(now.counters.operations_started, ==, state->counters.operations_started) &&
           HS_INT(now.counters.operations_completed, ==, state->counters.operations_completed) &&
           HS_INT(now.counters.operations_failed, ==, state->counters.operations_failed) &&
           HS_INT(now.counters.responses_sent, ==, state->counters.responses_sent) &&
           HS_INT(now.counters.bytes_sent, ==, state->counters.bytes_sent);
    if (!good)
        HS_FAILED("refused calls have changed something: %s", what);
}

bool bad_good(struct hs_job *job)
{
    bool good = true;

    if (is_ffn(job))
        return fx_serve(job, (BAD_PLANS - 1) * job->attn);
    for (int id = 0; id < BAD_PLANS - 1; id++)
        good &= fx_exchange(&bad_plans[id]);
    return good;
}

static bool prepare(struct hs_job *job)
{
    static const unsigned kinds[BAD_PLANS] = {FX_BOTH, FX_NO_PULL, FX_BOTH, FX_BOTH};

    for (int id = 0; id < BAD_PLANS; id++)
        if (!fx_declare(job, id, BYTES, id == DEEP ? 2 : 1))
            return false;
    if (is_ffn(job))
        return fx_serve_open(job, BYTES);
    for (int id = 0; id < BAD_PLANS - 1; id++)
        if (!fx_plan_make(job, id, BYTES, id == DEEP ? 2 : 1, kinds[id], &bad_plans[id]))
            return false;
    return true;
}

static void body(struct hs_job *job)
{
    if (!hs_open(job))
        return;
    if (job->ffn < 2) {
        hs_skip("needs two FFN ranks");
        return;
    }
    hs_step("before commit");
    if (!prepare(job))
        return;
    bad_uncommitted(job);
    if (!hs_sync(job) || !HS_OK(stepaf_commit(job->ctx)) || !bad_good(job))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_step(cases[i].name);
        hs_sync(job);
        cases[i].run(job);
        if (!hs_sync(job) || !bad_good(job) || !hs_sync(job) || hs_failed()) {
            HS_FAILED("in case \"%s\"", cases[i].name);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "bad_input", .options = "", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
