/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory in plans that the host starts.
 *
 * A link carries it as it is where its transport takes it. For all other links the region has a
 * bounce buffer: pinned host memory that stands for it, at the same offsets. What goes out is
 * copied into it before it is posted, and what has come in is copied from there before anybody is
 * told of it (bounce_in.h). What a device has written itself is flushed then, where the GPU asks
 * for that. */
#ifndef STEPAF_GPU_BOUNCE_H
#define STEPAF_GPU_BOUNCE_H

#include "core/batch.h"
#include "core/ctx.h"

/* Commit: make the GPU memory ready that links may have to carry; peers are told next. */
stepaf_status_t stepaf_bounces_prepare(struct stepaf_ctx *ctx);
/* Have transports that can carry a region of GPU memory take it; and make a bounce buffer for the
 * others. */
stepaf_status_t stepaf_bounce_offer(struct stepaf_ctx *ctx, struct stepaf_region *region);
stepaf_status_t stepaf_bounce_link(struct stepaf_ctx *ctx, struct stepaf_region *region);
/* After the commit: let go of bounce buffers that no link needs, and pin the others. */
void stepaf_bounces_retire(struct stepaf_ctx *ctx);
/* The region goes. */
void stepaf_bounce_free(struct stepaf_ctx *ctx, struct stepaf_region *region);
/* Say how a peer's link carries GPU memory; "" if there is none. */
void stepaf_bounce_describe(const struct stepaf_peer *peer, char *text);

/* Begin to copy what a start or an answer sends out of GPU memory, and mark the end of that by an
 * event, which is made when it is needed first. Never waits. op->bounced, *bounced_p: there
 * was something. @a tensors: NULL, those that are planned. */
stepaf_status_t stepaf_bounce_start(struct stepaf_op *op, const stepaf_tensor_t *tensors, int n);
stepaf_status_t stepaf_bounce_answer(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                     int n, bool *bounced_p);
/* Have those posts queued that send something from a bounce buffer, until @a event has come by. */
void stepaf_bounce_gate(struct stepaf_post *const *posts, unsigned n, void *event);
/* Whether a queued post may go. */
bool stepaf_bounce_copied(struct stepaf_peer *peer, struct stepaf_post *post);

#endif
