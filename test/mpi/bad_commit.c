/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: commits at the wrong time, and declarations that differ between ranks. */
#include "bad_input.h"

/* Nothing can be started or received before the first commit. */
void bad_uncommitted(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    int n = -4;

    HS_INT(stepaf_epoch(job->ctx), ==, 0);
    if (is_ffn(job)) {
        HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, SHORT_US, &batch, 1, &n),
                   STEPAF_ERR_STATE);
        HS_INT(n, ==, -4);
    } else {
        HS_REFUSED(stepaf_start(bad_plans[WHOLE].handle, &request), STEPAF_ERR_STATE);
        HS_REFUSED(fx_start(&bad_plans[PUSHED], STEPAF_START_WAIT, &request), STEPAF_ERR_STATE);
        HS_TRUE(request == NULL);
    }
}

/* A plan with keys that are declared but not committed. */
static void new_key(struct hs_job *job)
{
    stepaf_tensor_t push = {NO_KEY + 1, NULL, BYTES};
    stepaf_request_h request = NULL;
    stepaf_plan_h plan = NULL;

    HS_OK(stepaf_key_declare(job->ctx, NO_KEY + 1, STEPAF_PUSH, BYTES, NULL));
    if (!is_ffn(job)) {
        push.data = bad_plans[WHOLE].source;
        HS_OK(stepaf_plan_create(job->ctx, &push, 1, NULL, 0, 0, &plan));
        HS_REFUSED(stepaf_start(plan, &request), STEPAF_ERR_STATE);
        HS_REFUSED(stepaf_push_pull(job->ctx, &push, 1, NULL, 0, &request), STEPAF_ERR_STATE);
        HS_TRUE(request == NULL);
    }
    hs_sync(job);
    HS_OK(stepaf_commit(job->ctx));
    if (is_ffn(job)) {
        for (int a = 0; a < job->attn; a++) {
            stepaf_batch_h batch = NULL;
            int n;
            HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n));
            HS_OK(stepaf_release(batch));
        }
    } else {
        HS_OK(stepaf_start(plan, &request));
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        HS_OK(stepaf_plan_destroy(plan));
    }
}

void bad_commit(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    uint32_t epoch = stepaf_epoch(job->ctx);
    struct fx_plan *plan = &bad_plans[WHOLE];
    int n;

    new_key(job);
    HS_INT(stepaf_epoch(job->ctx), ==, epoch + 1);
    hs_sync(job);
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_STATE); /* nothing has changed */
    hs_sync(job);
    if (!bad_good(job))
        return;
    hs_sync(job);
    if (!is_ffn(job) && job->index == 0)
        HS_OK(fx_start(plan, STEPAF_START_WAIT, &request));
    hs_sync(job);
    fx_declare(job, FX_IDS, BYTES, 1); /* a change, so that this is not the reason */
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_STATE); /* one rank's operation flies */
    if (is_ffn(job))
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n));
    hs_sync(job);
    if (is_ffn(job) && job->index == 0)
        HS_OK(fx_answer(job, batch, 0));
    if (is_ffn(job) && job->index > 0)
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    if (request != NULL)
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    hs_sync(job);
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_STATE); /* one rank holds a batch */
    HS_INT(stepaf_epoch(job->ctx), ==, epoch + 1);
    if (is_ffn(job) && job->index == 0)
        HS_OK(stepaf_release(batch));
    hs_sync(job);
    HS_OK(stepaf_commit(job->ctx));
    HS_INT(stepaf_epoch(job->ctx), ==, epoch + 2);
}

/* Declarations that contradict each other: every rank hears of it, the last epoch goes on. */
void bad_mismatch(struct hs_job *job)
{
    uint32_t epoch = stepaf_epoch(job->ctx);
    stepaf_tensor_t push = {NO_KEY + 2, NULL, BYTES};
    stepaf_plan_h plan = NULL;

    /* A key that is pushed but unknown at the FFN ranks. */
    if (!is_ffn(job)) {
        push.data = bad_plans[WHOLE].source;
        HS_OK(stepaf_key_declare(job->ctx, NO_KEY + 2, STEPAF_PUSH, BYTES, NULL));
        HS_OK(stepaf_plan_create(job->ctx, &push, 1, NULL, 0, 0, &plan));
    }
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_KEY);
    HS_INT(stepaf_epoch(job->ctx), ==, epoch);
    hs_sync(job);
    if (!bad_good(job))
        return;
    if (is_ffn(job)) /* now it is known, but not alike */
        HS_OK(stepaf_key_declare(job->ctx, NO_KEY + 2, STEPAF_PUSH,
                                 job->index == 0 ? BYTES : BYTES - 1, NULL));
    hs_sync(job);
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_MISMATCH);
    HS_INT(stepaf_epoch(job->ctx), ==, epoch);
}
