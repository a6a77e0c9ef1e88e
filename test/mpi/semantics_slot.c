/* SPDX-License-Identifier: Apache-2.0 */
/* Semantics of slots: depth, credits, keys that plans share, batches nobody answers. */
#include "semantics.h"

#include <string.h>

/* As many operations in flight as there are slots, and not one more. */
void sem_depth(struct hs_job *job)
{
    stepaf_request_h requests[DEEP_SLOTS + 1] = {NULL}, none = NULL;
    stepaf_batch_h batches[DEEP_SLOTS] = {NULL};
    struct fx_plan *plan = &sem_plans[P_DEEP];
    stepaf_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    uint32_t first = plan->next;

    if (sem_actor(job)) {
        HS_INT(stepaf_plan_depth(plan->handle), ==, DEEP_SLOTS);
        for (int i = 0; i < DEEP_SLOTS; i++) {
            requests[i] = sem_start(P_DEEP);
            HS_INT(stepaf_request_slot(requests[i]), ==, i);
        }
        HS_OK(stepaf_counters_query(job->ctx, &before));
        HS_STATUS(fx_start(plan, 0, &none), STEPAF_ERR_WOULD_BLOCK);
        HS_INT(stepaf_last_error()->status, ==, STEPAF_ERR_WOULD_BLOCK);
        HS_OK(stepaf_counters_query(job->ctx, &after));
        HS_INT(after.would_block, ==, before.would_block + 1);
        HS_INT(after.operations_started, ==, before.operations_started);
    }
    for (int i = 0; i < DEEP_SLOTS && sem_ffn(job); i++)
        batches[i] = sem_take(job);
    hs_sync(job);
    for (int i = DEEP_SLOTS - 1; i >= 0 && sem_ffn(job); i--)
        HS_OK(fx_answer(job, batches[i], 0));
    for (int i = 0; i < DEEP_SLOTS && sem_actor(job); i++) {
        HS_OK(stepaf_wait(requests[i], STEPAF_TIMEOUT_DEFAULT));
        fx_verify(plan, first + (unsigned)i, -1);
    }
    /* Answered, but the FFN ranks still read the receive buffers. */
    if (sem_actor(job))
        HS_STATUS(fx_start(plan, 0, &none), STEPAF_ERR_WOULD_BLOCK);
    hs_sync(job);
    for (int i = 0; i < DEEP_SLOTS && sem_ffn(job); i++) {
        fx_look(job, batches[i]);
        HS_OK(stepaf_release(batches[i]));
    }
    hs_sync(job);
    if (sem_actor(job)) {
        requests[DEEP_SLOTS] = sem_start(P_DEEP);
        HS_INT(stepaf_request_slot(requests[DEEP_SLOTS]), ==, 0);
        HS_REFUSED(stepaf_test(requests[0]), STEPAF_ERR_HANDLE); /* its slot is used again */
        HS_INT(stepaf_request_slot(requests[0]), ==, -1);
        HS_OK(stepaf_request_tensor(requests[1], 0, NULL));
        fx_verify(plan, first + 1, -1); /* results stay in place */
        fx_verify(plan, first + 2, -1);
        HS_OK(stepaf_wait(requests[DEEP_SLOTS], STEPAF_TIMEOUT_DEFAULT));
    } else if (sem_ffn(job)) {
        fx_serve(job, 1);
    }
}

/* STEPAF_START_WAIT ends when the slot comes free, or at its time limit. */
void sem_start_wait(struct hs_job *job)
{
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = SHORT_US};
    stepaf_request_h first = NULL, second = NULL;
    stepaf_batch_h batch = NULL;

    if (sem_actor(job)) {
        int64_t began = hs_now_ns();
        first = sem_start(P_ONE);
        HS_REFUSED(stepaf_start_with(sem_plans[P_ONE].handle, &params, &second),
                   STEPAF_ERR_TIMEOUT);
        HS_INT((hs_now_ns() - began) / 1000, >=, SHORT_US);
        HS_TRUE(second == NULL);
    } else if (sem_ffn(job)) {
        batch = sem_take(job);
        HS_OK(fx_answer(job, batch, 0));
    }
    hs_sync(job);
    if (sem_actor(job)) {
        HS_OK(stepaf_wait(first, STEPAF_TIMEOUT_DEFAULT));
        fx_exchange(&sem_plans[P_ONE]); /* waits for the release */
    } else if (sem_ffn(job)) {
        hs_sleep_us(5000);
        HS_OK(stepaf_release(batch));
        fx_serve(job, 1);
    }
}

