/* SPDX-License-Identifier: Apache-2.0 */
/* An attention rank is killed, ranks finalize while others still need them. */
#include "fault.h"

#include <unistd.h>

enum { GONE = 1, STAYS = 0 };

/* FFN ranks: the batch of a lost rank can be looked at and released, not answered. */
static void orphan(struct hs_job *job, stepaf_batch_h batch)
{
    fx_look(job, batch);
    HS_REFUSED(fx_answer(job, batch, 0), STEPAF_ERR_PEER_LOST);
    HS_REFUSED(fx_answer(job, batch, STEPAF_RESPOND_RELEASE), STEPAF_ERR_PEER_LOST);
    HS_OK(stepaf_release(batch));
    HS_REFUSED(stepaf_release(batch), STEPAF_ERR_HANDLE);
}

static void serve_survivor(struct fault *fault)
{
    struct hs_job *job = fault->job;
    stepaf_batch_h batches[HS_MAX_RANKS] = {NULL}, held = NULL;
    stepaf_batch_info_t info = {.size = sizeof(info)};
    int n = -1;

    /* One batch of the victim's is taken, one waits. */
    HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &held, 1, &n));
    HS_OK(stepaf_batch_query(held, &info));
    HS_INT(info.attention_rank, ==, GONE);
    hs_sync(job); /* the survivor starts its first operation */
    HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches, 2, &n));
    HS_OK(fx_answer(job, batches[STAYS], STEPAF_RESPOND_RELEASE));
    hs_sync(job); /* the kill comes soon */
    n = -1;
    HS_REFUSED(
        stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, &batches[2], 2, &n),
        STEPAF_ERR_PEER_LOST);
    fault_in_time(fault, "receive from each");
    if (fault_named(fault, STEPAF_ATTENTION, GONE))
        HS_INT(stepaf_last_error()->phase, ==, STEPAF_PHASE_RECV);
    HS_INT(n, ==, -1);
    HS_TRUE(batches[2] == NULL);
    orphan(job, held);
    orphan(job, batches[GONE]);
    fx_serve(job, 3); /* from anyone goes on */
    HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, STEPAF_RECV_SKIP_LOST, STEPAF_TIMEOUT_DEFAULT,
                      batches, 2, &n));
    HS_INT(n, ==, 2);
    HS_TRUE(batches[STAYS] != NULL);
    HS_TRUE(batches[GONE] == NULL);
    HS_OK(fx_answer(job, batches[STAYS], STEPAF_RESPOND_RELEASE));
    /* Then the survivor leaves too: nobody is left to receive from. */
    HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, batches, 2, &n),
               STEPAF_ERR_PEER_LOST);
    HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, 0, batches, 2, &n), STEPAF_ERR_PEER_LOST);
}

void fault_attention(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int world = fault_world(fault, STEPAF_ATTENTION, GONE);
    stepaf_request_h request;

    if (job->attn != 2) {
        hs_skip("made for two attention ranks");
        return;
    }
    hs_doom(job, world);
    if (!fault_open(fault))
        return;
    if (job->role == STEPAF_FFN) {
        serve_survivor(fault);
        return;
    }
    if (job->index == GONE) {
        HS_OK(fx_start(&fault->plans[F_ALL], 0, &request));
        HS_OK(fx_start(&fault->plans[F_SLICED], 0, &request));
        for (;;) /* until the end */
            stepaf_progress(job->ctx);
    }
    hs_sync(job);
    fx_exchange(&fault->plans[F_ALL]);
    hs_sync(job);
    fault_kill_later(fault, world, fault->delay_us);
    fault_killed();
    hs_sleep_us(2 * NOTICE_MS * 1000LL); /* so that the FFN ranks hear of it while they wait */
    for (int id = 0; id < F_PLANS; id++)
        fx_exchange(&fault->plans[id]);
    fx_exchange(&fault->plans[F_ALL]);
}

/* FFN ranks: the last one leaves with batches in its hands; then all attention ranks leave while
 * the others hold theirs. */
static void serve_leavers(struct fault *fault)
{
    struct hs_job *job = fault->job;
    stepaf_batch_h batches[HS_MAX_RANKS] = {NULL}, none = NULL;
    int n = 0;

    HS_OK(
        stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches, job->attn, &n));
    if (job->index == job->ffn - 1) {
        hs_sleep_us(fault->delay_us);
        atomic_store(&job->shared->stamp[0], hs_now_ns());
        hs_close(job);
        return;
    }
    for (int a = 0; a < job->attn; a++)
        HS_OK(fx_answer(job, batches[a], STEPAF_RESPOND_RELEASE));
    HS_OK(
        stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches, job->attn, &n));
    hs_sync(job);
    n = -1;
    HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &none, 1, &n),
               STEPAF_ERR_PEER_LOST);
    HS_INT(n, ==, -1);
    for (int a = 0; a < job->attn; a++)
        orphan(job, batches[a]);
}

void fault_finalize(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct fx_plan *plan = &fault->plans[F_ALL];
    stepaf_request_h request = NULL;

    hs_doom(job, fault_world(fault, STEPAF_FFN, job->ffn - 1)); /* not to be waited for */
    if (!fault_open(fault))
        return;
    if (job->role == STEPAF_FFN) {
        serve_leavers(fault);
        return;
    }
    HS_OK(fx_start(plan, 0, &request));
    HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_PEER_LOST);
    fault_in_time(fault, "finalize of an FFN rank");
    fault_named(fault, STEPAF_FFN, job->ffn - 1);
    HS_REFUSED(fx_start(plan, 0, &request), STEPAF_ERR_PEER_LOST);
    HS_OK(fx_start(&fault->plans[F_LENIENT], STEPAF_START_SKIP_LOST, &request));
    hs_sync(job); /* taken: leave in the middle of the operation */
}

/* What a rank has sent before it died can still be received. */
void fault_leftover(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int world = fault_world(fault, STEPAF_ATTENTION, job->attn - 1), n = 0;
    stepaf_batch_h batches[HS_MAX_RANKS] = {NULL}, batch = NULL;
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_request_h request;

    hs_doom(job, world);
    if (!fault_open(fault))
        return;
    if (job->rank == world) {
        HS_OK(fx_start(&fault->plans[F_ALL], 0, &request));
        atomic_store(&job->shared->stamp[STAMP_END], 1);
        for (;;)
            pause();
    }
    while (atomic_load(&job->shared->stamp[STAMP_END]) == 0)
        hs_sleep_us(1000);
    if (job->rank == 0) {
        fault_kill_later(fault, world, fault->delay_us);
        fault_killed();
        hs_sleep_us(NOTICE_MS * 1000LL);
    }
    hs_sync(job);
    if (job->role == STEPAF_FFN) {
        /* It has a batch left, so that it is the living ranks that are waited for, in vain. */
        HS_STATUS(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, NOTICE_MS * 1000LL * hs_slow(),
                              batches, job->attn, &n),
                  STEPAF_ERR_TIMEOUT);
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n));
        HS_OK(stepaf_batch_query(batch, &info));
        HS_INT(info.attention_rank, ==, job->attn - 1);
        orphan(job, batch);
    }
    hs_sync(job);
}
