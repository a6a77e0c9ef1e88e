/* SPDX-License-Identifier: Apache-2.0 */
/* Whole operations captured into CUDA graphs on both sides, and replayed. The bytes are made and
 * checked inside of the graphs, so that each replay has fresh ones.
 *
 * --replays N: of each graph. --apart 1: each plan has a graph and a stream of its own, instead of
 * one graph for all. --any 1: FFN ranks, of one attention rank each, take any. --gpus N: skip where
 * there are fewer.
 * --sms N: streams on so many multiprocessors only. */
#include "gpu/exchange.h"

#include <stdio.h>

enum { PLANS = 3, GRAPHS = 2, SYNC_REPLAYS = 500, EAGER_REPLAYS = 5000, MIB = 1 << 20 };

/* Microbatches, small ones with more slots; the last one is written in place. */
static const struct gx_shape shapes[PLANS] = {
    {.depth = 1, .n_push = 2, .push = {917504, 8192}, .n_pull = 1, .pull = {1835008}},
    {.depth = 2,
     .n_push = 2,
     .push = {84, 4097},
     .n_pull = 2,
     .pull = {8, 70001},
     .memory = GX_POOL,
     .own_receive = true,
     .skew = 7},
    {.depth = 3,
     .n_push = 1,
     .push = {8 * MIB + 64},
     .n_pull = 1,
     .pull = {9 * MIB},
     .memory = GX_MALLOC,
     .own_receive = true},
};

static struct gx_plan plans[PLANS];
static cudaGraphExec_t graphs[GRAPHS][PLANS]; /* of plan 0 alone, where it holds all of them */
static cudaEvent_t forked, joined[PLANS];
static unsigned long long done[PLANS]; /* operations */

/* As many operations as the plan has slots, in flight at once. */
static bool enqueue(struct gx_plan *plan)
{
    bool attention = plan->job->role == STEPAF_ATTENTION;

    for (unsigned k = 0; k < plan->shape.depth; k++)
        if (!HS_OK(attention ? gx_start(plan, NULL, NULL) : gx_recv(plan, NULL)))
            return false;
    for (unsigned k = 0; k < plan->shape.depth; k++)
        if (!HS_OK(attention ? gx_wait(plan, NULL) : gx_respond(plan, NULL)))
            return false;
    return true;
}

/* Capture @a n plans into one graph that begins and ends in the stream of the first. */
static bool capture_operations(struct gx_plan *first, int n)
{
    if (!GX_CUDA(cudaEventRecord(forked, first->stream)))
        return false;
    for (int i = 1; i < n; i++)
        if (!GX_CUDA(cudaStreamWaitEvent(first[i].stream, forked, 0)))
            return false;
    for (int i = 0; i < n; i++)
        if (!enqueue(&first[i]))
            return false;
    for (int i = 1; i < n; i++)
        if (!GX_CUDA(cudaEventRecord(joined[i], first[i].stream)) ||
            !GX_CUDA(cudaStreamWaitEvent(first->stream, joined[i], 0)))
            return false;
    return true;
}

static bool capture(struct gx_plan *first, int n, cudaGraphExec_t *graph_p)
{
    cudaGraph_t graph = NULL;
    bool good;

    if (!GX_CUDA(cudaStreamBeginCapture(first->stream, cudaStreamCaptureModeGlobal)))
        return false;
    good = capture_operations(first, n);
    good &= GX_CUDA(cudaStreamEndCapture(first->stream, &graph));
    good = good && GX_CUDA(cudaGraphInstantiate(graph_p, graph, 0)) &&
           GX_CUDA(cudaGraphUpload(*graph_p, first->stream));
    if (graph != NULL)
        GX_CUDA(cudaGraphDestroy(graph));
    return good;
}

/* Both graphs hold the same operations, with other sizes. */
static bool capture_all(bool apart)
{
    for (int g = 0; g < GRAPHS; g++)
        for (int i = 0; i < (apart ? PLANS : 1); i++)
            if (!capture(&plans[i], apart ? 1 : PLANS, &graphs[g][i]))
                return false;
    return true;
}

static bool sync_all(void)
{
    for (int i = 0; i < PLANS; i++)
        if (!gx_sync(&plans[i]))
            return false;
    return true;
}

static bool eager(void)
{
    if (!sync_all())
        return false;
    for (int i = 0; i < PLANS; i++) {
        if (!enqueue(&plans[i]))
            return false;
        done[i] += plans[i].shape.depth;
    }
    return sync_all();
}

/* A job that is slow can be told from one that hangs: say every 5 s how many replays are
 * through. */
static void say_progress(const struct hs_job *job, long long through, long long n)
{
    static int64_t begun, said;
    static long long before;
    int64_t now = hs_now_ns();

    if (!begun)
        begun = said = now;
    if (job->rank != 0 || now - said < 5000000000)
        return;
    printf("graph: %lld of %lld replays after %.0f s, %.0f in a second\n", through, n,
           (double)(now - begun) / 1e9, (double)(through - before) * 1e9 / (double)(now - said));
    fflush(stdout);
    said = now;
    before = through;
}

static bool replay(struct hs_job *job, bool apart, long long n)
{
    for (long long r = 0; r < n; r++) {
        cudaGraphExec_t *graph = graphs[r % GRAPHS];
        for (int i = 0; i < (apart ? PLANS : 1); i++)
            if (!GX_CUDA(cudaGraphLaunch(graph[i], plans[i].stream)))
                return false;
        for (int i = 0; i < PLANS; i++)
            done[i] += plans[i].shape.depth;
        if (r % SYNC_REPLAYS == 0) {
            if (!sync_all() || hs_hopeless(job))
                return false;
            say_progress(job, r, n);
        }
        if (r % EAGER_REPLAYS == 0 && !eager())
            return false;
    }
    return sync_all();
}

static bool make(struct hs_job *job)
{
    for (int i = 0; i < PLANS; i++) {
        if (!gx_plan_make(job, job->ctx, i, &shapes[i], &plans[i]))
            return false;
        plans[i].seed = 5;
        if (!GX_CUDA(cudaEventCreateWithFlags(&joined[i], cudaEventDisableTiming)))
            return false;
    }
    if (!GX_CUDA(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming)) ||
        !HS_OK(stepaf_commit(job->ctx)))
        return false;
    for (int i = 0; i < PLANS; i++)
        if (!gx_plan_ready(&plans[i]))
            return false;
    return hs_sync(job);
}

static void body(struct hs_job *job)
{
    bool apart = hs_option_int(job, "--apart", 0) != 0;
    long long replays = hs_option_int(job, "--replays", 1000);

    if (!gx_open(job))
        return;
    replays = gx_scaled(job, replays, 100);
    hs_step("set-up");
    if (!make(job) || !eager())
        return;
    hs_step("capture");
    if (!capture_all(apart) || !hs_sync(job))
        return;
    hs_step("replay");
    if (!replay(job, apart, replays) || !eager())
        return;
    for (int i = 0; i < PLANS; i++)
        gx_verify(&plans[i], done[i]);
    hs_sync(job);
    for (int g = 0; g < GRAPHS; g++)
        for (int i = 0; i < (apart ? PLANS : 1); i++)
            GX_CUDA(cudaGraphExecDestroy(graphs[g][i]));
    for (int i = 0; i < PLANS; i++)
        gx_plan_end(&plans[i]);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "graph",
                                        .options = "--replays --apart --any --gpus --sms",
                                        .limit_s = 240,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
