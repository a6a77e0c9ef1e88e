/* SPDX-License-Identifier: Apache-2.0 */
/* The commonest posts, which are those of an operation as planned where two ranks have one queue
 * pair: all that could be in the way is asked first, then work requests are filled in where they
 * lie and handed over. Of posts that are alike only what differs is filled in anew. Whatever is
 * otherwise takes the long way of send.c. */
#include <arpa/inet.h>
#include <string.h>

#include "transport/verbs/verbs.h"

void stepaf_verbs_forms_make(struct stepaf_verbs *verbs)
{
    struct stepaf_verbs_forms *forms = &verbs->forms;

    for (unsigned i = 0; i < STEPAF_MAX_TENSORS; i++)
        forms->write[i] = (struct ibv_send_wr){
            .next = i + 1 < STEPAF_MAX_TENSORS ? &forms->write[i + 1] : NULL,
            .sg_list = &forms->piece[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
        };
    for (unsigned i = 0; i < STEPAF_VERBS_REFILL; i++) {
        forms->place[i].length = sizeof(struct stepaf_verbs_slot);
        forms->receive[i] = (struct ibv_recv_wr){
            .next = i + 1 < STEPAF_VERBS_REFILL ? &forms->receive[i + 1] : NULL,
            .sg_list = &forms->place[i],
        };
    }
}

/* Whether a post is of that kind, the queue pair takes all of it, and the peer the notification. */
static inline bool is_quick(const struct stepaf_verbs *verbs, const struct stepaf_verbs_link *link,
                            const struct stepaf_post *post)
{
    const struct stepaf_verbs_path *path = &link->paths[0];

    return link->quick && !link->base.dead && post->is_short && !post->at && !post->at_offset &&
           path->posted - path->done + post->n_xfer + STEPAF_VERBS_RESERVED < verbs->depth &&
           path->tx_next - path->tx_read < verbs->receives &&
           link->n_held < STEPAF_VERBS_HELD_POSTS;
}

/* What the writes bring, and the 32 bits. False: there is none, or one is empty or needs several
 * requests. */
static inline bool fill(struct stepaf_verbs *verbs, const struct stepaf_post *post)
{
    const struct stepaf_verbs_rail *rail = &verbs->rails[0];
    struct stepaf_verbs_forms *forms = &verbs->forms;
    uint32_t n = post->n_xfer, longest = 0;

    forms->bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        const struct stepaf_verbs_memory *memory = xfer->src_region->registration;
        uint32_t bytes = xfer->bytes;
        if (__builtin_expect(bytes - 1 >= rail->max_write, 0))
            return false;
        forms->bytes += bytes;
        longest = bytes > longest ? bytes : longest;
        forms->piece[i] = (struct ibv_sge){(uintptr_t)xfer->src, bytes, memory->mr[0]->lkey};
        forms->write[i].send_flags = bytes <= rail->inline_bytes ? IBV_SEND_INLINE : 0;
    }
    forms->held = longest > rail->inline_bytes;
    forms->last_flags = n ? forms->write[n - 1].send_flags : 0;
    forms->imm = htonl(post->imm);
    return n;
}

/* Where they go. */
static inline void address(struct stepaf_verbs *verbs, const struct stepaf_verbs_link *link,
                           const struct stepaf_post *post)
{
    /* One that fails is heard of even if that was not asked for. */
    uint64_t id = stepaf_verbs_wr_id(link->base.peer, 0, 0) + link->paths[0].posted;
    const struct stepaf_xfer *xfer = post->xfer, *end = xfer + post->n_xfer;

    for (struct ibv_send_wr *wr = verbs->forms.write; xfer != end; xfer++, wr++) {
        const struct stepaf_verbs_rmem *rmem = (const struct stepaf_verbs_rmem *)xfer->dst;
        wr->wr_id = ++id;
        wr->wr.rdma.remote_addr = rmem->address + xfer->dst_offset;
        wr->wr.rdma.rkey = rmem->key[0];
    }
}

static inline int hand_over(struct stepaf_verbs *verbs, struct stepaf_verbs_path *path, uint32_t n)
{
    struct stepaf_verbs_forms *forms = &verbs->forms;
    struct ibv_send_wr *last = &forms->write[n - 1], *bad;

    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->imm_data = forms->imm;
    last->next = NULL;
    last->send_flags = forms->last_flags;
    path->posted += n;
    if (forms->held || path->posted - path->asked >= verbs->depth / 4) {
        last->send_flags |= IBV_SEND_SIGNALED;
        path->asked = path->posted;
    }
    int error = verbs->provider->post_send(path->qp, forms->write, &bad);
    last->opcode = IBV_WR_RDMA_WRITE;
    last->next = last + 1;
    return error;
}

unsigned stepaf_verbs_post_quick(struct stepaf_verbs *verbs, struct stepaf_post *const *posts,
                                 unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct stepaf_post *post = posts[i];
        struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;
        struct stepaf_verbs_path *path = &link->paths[0];
        if (!is_quick(verbs, link, post) || !((i && post->is_like) || fill(verbs, post)))
            return i;
        if (__builtin_expect(path->posted + post->n_xfer < path->posted, 0))
            return i; /* ids wrap within it */
        address(verbs, link, post);
        path->tx_next++;
        link->base.bytes_sent += verbs->forms.bytes;
        link->base.messages_sent++;
        post->state = STEPAF_POST_SENT;
        int error = hand_over(verbs, path, post->n_xfer);
        if (__builtin_expect(error != 0, 0))
            stepaf_verbs_lost(link, "%s, queue pair 0x%x: posting: %s", path->rail->name,
                              path->qp->qp_num, strerror(error < 0 ? -error : error));
        else if (verbs->forms.held)
            stepaf_verbs_hold(link, post);
    }
    return n;
}
