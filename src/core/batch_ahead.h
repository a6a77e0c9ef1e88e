/* SPDX-License-Identifier: Apache-2.0 */
/* What an FFN rank sends about a batch before the answer: single tensors of the answer, and the
 * confirmation that the push has landed. Each is a post of its own: one write or none, and LANDED.
 * The answer then carries the other tensors. */
#ifndef STEPAF_CORE_BATCH_AHEAD_H
#define STEPAF_CORE_BATCH_AHEAD_H

#include <stepaf/stepaf.h>

#include "core/batch.h"
#include "core/ctx.h"
#include "core/remote_plan.h"
#include "transport/post.h"

/* One such post of a slot: allocated at its first use, and kept. */
struct stepaf_batch_part {
    struct stepaf_post post; /* first: the core may have to free it */
    struct stepaf_xfer xfer;
    uint32_t bytes;
};

struct stepaf_batch_ahead {
    uint32_t generation; /* of the batch that the other fields describe */
    uint32_t sent;       /* bit i: tensor i of the answer has gone ahead; STEPAF_BATCH_CONFIRMED */
    /* by tensor; the last entry: the push */
    struct stepaf_batch_part *parts[STEPAF_MAX_TENSORS + 1];
};

enum { STEPAF_BATCH_CONFIRMED = 1 << STEPAF_MAX_TENSORS };

/* Return what was sent ahead for a batch, or NULL if the slot never sent anything ahead. A table of
 * the context holds these structures, by batch index, so that slots without them cost no memory. */
static inline struct stepaf_batch_ahead *stepaf_batch_ahead_of(const struct stepaf_batch_obj *batch)
{
    const struct stepaf_ctx *ctx = batch->remote->peer->ctx;

    return batch->index < ctx->inbox.n_ahead ? ctx->inbox.ahead[batch->index] : NULL;
}

/* Send tensor @a index of the answer ahead. */
stepaf_status_t stepaf_batch_send_ahead(struct stepaf_batch_obj *batch, int index,
                                        const stepaf_tensor_t *tensor);
/* Notify the attention rank that its push has landed. */
stepaf_status_t stepaf_batch_confirm(struct stepaf_batch_obj *batch);
/* Remove the tensors that have gone ahead from the answer's writes. Reject a tensor whose size
 * differs from the size sent ahead. */
stepaf_status_t stepaf_batch_leave_out_ahead(struct stepaf_batch_obj *batch);
/* Undo what @a post stands for: its source cannot be read, and the post was not sent. Return false
 * if @a post is not a post of this kind. */
bool stepaf_batch_refuse_ahead(struct stepaf_batch_obj *batch, const struct stepaf_post *post);
/* Mark all these posts as no longer in use: the slot's next batch arrives, or the peer is lost. */
void stepaf_batch_ahead_complete(struct stepaf_batch_obj *batch);
void stepaf_batch_ahead_free(struct stepaf_batch_obj *batch);
/* Return whether the source of any such post is in use. */
bool stepaf_batch_is_ahead(const struct stepaf_batch_obj *batch);
/* Return the bytes of memory that these posts take. */
size_t stepaf_batch_ahead_bytes(const struct stepaf_batch_obj *batch);

#endif
