/* SPDX-License-Identifier: Apache-2.0 */
/* What the headers promise of waiting, canceling, slots, traces and receiving, case by case, on two
 * attention and two FFN ranks. */
#include "semantics.h"

struct fx_plan sem_plans[P_COUNT];

static const struct {
    const char *name;
    void (*run)(struct hs_job *job);
} cases[] = {
    {"timeout", sem_timeout},
    {"wait_any", sem_wait_any},
    {"cancel before it is taken", sem_cancel_early},
    {"cancel after it was taken", sem_cancel_late},
    {"depth", sem_depth},
    {"start and wait for a slot", sem_start_wait},
    {"two plans with one key", sem_shared_key},
    {"release without an answer", sem_unanswered},
    {"timeline", sem_timeline},
    {"counters", sem_counters},
    {"trace", sem_trace},
    {"clock", sem_clock},
    {"receive from each", sem_each},
    {"handler", sem_handler},
    {"push only", sem_pushed},
    {"skipped by a scatter", sem_skipped},
    {"short answer", sem_short_answer},
    {"as wide and deep as can be", sem_wide},
};

stepaf_batch_h sem_take(struct hs_job *job)
{
    stepaf_batch_h batch = NULL;
    int n = 0;

    if (HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n)) &&
        HS_INT(n, ==, 1) && fx_look(job, batch))
        return batch;
    return NULL;
}

bool sem_nothing(struct hs_job *job)
{
    stepaf_batch_h batch = NULL;
    int n = -5;

    return HS_STATUS(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, SHORT_US, &batch, 1, &n),
                     STEPAF_ERR_TIMEOUT) &&
           HS_TRUE(batch == NULL) && HS_INT(n, ==, -5);
}

bool sem_becomes(struct hs_job *job, stepaf_status_t (*call)(stepaf_request_h, int),
                 stepaf_request_h request, int argument, stepaf_status_t want)
{
    int64_t deadline = hs_now_ns() + 5000000000LL * hs_slow();
    stepaf_status_t status;

    while ((status = call(request, argument)) == STEPAF_INPROGRESS && hs_now_ns() < deadline) {
        stepaf_progress(job->ctx);
        hs_yield();
    }
    return HS_STATUS(status, want);
}

stepaf_request_h sem_start(int plan)
{
    stepaf_request_h request = NULL;

    HS_OK(fx_start(&sem_plans[plan], STEPAF_START_WAIT, &request));
    return request;
}

static bool prepare(struct hs_job *job)
{
    static const unsigned kinds[P_COUNT] = {FX_BOTH,    FX_BOTH,    FX_BOTH,
                                            FX_NO_PULL, FX_SCATTER, FX_NO_PUSH};

    for (int id = 0; id < P_COUNT; id++)
        if (!fx_declare(job, id, BYTES, id == P_DEEP ? DEEP_SLOTS : 1))
            return false;
    for (int id = 0; id < P_COUNT && !sem_ffn(job); id++)
        if (!fx_plan_make(job, id, BYTES, id == P_DEEP ? DEEP_SLOTS : 1, kinds[id], &sem_plans[id]))
            return false;
    if (!sem_wide_declare(job) || (sem_ffn(job) && !fx_serve_open(job, BYTES)))
        return false;
    return HS_OK(stepaf_commit(job->ctx));
}

static void body(struct hs_job *job)
{
    if (!hs_open(job) || !prepare(job))
        return;
    if (job->attn != 2 || job->ffn != 2) {
        hs_skip("made for 2 attention and 2 FFN ranks");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_step(cases[i].name);
        cases[i].run(job);
        if (!hs_sync(job) || hs_failed()) {
            HS_FAILED("in case \"%s\"", cases[i].name);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "semantics", .options = "", .limit_s = 90, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
