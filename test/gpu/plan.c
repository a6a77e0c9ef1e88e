/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans for tests: keys, memory, and what is found out in the end. */
#include "gpu/exchange.h"

#include <string.h>

static bool is_attention(const struct gx_plan *plan)
{
    return plan->job->role == STEPAF_ATTENTION;
}

uint64_t gx_key(int id, int direction, int index)
{
    return 1000 + (uint64_t)id * 100 + (unsigned)direction * 10 + (unsigned)index;
}

static bool declare(struct gx_plan *plan, int direction, int index, size_t bytes)
{
    stepaf_key_params_t params = {
        .field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
        .depth = plan->shape.depth,
        .mem_kind = gx_memory_on_host(plan->shape.memory) ? STEPAF_MEM_HOST : STEPAF_MEM_CUDA};

    return HS_OK(stepaf_key_declare(plan->ctx, gx_key(plan->id, direction, index),
                                    direction == 0 ? STEPAF_PUSH : STEPAF_PULL, bytes, &params));
}

bool gx_plan_declare(struct gx_plan *plan)
{
    bool good = true;

    for (int i = 0; i < plan->shape.n_push; i++)
        good = good && declare(plan, 0, i, plan->shape.push[i]);
    for (int i = 0; i < plan->shape.n_pull; i++)
        good = good && declare(plan, 1, i, plan->shape.pull[i]);
    return good;
}

static bool bring(struct gx_plan *plan, size_t bytes, unsigned more, unsigned char **ptr_p)
{
    return gx_memory(plan->ctx, plan->shape.memory, bytes, plan->shape.skew + more, ptr_p);
}

/* Bring the memory from which tensor @a i is sent. */
static bool bring_source(struct gx_plan *plan, int i, size_t bytes, unsigned more,
                         unsigned char **ptr_p)
{
    if (plan->shape.host_source == i + 1)
        return gx_memory(plan->ctx, GX_HOST, bytes, plan->shape.skew + more, ptr_p);
    return bring(plan, bytes, more, ptr_p);
}

/* An FFN rank's receive buffers: for each key a slice for each attention rank. */
static bool bring_receive(struct gx_plan *plan)
{
    unsigned char *buffer;

    for (int i = 0; i < plan->shape.n_push; i++) {
        size_t bytes = plan->shape.push[i] * plan->shape.depth * (unsigned)plan->job->peers;
        if (!bring(plan, bytes, 2 * (unsigned)i, &buffer) ||
            !HS_OK(stepaf_key_set_recv(plan->ctx, gx_key(plan->id, 0, i), buffer, bytes, NULL, 0)))
            return false;
    }
    return true;
}

bool gx_plan_memory(struct gx_plan *plan)
{
    const struct gx_shape *shape = &plan->shape;
    bool attention = is_attention(plan), good = true;

    for (int i = 0; attention && i < shape->n_push; i++)
        good = good && bring_source(plan, i, shape->push[i], (unsigned)i, &plan->source[i]);
    /* Pulls come to, and answers go from, a place for each peer and slot. */
    for (int i = 0; good && i < plan->job->peers * shape->n_pull; i++) {
        size_t bytes = shape->pull[i % shape->n_pull] * shape->depth;
        good = attention
                   ? bring(plan, bytes, (unsigned)i, &plan->target[i])
                   : bring_source(plan, i % shape->n_pull, bytes, (unsigned)i, &plan->source[i]);
    }
    return good && (attention || !shape->own_receive || bring_receive(plan));
}

void gx_plan_tensors(const struct gx_plan *plan, stepaf_tensor_t *push, stepaf_tensor_t *pull,
                     int *n_pull_p)
{
    const struct gx_shape *shape = &plan->shape;
    bool attention = is_attention(plan);

    for (int i = 0; i < shape->n_push; i++) /* FFN ranks only name what they receive */
        push[i] = attention
                      ? (stepaf_tensor_t){gx_key(plan->id, 0, i), plan->source[i], shape->push[i]}
                      : (stepaf_tensor_t){gx_key(plan->id, 0, i), NULL, 0};
    *n_pull_p = plan->job->peers * shape->n_pull;
    for (int i = 0; i < *n_pull_p; i++)
        pull[i] = (stepaf_tensor_t){gx_key(plan->id, 1, i % shape->n_pull),
                                    attention ? plan->target[i] : plan->source[i],
                                    shape->pull[i % shape->n_pull]};
}

bool gx_plan_begin(struct hs_job *job, stepaf_context_h ctx, int id, const struct gx_shape *shape,
                   struct gx_plan *plan)
{
    *plan = (struct gx_plan){.job = job, .ctx = ctx, .id = id, .shape = *shape};
    plan->stream = gx_stream();
    return plan->stream != NULL &&
           GX_CUDA(cudaMalloc((void **)&plan->tally, sizeof *plan->tally)) &&
           GX_CUDA(cudaMemset(plan->tally, 0, sizeof *plan->tally)) && gx_settle();
}

