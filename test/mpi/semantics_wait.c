/* SPDX-License-Identifier: Apache-2.0 */
/* Semantics of waiting, time limits and cancel. */
#include "semantics.h"

#include <string.h>

static stepaf_status_t tensor_state(stepaf_request_h request, int index)
{
    return stepaf_request_tensor(request, index, NULL);
}

/* The last error must name the first FFN rank that has not answered. */
static void check_named(struct hs_job *job, int ffn_rank, stepaf_phase_t phase)
{
    const stepaf_error_t *error = stepaf_last_error();

    HS_INT(error->phase, ==, phase);
    HS_INT(error->peer_role, ==, STEPAF_FFN);
    HS_INT(error->peer_rank, ==, ffn_rank);
    HS_INT(error->peer_world_rank, ==, stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, ffn_rank));
}

static void times_out(struct hs_job *job, stepaf_request_h request, int ffn_rank)
{
    int64_t began = hs_now_ns();

    if (HS_REFUSED(stepaf_wait(request, SHORT_US), STEPAF_ERR_TIMEOUT))
        check_named(job, ffn_rank, STEPAF_PHASE_RESPONSE);
    HS_INT((hs_now_ns() - began) / 1000, >=, SHORT_US);
    HS_INT((hs_now_ns() - began) / 1000, <=, SHORT_US + 1000000 * hs_slow());
}

/* Polls that find nothing leave the last error alone. */
static void polls_are_silent(stepaf_request_h request)
{
    HS_REFUSED(stepaf_wait(NULL, 0), STEPAF_ERR_HANDLE);
    HS_STATUS(stepaf_wait(request, 0), STEPAF_ERR_TIMEOUT);
    HS_INT(stepaf_last_error()->status, ==, STEPAF_ERR_HANDLE);
    HS_STATUS(stepaf_test(request), STEPAF_INPROGRESS);
    HS_INT(stepaf_last_error()->status, ==, STEPAF_ERR_HANDLE);
}

void sem_timeout(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (sem_actor(job)) {
        request = sem_start(P_ONE);
        times_out(job, request, 0);
        polls_are_silent(request);
    } else if (sem_ffn(job)) {
        batch = sem_take(job);
    }
    hs_sync(job);
    if (sem_ffn(job) && job->index == 1)
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    hs_sync(job);
    if (sem_actor(job)) { /* FFN rank 1 has answered, rank 0 has not */
        sem_becomes(job, stepaf_request_peer, request, 1, STEPAF_OK);
        sem_becomes(job, tensor_state, request, 1, STEPAF_OK);
        HS_OK(stepaf_request_tensor(request, 1, &info));
        HS_INT(info.bytes, ==, BYTES);
        fx_verify(&sem_plans[P_ONE], sem_plans[P_ONE].next - 1, 1);
        HS_STATUS(stepaf_request_peer(request, 0), STEPAF_INPROGRESS);
        HS_STATUS(stepaf_request_tensor(request, 0, &info), STEPAF_INPROGRESS);
        HS_STATUS(stepaf_test(request), STEPAF_INPROGRESS);
        times_out(job, request, 0);
    }
    hs_sync(job);
    if (sem_ffn(job) && job->index == 0)
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    if (sem_actor(job)) {
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        fx_verify(&sem_plans[P_ONE], sem_plans[P_ONE].next - 1, -1);
        HS_REFUSED(stepaf_wait(request, 0), STEPAF_ERR_STATE);
        HS_OK(stepaf_request_peer(request, 0)); /* valid also after the wait */
        HS_OK(stepaf_request_tensor(request, 1, &info));
        HS_OK(stepaf_request_sent(request));
    }
}

