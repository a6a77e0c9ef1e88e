/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: the tensors' bytes, then the message into the peer's inbox. */
#include <alloca.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/writable.h"
#include "transport/shm/copy.h"
#include "transport/shm/shm.h"

/* Result of a write. */
enum outcome {
    DONE,    /* also if the peer is lost */
    NO_ROOM, /* for all of it, now */
    REFUSED  /* this rank's own memory cannot be read: the post is abandoned */
};

/* Abandon a post: nothing of it counts as sent. */
static enum outcome refuse(struct stepaf_shm_link *link, struct stepaf_post *post)
{
    struct stepaf_upcalls *up = link->base.transport->up;

    link->base.bytes_sent -= post->at_offset;
    for (unsigned i = 0; i < post->at; i++)
        link->base.bytes_sent -= post->xfer[i].bytes;
    up->refused(up, post);
    return REFUSED;
}

static enum outcome write_ring(struct stepaf_shm_link *link, struct stepaf_post *post)
{
    switch (stepaf_shm_write_fragments(link, post)) {
    case STEPAF_SHM_NO_ROOM:
        return NO_ROOM;
    case STEPAF_SHM_NO_SOURCE:
        return refuse(link, post);
    default:
        return DONE;
    }
}

/* Switch to the ring. A peer may change its user, or end its first thread: its ring still works. */
static enum outcome go_by_ring(struct stepaf_shm_link *link, struct stepaf_post *post)
{
    if (link->cma)
        stepaf_log_info("shm: process %d: cross-memory attach is no longer permitted, tensors go "
                        "through the ring",
                        (int)link->pid);
    link->cma = false;
    snprintf(link->base.name, sizeof(link->base.name), "shm;ring");
    return write_ring(link, post);
}

/* Write to the peer's own pages, if possible. */
static enum outcome write_pages(struct stepaf_shm_link *link, struct stepaf_post *post)
{
    switch (stepaf_shm_write_pages(link, post)) {
    case STEPAF_SHM_FORBIDDEN:
        return go_by_ring(link, post);
    case STEPAF_SHM_NO_SOURCE:
        return refuse(link, post);
    case STEPAF_SHM_NO_PLACE:
        stepaf_shm_give_up(link, STEPAF_SHM_UNWRITABLE, stepaf_unwritable_peers);
        return DONE;
    case STEPAF_SHM_GONE:
        stepaf_shm_give_up(link, STEPAF_SHM_GIVEN_UP, "its process has ended");
        return DONE;
    case STEPAF_SHM_WRITTEN:
    case STEPAF_SHM_NO_ROOM: /* only returned for the ring */
        break;
    }
    return DONE;
}

/* Write post->xfer[post->at]. */
static enum outcome write_one(struct stepaf_shm_link *link, struct stepaf_post *post)
{
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    const struct stepaf_shm_rmem *rmem = (const struct stepaf_shm_rmem *)xfer->dst;

    if (!xfer->bytes)
        return DONE;
    if (rmem->map) {
        const struct stepaf_shm *shm = (const struct stepaf_shm *)link->base.transport;
        stepaf_shm_copy(rmem->map + xfer->dst_offset, xfer->src, xfer->bytes, shm->uncached_bytes);
        link->base.bytes_sent += xfer->bytes;
        return DONE;
    }
    if (link->cma)
        return write_pages(link, post);
    return write_ring(link, post);
}

/* Return whether nobody will read what is sent. */
static inline bool link_is_over(const struct stepaf_shm_link *link)
{
    return __builtin_expect(link->base.dead || link->shut, 0);
}

/* Finish one post, or leave it QUEUED with its cursor advanced. Returns false if it is QUEUED. */
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
    /* Only fragments take slots of their own; then none may be left for the message. */
    for (; post->at < post->n_xfer; post->at++, post->at_offset = 0) {
        enum outcome outcome = write_one(link, post);
        if (__builtin_expect(outcome != DONE, 0)) {
            if (outcome == NO_ROOM)
                post->state = STEPAF_POST_QUEUED;
            return outcome != NO_ROOM;
        }
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

/* Return whether tensor @a index has one source for all posts, is large, and is written by copy. */
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
static void write_shared(struct stepaf_post *const *posts, unsigned n, const struct stepaf_shm *shm)
{
    size_t least = shm->shared_copy_bytes;
    uint8_t **dst = alloca(n * sizeof(*dst));
    unsigned index = 0;

    for (; index < posts[0]->n_xfer && is_shared_source(posts, n, index, least); index++) {
        for (unsigned i = 0; i < n; i++) {
            const struct stepaf_xfer *xfer = &posts[i]->xfer[index];
            dst[i] = ((const struct stepaf_shm_rmem *)xfer->dst)->map + xfer->dst_offset;
        }
        stepaf_shm_copy_many(dst, n, posts[0]->xfer[index].src, posts[0]->xfer[index].bytes,
                             shm->uncached_bytes);
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
        write_shared(posts, n, shm);
    }
    for (unsigned i = 0; i < n; i++)
        n_queued += !shm_post_one(posts[i]);
    return n_queued;
}
