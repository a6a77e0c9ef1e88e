/* SPDX-License-Identifier: Apache-2.0 */
/* Bounce buffers: GPU memory in plans that the host starts.
 *
 * A link transfers GPU memory in place if its transport supports that. For all other links the
 * region has a bounce buffer: pinned host memory that stands for the region, at the same offsets.
 * Outgoing data is copied into it before the post. Incoming data is copied from it before the
 * message is handed on (bounce_in.h). What a device wrote itself is flushed at that point instead,
 * if the GPU asks for that. */
#ifndef STEPAF_GPU_BOUNCE_H
#define STEPAF_GPU_BOUNCE_H

#include "core/batch.h"
#include "core/ctx.h"

/* Commit: make GPU memory ready that links may have to transfer; the peers are told next. */
stepaf_status_t stepaf_bounces_prepare(struct stepaf_ctx *ctx);
/* offer: Register a region of GPU memory with the transports that support it. link: Do the same,
 * and make a bounce buffer if some transport does not. */
stepaf_status_t stepaf_bounce_offer(struct stepaf_ctx *ctx, struct stepaf_region *region);
stepaf_status_t stepaf_bounce_link(struct stepaf_ctx *ctx, struct stepaf_region *region);
/* After the commit: free the bounce buffers that no link needs, and pin the others. */
void stepaf_bounces_retire(struct stepaf_ctx *ctx);
/* Free the bounce buffer of a region that ends. */
void stepaf_bounce_free(struct stepaf_ctx *ctx, struct stepaf_region *region);
/* Describe how a peer's link transfers GPU memory; "" if there is none. */
void stepaf_bounce_describe(const struct stepaf_peer *peer, char *text);

/* Begin to copy what a start or an answer sends out of GPU memory, and mark the end of the copies
 * by an event, which is made at first use. Never waits. op->bounced, *bounced_p: there was
 * something to copy. @a tensors: NULL for the planned tensors. */
stepaf_status_t stepaf_bounce_start(struct stepaf_op *op, const stepaf_tensor_t *tensors, int n);
stepaf_status_t stepaf_bounce_answer(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                     int n, bool *bounced_p);
/* Keep the posts that send from a bounce buffer queued until @a event has passed. */
void stepaf_bounce_gate(struct stepaf_post *const *posts, unsigned n, void *event);
/* Return whether a queued post may be sent. */
bool stepaf_bounce_copied(struct stepaf_peer *peer, struct stepaf_post *post);

#endif