void sem_wait_any(struct hs_job *job)
{
    static const int order[3] = {1, 2, 0};
    static const int plans[3] = {P_ONE, P_OTHER, P_SLICED};
    stepaf_request_h requests[4] = {NULL};
    stepaf_batch_h batches[3] = {NULL};
    int index;

    for (int i = 0; i < 3; i++) {
        if (sem_actor(job))
            requests[i] = sem_start(plans[i]);
        else if (sem_ffn(job))
            batches[i] = sem_take(job);
    }
    for (int turn = 0; turn < 3; turn++) {
        hs_sync(job);
        if (sem_actor(job)) {
            index = -7; /* nobody has answered the next one yet */
            HS_STATUS(stepaf_wait_any(requests, 4, SHORT_US, &index), STEPAF_ERR_TIMEOUT);
            HS_INT(index, ==, -7);
        }
        hs_sync(job);
        if (sem_ffn(job))
            HS_OK(fx_answer(job, batches[order[turn]], STEPAF_RESPOND_RELEASE));
        if (sem_actor(job)) {
            HS_OK(stepaf_wait_any(requests, 4, STEPAF_TIMEOUT_DEFAULT, &index));
            HS_INT(index, ==, order[turn]);
            fx_verify(&sem_plans[plans[order[turn]]], sem_plans[plans[order[turn]]].next - 1, -1);
        }
    }
    if (sem_actor(job)) {
        index = -7;
        HS_REFUSED(stepaf_wait_any(requests, 4, SHORT_US, &index), STEPAF_ERR_STATE);
        HS_INT(index, ==, -7);
    }
}

/* Canceled before any FFN rank has taken the batch: they never see it. */
void sem_cancel_early(struct hs_job *job)
{
    stepaf_counters_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    stepaf_request_h request;

    if (sem_actor(job)) {
        HS_OK(stepaf_counters_query(job->ctx, &before));
        request = sem_start(P_ONE);
        hs_pause(job);
        HS_OK(stepaf_cancel(request));
        HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
        HS_REFUSED(stepaf_cancel(request), STEPAF_ERR_STATE);
        HS_STATUS(stepaf_request_peer(request, 0), STEPAF_ERR_CANCELED);
        HS_STATUS(stepaf_request_tensor(request, 1, NULL), STEPAF_ERR_CANCELED);
        HS_OK(stepaf_counters_query(job->ctx, &after));
        HS_INT(after.operations_failed, ==, before.operations_failed + 1);
    } else {
        hs_pause(job); /* the library is not called here: nothing can have been taken */
    }
    hs_sync(job);
    if (sem_ffn(job))
        sem_nothing(job);
    hs_sync(job);
    if (sem_actor(job))
        fx_exchange(&sem_plans[P_ONE]);
    else if (sem_ffn(job))
        fx_serve(job, 1);
}

/* Take in what peers have sent: it comes another way than the words of hs_sync, which may be
 * quicker. */
static void take_in(struct hs_job *job)
{
    int64_t until = hs_now_ns() + 10000000LL * hs_slow();

    while (hs_now_ns() < until) {
        stepaf_progress(job->ctx);
        hs_yield();
    }
}

/* Canceled while FFN ranks hold the batch: the answer is refused, the slot waits for them. */
void sem_cancel_late(struct hs_job *job)
{
    stepaf_request_h request = NULL, next = NULL;
    stepaf_batch_h batch = NULL;

    if (sem_actor(job))
        request = sem_start(P_ONE);
    else if (sem_ffn(job))
        batch = sem_take(job);
    hs_sync(job);
    if (sem_actor(job)) {
        HS_OK(stepaf_cancel(request));
        HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
        HS_STATUS(fx_start(&sem_plans[P_ONE], 0, &next), STEPAF_ERR_WOULD_BLOCK);
        HS_TRUE(next == NULL);
        memset(sem_plans[P_ONE].target, HS_POISON, BYTES * 2);
    }
    hs_sync(job);
    if (sem_ffn(job)) {
        take_in(job);
        fx_look(job, batch); /* still intact */
        HS_REFUSED(fx_answer(job, batch, 0), STEPAF_ERR_CANCELED);
        HS_OK(stepaf_release(batch));
    }
    hs_sync(job);
    if (sem_actor(job)) {
        hs_verify_poison("destination of a canceled operation", sem_plans[P_ONE].target, BYTES * 2);
        fx_exchange(&sem_plans[P_ONE]);
    } else if (sem_ffn(job)) {
        fx_serve(job, 1);
    }
}
