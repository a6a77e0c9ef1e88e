/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/bounce_in.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/batch.h"
#include "core/ctx.h"
#include "core/key.h"
#include "core/op.h"
#include "core/peer.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "device/gpu.h"

enum { FIRST_ARRIVALS = 16 };

/* A batch, or an answer, and the event behind its copies. */
struct arrival {
    void *event; /* NULL: not made yet; belongs to the entry of the ring */
    struct stepaf_peer *peer;
    struct stepaf_batch_obj *batch; /* FFN; NULL: it no longer exists */
    struct stepaf_op *op;           /* attention */
};

struct stepaf_bounce_in {
    void *stream;         /* a stream of the device; NULL: not needed yet */
    struct arrival *ring; /* in stream order */
    uint32_t capacity;    /* a power of two, or 0 */
    uint32_t first;
    uint32_t n;
};

/* What must be done for one message. */
struct message_copies {
    uint32_t n;
    bool flush; /* a device has written to the GPU itself */
    struct {
        void *dst;
        const void *src;
        size_t bytes;
    } copy[STEPAF_MAX_TENSORS];
};

static struct arrival *arrival_at(const struct stepaf_bounce_in *in, uint32_t i)
{
    return &in->ring[(in->first + i) & (in->capacity - 1)];
}

/* Note what must be done for a tensor that has arrived from @a peer. */
static void add_tensor(struct message_copies *copies, const struct stepaf_peer *peer,
                       const struct stepaf_region *region, uint8_t *data, uint32_t bytes)
{
    if (!region || region->mem.kind != STEPAF_MEM_CUDA || !bytes)
        return;
    if (!stepaf_is_taken(peer->link->transport, region)) {
        copies->copy[copies->n].dst = data;
        copies->copy[copies->n].src = region->bounce->mem.base + (data - region->mem.base);
        copies->copy[copies->n++].bytes = bytes;
    } else if (stepaf_gpu_rdma(peer->ctx->gpu.device)->flush) {
        copies->flush = true;
    }
}

/* Make space for one more arrival. */
static stepaf_status_t reserve_arrival(struct stepaf_bounce_in *in)
{
    uint32_t capacity = in->capacity ? 2 * in->capacity : FIRST_ARRIVALS;
    struct arrival *ring;

    if (in->n < in->capacity)
        return STEPAF_OK;
    ring = calloc(capacity, sizeof(*ring));
    if (!ring)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    for (uint32_t i = 0; i < in->n; i++)
        ring[i] = *arrival_at(in, i);
    free(in->ring);
    in->ring = ring;
    in->capacity = capacity;
    in->first = 0;
    return STEPAF_OK;
}

stepaf_status_t stepaf_bounce_in_open(struct stepaf_ctx *ctx)
{
    struct stepaf_bounce_in *in = ctx->gpu.bounce_in;

    if (!in)
        in = ctx->gpu.bounce_in = calloc(1, sizeof(*in));
    if (!in)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    return in->stream ? STEPAF_OK : stepaf_gpu_stream_create(ctx->gpu.device, &in->stream);
}

/* Enqueue the copies, and an arrival behind them. */
static stepaf_status_t enqueue_arrival(struct stepaf_ctx *ctx, const struct message_copies *copies,
                                       const struct arrival *model)
{
    struct stepaf_gpu *gpu = ctx->gpu.device;
    stepaf_status_t status = stepaf_bounce_in_open(ctx);
    struct stepaf_bounce_in *in = ctx->gpu.bounce_in;

    if (status || (status = reserve_arrival(in)))
        return status;
    struct arrival *arrival = arrival_at(in, in->n);
    for (uint32_t i = 0; i < copies->n && !status; i++)
        status = stepaf_gpu_copy(gpu, copies->copy[i].dst, copies->copy[i].src,
                                 copies->copy[i].bytes, in->stream);
    if (!status && !arrival->event)
        status = stepaf_gpu_event_create(gpu, &arrival->event);
    if (!status)
        status = stepaf_gpu_event_record(gpu, arrival->event, in->stream);
    if (status) { /* no copy is left behind: the caller learns that the peer is lost, and goes on */
        stepaf_error_t error = *stepaf_last_error();
        (void)stepaf_gpu_stream_sync(gpu, in->stream);
        return stepaf_error_raise(&error);
    }
    arrival->peer = model->peer;
    arrival->batch = model->batch;
    arrival->op = model->op;
    in->n++;
    ctx->gpu.n_arriving++;
    ctx->n_polled++;
    return STEPAF_INPROGRESS;
}

/* Data that the GPU cannot be given is treated as not sent: the peer is lost. */
static void fail_peer(struct stepaf_peer *peer)
{
    char reason[STEPAF_REASON_MAX];

    snprintf(reason, sizeof(reason), "its data cannot be copied to the GPU: %.120s",
             stepaf_last_error()->text);
    stepaf_peer_fail(peer, reason);
}