stepaf_status_t gx_plan_create(stepaf_context_h ctx, const stepaf_tensor_t *push, int n_push,
                               const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                               stepaf_plan_h *plan_p)
{
    uint64_t keys[STEPAF_MAX_TENSORS];

    if (stepaf_role(ctx) == STEPAF_ATTENTION)
        return stepaf_plan_create(ctx, push, n_push, pull, n_pull, flags, plan_p);
    for (int i = 0; i < n_push; i++)
        keys[i] = push[i].key;
    return stepaf_plan_create_ffn(ctx, keys, n_push, pull, n_pull, flags, plan_p);
}

bool gx_plan_make(struct hs_job *job, stepaf_context_h ctx, int id, const struct gx_shape *shape,
                  struct gx_plan *plan)
{
    stepaf_tensor_t push[GX_TENSORS], pull[GX_PEERS * GX_TENSORS];
    bool any = job->role == STEPAF_FFN && hs_option_int(job, "--any", 0) != 0;
    uint32_t flags = STEPAF_PLAN_STREAM | (any ? STEPAF_PLAN_ANY : 0u);
    int n_pull;

    if (!gx_plan_begin(job, ctx, id, shape, plan) || !gx_plan_declare(plan) ||
        !gx_plan_memory(plan))
        return false;
    gx_plan_tensors(plan, push, pull, &n_pull);
    return HS_OK(gx_plan_create(ctx, push, shape->n_push, pull, n_pull, flags, &plan->handle));
}

/* What arrives as tensor @a index of @a peer in @a slot is where it should be. */
static bool look_at(struct gx_plan *plan, unsigned slot, int peer, int index)
{
    const struct gx_shape *shape = &plan->shape;
    bool attention = is_attention(plan);
    size_t bytes = attention ? shape->pull[index] : shape->push[index];
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (!HS_OK(stepaf_plan_tensor(plan->handle, slot, peer, index, &info)))
        return false;
    HS_TRUE(info.key == gx_key(plan->id, attention, index));
    HS_INT(info.max_bytes, ==, bytes);
    HS_INT(info.mem_kind, ==, gx_memory_on_host(shape->memory) ? STEPAF_MEM_HOST : STEPAF_MEM_CUDA);
    if (attention)
        HS_TRUE(info.data == plan->target[peer * shape->n_pull + index] + slot * bytes);
    if (bytes == 0)
        return true;
    return HS_TRUE(info.data != NULL) &&
           GX_CUDA(cudaMemsetAsync(info.data, HS_POISON, bytes, plan->stream));
}

bool gx_plan_ready(struct gx_plan *plan)
{
    int n = is_attention(plan) ? plan->shape.n_pull : plan->shape.n_push;

    HS_INT(stepaf_plan_depth(plan->handle), ==, plan->shape.depth);
    for (unsigned slot = 0; slot < plan->shape.depth; slot++) {
        for (int at = 0; at < plan->job->peers * n; at++)
            if (!look_at(plan, slot, at / n, at % n))
                return false;
        HS_TRUE(stepaf_plan_bytes(plan->handle, slot) != NULL);
    }
    plan->n_sent = 0;
    plan->n_seen = 0;
    return HS_OK(stepaf_plan_status(plan->handle)) && gx_sync(plan);
}

bool gx_plan_restart(struct gx_plan *plan, unsigned long long from)
{
    struct gx_tally tally = {.sent = from, .seen = from};

    return GX_CUDA(cudaMemcpy(plan->tally, &tally, sizeof tally, cudaMemcpyHostToDevice)) &&
           gx_settle() && gx_plan_ready(plan);
}

void gx_plan_end(struct gx_plan *plan)
{
    if (plan->handle != NULL)
        HS_OK(stepaf_plan_destroy(plan->handle));
    plan->handle = NULL;
}

bool gx_sync(struct gx_plan *plan)
{
    return gx_sync_stream(plan->stream, "a plan's stream") ||
           HS_FAILED("plan %d: %s", plan->id, stepaf_status_name(stepaf_plan_status(plan->handle)));
}

bool gx_verify(struct gx_plan *plan, unsigned long long operations)
{
    struct gx_tally tally;

    if (!GX_CUDA(cudaMemcpyAsync(&tally, plan->tally, sizeof tally, cudaMemcpyDeviceToHost,
                                 plan->stream)) ||
        !gx_sync(plan) || !HS_OK(stepaf_plan_status(plan->handle)))
        return false;
    if (tally.wrong + tally.spilled + tally.sizes > 0)
        return HS_FAILED("plan %d (%s memory): %llu bytes wrong, %llu beyond, %llu sizes, of %llu; "
                         "first: operation %llu, tensor %llu, byte %llu is %u, should be %u",
                         plan->id, gx_memory_name(plan->shape.memory), tally.wrong, tally.spilled,
                         tally.sizes, tally.bytes, tally.first_op, tally.first_piece,
                         tally.first_at, tally.is, tally.should);
    return HS_INT(tally.sent, ==, operations) && HS_INT(tally.seen, ==, operations);
}
