/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed: while streams wait for it, while they are busy, while graphs are replayed. */
#include "gpu/fault.h"

#include <unistd.h>

enum { AFTER = 200, BATCH = 20, FULL = 4000 /* operations: more than a stream takes */ };

/* Ranks that have nothing to do with the victim, in lanes of their own, go on. */
static void go_on(struct fault *fault)
{
    if (fault->lanes && !fault_meets(fault))
        for (int i = 0; i < FAULT_PLANS; i++)
            fault_exchange(fault, i, 50);
}

/* Half of an operation: this rank's own, which is followed by a wait for the peers. */
static bool begin(struct fault *fault, struct gx_plan *plan, stepaf_request_h *request_p)
{
    *request_p = NULL;
    if (fault->job->role == STEPAF_FFN)
        return HS_OK(stepaf_recv_on_stream(plan->handle, plan->stream));
    return HS_OK(stepaf_start_on_stream(plan->handle, NULL, plan->stream,
                                        fault->host ? request_p : NULL)) &&
           (fault->host || HS_OK(stepaf_wait_on_stream(plan->handle, plan->stream)));
}

/* Those whose streams wait for the victim: both plans do. */
static void be_released(struct fault *fault)
{
    stepaf_request_h requests[FAULT_PLANS];

    for (int i = 0; i < FAULT_PLANS; i++)
        if (!begin(fault, &fault->plans[i], &requests[i]))
            return;
    if (fault->job->role == STEPAF_ATTENTION && fault->host) {
        for (int i = 0; i < FAULT_PLANS; i++)
            HS_REFUSED(stepaf_wait(requests[i], STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_PEER_LOST);
    } else { /* in this time the host does not call the library */
        for (int i = 0; i < FAULT_PLANS; i++)
            GX_CUDA(cudaStreamSynchronize(fault->plans[i].stream));
    }
    fault_killed(fault);
    for (int i = 0; i < FAULT_PLANS; i++)
        fault_released(fault->plans[i].stream, fault_kill_time(fault), fault->notice_ms);
    for (int i = 0; i < FAULT_PLANS; i++)
        fault_told(fault, &fault->plans[i], STEPAF_ERR_PEER_LOST, fault_kill_time(fault));
}

void fault_waiting(struct fault *fault)
{
    struct hs_job *job = fault->job;

    hs_doom(job, fault_victim_world(fault));
    if (fault_is_victim(fault))
        pause(); /* for the end */
    fault_kill_later(fault);
    if (fault_meets(fault)) {
        be_released(fault);
    } else if (!fault->lanes && job->role == STEPAF_FFN) {
        /* The other FFN ranks get what the attention ranks push, and answer it. */
        for (int i = 0; i < FAULT_PLANS; i++) {
            HS_OK(stepaf_recv_on_stream(fault->plans[i].handle, fault->plans[i].stream));
            HS_OK(stepaf_respond_on_stream(fault->plans[i].handle, NULL, fault->plans[i].stream));
            gx_sync(&fault->plans[i]);
            HS_OK(stepaf_plan_status(fault->plans[i].handle));
        }
    }
    go_on(fault);
    hs_sync(job);
}

/* As many operations as go, without looking at them; until a call is refused. */
static bool drive(struct gx_plan *plan)
{
    bool attention = plan->job->role == STEPAF_ATTENTION;
    stepaf_status_t status = attention
                                 ? stepaf_start_on_stream(plan->handle, NULL, plan->stream, NULL)
                                 : stepaf_recv_on_stream(plan->handle, plan->stream);

    if (status == STEPAF_OK)
        status = attention ? stepaf_wait_on_stream(plan->handle, plan->stream)
                           : stepaf_respond_on_stream(plan->handle, NULL, plan->stream);
    return status == STEPAF_OK;
}

/* Everybody pushes and pulls as fast as they can, when it happens. */
void fault_load(struct fault *fault)
{
    struct hs_job *job = fault->job;
    int64_t end;

    hs_doom(job, fault_victim_world(fault));
    fault_kill_later(fault);
    end = hs_now_ns() + (fault->delay_us * 1000 + fault->notice_ms * 1000000) * hs_slow();
    for (bool more = true; more && hs_now_ns() < end;)
        for (int k = 0; more && k < BATCH; k++) {
            more = drive(&fault->plans[0]) && drive(&fault->plans[1]);
            if (more && k == BATCH - 1)
                more = GX_CUDA(cudaStreamSynchronize(fault->plans[0].stream)) &&
                       GX_CUDA(cudaStreamSynchronize(fault->plans[1].stream));
        }
    fault_killed(fault);
    for (int i = 0; i < FAULT_PLANS; i++)
        fault_released(fault->plans[i].stream, fault_kill_time(fault), 2 * fault->notice_ms);
    if (fault_meets(fault))
        for (int i = 0; i < FAULT_PLANS; i++)
            fault_told(fault, &fault->plans[i], STEPAF_ERR_PEER_LOST, hs_now_ns());
    hs_sync(job);
}

/* The stream waits for the victim, and is so full that a call of the library waits for the
 * stream. */
void fault_full(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct gx_plan *plan = &fault->plans[0];

    hs_doom(job, fault_victim_world(fault));
    if (fault_is_victim(fault))
        pause(); /* for the end */
    fault_kill_later(fault);
    for (int n = 0; fault_meets(fault) && n < FULL && drive(plan);)
        n++;
    fault_killed(fault);
    if (fault_meets(fault)) {
        fault_released(plan->stream, fault_kill_time(fault), fault->notice_ms);
        fault_told(fault, plan, STEPAF_ERR_PEER_LOST, fault_kill_time(fault));
    }
    hs_sync(job);
}

static cudaGraphExec_t capture(struct gx_plan *plan)
{
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    bool good = true;

    if (!GX_CUDA(cudaStreamBeginCapture(plan->stream, cudaStreamCaptureModeGlobal)))
        return NULL;
    for (unsigned k = 0; good && k < plan->shape.depth; k++)
        good = HS_TRUE(drive(plan));
    if (!GX_CUDA(cudaStreamEndCapture(plan->stream, &graph)) || !good)
        return NULL;
    GX_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    GX_CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* While graphs are replayed, with no call of the library at all: those that are launched already
 * end at once, not after a deadline each. */
void fault_graph(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct gx_plan *plan = &fault->plans[1];
    cudaGraphExec_t graph = capture(plan);
    int after = 0;

    hs_doom(job, fault_victim_world(fault));
    if (graph == NULL || !hs_sync(job))
        return;
    fault_kill_later(fault);
    while (after < AFTER && GX_CUDA(cudaGraphLaunch(graph, plan->stream)))
        after += fault_kill_time(fault) != 0;
    GX_CUDA(cudaStreamSynchronize(plan->stream));
    fault_killed(fault);
    fault_released(plan->stream, fault_kill_time(fault), fault->notice_ms);
    if (fault_meets(fault))
        fault_told(fault, plan, STEPAF_ERR_PEER_LOST, fault_kill_time(fault));
    GX_CUDA(cudaGraphExecDestroy(graph));
    hs_sync(job);
}
