/* SPDX-License-Identifier: Apache-2.0 */
/* Removing registered memory, once nothing uses it and no device reads it. */
#include "core/region_remove.h"
#include "core/ctx.h"
#include "core/members.h"
#include "core/plan_end.h"
#include "core/progress.h"
#include "core/region.h"
#include "core/wait.h"

/* Return the region if it can be removed; otherwise NULL, with the reason in *status_p. */
static struct stepaf_region *removable(struct stepaf_ctx *ctx, void *base, bool allocated,
                                       stepaf_status_t *status_p)
{
    struct stepaf_region *region = stepaf_region_find(ctx, base, 0);

    if (region && region->mem.base == base && region->library == allocated && region->uses)
        stepaf_plans_uncache(ctx, region);
    if (!region || region->mem.base != base || region->library != allocated)
        *status_p =
            stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_NONE,
                             allocated ? "not the start of memory from stepaf_alloc"
                                       : "not the start of memory given to stepaf_register");
    else if (region->uses)
        *status_p = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                     "%u tensors of plans or receive registrations use this memory",
                                     region->uses);
    else if (region->mem.kind != STEPAF_MEM_HOST || region->unpin)
        *status_p = stepaf_region_check_streams(ctx);
    else
        *status_p = STEPAF_OK;
    return *status_p ? NULL : region;
}

/* Return a peer for which a device may read again what it sends again, or a lost one that still
 * writes; NULL: none. */
static const struct stepaf_peer *unsettled(struct stepaf_ctx *ctx, bool begin)
{
    const struct stepaf_peer *peer = NULL;
    uint32_t index;

    for (unsigned i = 0; i < ctx->net.n_transports; i++) {
        struct stepaf_transport *transport = ctx->net.transports[i];
        if (!transport->ops->is_quiet(transport, begin, &index))
            peer = &ctx->peers[index];
    }
    return peer;
}

/* Return whether a post that waits for space has a tensor in the region, or in its bounce
 * buffer. */
static bool reads(const struct stepaf_post *post, const struct stepaf_region *region)
{
    for (uint32_t i = 0; i < post->n_xfer; i++) {
        const struct stepaf_region *from = stepaf_region_of(post->xfer[i].src_mem);
        if (post->xfer[i].bytes && (from == region || (from && from == region->bounce)))
            return true;
    }
    return false;
}

/* Return a peer to which something of a region is still to be sent; NULL: none. */
static const struct stepaf_peer *queued(const struct stepaf_ctx *ctx,
                                        const struct stepaf_region *region)
{
    for (const struct stepaf_list *n = ctx->net.queued.next; n != &ctx->net.queued; n = n->next) {
        const struct stepaf_peer *peer = stepaf_container_of(n, struct stepaf_peer, queue_node);
        for (const struct stepaf_list *m = peer->queue.next; m != &peer->queue; m = m->next)
            if (reads(stepaf_container_of(m, struct stepaf_post, node), region))
                return peer;
    }
    return NULL;
}

static stepaf_status_t not_acknowledged(const struct stepaf_peer *peer, stepaf_phase_t phase)
{
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, phase, peer->who,
                                 STEPAF_WHO_FORMAT
                                 "%s has not acknowledged all data sent to it, or "
                                 "still writes",
                                 STEPAF_WHO_ARGS(peer->who),
                                 stepaf_members_n_returns(peer->ctx, (uint32_t)peer->who.world_rank)
                                     ? ", or a process that had its place,"
                                     : "");
}

/* Make progress, for the last time when the deadline has passed. */
static bool go_on(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns)
{
    bool more = stepaf_core_advance(ctx, waiter, deadline_ns);

    if (!more)
        (void)stepaf_core_progress(ctx);
    return more;
}

stepaf_status_t stepaf_regions_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    const struct stepaf_peer *peer;
    bool more = true;

    for (bool begin = true; (peer = unsettled(ctx, begin)); begin = false) {
        if (!more)
            return not_acknowledged(peer, STEPAF_PHASE_COMMIT);
        more = go_on(ctx, &waiter, deadline_ns);
    }
    return STEPAF_OK;
}

/* The lock is free during the wait: a plan may have started to use the memory, or another thread
 * may have removed it. */
stepaf_status_t stepaf_region_remove(struct stepaf_ctx *ctx, void *base, bool allocated)
{
    int64_t deadline_ns = stepaf_deadline_ns(ctx->env.timeout_us);
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    struct stepaf_region *region;
    bool begin = true, more = true;
    stepaf_status_t status;

    while ((region = removable(ctx, base, allocated, &status))) {
        const struct stepaf_peer *late = queued(ctx, region);
        const struct stepaf_peer *peer = late ? late : unsettled(ctx, begin);
        begin = late != NULL; /* everything sent until then counts */
        if (!peer)
            break;
        if (!more)
            return not_acknowledged(peer, STEPAF_PHASE_NONE);
        more = go_on(ctx, &waiter, deadline_ns);
    }
    if (!region)
        return status;
    if (region->offered)
        ctx->commit.changed = true;
    stepaf_region_drop(ctx, region);
    return STEPAF_OK;
}
