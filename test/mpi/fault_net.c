/* SPDX-License-Identifier: Apache-2.0 */
/* The network fails under the last FFN rank, or a rank dies in the middle of a large tensor. For
 * transports that need a network. */
#include "fault.h"

#include <stdlib.h>
#include <unistd.h>

enum { WAIT_US = 200000, ROUNDS_BEFORE = 3, STAMP_STOPPED = STAMP_END + 2 };

/* Wait for an operation that the last FFN rank may never answer: every wait keeps its deadline and
 * says for whom it was, until the loss is noticed. */
static stepaf_status_t wait_for_the_lost(struct fault *fault, stepaf_request_h request)
{
    int64_t limit = hs_now_ns() + fault->notice_ms * 2000000LL * hs_slow();
    stepaf_status_t status;

    do {
        bool only_last = fault_others_answered(fault, request);
        int64_t began = hs_now_ns();
        status = stepaf_wait(request, WAIT_US);
        HS_INT((hs_now_ns() - began) / 1000, <=, WAIT_US + 2000000LL * hs_slow());
        if (status == STEPAF_ERR_TIMEOUT && only_last)
            HS_INT(stepaf_last_error()->peer_rank, ==, fault->job->ffn - 1);
    } while (status == STEPAF_ERR_TIMEOUT && hs_now_ns() < limit && !hs_failed());
    return status;
}

/* Attention ranks: all is well until it is not. The first one sees to that. */
static void push_until_lost(struct fault *fault)
{
    struct fx_plan *plan = &fault->plans[F_ALL];
    stepaf_status_t status = STEPAF_OK;
    stepaf_request_h request = NULL;

    for (int round = 1; status == STEPAF_OK && !hs_failed(); round++) {
        status = fx_start(plan, STEPAF_START_WAIT, &request);
        if (status == STEPAF_OK)
            status = wait_for_the_lost(fault, request);
        if (status == STEPAF_OK)
            fx_verify(plan, plan->next - 1, -1);
        if (round == ROUNDS_BEFORE && fault->job->rank == 0)
            fault_cut_later(fault, fault->cut, fault->delay_us);
    }
    if (HS_STATUS(status, STEPAF_ERR_PEER_LOST)) {
        fault_named(fault, STEPAF_FFN, fault->job->ffn - 1);
        fault_in_time(fault, "a cut");
    }
}

/* The FFN rank that is cut off: for it, all attention ranks are lost. */
static void serve_until_lost(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int64_t limit = hs_now_ns() + (fault->notice_ms * 2000000LL + 5000000000LL) * hs_slow();
    stepaf_status_t status = STEPAF_OK;
    stepaf_counters_t counters = {.size = sizeof(counters)};
    stepaf_batch_h batch;
    int n;

    while ((status == STEPAF_OK || status == STEPAF_ERR_TIMEOUT) && hs_now_ns() < limit) {
        status = stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, 20000, &batch, 1, &n);
        if (status != STEPAF_OK)
            continue;
        fx_look(job, batch);
        stepaf_status_t sent = fx_answer(job, batch, STEPAF_RESPOND_RELEASE);
        if (sent == STEPAF_ERR_PEER_LOST)
            HS_OK(stepaf_release(batch));
        else
            HS_OK(sent);
    }
    HS_STATUS(status, STEPAF_ERR_PEER_LOST);
    fault_in_time(fault, "being cut off");
    HS_OK(stepaf_counters_query(job->ctx, &counters));
    HS_INT(counters.peers_lost, ==, job->attn);
}

void fault_cut(struct fault *fault)
{
    struct hs_job *job = fault->job;

    if (!fault_open(fault))
        return;
    if (job->role == STEPAF_ATTENTION)
        push_until_lost(fault);
    if (job->role == STEPAF_FFN && job->index == job->ffn - 1) {
        serve_until_lost(fault);
        hs_sync(job);
    } else {
        fault_finish(fault);
    }
    /* MPI's and its launcher's own connections are to live on. */
    if (job->rank == 0 && system(fault->mend) != 0)
        HS_FAILED("this has failed: %s", fault->mend);
    hs_pause(job);
}

/* One plan of large tensors; without the memory for answers, which nobody wants. */
static bool open_large(struct fault *fault, struct fx_plan *plan)
{
    struct hs_job *job = fault->job;

    return fx_declare(job, 0, fault->bytes, 1) &&
           (job->role == STEPAF_FFN || fx_plan_make(job, 0, fault->bytes, 1, FX_NO_PULL, plan)) &&
           HS_OK(stepaf_commit(job->ctx)) && hs_sync(job);
}

/* Attention ranks: push to a rank that takes nothing, until it is killed. */
static void push_to_the_stopped(struct fault *fault, struct fx_plan *plan, int world)
{
    struct hs_job *job = fault->job;
    int last = job->ffn - 1;
    stepaf_request_h request;

    while (atomic_load(&job->shared->stamp[STAMP_STOPPED]) == 0)
        hs_sleep_us(1000);
    HS_OK(fx_start(plan, 0, &request));
    do /* until the others have got it */
        HS_REFUSED(stepaf_wait(request, WAIT_US), STEPAF_ERR_TIMEOUT);
    while (stepaf_last_error()->peer_rank != last && !hs_failed());
    HS_STATUS(stepaf_request_sent(request), STEPAF_INPROGRESS);
    for (int f = 0; f < last; f++)
        HS_OK(stepaf_request_peer(request, f));
    hs_sync(job);
    if (job->index == 0) {
        hs_doom(job, world);
        hs_signal(job, world, SIGKILL);
    }
    HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_PEER_LOST);
    fault_named(fault, STEPAF_FFN, last);
    fault_in_time(fault, "halfway");
}

void fault_halfway_ffn(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int world = fault_world(fault, STEPAF_FFN, job->ffn - 1);
    struct fx_plan plan;

    if (!open_large(fault, &plan))
        return;
    hs_doom(job, world); /* not to be waited for */
    if (job->rank == world)
        for (;;)
            pause();
    if (job->rank == 0) {
        hs_signal(job, world, SIGSTOP);
        atomic_store(&job->shared->stamp[STAMP_STOPPED], 1);
    }
    if (job->role == STEPAF_ATTENTION) {
        push_to_the_stopped(fault, &plan, world);
    } else {
        fx_serve(job, job->attn);
        hs_sync(job);
    }
    hs_sync(job);
}

/* An attention rank dies when its tensor is half there: nobody sees anything of it. */
void fault_halfway_attention(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int last = job->attn - 1, world = fault_world(fault, STEPAF_ATTENTION, last), n = -1;
    stepaf_batch_h batches[HS_MAX_RANKS] = {NULL};
    stepaf_request_h request;
    struct fx_plan plan;

    if (!open_large(fault, &plan))
        return;
    hs_doom(job, world);
    if (job->rank == world) {
        HS_OK(fx_start(&plan, 0, &request));
        HS_STATUS(stepaf_request_sent(request), STEPAF_INPROGRESS);
        hs_signal(job, world, SIGKILL);
    }
    if (job->role == STEPAF_ATTENTION) {
        for (int i = 0; i < 2; i++)
            fx_exchange(&plan);
    } else {
        HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches,
                               job->attn, &n),
                   STEPAF_ERR_PEER_LOST);
        HS_INT(n, ==, -1);
        fault_named(fault, STEPAF_ATTENTION, last);
        fx_serve(job, 2 * last);
    }
    hs_sync(job);
}
