/* SPDX-License-Identifier: Apache-2.0 */
/* Either side of a plan whose FFN ranks take any batch. */
#include "gpu/any.h"

#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, SYNC_BATCHES = 128, LESS = 3 };

/* Heads, pieces that the gate takes, pieces of a kernel's own, in place, through a mailbox; the
 * last one answers from one source whoever it is, and with less than planned. */
static const struct gx_shape shapes[ANY_PLANS] = {
    {.depth = 1, .n_push = 3, .push = {84, 4000, 8}, .n_pull = 2, .pull = {96, 2000}},
    {.depth = 2,
     .n_push = 2,
     .push = {84, 300001},
     .n_pull = 2,
     .pull = {8, 70001},
     .memory = GX_POOL,
     .own_receive = true,
     .skew = 7},
    {.depth = 3,
     .n_push = 2,
     .push = {8 * MIB + 64, 200000},
     .n_pull = 1,
     .pull = {9 * MIB},
     .memory = GX_MALLOC,
     .own_receive = true},
    {.depth = 3,
     .n_push = 2,
     .push = {8 * MIB + 65, 64},
     .n_pull = 2,
     .pull = {8 * MIB + 128, 4096},
     .memory = GX_POOL,
     .own_receive = true},
};

static bool is_attention(const struct any_lane *lane)
{
    return lane->plan.job->role == STEPAF_ATTENTION;
}

bool any_make(struct hs_job *job, int id, struct any_lane *lane)
{
    const struct gx_shape *shape = &shapes[id];
    size_t queue = shape->depth * (unsigned)job->peers * sizeof *lane->queue;
    size_t source = 0;

    if (!gx_plan_make(job, job->ctx, id, shape, &lane->plan))
        return false;
    lane->plan.even = true;
    if (id == ANY_PLANS - 1)
        lane->plan.less = LESS;
    if (is_attention(lane))
        return true;
    for (int i = 0; i < shape->n_pull; i++)
        source += shape->pull[i];
    return GX_CUDA(cudaMalloc((void **)&lane->counts, sizeof *lane->counts)) &&
           GX_CUDA(cudaMalloc((void **)&lane->queue, queue)) &&
           (lane->plan.less == 0 || gx_memory(job->ctx, GX_MALLOC, source, 0, &lane->source));
}

/* What the tensors of a worker's batch are. */
static bool describe_in(struct any_lane *lane)
{
    const struct gx_shape *shape = &lane->plan.shape;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    lane->in.n_each = (uint32_t)shape->n_push;
    for (unsigned s = 0; s < shape->depth; s++)
        lane->in.landed[s] = stepaf_plan_bytes(lane->plan.handle, s);
    for (int at = 0; at < lane->plan.job->peers * shape->n_push; at++) {
        int peer = at / shape->n_push, index = at % shape->n_push;
        if (!HS_OK(stepaf_plan_tensor(lane->plan.handle, 0, peer, index, &info)))
            return false;
        lane->in.pieces[at] = (struct gx_any_piece){
            .data = info.data,
            .place = gx_place(&lane->plan, GX_PUSH, peer, index),
            .pitch = (uint32_t)info.max_bytes,
            .bytes = (uint32_t)info.max_bytes,
            .room = (uint32_t)info.max_bytes,
        };
    }
    return true;
}

static void describe_out(struct any_lane *lane)
{
    const struct gx_shape *shape = &lane->plan.shape;
    unsigned char *source = lane->source;

    lane->out.n_each = (uint32_t)shape->n_pull;
    for (int at = 0; at < lane->plan.job->peers * shape->n_pull; at++) {
        int peer = at / shape->n_pull, index = at % shape->n_pull;
        if (index == 0)
            source = lane->source;
        lane->out.pieces[at] = (struct gx_any_piece){
            .data = source != NULL ? source : lane->plan.source[at],
            .place = gx_place(&lane->plan, GX_PULL, peer, index),
            .pitch = source != NULL ? 0 : (uint32_t)shape->pull[index],
            .bytes = gx_size(&lane->plan, GX_PULL, peer, index, 0),
        };
        if (source != NULL)
            source += shape->pull[index];
    }
}

/* What each worker will push. */
static bool foresee(struct any_lane *lane, long long ops)
{
    int n = lane->plan.shape.n_push, peers = lane->plan.job->peers;
    size_t entries = (size_t)ops * (unsigned)(peers * n), at = 0;
    uint32_t *sizes = malloc(entries * sizeof *sizes);
    bool good = HS_TRUE(sizes != NULL);

    for (int p = 0; good && p < peers; p++)
        for (uint32_t op = 0; op < (uint32_t)ops; op++)
            for (int i = 0; i < n; i++)
                sizes[at++] = gx_size(&lane->plan, GX_PUSH, p, i, op);
    good = good && GX_CUDA(cudaMalloc((void **)&lane->sizes, entries * sizeof *sizes)) &&
           GX_CUDA(cudaMemcpy(lane->sizes, sizes, entries * sizeof *sizes, cudaMemcpyHostToDevice));
    free(sizes);
    return good;
}

