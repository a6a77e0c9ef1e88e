/* SPDX-License-Identifier: Apache-2.0 */
/* FFN ranks that take the next batch of any worker, whichever is first, with bytes made and checked
 * on the GPU, which alone knows whose they are. Workers are of different speeds.
 *
 * --ops N: of each worker and plan. --replays N: of a worker's graph. --delay-us N: how late the
 * slowest worker is. --case NAME: a fault instead, see any_fault.c. --gpus N: skip where there are
 * fewer. */
#include "gpu/any.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYNC_REPLAYS = 64 };

static struct any_lane lanes[ANY_PLANS];

/* All that can be under way is there before anything is taken: then the workers take turns. */
static bool take_turns(struct any_lane *lane)
{
    struct hs_job *job = lane->plan.job;
    stepaf_origin_t queue[GX_ANY_PEERS * GX_ANY_DEPTH];
    int all = (int)lane->plan.shape.depth * job->peers;

    if (!hs_sync(job)) /* the workers' pushes have gone out */
        return false;
    for (int k = 0; k < all; k++)
        if (!any_take(lane, k))
            return false;
    HS_STATUS(stepaf_recv_on_stream(lane->plan.handle, lane->plan.stream), STEPAF_ERR_WOULD_BLOCK);
    if (!GX_CUDA(cudaMemcpyAsync(queue, lane->queue, (unsigned)all * sizeof *queue,
                                 cudaMemcpyDeviceToHost, lane->plan.stream)) ||
        !any_sync(lane))
        return false;
    for (int k = 1; k < all; k++)
        HS_INT(queue[k].peer, ==, (queue[k - 1].peer + 1) % (unsigned)job->peers);
    if (!any_give_all(lane, all))
        return false;
    HS_REFUSED(stepaf_respond_on_stream(lane->plan.handle, NULL, lane->plan.stream),
               STEPAF_ERR_STATE);
    lane->ops += lane->plan.shape.depth;
    return any_sync(lane);
}

static bool fill_slots(struct any_lane *lane)
{
    unsigned depth = lane->plan.shape.depth;

    for (unsigned k = 0; k < depth; k++)
        if (!HS_OK(gx_start(&lane->plan, NULL, NULL)))
            return false;
    if (!any_sync(lane) || !hs_sync(lane->plan.job))
        return false;
    for (unsigned k = 0; k < depth; k++)
        if (!HS_OK(gx_wait(&lane->plan, NULL)))
            return false;
    lane->ops += depth;
    return any_sync(lane);
}

/* What a graph holds: an attention rank's slots once round, or @a n batches of an FFN rank. */
static bool enqueue(struct any_lane *lane, int n, long long delay_us)
{
    struct gx_plan *plan = &lane->plan;
    bool good = true;

    for (int k = 0; plan->job->role == STEPAF_FFN && k < n; k++)
        if (!any_take(lane, 0) || !any_give(lane, 0))
            return false;
    if (plan->job->role == STEPAF_FFN)
        return true;
    if (plan->job->index > 0)
        good = GX_CUDA(gx_launch_delay((uint32_t)(delay_us * plan->job->index / plan->job->attn),
                                       plan->stream));
    for (unsigned k = 0; good && k < plan->shape.depth; k++)
        good = HS_OK(gx_start(plan, NULL, NULL));
    for (unsigned k = 0; good && k < plan->shape.depth; k++)
        good = HS_OK(gx_wait(plan, NULL));
    return good;
}

static bool capture(struct any_lane *lane, int n, long long delay_us, cudaGraphExec_t *graph_p)
{
    cudaStream_t stream = lane->plan.stream;
    cudaGraph_t graph = NULL;
    bool good;

    if (!GX_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)))
        return false;
    good = enqueue(lane, n, delay_us);
    good &= GX_CUDA(cudaStreamEndCapture(stream, &graph));
    good = good && GX_CUDA(cudaGraphInstantiate(graph_p, graph, 0));
    if (graph != NULL)
        GX_CUDA(cudaGraphDestroy(graph));
    return good;
}

