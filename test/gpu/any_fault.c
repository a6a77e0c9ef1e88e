/* SPDX-License-Identifier: Apache-2.0 */
/* A wait for any worker, when one is killed; and when nobody sends. */
#include "gpu/any.h"

#include <string.h>
#include <unistd.h>

enum { BEFORE = 5, NOTICE_MS = 3500, DELAY_US = 50000, LEAST_MS = 360 };

static bool exchange(struct any_lane *lane, long long n)
{
    struct hs_job *job = lane->plan.job;

    return (job->role == STEPAF_FFN ? any_serve(lane, n * job->peers) : any_attend(lane, n, 0)) &&
           any_verify(lane) && hs_sync(job);
}

/* The plan comes to be over for @a want; then nothing more is enqueued. */
static void be_told(struct any_lane *lane, stepaf_status_t want)
{
    int64_t deadline = hs_now_ns() + (int64_t)NOTICE_MS * 1000000 * hs_slow();
    stepaf_status_t status;

    while ((status = stepaf_plan_status(lane->plan.handle)) == STEPAF_OK && hs_now_ns() < deadline)
        hs_yield();
    HS_REFUSED(status, want);
    HS_INT(stepaf_last_error()->peer_role, ==, STEPAF_ATTENTION);
    HS_REFUSED(stepaf_recv_on_stream(lane->plan.handle, lane->plan.stream), want);
}

/* The last worker dies while an FFN rank's stream waits for any of them. */
void any_kill(struct any_lane *lane)
{
    struct hs_job *job = lane->plan.job;
    int victim = stepaf_world_rank(job->ctx, STEPAF_GROUP_ATTENTION, job->attn - 1);

    if (!exchange(lane, BEFORE))
        return;
    hs_doom(job, victim);
    if (job->rank == victim)
        pause(); /* for the end */
    if (job->role == STEPAF_FFN) {
        HS_OK(stepaf_recv_on_stream(lane->plan.handle, lane->plan.stream));
        hs_sleep_us(DELAY_US);
        if (job->index == 0)
            hs_signal(job, victim, SIGKILL);
        be_told(lane, STEPAF_ERR_PEER_LOST);
        HS_INT(stepaf_last_error()->peer_rank, ==, job->attn - 1);
        gx_sync_stream(lane->plan.stream, "the stream that waits for any");
    }
    hs_sync(job);
}

/* A graph that receives and answers, to be launched when its plan is over. */
static cudaGraphExec_t capture(struct any_lane *lane)
{
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    bool good;

    if (!GX_CUDA(cudaStreamBeginCapture(lane->plan.stream, cudaStreamCaptureModeGlobal)))
        return NULL;
    good = HS_OK(stepaf_recv_on_stream(lane->plan.handle, lane->plan.stream)) &&
           HS_OK(stepaf_respond_on_stream(lane->plan.handle, NULL, lane->plan.stream));
    if (!GX_CUDA(cudaStreamEndCapture(lane->plan.stream, &graph)) || !good)
        return NULL;
    GX_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    GX_CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* Nobody sends: the deadline ends the wait, and names the one whose turn it was. The next commit
 * begins anew, and a graph of before does nothing any more. */
void any_silent(struct any_lane *lane)
{
    struct hs_job *job = lane->plan.job;
    cudaGraphExec_t graph = NULL;

    if (!exchange(lane, BEFORE))
        return;
    if (job->role == STEPAF_FFN) {
        graph = capture(lane);
        int64_t began = hs_now_ns();
        HS_OK(stepaf_recv_on_stream(lane->plan.handle, lane->plan.stream));
        GX_CUDA(cudaStreamSynchronize(lane->plan.stream));
        HS_INT((hs_now_ns() - began) / 1000000, >=, LEAST_MS);
        be_told(lane, STEPAF_ERR_TIMEOUT);
        HS_TRUE(strstr(stepaf_last_error()->text, "the next one due was attention rank") != NULL);
        HS_INT(stepaf_last_error()->peer_rank, <, job->attn);
    }
    hs_step("commit again");
    if (!hs_sync(job) || !HS_OK(stepaf_commit(job->ctx)) || !any_ready(lane, BEFORE))
        return;
    if (graph != NULL)
        GX_CUDA(cudaGraphLaunch(graph, lane->plan.stream));
    if (hs_sync(job))
        exchange(lane, BEFORE);
    if (graph != NULL)
        GX_CUDA(cudaGraphExecDestroy(graph));
}
