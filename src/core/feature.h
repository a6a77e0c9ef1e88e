/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of plan or a kind of memory adds to the host's path: the only way from core/ and
 * wireup/ up to that code. The only feature is gpu/: plans on streams, and GPU memory in plans
 * that the host starts. The host's path tests one flag of a plan, a remote plan or a post before
 * it calls one of these functions; if the flag is not set, that test is the whole cost.
 *
 * All functions are present. The context's lock is held, unless a function says otherwise. */
#ifndef STEPAF_CORE_FEATURE_H
#define STEPAF_CORE_FEATURE_H

#include "base/error.h"
#include "base/pack.h"

struct stepaf_batch_obj;
struct stepaf_ctx;
struct stepaf_advert;
struct stepaf_key;
struct stepaf_msg;
struct stepaf_remote_plan;
struct stepaf_op;
struct stepaf_peer;
struct stepaf_plan_obj;
struct stepaf_post;
struct stepaf_region;

#define STEPAF_UNLOOKED UINT64_MAX

struct stepaf_feature_ops {
    /* ---- the context ---- */

    /* Advance the objects that ctx->n_polled counts. Return the number of events. */
    unsigned (*progress)(struct stepaf_ctx *ctx);
    void (*peer_lost)(struct stepaf_peer *peer);
    /* Return whether streams have not yet passed work that was enqueued for the proxy. Until they
     * have, nothing may wait for the GPU. */
    bool (*is_ahead)(const struct stepaf_ctx *ctx);
    /* Return whether a thread is enqueueing to a stream plan, without the lock. */
    bool (*is_enqueueing)(const struct stepaf_ctx *ctx);
    /* Take in what streams have recorded. Called before stamps or counters are read. */
    void (*refresh)(struct stepaf_ctx *ctx);
    /* For the map: describe how a peer's link carries GPU memory, or ""; return one word for how
     * streams write to the peer, or "" if there are no streams. */
    void (*describe)(const struct stepaf_peer *peer, char *text);
    const char *(*way)(const struct stepaf_peer *peer);
    /* End the context: free is called once the transports are closed, close once its memory is
     * gone. */
    void (*free)(struct stepaf_ctx *ctx);
    void (*close)(struct stepaf_ctx *ctx);

    /* ---- the commit, in this order ---- */

    /* Make what peers must be told. A failure is announced instead. */
    stepaf_status_t (*prepare)(struct stepaf_ctx *ctx);
    void (*pack)(const struct stepaf_ctx *ctx, struct stepaf_pack *pack);
    /* Check what all ranks have announced, by the same rules at every rank. @a kinds_differ: keys
     * are of several kinds of memory. */
    stepaf_status_t (*check)(const struct stepaf_advert *adverts, int n, bool kinds_differ);
    /* Called if the adverts are valid and some rank asks (ctx->gpu.asks) who can write to its GPU's
     * memory. All ranks try, and report the result in one more exchange. *again_p is the same at
     * all ranks; if true, undo what was prepared, and prepare and announce it again; then no rank
     * asks. @a offsets: space for the exchange. A failure is this rank's alone. */
    stepaf_status_t (*agree_reach)(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   size_t *offsets, int64_t timeout_us, bool *again_p);
    /* The commit was rejected: the previous state stays in force. */
    void (*undo)(struct stepaf_ctx *ctx);
    /* Peers are connected: map what they have announced. */
    stepaf_status_t (*join)(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);
    /* All peers are ready: free what the previous epoch used. */
    void (*retire)(struct stepaf_ctx *ctx);
    /* The links are final: free what no link needs. */
    void (*ready)(struct stepaf_ctx *ctx);

    /* ---- plans on streams ---- */

    /* Set *carrier_p to what is known of the times of a stream operation at peer @a p: an operation
     * that carried it through the host, or one that represents what the GPU has recorded; NULL:
     * nothing yet. Return false if nobody knows. */
    bool (*carrier)(const struct stepaf_op *op, uint32_t p, const struct stepaf_op **carrier_p);
    /* Of the operation with that plan number and sequence at the attention rank: set *ticks_p to
     * how long before its arrival here a stream had not looked for data of @a peer;
     * STEPAF_UNLOOKED: unknown. Return false if the operation is not one of a stream plan with
     * timestamps. */
    bool (*unlooked)(const struct stepaf_peer *peer, uint32_t plan, uint32_t seq,
                     uint64_t *ticks_p);
    /* Return the maximum error of stream times. */
    int64_t (*bound_ns)(const struct stepaf_ctx *ctx);
    stepaf_status_t (*plan_make)(struct stepaf_plan_obj *plan, uint32_t flags);
    bool (*plan_busy)(const struct stepaf_plan_obj *plan);
    /* Return STEPAF_OK, or why the plan is over, with the detail set. */
    stepaf_status_t (*plan_status)(struct stepaf_plan_obj *plan);
    /* End a plan that is idle as seen from the host. STEPAF_ERR_STATE: it cannot end yet. */
    stepaf_status_t (*plan_end)(struct stepaf_plan_obj *plan);
    void (*plan_free)(struct stepaf_plan_obj *plan);
    /* FFN: return where a stream plan receives @a key from @a peer through the host; NULL:
     * nowhere. */
    uint8_t *(*recv_place)(const struct stepaf_key *key, const struct stepaf_peer *peer);
    /* FFN, for a peer's plan whose keys are received there. bind: the plan is complete; unbind: the
     * plan ends; arrived: a batch of it has arrived. */
    void (*bind)(struct stepaf_remote_plan *remote);
    void (*unbind)(struct stepaf_remote_plan *remote);
    void (*arrived)(struct stepaf_batch_obj *batch);
    /* A part of a tensor has landed. The message is of this epoch; nothing else in it is
     * checked. */
    void (*landed)(struct stepaf_peer *peer, const struct stepaf_msg *msg);

    /* ---- GPU memory in plans started by the host ---- */

    void (*region_dropped)(struct stepaf_ctx *ctx, struct stepaf_region *region);
    /* Start copying sources out of GPU memory, and record an event at the end of the copies. Never
     * waits. op->bounced, *bounced_p: something is being copied. @a tensors: NULL: the planned
     * ones. */
    stepaf_status_t (*op_source)(struct stepaf_op *op, const stepaf_tensor_t *tensors, int n);
    stepaf_status_t (*batch_source)(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                    int n, bool *bounced_p);
    /* gate: keep posts that send copied data queued until @a event has passed. gate_open: return
     * whether the event of one such post has passed. */
    void (*gate)(struct stepaf_post *const *posts, unsigned n, void *event);
    bool (*gate_open)(struct stepaf_peer *peer, struct stepaf_post *post);
    /* Bring arrived data to the GPU. STEPAF_OK: the data is there. STEPAF_INPROGRESS: the data is
     * in flight; stepaf_op_arrived or stepaf_batch_arrived is called later. Otherwise the peer is
     * lost. */
    stepaf_status_t (*op_bring)(struct stepaf_op *op, struct stepaf_peer *peer);
    stepaf_status_t (*batch_bring)(struct stepaf_batch_obj *batch);
};

#endif
