/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of every kind, what other processes can map and what they cannot: as sources and
 * destinations of attention ranks, sources of FFN ranks, and what these receive into, which is the
 * library's or the caller's. --ops N: operations of each plan. --gpus N: skip where there are
 * fewer. */
#include "gpu/exchange.h"

enum { PLANS_MAX = 2 * GX_MEMORIES + 1, MIB = 1 << 20 };

static struct gx_plan plans[PLANS_MAX];
static int n_plans;

/* Small tensors, some by pieces, some too large for that. */
static bool make(struct hs_job *job, enum gx_memory memory, bool own_receive, int host_source)
{
    struct gx_shape shape = {.depth = 2,
                             .n_push = 3,
                             .push = {9 * MIB + 1, 500, 200000},
                             .n_pull = 2,
                             .pull = {17 * MIB / 2, 100},
                             .memory = memory,
                             .host_source = host_source,
                             .own_receive = own_receive,
                             .skew = own_receive ? 9 : 0};

    if (!gx_plan_make(job, job->ctx, n_plans, &shape, &plans[n_plans]))
        return HS_FAILED("memory: %s", gx_memory_name(memory));
    plans[n_plans].seed = 3;
    n_plans++;
    return true;
}

static bool make_all(struct hs_job *job)
{
    for (enum gx_memory memory = 0; memory < GX_MEMORIES; memory++) {
        if (!gx_memory_works(memory)) /* the same on all ranks: they are on one node */
            continue;
        if (!make(job, memory, false, 0) || !make(job, memory, true, 0))
            return false;
    }
    return make(job, GX_LIBRARY, false, 2); /* of both kinds */
}

/* After some operations with all kinds side by side: free what was allocated by the library. */
static void check_free(struct hs_job *job)
{
    void *memory = NULL, *inside;

    HS_OK(stepaf_alloc(job->ctx, 70000, STEPAF_MEM_CUDA, &memory));
    inside = (char *)memory + 1;
    HS_REFUSED(stepaf_free(job->ctx, inside), STEPAF_ERR_UNREGISTERED);
    HS_OK(stepaf_free(job->ctx, memory));
    HS_REFUSED(stepaf_free(job->ctx, memory), STEPAF_ERR_UNREGISTERED);
    if (job->role == STEPAF_ATTENTION) /* a plan uses it */
        HS_REFUSED(stepaf_free(job->ctx, plans[0].source[0]), STEPAF_ERR_STATE);
}

static void body(struct hs_job *job)
{
    long long ops = hs_option_int(job, "--ops", 200);

    if (!gx_open(job))
        return;
    ops = gx_scaled(job, ops, 10);
    hs_step("set-up");
    if (!make_all(job) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    for (int i = 0; i < n_plans; i++)
        if (!gx_plan_ready(&plans[i]))
            return;
    check_free(job);
    if (!hs_sync(job))
        return;
    hs_step("exchange");
    for (int i = 0; i < n_plans; i++) {
        for (long long n = 0; n < ops; n++)
            if (!gx_exchange(&plans[i], NULL))
                return;
        gx_verify(&plans[i], (unsigned long long)ops);
    }
    hs_sync(job);
    for (int i = 0; i < n_plans; i++)
        gx_plan_end(&plans[i]);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "kinds", .options = "--ops --gpus", .limit_s = 120, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
