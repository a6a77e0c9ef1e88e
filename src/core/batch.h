/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: operations as they have arrived at an FFN rank, and the answers to them. */
#ifndef STEPAF_CORE_BATCH_H
#define STEPAF_CORE_BATCH_H

#include <stepaf/stepaf.h>

#include "base/list.h"
#include "transport/post.h"

struct stepaf_ctx;
struct stepaf_link;
struct stepaf_msg;
struct stepaf_peer;
struct stepaf_remote_plan;
struct stepaf_upcalls;

enum stepaf_batch_state {
    STEPAF_BATCH_FREE,
    STEPAF_BATCH_ARRIVING, /* arrived; being copied into GPU memory */
    STEPAF_BATCH_READY,    /* complete, not yet handed to the caller */
    STEPAF_BATCH_HELD
};

struct stepaf_batch_obj {
    struct stepaf_remote_plan *remote;
    struct stepaf_list any; /* in ctx->inbox.ready */
    struct stepaf_list own; /* in peer->ready */
    uint32_t index;
    uint32_t generation;
    uint32_t seq;
    uint8_t slot;
    uint8_t state; /* stepaf_batch_state */
    bool canceled;
    bool answered;
    bool refused;       /* the last response was not sent */
    bool retired;       /* the response's request was waited for */
    uint32_t responded; /* generation of the last response: names its request */
    uint32_t born;      /* generations before this one named other batches with this index */
    uint64_t arrived;   /* ticks */
    uint64_t handled;
    struct stepaf_post answer;
    struct stepaf_post release;
    struct stepaf_xfer *xfers; /* n_pull */
    uint32_t *bytes;           /* n_push */
    void *copied;              /* event, as in struct stepaf_op */
};

/* Return whether @a batch is not released yet, or its RELEASE has not left. A POSTED message is the
 * transport's responsibility: the peer may have received it already. */
bool stepaf_batch_busy(const struct stepaf_batch_obj *batch);
void stepaf_batch_start(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Upcall: take a START in 32 bits, or 32 bits that are no START. */
void stepaf_batch_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
/* Note that all of a batch is in its final memory. The batch may have been ARRIVING. */
void stepaf_batch_arrived(struct stepaf_batch_obj *batch);
/* Take the next batch of any peer, or of @a peer. Return NULL if there is none. @a now: a stamp
 * from the end of the last vain poll or later; a batch that arrived after @a now counts as taken
 * immediately. */
struct stepaf_batch_obj *stepaf_batch_take(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                           uint64_t now);
stepaf_status_t stepaf_batch_respond(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                     int n, uint32_t flags);

#endif
