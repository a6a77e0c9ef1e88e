/* SPDX-License-Identifier: Apache-2.0 */
/* Sending posts and messages, and queueing those that the transport has no space for. */
#ifndef STEPAF_CORE_SEND_H
#define STEPAF_CORE_SEND_H

#include "core/ctx.h"

/* Send posts, and queue those that transports have no space for. _mixed: posts of several
 * transports, or behind posts that wait already. _keep: queue those of @a posts that a transport
 * has left QUEUED. */
void stepaf_core_post_mixed(struct stepaf_ctx *ctx, struct stepaf_post *const *posts, unsigned n);
void stepaf_core_keep(struct stepaf_ctx *ctx, struct stepaf_post *const *posts, unsigned n);
static inline void stepaf_core_post(struct stepaf_ctx *ctx, struct stepaf_post *const *posts,
                                    unsigned n)
{
    if (__builtin_expect(!ctx->net.only_ops || !stepaf_list_empty(&ctx->net.queued), 0))
        stepaf_core_post_mixed(ctx, posts, n);
    else if (__builtin_expect(ctx->net.only_ops->post(posts, n) > 0, 0))
        stepaf_core_keep(ctx, posts, n);
}
static inline void stepaf_core_post_one(struct stepaf_ctx *ctx, struct stepaf_post *post)
{
    stepaf_core_post(ctx, &post, 1);
}
/* Send a message without tensors (not on the hot path). Return false if the message would have to
 * wait behind another one, and there is no memory for that. */
bool stepaf_core_send(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Send a message if there is a link that is not lost. A peer that cannot be notified is declared
 * lost. */
void stepaf_core_tell(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Adjust a write to @a dst_offset, whose other fields are set: @a bytes have gone ahead of it. */
static inline void stepaf_xfer_skip(struct stepaf_xfer *xfer, uint64_t dst_offset, uint32_t bytes)
{
    xfer->src = (const uint8_t *)xfer->src + bytes;
    xfer->dst_offset = dst_offset + bytes;
    xfer->bytes -= bytes;
}
/* Return whether @a post is in flight: the post and its sources are in use. */
static inline bool stepaf_post_in_flight(const struct stepaf_post *post)
{
    return post->state == STEPAF_POST_QUEUED || post->state == STEPAF_POST_POSTED;
}
/* Complete a post: the peer has reported that all of @a post has landed, or the post is being
 * freed. The sources are free, even if the transport does not know yet. */
static inline void stepaf_post_complete(struct stepaf_post *post)
{
    if (__builtin_expect(post->state != STEPAF_POST_POSTED, 1))
        return;
    post->link->ops->retire(post);
    post->state = STEPAF_POST_SENT;
}
/* Offer queued posts to the transports again. Return how many have left. */
unsigned stepaf_core_send_queued(struct stepaf_ctx *ctx);

#endif
