/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of plan, or a kind of memory, adds to the host's path: the only way from core/ and
 * wireup/ up to it. The only such feature is gpu/: plans on streams, and GPU memory in plans that
 * the host starts. The host's path checks one flag of a plan, a remote plan or a post before it
 * calls one of these operations. Where the flag is not set, the check is the only cost.
 *
 * All operations are required. The context's lock is held, unless a comment says otherwise. */
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

    /* Advance what ctx->n_polled counts; return how much happened. */
    unsigned (*progress)(struct stepaf_ctx *ctx);
    void (*peer_lost)(struct stepaf_peer *peer);
    /* Whether streams have yet to pass what was enqueued for the proxy. Until then, nothing may
     * wait for the GPU. */
    bool (*is_ahead)(const struct stepaf_ctx *ctx);
    /* Before stamps or counters are read: take in what streams have noted of themselves. */
    void (*refresh)(struct stepaf_ctx *ctx);
    /* For the map: how a peer's link transfers GPU memory, or ""; how streams write to the peer, in
     * a word, or "" where there are no streams. */
    void (*describe)(const struct stepaf_peer *peer, char *text);
    const char *(*way)(const struct stepaf_peer *peer);
    /* The context ends. free: the transports are closed; close: its memory is gone. */
    void (*free)(struct stepaf_ctx *ctx);
    void (*close)(struct stepaf_ctx *ctx);

    /* ---- the commit, in this order ---- */

    /* Make what peers must know of; a failure is sent instead. */
    stepaf_status_t (*prepare)(struct stepaf_ctx *ctx);
    void (*pack)(const struct stepaf_ctx *ctx, struct stepaf_pack *pack);
    /* Check what all ranks have sent, by the same rules everywhere. @a kinds_differ: keys are of
     * several kinds of memory. */
    stepaf_status_t (*check)(const struct stepaf_advert *adverts, int n, bool kinds_differ);
    /* The adverts are in order, and some rank asks (ctx->gpu.asks) which ranks can write to its
     * GPU's memory: all ranks try, and report in one more exchange. *again_p, which is the same on
     * all ranks: undo, prepare and send everything again; then no rank asks. @a offsets: space for
     * the exchange. A failure is this rank's alone. */
    stepaf_status_t (*agree_reach)(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   size_t *offsets, int64_t timeout_us, bool *again_p);
    /* The commit was rejected: what was in force stays in force. */
    void (*undo)(struct stepaf_ctx *ctx);
    /* Peers are connected: map what they have sent. */
    stepaf_status_t (*join)(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);
    /* All peers are ready: free what the epoch before has used. */
    void (*retire)(struct stepaf_ctx *ctx);
    /* The links are final: free what none of them needs. */
    void (*ready)(struct stepaf_ctx *ctx);

    /* ---- plans on streams ---- */

    /* What is known of the times of an operation on streams at peer @a p: the host's operation that
     * transferred it, or one that stands for what the GPU has noted; NULL: nothing yet. False: the
     * times are not known. */
    bool (*carrier)(const struct stepaf_op *op, uint32_t p, const struct stepaf_op **carrier_p);
    /* For an operation with this plan number and sequence at the attention rank: for how many ticks
     * before its arrival a stream had not looked for what @a peer sends; STEPAF_UNLOOKED: not
     * known. False: it is no operation of a stream plan with timestamps. */
    bool (*unlooked)(const struct stepaf_peer *peer, uint32_t plan, uint32_t seq,
                     uint64_t *ticks_p);
    /* The largest error of the times of streams. */
    int64_t (*bound_ns)(const struct stepaf_ctx *ctx);
    stepaf_status_t (*plan_make)(struct stepaf_plan_obj *plan, uint32_t flags);
    bool (*plan_busy)(const struct stepaf_plan_obj *plan);
    /* The plan is idle as the host sees it, and ends. STEPAF_ERR_STATE: not yet. */
    stepaf_status_t (*plan_end)(struct stepaf_plan_obj *plan);
    void (*plan_free)(struct stepaf_plan_obj *plan);
    /* FFN: where a stream plan receives @a key from @a peer through the host; NULL: nowhere. */
    uint8_t *(*recv_place)(const struct stepaf_key *key, const struct stepaf_peer *peer);
    /* FFN. bind: a peer's plan whose keys are received there is complete. unbind: the plan goes.
     * arrived: a batch of it has arrived. */
    void (*bind)(struct stepaf_remote_plan *remote);
    void (*unbind)(struct stepaf_remote_plan *remote);
    void (*arrived)(struct stepaf_batch_obj *batch);
    /* A part of a tensor has landed. Of the message only the epoch has been checked. */
    void (*landed)(struct stepaf_peer *peer, const struct stepaf_msg *msg);

    /* ---- GPU memory in plans of the host's ---- */

    void (*region_dropped)(struct stepaf_ctx *ctx, struct stepaf_region *region);
    /* Begin to copy what is sent out of GPU memory, and record the end of the copy with an event.
     * Never waits. op->bounced, *bounced_p: something is copied. @a tensors: NULL: the planned
     * ones. */
    stepaf_status_t (*op_source)(struct stepaf_op *op, const stepaf_tensor_t *tensors, int n);
    stepaf_status_t (*batch_source)(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                    int n, bool *bounced_p);
    /* gate: queue the posts that send something copied, until @a event has passed. gate_open:
     * whether it has, for one of these posts. */
    void (*gate)(struct stepaf_post *const *posts, unsigned n, void *event);
    bool (*gate_open)(struct stepaf_peer *peer, struct stepaf_post *post);
    /* Bring what has arrived to the GPU. STEPAF_OK: it is there. STEPAF_INPROGRESS: it will be, and
     * then stepaf_op_arrived or stepaf_batch_arrived is called. Any other status loses the peer. */
    stepaf_status_t (*op_bring)(struct stepaf_op *op, struct stepaf_peer *peer);
    stepaf_status_t (*batch_bring)(struct stepaf_batch_obj *batch);
};

#endif
