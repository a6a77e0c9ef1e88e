/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input to the calls on streams: each is refused with its status and a sentence, and changes
 * nothing. --gpus N: skip where there are fewer. */
#include "gpu/bad.h"

struct gx_plan bad_plan;

static const struct gx_shape shape = {
    .depth = 2, .n_push = 2, .push = {5000, 100}, .n_pull = 1, .pull = {3000}};

bool bad_good(struct hs_job *job)
{
    enum { OPERATIONS = 5 };

    for (int i = 0; i < OPERATIONS; i++)
        if (!gx_exchange(&bad_plan, NULL))
            return false;
    bad_plan.done += OPERATIONS;
    return gx_verify(&bad_plan, bad_plan.done) && hs_sync(job);
}

static void body(struct hs_job *job)
{
    static void (*const tries[])(struct hs_job *) = {
        bad_roles, bad_sizes, bad_order, bad_captures,  bad_streams,
        bad_looks, bad_plans, bad_kinds, bad_host_plan, bad_matches};
    void *memory = NULL;

    if (!gx_open(job))
        return;
    hs_step("set-up");
    HS_REFUSED(stepaf_alloc(job->ctx, 0, STEPAF_MEM_CUDA, &memory), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_alloc(job->ctx, (size_t)1 << 40, STEPAF_MEM_CUDA, &memory),
               STEPAF_ERR_NO_MEMORY);
    HS_TRUE(memory == NULL);
    if (!gx_plan_make(job, job->ctx, 0, &shape, &bad_plan))
        return;
    bad_uncommitted(job);
    if (!HS_OK(stepaf_commit(job->ctx)) || !gx_plan_ready(&bad_plan) || !hs_sync(job) ||
        !bad_good(job))
        return;
    bad_handles();
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        tries[i](job);
        if (hs_failed() || !hs_sync(job) || !bad_good(job))
            return;
    }
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "bad", .options = "--gpus", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