bool any_ready(struct any_lane *lane, long long ops)
{
    struct gx_any_work both = {.tally = lane->plan.tally,
                               .counts = lane->counts,
                               .period = (uint32_t)ops,
                               .depth = lane->plan.shape.depth};

    lane->ops = 0;
    if (!gx_plan_restart(&lane->plan, 0))
        return false;
    if (is_attention(lane))
        return HS_TRUE(stepaf_plan_origin(lane->plan.handle) == NULL);
    lane->in = both;
    lane->out = both;
    describe_out(lane);
    if (!describe_in(lane) || (!lane->plan.fixed && !foresee(lane, ops)))
        return false;
    lane->in.sizes = lane->plan.fixed ? NULL : lane->sizes;
    return GX_CUDA(cudaMemset(lane->counts, 0, sizeof *lane->counts)) && gx_settle() &&
           HS_TRUE(stepaf_plan_origin(lane->plan.handle) != NULL);
}

void any_fix(struct any_lane *lane)
{
    lane->plan.fixed = lane->plan.less == 0;
    lane->in.sizes = NULL;
}

bool any_take(struct any_lane *lane, int k)
{
    const stepaf_origin_t *origin = stepaf_plan_origin(lane->plan.handle);
    cudaStream_t stream = lane->plan.stream;

    lane->in.origin = &lane->queue[k].peer;
    return HS_OK(stepaf_recv_on_stream(lane->plan.handle, stream)) &&
           GX_CUDA(cudaMemcpyAsync(&lane->queue[k], origin, sizeof *origin,
                                   cudaMemcpyDeviceToDevice, stream)) &&
           GX_CUDA(gx_launch_check_any(&lane->in, stream));
}

/* Make the bytes of an answer, and enqueue it. */
static bool fill(struct any_lane *lane, int k)
{
    lane->out.origin = &lane->queue[k].peer;
    return GX_CUDA(gx_launch_fill_any(&lane->out, lane->plan.stream));
}

static bool answer(struct any_lane *lane)
{
    const struct gx_shape *shape = &lane->plan.shape;
    stepaf_tensor_t tensors[GX_TENSORS];

    for (int i = 0; i < shape->n_pull; i++)
        tensors[i] =
            (stepaf_tensor_t){.key = gx_key(lane->plan.id, GX_PULL, i),
                              .data = lane->source != NULL ? lane->out.pieces[i].data : NULL,
                              .bytes = lane->out.pieces[i].bytes};
    return HS_OK(stepaf_respond_on_stream(lane->plan.handle, lane->source != NULL ? tensors : NULL,
                                          lane->plan.stream));
}

bool any_give(struct any_lane *lane, int k)
{
    return fill(lane, k) && answer(lane);
}

bool any_give_all(struct any_lane *lane, int n)
{
    bool one_source = lane->source != NULL;

    for (int k = 0; k < n; k++)
        if (one_source ? !any_give(lane, k) : !fill(lane, k))
            return false;
    for (int k = 0; k < n && !one_source; k++)
        if (!answer(lane))
            return false;
    return true;
}

bool any_sync(struct any_lane *lane)
{
    return gx_sync(&lane->plan) && HS_OK(stepaf_plan_status(lane->plan.handle));
}

bool any_serve(struct any_lane *lane, long long total)
{
    long long done = 0, n;

    for (long long round = 0; done < total; round++, done += n) {
        /* No more at once than the last worker that is left will send. */
        long long most =
            total - done < lane->plan.shape.depth ? total - done : lane->plan.shape.depth;
        n = 1 + (long long)(hs_mix((uint64_t)round) % (uint64_t)most);
        for (int k = 0; k < n; k++)
            if (!any_take(lane, k))
                return false;
        if (round % 2 != 0 && !any_give_all(lane, (int)n))
            return false;
        for (int k = 0; round % 2 == 0 && k < n; k++)
            if (!any_give(lane, k))
                return false;
        if (round % SYNC_BATCHES == 0 && (!any_sync(lane) || hs_hopeless(lane->plan.job)))
            return false;
    }
    lane->ops += total / lane->plan.job->peers;
    return any_sync(lane);
}

bool any_attend(struct any_lane *lane, long long n, long long delay_us)
{
    struct gx_plan *plan = &lane->plan;

    for (long long i = 0; i < n + plan->shape.depth; i++) {
        long long late = delay_us * plan->job->index / plan->job->attn;
        if (i >= plan->shape.depth && !HS_OK(gx_wait(plan, NULL)))
            return false;
        if (i >= n)
            continue;
        if (late > 0 && i % 3 == 0 && !GX_CUDA(gx_launch_delay((uint32_t)late, plan->stream)))
            return false;
        if (!HS_OK(gx_start(plan, NULL, NULL)))
            return false;
        if (i % SYNC_BATCHES == 0 && hs_hopeless(plan->job))
            return false;
    }
    lane->ops += n;
    return any_sync(lane);
}

bool any_verify(struct any_lane *lane)
{
    int peers = is_attention(lane) ? 1 : lane->plan.job->peers;
    struct gx_any_counts counts;
    bool good = gx_verify(&lane->plan, (unsigned long long)(lane->ops * peers));

    if (is_attention(lane))
        return good;
    if (!GX_CUDA(cudaMemcpy(&counts, lane->counts, sizeof counts, cudaMemcpyDeviceToHost)))
        return false;
    for (int p = 0; p < peers; p++)
        good = HS_INT(counts.seen[p], ==, lane->ops) && HS_INT(counts.answered[p], ==, lane->ops) &&
               good;
    return HS_INT(counts.misplaced, ==, 0) && good;
}
