/* SPDX-License-Identifier: Apache-2.0 */
/* How a batch ends: release, cancellation, loss of the peer, unreadable sources. */
#ifndef STEPAF_CORE_BATCH_END_H
#define STEPAF_CORE_BATCH_END_H

#include "core/batch.h"
#include "core/ctx.h"
#include "core/remote_plan.h"
#include "core/trace.h"

/* Return the nanoseconds between two stamps, capped to what 32 bits hold. */
static inline uint32_t stepaf_span_ns(const struct stepaf_ctx *ctx, uint64_t from, uint64_t to)
{
    uint64_t ns = (to - from) * ctx->clock.ns_scale >> STEPAF_NS_SCALE_BITS;

    return to - from < UINT32_MAX && ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX - 1;
}

/* Remove a READY batch from the lists of ready batches. */
static inline void stepaf_batch_unlist(struct stepaf_batch_obj *batch)
{
    struct stepaf_peer *peer = batch->remote->peer;

    stepaf_list_remove(&batch->any);
    stepaf_list_remove(&batch->own);
    if (stepaf_list_empty(&peer->ready))
        peer->ctx->inbox.n_peers--;
}

/* Write an event of a batch of @a remote into the trace. @a now: ticks. */
static inline void stepaf_batch_stamp(struct stepaf_ctx *ctx,
                                      const struct stepaf_remote_plan *remote, uint32_t seq,
                                      uint32_t event, uint64_t now)
{
    uint64_t word = stepaf_trace_word(event, 0, 0, STEPAF_TRACE_WHOLE) | remote->stamp;

    stepaf_trace_put(&ctx->trace, now, seq, 0, word);
}

/* Free the slot and notify the attention rank. */
void stepaf_batch_finish(struct stepaf_batch_obj *batch);
void stepaf_batch_cancel(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Handle the loss of a peer at an FFN rank: batches that have arrived stay, but their answers reach
 * nobody. */
void stepaf_batches_peer_lost(struct stepaf_peer *peer);
/* Note that the answer was not sent because its sources cannot be read. The batch has no answer
 * until the caller gives another one. */
void stepaf_batch_refused(struct stepaf_peer *peer, struct stepaf_post *post);

#endif
