/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/bounce.h"
#include "core/batch.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/op.h"
#include "core/peer.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"
#include "gpu/bounce_in.h"
#include "gpu/proxy.h"

/* ---- at commit ---- */

/* Return whether links may have to transfer a region. Attention ranks: if plans without streams
 * name it. FFN ranks do not know these plans yet, but a key in GPU memory that no stream plan of
 * theirs names belongs to one. They need the regions where such keys are received, and those that
 * answers may come from: all memory in which nothing is received. */
static bool is_wanted(const struct stepaf_ctx *ctx, const struct stepaf_region *region,
                      bool any_hosted)
{
    if (region->mem.kind != STEPAF_MEM_CUDA)
        return false;
    if (stepaf_is_attention(ctx))
        return region->hosted;
    return region->target ? region->receives_hosted : any_hosted;
}

/* FFN: note where keys in GPU memory that no stream plan names are received. Returns whether there
 * are any. */
static bool note_hosted(const struct stepaf_ctx *ctx)
{
    bool any = false;

    for (uint32_t i = 0; i < ctx->memory.n_regions; i++)
        ctx->memory.regions[i]->receives_hosted = false;
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++) {
        const struct stepaf_key *key = ctx->memory.keys[i];
        if (key->mem_kind != STEPAF_MEM_CUDA || stepaf_key_on_streams(key))
            continue;
        any = true;
        for (struct stepaf_list *node = key->recv_bufs.next; node != &key->recv_bufs;
             node = node->next)
            stepaf_container_of(node, struct stepaf_recv_buf, node)->region->receives_hosted = true;
    }
    return any;
}

static bool all_take(const struct stepaf_ctx *ctx, const struct stepaf_region *region)
{
    for (unsigned t = 0; t < ctx->net.n_transports; t++)
        if (!stepaf_is_taken(ctx->net.transports[t], region))
            return false;
    return true;
}

void stepaf_bounce_free(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    struct stepaf_region *bounce = region->bounce;

    if (!bounce)
        return;
    if (ctx->gpu.bounce_stream) /* copies to and from the buffer may be queued */
        (void)stepaf_gpu_stream_sync(ctx->gpu.device, ctx->gpu.bounce_stream);
    stepaf_bounce_in_sync(ctx);
    for (unsigned t = 0; t < ctx->net.n_transports; t++)
        ctx->net.transports[t]->ops->dereg_mem(ctx->net.transports[t], &bounce->mem);
    if (bounce->unpin)
        stepaf_gpu_unpin(ctx->gpu.device, bounce->mem.base);
    stepaf_device_free(&(struct stepaf_device_mem){bounce->mem.base, bounce->mem.bytes,
                                                   bounce->mem.fd, STEPAF_MEM_HOST, NULL});
    free(bounce);
    region->bounce = NULL;
}

static stepaf_status_t bounce_make(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    struct stepaf_region *bounce = malloc(sizeof(*bounce));
    struct stepaf_device_mem mem;
    stepaf_status_t status;

    if (!bounce)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    status = stepaf_bounce_in_open(ctx);
    if (!status && !ctx->gpu.bounce_stream)
        status = stepaf_gpu_stream_create(ctx->gpu.device, &ctx->gpu.bounce_stream);
    if (!status)
        status = stepaf_device_alloc(STEPAF_MEM_HOST, NULL, region->mem.bytes, &mem);
    if (status) {
        free(bounce);
        return status;
    }
    *bounce = (struct stepaf_region){.mem = {.id = region->mem.id,
                                             .base = mem.base,
                                             .bytes = region->mem.bytes,
                                             .kind = STEPAF_MEM_HOST,
                                             .fd = mem.fd},
                                     .library = true,
                                     .shareable = true,
                                     .is_bounce = true};
    region->bounce = bounce;
    for (unsigned t = 0; t < ctx->net.n_transports && !status; t++) {
        struct stepaf_transport *transport = ctx->net.transports[t];
        if (!stepaf_is_taken(transport, region))
            status = transport->ops->reg_mem(transport, &bounce->mem);
    }
    if (status)
        stepaf_bounce_free(ctx, region);
    return status;
}

stepaf_status_t stepaf_bounce_offer(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    stepaf_status_t status = STEPAF_OK;

    for (unsigned t = 0; t < ctx->net.n_transports && !status; t++) {
        struct stepaf_transport *transport = ctx->net.transports[t];
        if ((transport->ops->caps & STEPAF_TRANSPORT_GPU) && !stepaf_is_taken(transport, region))
            status = transport->ops->reg_mem(transport, &region->mem);
    }
    return status;
}

stepaf_status_t stepaf_bounce_link(struct stepaf_ctx *ctx, struct stepaf_region *region)
{
    stepaf_status_t status = stepaf_bounce_offer(ctx, region);

    if (!status && !region->bounce && !all_take(ctx, region))
        status = bounce_make(ctx, region);
    if (!status)
        region->linked = ctx->epoch + 1;
    return status;
}

stepaf_status_t stepaf_bounces_prepare(struct stepaf_ctx *ctx)
{
    stepaf_status_t status = STEPAF_OK;
    bool any_hosted = note_hosted(ctx);

    for (uint32_t i = 0; i < ctx->memory.n_regions && !status; i++)
        if (!ctx->memory.regions[i]->linked && is_wanted(ctx, ctx->memory.regions[i], any_hosted))
            status = stepaf_bounce_link(ctx, ctx->memory.regions[i]);
    return status;
}