/* Wait until the GPU sees what devices have written to it. */
static stepaf_status_t flush_writes(const struct stepaf_peer *peer)
{
    struct stepaf_gpu *gpu = peer->ctx->gpu.device;

    return stepaf_gpu_rdma(gpu)->two_ways ? peer->link->ops->flush_gpu(peer->link)
                                          : stepaf_gpu_flush(gpu);
}

/* Do what must be done for one message. A message without copies does not overtake one with
 * copies. */
static stepaf_status_t bring_message(const struct message_copies *copies,
                                     const struct arrival *model)
{
    struct stepaf_ctx *ctx = model->peer->ctx;
    const struct stepaf_bounce_in *in = ctx->gpu.bounce_in;
    stepaf_status_t status = copies->flush ? flush_writes(model->peer) : STEPAF_OK;

    if (!status && (copies->n || (in && in->n)))
        status = enqueue_arrival(ctx, copies, model);
    if (status && status != STEPAF_INPROGRESS)
        fail_peer(model->peer);
    return status;
}

stepaf_status_t stepaf_bounce_in_batch(struct stepaf_batch_obj *batch)
{
    const struct stepaf_remote_plan *remote = batch->remote;
    struct message_copies copies = {0};

    for (uint32_t i = 0; i < remote->n_push; i++) {
        const struct stepaf_remote_plan_push *push = &remote->push[i];
        add_tensor(&copies, remote->peer, stepaf_region_find(remote->peer->ctx, push->data, 1),
                   push->data + (size_t)batch->slot * push->key->max_bytes, batch->bytes[i]);
    }
    return bring_message(&copies, &(struct arrival){.peer = remote->peer, .batch = batch});
}

stepaf_status_t stepaf_bounce_in_op(struct stepaf_op *op, struct stepaf_peer *peer)
{
    const struct stepaf_plan_obj *plan = op->plan;
    uint32_t first = peer->index * plan->n_pull;
    struct message_copies copies = {0};

    for (uint32_t i = first; i < first + plan->n_pull; i++) {
        const struct stepaf_pull *pull = &plan->pull[i];
        add_tensor(&copies, peer, pull->region,
                   pull->data + (size_t)op->slot * pull->key->max_bytes, op->pull_bytes[i]);
    }
    return bring_message(&copies, &(struct arrival){.peer = peer, .op = op});
}

/* The GPU has failed to take the data. If the peer was lost since it was sent, its operations have
 * been notified already. */
static void fail_arrival(const struct arrival *arrival)
{
    if (arrival->batch)
        arrival->batch->state = STEPAF_BATCH_FREE;
    else
        arrival->op->op_peers[arrival->peer->index].state = STEPAF_OP_PEER_WAITING;
    if (arrival->peer->lost && arrival->op)
        stepaf_op_peer_lost(arrival->peer);
    else
        fail_peer(arrival->peer);
}

unsigned stepaf_bounce_in_progress(struct stepaf_ctx *ctx)
{
    struct stepaf_bounce_in *in = ctx->gpu.bounce_in;
    unsigned n = 0;

    for (; in && in->n; n++) {
        struct arrival arrival = *arrival_at(in, 0);
        stepaf_status_t status = arrival.batch || arrival.op
                                     ? stepaf_gpu_event_test(ctx->gpu.device, arrival.event)
                                     : STEPAF_OK;
        if (status == STEPAF_INPROGRESS)
            break;
        in->first++;
        in->n--;
        ctx->gpu.n_arriving--;
        ctx->n_polled--;
        if (status)
            fail_arrival(&arrival);
        else if (arrival.batch)
            stepaf_batch_arrived(arrival.batch);
        else if (arrival.op)
            stepaf_op_arrived(arrival.op, arrival.peer);
    }
    return n;
}

void stepaf_bounce_in_forget(const struct stepaf_remote_plan *remote)
{
    const struct stepaf_bounce_in *in = remote->peer->ctx->gpu.bounce_in;

    for (uint32_t i = 0; in && i < in->n; i++) {
        struct arrival *arrival = arrival_at(in, i);
        if (arrival->batch && arrival->batch->remote == remote)
            arrival->batch = NULL;
    }
}

void stepaf_bounce_in_sync(const struct stepaf_ctx *ctx)
{
    if (ctx->gpu.bounce_in && ctx->gpu.bounce_in->stream)
        (void)stepaf_gpu_stream_sync(ctx->gpu.device, ctx->gpu.bounce_in->stream);
}

void stepaf_bounce_in_free(struct stepaf_ctx *ctx)
{
    struct stepaf_bounce_in *in = ctx->gpu.bounce_in;

    if (!in)
        return;
    ctx->gpu.n_arriving -= in->n;
    ctx->n_polled -= in->n;
    for (uint32_t i = 0; i < in->capacity; i++)
        if (in->ring[i].event)
            stepaf_gpu_event_destroy(ctx->gpu.device, in->ring[i].event);
    if (in->stream)
        stepaf_gpu_stream_destroy(ctx->gpu.device, in->stream);
    free(in->ring);
    free(in);
    ctx->gpu.bounce_in = NULL;
}
