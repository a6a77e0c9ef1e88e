/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: the tensors' bytes, then the message in the peer's inbox. */
#include <alloca.h>
#include <string.h>

#include "transport/shm/shm.h"

/* Write post->xfer[post->at]. False if there is no room for all of it now. */
static bool write_one(struct stepaf_shm_link *link, struct stepaf_post *post)
{
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    const struct stepaf_shm_rmem *rmem = (const struct stepaf_shm_rmem *)xfer->dst;

    if (!xfer->bytes)
        return true;
    if (rmem->map) {
        memcpy(rmem->map + xfer->dst_offset, xfer->src, xfer->bytes);
        link->base.bytes_sent += xfer->bytes;
        return true;
    }
    if (!link->cma)
        return stepaf_shm_write_fragments(link, post);
    if (!stepaf_shm_write_pages(link, xfer)) {
        struct stepaf_upcalls *up = link->base.transport->up;
        up->lost(up, &link->base, "its memory cannot be written any more");
        stepaf_shm_fence(&link->base); /* which tells it */
    }
    return true;
}

/* Whether nobody will read what is sent. */
static inline bool link_is_over(const struct stepaf_shm_link *link)
{
    return __builtin_expect(link->base.dead || link->shut, 0);
}

/* Finish one post, or leave it QUEUED with its cursor where it got to. False: it is. */
static inline bool shm_post_one(struct stepaf_post *post)
{
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)post->link;

    post->state = STEPAF_POST_SENT;
    if (link_is_over(link))
        return true;
    if (__builtin_expect(!stepaf_shm_slot_free(link), 0)) {
        post->state = STEPAF_POST_QUEUED;
        return false;
    }
    /* Only fragments take slots of their own; then there may be none left for the message. */
    for (; post->at < post->n_xfer; post->at++, post->at_offset = 0)
        if (!write_one(link, post)) {
            post->state = STEPAF_POST_QUEUED;
            return false;
        }
    if (link_is_over(link))
        return true; /* not all has been written */
    if (__builtin_expect(link->staged && !stepaf_shm_slot_free(link), 0)) {
        post->state = STEPAF_POST_QUEUED;
        return false;
    }
    stepaf_shm_slot_write(link, &post->msg);
    link->base.messages_sent++;
    return true;
}

static bool mapped(const struct stepaf_xfer *xfer)
{
    return ((const struct stepaf_shm_rmem *)xfer->dst)->map != NULL;
}

/* Whether tensor @a index comes from one place for all posts, is large, and goes by copy. */
static bool is_shared_source(struct stepaf_post *const *posts, unsigned n, unsigned index,
                             size_t least)
{
    const struct stepaf_xfer *first = &posts[0]->xfer[index];

    if (first->bytes < least)
        return false;
    for (unsigned i = 0; i < n; i++) {
        const struct stepaf_xfer *xfer = &posts[i]->xfer[index];
        if (posts[i]->n_xfer != posts[0]->n_xfer || xfer->src != first->src ||
            xfer->bytes != first->bytes || !mapped(xfer) || posts[i]->at)
            return false;
    }
    return true;
}

/* Copy the leading large tensors that all posts share, block by block to all peers. */
static void write_shared(struct stepaf_post *const *posts, unsigned n, size_t least)
{
    uint8_t **dst = alloca(n * sizeof(*dst));
    unsigned index = 0;

    for (; index < posts[0]->n_xfer && is_shared_source(posts, n, index, least); index++) {
        for (unsigned i = 0; i < n; i++) {
            const struct stepaf_xfer *xfer = &posts[i]->xfer[index];
            dst[i] = ((const struct stepaf_shm_rmem *)xfer->dst)->map + xfer->dst_offset;
        }
        stepaf_shm_copy_many(dst, n, posts[0]->xfer[index].src, posts[0]->xfer[index].bytes);
        for (unsigned i = 0; i < n; i++)
            posts[i]->link->bytes_sent += posts[i]->xfer[index].bytes;
    }
    for (unsigned i = 0; index && i < n; i++)
        posts[i]->at = (uint8_t)index;
}

unsigned stepaf_shm_post(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    if (n > 1 && posts[0]->n_xfer) {
        const struct stepaf_shm *shm = (const struct stepaf_shm *)posts[0]->link->transport;
        write_shared(posts, n, shm->shared_copy_bytes);
    }
    for (unsigned i = 0; i < n; i++)
        n_queued += !shm_post_one(posts[i]);
    return n_queued;
}