/* Two plans that push the same key have the same receive buffers: nothing is overwritten. */
void sem_shared_key(struct hs_job *job)
{
    struct fx_plan *plan = &sem_plans[P_ONE];
    stepaf_tensor_t push = {FX_PUSH_KEY + P_ONE, NULL, 3};
    stepaf_request_h first = NULL, second = NULL;
    stepaf_batch_h batch = NULL;
    stepaf_plan_h twin = NULL;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (sem_actor(job)) {
        push.data = plan->source;
        HS_OK(stepaf_plan_create(job->ctx, &push, 1, NULL, 0, 0, &twin));
        first = sem_start(P_ONE);
        HS_STATUS(stepaf_start(twin, &second), STEPAF_ERR_WOULD_BLOCK);
    } else if (sem_ffn(job)) {
        batch = sem_take(job);
    }
    hs_sync(job);
    if (sem_ffn(job)) {
        fx_look(job, batch);
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    }
    hs_sync(job);
    if (sem_actor(job)) {
        HS_OK(stepaf_wait(first, STEPAF_TIMEOUT_DEFAULT));
        memcpy(plan->source, "xyz", 3);
        stepaf_start_params_t params = {.field_mask =
                                            STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                        .flags = STEPAF_START_WAIT,
                                        .timeout_us = -1};
        HS_OK(stepaf_start_with(twin, &params, &second));
        HS_REFUSED(stepaf_plan_destroy(twin), STEPAF_ERR_STATE);
    }
    hs_sync(job); /* so that nobody has answered before */
    if (sem_actor(job)) {
        HS_OK(stepaf_wait(second, STEPAF_TIMEOUT_DEFAULT));
        HS_OK(stepaf_plan_destroy(twin));
        HS_REFUSED(stepaf_start(twin, &second), STEPAF_ERR_HANDLE);
    } else if (sem_ffn(job)) {
        int n = 0;
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n));
        HS_OK(stepaf_batch_tensor(batch, 0, &info));
        HS_INT(info.bytes, ==, 3);
        HS_TRUE(memcmp(info.data, "xyz", 3) == 0);
        HS_OK(stepaf_release(batch));
    }
}

/* One FFN rank lets go of a batch that expects an answer: the operation ends, but the other rank's
 * part of it is still to come. */
void sem_unanswered(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;

    if (sem_actor(job))
        request = sem_start(P_ONE);
    else if (sem_ffn(job))
        batch = sem_take(job);
    if (sem_ffn(job) && job->index == 1)
        HS_OK(stepaf_release(batch));
    if (sem_actor(job)) {
        HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
        HS_INT(stepaf_last_error()->peer_rank, ==, 1);
        HS_REFUSED(stepaf_request_peer(request, 1), STEPAF_ERR_CANCELED);
        HS_REFUSED(stepaf_request_tensor(request, 1, NULL), STEPAF_ERR_CANCELED);
        HS_STATUS(stepaf_request_peer(request, 0), STEPAF_INPROGRESS);
        HS_STATUS(stepaf_request_tensor(request, 0, NULL), STEPAF_INPROGRESS);
    }
    hs_sync(job);
    if (sem_ffn(job) && job->index == 0)
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    if (sem_actor(job)) {
        sem_becomes(job, stepaf_request_peer, request, 0, STEPAF_OK);
        fx_verify(&sem_plans[P_ONE], sem_plans[P_ONE].next - 1, 0);
        fx_exchange(&sem_plans[P_ONE]);
    } else if (sem_ffn(job)) {
        HS_REFUSED(stepaf_release(batch), STEPAF_ERR_HANDLE);
        fx_serve(job, 1);
    }
}
