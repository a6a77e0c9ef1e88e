/* SPDX-License-Identifier: Apache-2.0 */
/* What an FFN rank sends about a batch before it answers: single tensors of the answer, and that
 * the push has arrived. Each is a post of its own: one write or none, and LANDED. The answer then
 * has the other tensors. */
#ifndef STEPAF_CORE_BATCH_AHEAD_H
#define STEPAF_CORE_BATCH_AHEAD_H

#include <stepaf/stepaf.h>

#include "core/batch.h"
#include "core/ctx.h"
#include "core/remote_plan.h"
#include "transport/post.h"

/* One of these posts, of a slot: made at its first use, and kept. */
struct stepaf_batch_part {
    struct stepaf_post post; /* first: if the core is to free it */
    struct stepaf_xfer xfer;
    uint32_t bytes;
};

struct stepaf_batch_ahead {
    uint32_t generation; /* of the batch that the other fields are about */
    uint32_t sent;       /* bit i: tensor i of the answer was sent ahead; and the bit below */
    struct stepaf_batch_part *parts[STEPAF_MAX_TENSORS + 1]; /* by tensor; the last one: the push */
};

enum { STEPAF_BATCH_CONFIRMED = 1 << STEPAF_MAX_TENSORS };

/* What was sent ahead of a batch's answer; NULL: nothing ever was in its slot. The context has a
 * table by the batch's number, so that slots that send nothing ahead need no memory for it. */
static inline struct stepaf_batch_ahead *stepaf_batch_ahead_of(const struct stepaf_batch_obj *batch)
{
    const struct stepaf_ctx *ctx = batch->remote->peer->ctx;

    return batch->index < ctx->inbox.n_ahead ? ctx->inbox.ahead[batch->index] : NULL;
}

/* Send tensor @a index of the answer. */
stepaf_status_t stepaf_batch_send_ahead(struct stepaf_batch_obj *batch, int index,
                                        const stepaf_tensor_t *tensor);
/* Notify the attention rank that its push has arrived. */
stepaf_status_t stepaf_batch_confirm(struct stepaf_batch_obj *batch);
/* Remove from the answer's writes those that were sent ahead; a tensor of another size is
 * rejected. */
stepaf_status_t stepaf_batch_leave_out_ahead(struct stepaf_batch_obj *batch);
/* Undo @a post, whose source cannot be read: it was not sent. False: it is none of these posts. */
bool stepaf_batch_refuse_ahead(struct stepaf_batch_obj *batch, const struct stepaf_post *post);
/* None of these posts is in use any more: the slot's next batch arrives, or the peer is lost. */
void stepaf_batch_ahead_complete(struct stepaf_batch_obj *batch);
void stepaf_batch_ahead_free(struct stepaf_batch_obj *batch);
/* Whether the source of one of them is in use. */
bool stepaf_batch_is_ahead(const struct stepaf_batch_obj *batch);
/* Bytes of memory that they take. */
size_t stepaf_batch_ahead_bytes(const struct stepaf_batch_obj *batch);

#endif
