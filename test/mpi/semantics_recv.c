/* SPDX-License-Identifier: Apache-2.0 */
/* Semantics of receiving and answering. */
#include "semantics.h"

#include <string.h>

void sem_each(struct hs_job *job)
{
    stepaf_batch_h batches[2] = {NULL}, one = NULL;
    stepaf_batch_info_t info = {.size = sizeof(info)};
    int n = -3;

    if (job->role == STEPAF_ATTENTION && job->index == 1)
        fx_exchange(&sem_plans[P_ONE]);
    if (sem_ffn(job)) {
        /* One rank is not enough; what it sent stays for the next call. */
        HS_STATUS(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, SHORT_US, batches, 2, &n),
                  STEPAF_ERR_TIMEOUT);
        HS_INT(n, ==, -3);
        HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, 0, batches, 1, &n),
                   STEPAF_ERR_INVALID);
        one = sem_take(job);
        HS_OK(stepaf_batch_query(one, &info));
        HS_INT(info.attention_rank, ==, 1);
        HS_OK(fx_answer(job, one, STEPAF_RESPOND_RELEASE));
    }
    hs_sync(job);
    if (job->role == STEPAF_ATTENTION) {
        fx_exchange(&sem_plans[P_ONE]);
        fx_exchange(&sem_plans[P_OTHER]);
    }
    for (int round = 0; round < 2 && sem_ffn(job); round++) {
        uint32_t flags = round == 1 ? STEPAF_RECV_SKIP_LOST : 0;
        HS_OK(
            stepaf_recv(job->ctx, STEPAF_FROM_EACH, flags, STEPAF_TIMEOUT_DEFAULT, batches, 2, &n));
        HS_INT(n, ==, 2);
        for (int a = 0; a < 2; a++) {
            HS_OK(stepaf_batch_query(batches[a], &info));
            HS_INT(info.attention_rank, ==, a);
            fx_look(job, batches[a]);
            HS_OK(fx_answer(job, batches[a], STEPAF_RESPOND_RELEASE));
        }
    }
}

static struct hs_job *handler_job;
static int handled;
static bool handling;

static void handler(stepaf_batch_h batch, void *arg)
{
    HS_TRUE(arg == &handled);
    HS_TRUE(!handling); /* never twice at once */
    handling = true;
    fx_look(handler_job, batch);
    HS_OK(fx_answer(handler_job, batch, STEPAF_RESPOND_RELEASE));
    handled++;
    handling = false;
}

void sem_handler(struct hs_job *job)
{
    stepaf_batch_h batch = NULL;
    int n = 0;

    handler_job = job;
    if (sem_ffn(job)) {
        HS_OK(stepaf_batch_set_handler(job->ctx, handler, &handled));
        HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, SHORT_US, &batch, 1, &n),
                   STEPAF_ERR_STATE);
    }
    for (int i = 0; i < 3 && job->role == STEPAF_ATTENTION; i++) {
        fx_exchange(&sem_plans[P_ONE]);
        fx_exchange(&sem_plans[P_PULLED]);
    }
    hs_sync(job); /* drives the library, and so the handler */
    if (sem_ffn(job)) {
        HS_INT(handled, ==, 3 * 2 * job->attn);
        HS_OK(stepaf_batch_set_handler(job->ctx, NULL, NULL));
        sem_nothing(job);
    }
    hs_sync(job);
    if (sem_ffn(job))
        fx_serve(job, 1);
    else if (sem_actor(job))
        fx_exchange(&sem_plans[P_ONE]);
}

/* Without a pull, complete means released everywhere. */
void sem_pushed(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;

    if (sem_actor(job))
        request = sem_start(P_PUSHED);
    else if (sem_ffn(job))
        batch = sem_take(job);
    hs_sync(job);
    if (sem_actor(job)) {
        HS_REFUSED(stepaf_wait(request, SHORT_US), STEPAF_ERR_TIMEOUT);
        HS_INT(stepaf_last_error()->phase, ==, STEPAF_PHASE_RELEASE);
        HS_INT(stepaf_last_error()->peer_rank, ==, 0);
    }
    hs_sync(job);
    if (sem_ffn(job) && job->index == 0)
        HS_OK(stepaf_release(batch));
    hs_sync(job);
    if (sem_actor(job)) {
        HS_STATUS(stepaf_request_peer(request, 0), STEPAF_OK);
        HS_STATUS(stepaf_test(request), STEPAF_INPROGRESS);
        HS_REFUSED(stepaf_wait(request, SHORT_US), STEPAF_ERR_TIMEOUT);
        HS_INT(stepaf_last_error()->peer_rank, ==, 1);
    }
    hs_sync(job);
    if (sem_ffn(job) && job->index == 1)
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE)); /* with nothing */
    if (sem_actor(job))
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
}

/* A rank whose slice is empty sees no batch; its answers count as there, with no bytes. */
void sem_skipped(struct hs_job *job)
{
    struct fx_plan *plan = &sem_plans[P_SLICED];
    stepaf_request_h request = NULL;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (sem_actor(job)) {
        plan->skip = 1;
        request = sem_start(P_SLICED);
        HS_OK(stepaf_request_peer(request, 1));
        HS_OK(stepaf_request_tensor(request, 1, &info));
        HS_INT(info.bytes, ==, 0);
        HS_STATUS(stepaf_request_peer(request, 0), STEPAF_INPROGRESS);
    }
    hs_sync(job);
    if (sem_ffn(job) && job->index == 0)
        fx_serve(job, 1);
    if (sem_actor(job)) {
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        fx_verify(plan, plan->next - 1, -1);
        plan->skip = -1;
    }
    hs_sync(job);
    if (sem_ffn(job))
        sem_nothing(job);
    hs_sync(job);
    if (sem_actor(job))
        fx_exchange(plan);
    else if (sem_ffn(job))
        fx_serve(job, 1);
}

/* Fewer bytes than expected, down to none; more are refused and change nothing. */
void sem_short_answer(struct hs_job *job)
{
    static unsigned char *data;
    const size_t bytes = (size_t)job->index * 7; /* none from FFN rank 0 */
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_request_h request;
    stepaf_batch_h batch;

    if (sem_actor(job)) {
        memset(sem_plans[P_ONE].target, HS_POISON, BYTES * 2);
        request = sem_start(P_ONE);
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        for (int f = 0; f < job->ffn; f++) {
            unsigned char *target = sem_plans[P_ONE].target + f * BYTES;
            HS_OK(stepaf_request_tensor(request, f, &info));
            HS_INT(info.bytes, ==, f * 7);
            HS_INT(info.max_bytes, ==, BYTES);
            for (int i = 0; i < f * 7; i++)
                HS_INT(target[i], ==, 0x5a);
            hs_verify_poison("short answer", target + f * 7, (size_t)(BYTES - f * 7));
        }
    } else if (sem_ffn(job)) {
        HS_OK(stepaf_alloc(job->ctx, 2 * BYTES, STEPAF_MEM_HOST, (void **)&data));
        memset(data, 0x5a, 2 * BYTES);
        batch = sem_take(job);
        stepaf_tensor_t tensor = {FX_PULL_KEY + P_ONE, data, BYTES + 1};
        HS_REFUSED(stepaf_respond(batch, &tensor, 1, 0, NULL), STEPAF_ERR_SIZE);
        tensor = (stepaf_tensor_t){FX_PULL_KEY + P_ONE, bytes > 0 ? data : NULL, bytes};
        HS_OK(stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL));
    }
}