/* Return whether some link copies through the region's bounce buffer. */
static bool is_bounce_used(const struct stepaf_ctx *ctx, const struct stepaf_region *region,
                           bool any_hosted)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (!stepaf_is_taken(ctx->peers[p].link->transport, region) &&
            (stepaf_peer_proxied(ctx, p) || is_wanted(ctx, region, any_hosted)))
            return true;
    return false;
}

void stepaf_bounces_retire(struct stepaf_ctx *ctx)
{
    bool any_hosted = note_hosted(ctx);

    for (uint32_t i = 0; i < ctx->memory.n_regions; i++) {
        struct stepaf_region *region = ctx->memory.regions[i];
        struct stepaf_region *bounce = region->bounce;
        if (!bounce || bounce->pinned)
            continue;
        if (all_take(ctx, region))
            stepaf_bounce_free(ctx, region);
        else if (!is_bounce_used(ctx, region, any_hosted))
            continue; /* nothing is ever written to it, so it takes no memory */
        else if (stepaf_gpu_pin(ctx->gpu.device, bounce->mem.base, bounce->mem.bytes,
                                &bounce->unpin))
            stepaf_log_info("%s: copies use one more buffer", stepaf_last_error()->text);
        else
            bounce->pinned = true;
    }
}

void stepaf_bounce_describe(const struct stepaf_peer *peer, char *text)
{
    const struct stepaf_ctx *ctx = peer->ctx;
    bool any = false;

    text[0] = '\0';
    for (uint32_t i = 0; i < ctx->memory.n_regions; i++)
        any = any || ctx->memory.regions[i]->linked;
    if (!any)
        return;
    peer->link->ops->describe_gpu(peer->link->transport, text);
}

/* ---- in operation: only if there is GPU memory ---- */

static stepaf_status_t copy_out(const struct stepaf_ctx *ctx, const struct stepaf_region *region,
                                const void *data, size_t bytes)
{
    uint8_t *room = region->bounce->mem.base + ((const uint8_t *)data - region->mem.base);

    return stepaf_gpu_copy(ctx->gpu.device, room, data, bytes, ctx->gpu.bounce_stream);
}

/* Mark the end of the copies so far. */
static stepaf_status_t mark(const struct stepaf_ctx *ctx, void **event_p)
{
    stepaf_status_t status =
        *event_p ? STEPAF_OK : stepaf_gpu_event_create(ctx->gpu.device, event_p);

    return status ? status
                  : stepaf_gpu_event_record(ctx->gpu.device, *event_p, ctx->gpu.bounce_stream);
}

/* Return whether some link of the plan needs the bounce buffer. */
static bool needs_bounce(const struct stepaf_plan_obj *plan, const struct stepaf_region *region)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    if (!region || region->mem.kind != STEPAF_MEM_CUDA)
        return false;
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (!ctx->peers[p].lost && !stepaf_plan_leaves_out(plan, p) &&
            !stepaf_is_taken(ctx->peers[p].link->transport, region))
            return true;
    return false;
}

stepaf_status_t stepaf_bounce_start(struct stepaf_op *op, const stepaf_tensor_t *tensors, int n)
{
    const struct stepaf_plan_obj *plan = op->plan;
    const struct stepaf_ctx *ctx = plan->ctx;
    stepaf_status_t status = STEPAF_OK;

    op->bounced = false;
    for (int i = 0; i < (tensors ? n : plan->n_push) && !status; i++) {
        const struct stepaf_push *planned = &plan->push[i % plan->n_push];
        const void *data = tensors ? tensors[i].data : planned->data;
        size_t bytes = tensors ? tensors[i].bytes : planned->bytes;
        const struct stepaf_region *region =
            data == planned->data ? planned->region : stepaf_region_find(ctx, data, bytes);
        if (!bytes || !needs_bounce(plan, region))
            continue;
        status = copy_out(ctx, region, data, bytes);
        op->bounced = true;
    }
    return status || !op->bounced ? status : mark(ctx, &op->copied);
}

stepaf_status_t stepaf_bounce_answer(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                     int n, bool *bounced_p)
{
    const struct stepaf_peer *peer = batch->remote->peer;
    const struct stepaf_ctx *ctx = peer->ctx;
    stepaf_status_t status = STEPAF_OK;

    *bounced_p = false;
    for (int i = 0; i < n && !status; i++) {
        const struct stepaf_region *region =
            stepaf_region_find(ctx, tensors[i].data, tensors[i].bytes);
        if (!tensors[i].bytes || !region || region->mem.kind != STEPAF_MEM_CUDA ||
            stepaf_is_taken(peer->link->transport, region))
            continue;
        status = copy_out(ctx, region, tensors[i].data, tensors[i].bytes);
        *bounced_p = true;
    }
    return status || !*bounced_p ? status : mark(ctx, &batch->copied);
}

void stepaf_bounce_gate(struct stepaf_post *const *posts, unsigned n, void *event)
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned x = 0; x < posts[i]->n_xfer; x++) {
            const struct stepaf_xfer *xfer = &posts[i]->xfer[x];
            if (!xfer->bytes || !stepaf_region_of(xfer->src_mem)->is_bounce)
                continue;
            posts[i]->template = event;
            posts[i]->is_gated = true;
            posts[i]->link->has_backlog = true; /* so that the post is queued */
        }
}

bool stepaf_bounce_copied(struct stepaf_peer *peer, struct stepaf_post *post)
{
    stepaf_status_t status = stepaf_gpu_event_test(peer->ctx->gpu.device, post->template);

    if (status == STEPAF_INPROGRESS)
        return false;
    post->template = NULL;
    post->is_gated = false;
    if (status)
        stepaf_peer_fail(peer, stepaf_last_error()->text);
    return true;
}
