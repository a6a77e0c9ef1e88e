/* SPDX-License-Identifier: Apache-2.0 */
/* An FFN rank is killed: who waits for it hears of it at once, all else goes on. */
#include "fault.h"

#include <unistd.h>

/* The last FFN rank. */
static int victim(const struct fault *fault)
{
    return fault->job->ffn - 1;
}

/* What an attention rank can still do, and what not. */
static void carry_on(struct fault *fault)
{
    struct fx_plan *all = &fault->plans[F_ALL], *sliced = &fault->plans[F_SLICED];
    struct fx_plan *lenient = &fault->plans[F_LENIENT];
    int gone = victim(fault), rounds = fault_rounds(fault);
    stepaf_request_h request = NULL;
    stepaf_counters_t counters = {.size = sizeof(counters)};

    HS_REFUSED(fx_start(all, 0, &request), STEPAF_ERR_PEER_LOST);
    fault_named(fault, STEPAF_FFN, gone);
    HS_REFUSED(fx_start(all, STEPAF_START_WAIT, &request), STEPAF_ERR_PEER_LOST);
    HS_TRUE(request == NULL);
    sliced->skip = gone;
    for (int i = 0; i < rounds && fx_exchange(sliced); i++)
        ;
    lenient->skip = gone; /* nothing to verify of it */
    for (int i = 0; i < rounds; i++) {
        if (!HS_OK(fx_start(lenient, STEPAF_START_SKIP_LOST | STEPAF_START_WAIT, &request)) ||
            !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) ||
            !fx_verify(lenient, lenient->next - 1, -1))
            break;
        for (int f = 0; f < fault->job->ffn; f++)
            HS_STATUS(stepaf_request_peer(request, f),
                      f == gone ? STEPAF_ERR_PEER_LOST : STEPAF_OK);
    }
    HS_OK(stepaf_counters_query(fault->job->ctx, &counters));
    HS_INT(counters.peers_lost, ==, 1);
}

/* Plans end although the lost rank never let go of their batches. */
static void end_plans(struct fault *fault)
{
    for (int id = 0; id < F_PLANS; id++) {
        int64_t deadline = hs_now_ns() + 5000000000LL * hs_slow();
        stepaf_status_t status;
        while ((status = stepaf_plan_destroy(fault->plans[id].handle)) == STEPAF_ERR_STATE &&
               hs_now_ns() < deadline) {
            stepaf_progress(fault->job->ctx);
            hs_yield();
        }
        HS_OK(status);
    }
}

void fault_finish(struct fault *fault)
{
    struct hs_job *job = fault->job;

    if (job->role == STEPAF_ATTENTION) {
        carry_on(fault);
        end_plans(fault);
    }
    if (job->role == STEPAF_ATTENTION && job->index == 0)
        fault_killed();
    /* All attention ranks are through when each has raised the count. */
    if (job->role == STEPAF_ATTENTION &&
        atomic_fetch_add(&job->shared->stamp[STAMP_END + 1], 1) == job->attn - 1)
        atomic_store(&job->shared->stamp[STAMP_END], 1);
    if (job->role == STEPAF_FFN)
        fault_serve(fault);
    hs_sync(job);
}

/* All attention ranks wait for a batch that the victim holds. */
void fault_ffn_held(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct fx_plan *plan = &fault->plans[F_ALL];
    stepaf_request_h request = NULL;
    stepaf_batch_h batches[HS_MAX_RANKS] = {NULL};
    int gone = victim(fault), n;

    hs_doom(job, fault_world(fault, STEPAF_FFN, gone));
    if (!fault_open(fault))
        return;
    if (job->role == STEPAF_ATTENTION)
        HS_OK(fx_start(plan, 0, &request));
    else
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches, job->attn,
                          &n));
    if (job->role == STEPAF_FFN && job->index == gone)
        pause(); /* for the end */
    for (int a = 0; a < job->attn && job->role == STEPAF_FFN; a++)
        HS_OK(fx_answer(job, batches[a], STEPAF_RESPOND_RELEASE));
    if (job->role == STEPAF_ATTENTION) {
        if (job->index == 0)
            fault_kill_later(fault, fault_world(fault, STEPAF_FFN, gone), fault->delay_us);
        HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_PEER_LOST);
        fault_in_time(fault, "a held batch");
        if (fault_named(fault, STEPAF_FFN, gone))
            HS_INT(stepaf_last_error()->phase, ==, STEPAF_PHASE_RESPONSE);
        HS_STATUS(stepaf_request_peer(request, gone), STEPAF_ERR_PEER_LOST);
        HS_STATUS(stepaf_request_tensor(request, gone, NULL), STEPAF_ERR_PEER_LOST);
        for (int f = 0; f < gone; f++) { /* the others' answers have landed or will */
            int64_t deadline = hs_now_ns() + 5000000000LL * hs_slow();
            while (stepaf_request_peer(request, f) == STEPAF_INPROGRESS && hs_now_ns() < deadline)
                stepaf_progress(job->ctx);
            HS_OK(stepaf_request_peer(request, f));
            fx_verify(plan, plan->next - 1, f);
        }
    }
    fault_finish(fault);
}

/* Killed at some time while everybody pushes and pulls as fast as they can. */
void fault_ffn_load(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct fx_plan *plan = &fault->plans[F_ALL];
    int gone = victim(fault), rounds = 0;
    stepaf_status_t status = STEPAF_OK;
    stepaf_request_h request;

    hs_doom(job, fault_world(fault, STEPAF_FFN, gone));
    if (!fault_open(fault))
        return;
    if (job->role == STEPAF_ATTENTION && job->index == 0)
        fault_kill_later(fault, fault_world(fault, STEPAF_FFN, gone), fault->delay_us);
    while (job->role == STEPAF_ATTENTION && status == STEPAF_OK && !hs_failed()) {
        status = fx_start(plan, STEPAF_START_WAIT, &request);
        if (status == STEPAF_OK)
            status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
        if (status == STEPAF_OK)
            fx_verify(plan, plan->next - 1, -1);
        rounds++;
    }
    if (job->role == STEPAF_ATTENTION) {
        fault_in_time(fault, "load");
        HS_STATUS(status, STEPAF_ERR_PEER_LOST);
        fault_named(fault, STEPAF_FFN, gone);
        HS_INT(rounds, >, 0);
    }
    fault_finish(fault);
}