/* An FFN rank's graphs hold one batch and two: in between, other slots and workers are next. */
static bool replay(struct any_lane *lane, cudaGraphExec_t one, cudaGraphExec_t two, long long n)
{
    bool ffn = lane->plan.job->role == STEPAF_FFN;
    long long left = ffn ? n * lane->plan.shape.depth * lane->plan.job->peers : n;

    for (long long r = 0; left > 0; r++) {
        bool both = ffn && left > 1 && r % 3 != 0;
        left -= both ? 2 : 1;
        if (!GX_CUDA(cudaGraphLaunch(both ? two : one, lane->plan.stream)))
            return false;
        if (r % SYNC_REPLAYS == 0 && (!any_sync(lane) || hs_hopeless(lane->plan.job)))
            return false;
    }
    lane->ops += n * lane->plan.shape.depth;
    return any_sync(lane);
}

static bool replay_graphs(struct any_lane *lane, long long n, long long delay_us)
{
    cudaGraphExec_t one = NULL, two = NULL;
    bool good;

    any_fix(lane);
    good = capture(lane, 1, delay_us, &one) && capture(lane, 2, delay_us, &two) &&
           hs_sync(lane->plan.job) && replay(lane, one, two, n);
    if (one != NULL)
        GX_CUDA(cudaGraphExecDestroy(one));
    if (two != NULL)
        GX_CUDA(cudaGraphExecDestroy(two));
    return good;
}

static bool exchange(struct any_lane *lane, long long ops, long long replays, long long delay_us)
{
    struct hs_job *job = lane->plan.job;
    bool ffn = job->role == STEPAF_FFN;

    hs_step("exchange");
    if (!(ffn ? any_serve(lane, ops * job->peers) : any_attend(lane, ops, delay_us)))
        return false;
    if (!hs_sync(job)) /* nobody's next batch is taken in place of the last of a slower one */
        return false;
    hs_step("turns");
    if (!(ffn ? take_turns(lane) : fill_slots(lane)) || !any_verify(lane) || !hs_sync(job))
        return false;
    hs_step("replay");
    return lane->plan.less > 0 ||
           (replay_graphs(lane, replays, delay_us) && any_verify(lane) && hs_sync(job));
}

static bool make(struct hs_job *job, long long ops)
{
    for (int i = 0; i < ANY_PLANS; i++) {
        if (!any_make(job, i, &lanes[i]))
            return false;
        lanes[i].plan.seed = 3;
    }
    HS_TRUE(stepaf_plan_origin(lanes[0].plan.handle) == NULL);
    if (!HS_OK(stepaf_commit(job->ctx)))
        return false;
    for (int i = 0; i < ANY_PLANS; i++)
        if (!any_ready(&lanes[i], ops + lanes[i].plan.shape.depth))
            return false;
    return hs_sync(job);
}

static void body(struct hs_job *job)
{
    const char *fault = hs_option_text(job, "--case", "");
    long long ops = hs_option_int(job, "--ops", 200), delay = hs_option_int(job, "--delay-us", 100);
    long long replays = hs_option_int(job, "--replays", 100);

    if (fault[0] != '\0')
        setenv("STEPAF_STREAM_TIMEOUT_US", strcmp(fault, "kill") == 0 ? "2000000" : "400000", 1);
    if (!gx_open(job))
        return;
    if (fault[0] == '\0') {
        ops = gx_scaled(job, ops, 10);
        replays = gx_scaled(job, replays, 10);
    }
    hs_step("set-up");
    if (!make(job, ops))
        return;
    if (fault[0] != '\0') {
        (strcmp(fault, "kill") == 0 ? any_kill : any_silent)(&lanes[1]);
        return;
    }
    for (int i = 0; i < ANY_PLANS; i++)
        if (!exchange(&lanes[i], ops, replays, delay))
            return;
    for (int i = 0; i < ANY_PLANS; i++)
        gx_plan_end(&lanes[i].plan);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "any",
                                        .options = "--any --ops --replays --delay-us --case --gpus",
                                        .limit_s = 120,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
