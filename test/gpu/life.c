/* SPDX-License-Identifier: Apache-2.0 */
/* The life of contexts, commits, plans and requests on GPUs. --gpus N: skip where there are
 * fewer. */
#include "gpu/life.h"

static const struct gx_shape shapes[LIFE_PLANS] = {
    {.depth = 2, .n_push = 2, .push = {917504, 100}, .n_pull = 1, .pull = {20000}},
    {.depth = 1, .n_push = 1, .push = {64}, .n_pull = 2, .pull = {4097, 8}, .memory = GX_MALLOC},
    {.depth = 3, .n_push = 1, .push = {9 << 20}, .n_pull = 1, .pull = {9 << 20}, .memory = GX_POOL},
};

bool life_make(struct hs_job *job, stepaf_context_h ctx, int id, struct gx_plan *plan)
{
    return gx_plan_make(job, ctx, id, &shapes[id % LIFE_PLANS], plan);
}

bool life_exchange(struct gx_plan *plan, int n)
{
    for (int i = 0; i < n; i++)
        if (!gx_exchange(plan, NULL))
            return false;
    plan->done += (unsigned)n;
    return gx_verify(plan, plan->done);
}

bool life_ready(struct hs_job *job, struct gx_plan *plans, int n)
{
    for (int i = 0; i < n; i++)
        if (!gx_plan_ready(&plans[i]))
            return false;
    return hs_sync(job);
}

/* Keys and memory come and go; what stays works on, in each new epoch. */
static void epochs(struct hs_job *job, struct gx_plan *plans)
{
    uint32_t epoch = stepaf_epoch(job->ctx);

    hs_step("epochs");
    for (int round = 0; round < 3; round++) {
        /* The first plan is replaced by one with other keys; the second stays. */
        gx_plan_end(&plans[0]);
        if (!life_make(job, job->ctx, 10 + LIFE_PLANS * round, &plans[0]) ||
            !HS_OK(stepaf_commit(job->ctx)))
            return;
        HS_INT(stepaf_epoch(job->ctx), ==, epoch + (unsigned)round + 1);
        if (!life_ready(job, plans, 2) || !life_exchange(&plans[0], 20) ||
            !life_exchange(&plans[1], 20) || !hs_sync(job))
            return;
    }
}

/* A plan made after the commit waits for the next one; one that is busy cannot be ended. */
static void ends(struct hs_job *job, struct gx_plan *plans)
{
    struct gx_plan late;

    hs_step("ends");
    if (!life_make(job, job->ctx, 40, &late))
        return;
    if (job->role == STEPAF_ATTENTION)
        HS_REFUSED(stepaf_start_on_stream(late.handle, NULL, late.stream, NULL), STEPAF_ERR_STATE);
    else
        HS_REFUSED(stepaf_recv_on_stream(late.handle, late.stream), STEPAF_ERR_STATE);
    gx_plan_end(&late);
    /* Half an operation. */
    if (job->role == STEPAF_ATTENTION) {
        HS_OK(gx_start(&plans[1], NULL, NULL));
        HS_REFUSED(stepaf_plan_destroy(plans[1].handle), STEPAF_ERR_STATE);
        HS_OK(gx_wait(&plans[1], NULL));
    } else {
        HS_OK(gx_recv(&plans[1], NULL));
        HS_REFUSED(stepaf_plan_destroy(plans[1].handle), STEPAF_ERR_STATE);
        HS_OK(gx_respond(&plans[1], NULL));
    }
    plans[1].done++;
    gx_verify(&plans[1], plans[1].done);
    hs_sync(job);
}

/* A second context beside the first: the same keys, other plans. */
static void contexts(struct hs_job *job, struct gx_plan *plan)
{
    stepaf_params_t params = {.field_mask = job->split ? STEPAF_PARAM_SPLIT : 0,
                              .split = job->split};
    stepaf_context_h other = NULL;
    struct gx_plan twin;

    hs_step("contexts");
    if (!HS_OK(hs_init(job, 1, &params, &other)))
        return;
    if (!life_make(job, other, 1, &twin) || !HS_OK(stepaf_commit(other)) ||
        !life_ready(job, &twin, 1))
        return;
    for (int i = 0; i < 30; i++) /* side by side */
        if (!gx_exchange(plan, NULL) || !gx_exchange(&twin, NULL))
            return;
    plan->done += 30;
    gx_verify(plan, plan->done);
    gx_verify(&twin, 30);
    hs_sync(job);
    stepaf_finalize(other);
    hs_sync(job);
    life_exchange(plan, 10); /* the first one goes on */
    hs_sync(job);
}

/* A graph of an older epoch does no harm: it comes to its end and nothing is sent. */
static void old_graph(struct hs_job *job, struct gx_plan *plan, int id)
{
    cudaGraphExec_t graph = NULL;
    cudaGraph_t captured = NULL;
    struct gx_plan added;
    bool good = true;

    hs_step("old graph");
    if (!GX_CUDA(cudaStreamBeginCapture(plan->stream, cudaStreamCaptureModeGlobal)))
        return;
    for (unsigned i = 0; i < plan->shape.depth && good; i++) {
        if (job->role == STEPAF_ATTENTION)
            good = HS_OK(stepaf_start_on_stream(plan->handle, NULL, plan->stream, NULL)) &&
                   HS_OK(stepaf_wait_on_stream(plan->handle, plan->stream));
        else
            good = HS_OK(stepaf_recv_on_stream(plan->handle, plan->stream)) &&
                   HS_OK(stepaf_respond_on_stream(plan->handle, NULL, plan->stream));
    }
    if (!GX_CUDA(cudaStreamEndCapture(plan->stream, &captured)) || !good ||
        !GX_CUDA(cudaGraphInstantiate(&graph, captured, 0)) ||
        !GX_CUDA(cudaGraphLaunch(graph, plan->stream)) || !gx_sync(plan) || !hs_sync(job))
        return;
    if (!life_make(job, job->ctx, id, &added) || !HS_OK(stepaf_commit(job->ctx)) ||
        !life_ready(job, plan, 1) || !life_ready(job, &added, 1))
        return;
    GX_CUDA(cudaGraphLaunch(graph, plan->stream));
    gx_sync(plan);
    HS_OK(stepaf_plan_status(plan->handle));
    hs_sync(job);
    life_exchange(plan, 10);
    life_exchange(&added, 10);
    hs_sync(job);
    gx_plan_end(&added);
    GX_CUDA(cudaGraphExecDestroy(graph));
    GX_CUDA(cudaGraphDestroy(captured));
}

static void body(struct hs_job *job)
{
    struct gx_plan plans[LIFE_PLANS];

    if (!gx_open(job))
        return;
    hs_step("set-up");
    for (int i = 0; i < LIFE_PLANS; i++)
        if (!life_make(job, job->ctx, i, &plans[i]))
            return;
    if (!HS_OK(stepaf_commit(job->ctx)) || !life_ready(job, plans, LIFE_PLANS))
        return;
    life_requests(job, plans);
    if (!hs_failed() && hs_sync(job))
        epochs(job, plans);
    if (!hs_failed() && hs_sync(job))
        ends(job, plans);
    if (!hs_failed() && hs_sync(job))
        contexts(job, &plans[1]);
    if (!hs_failed() && hs_sync(job))
        old_graph(job, &plans[1], 50); /* the gate takes all */
    if (!hs_failed() && hs_sync(job))
        old_graph(job, &plans[0], 51);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "life", .options = "--gpus", .limit_s = 120, .n_boots = 2, .body = body};
    return hs_main(argc, argv, &test);
}
