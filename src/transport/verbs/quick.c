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

/* Find out anew how much there is room for. */
static __attribute__((noinline)) bool look_for_room(const struct stepaf_verbs *verbs,
                                                    struct stepaf_verbs_path *path, uint32_t n)
{
    uint32_t used = path->posted - path->done + STEPAF_VERBS_RESERVED;
    uint32_t unread = path->tx_next - path->tx_read;

    path->free_requests = used < verbs->depth ? verbs->depth - used : 0;
    path->free_receives = unread < verbs->receives ? verbs->receives - unread : 0;
    if (UINT32_MAX - path->posted < path->free_requests)
        path->free_requests = 0; /* their numbers wrap: the long way takes care of that */
    return path->free_requests >= n && path->free_receives;
}

/* Whether a post is of that kind, the queue pair takes all of it, and the peer the notification. */
static inline bool is_quick(const struct stepaf_verbs *verbs, struct stepaf_verbs_link *link,
                            const struct stepaf_post *post)
{
    struct stepaf_verbs_path *path = &link->paths[0];

    return link->quick && !link->base.dead && post->is_short && !post->at && !post->at_offset &&
           link->n_held < STEPAF_VERBS_HELD_POSTS &&
           ((path->free_requests >= post->n_xfer && path->free_receives) ||
            look_for_room(verbs, path, post->n_xfer));
}

/* Let the @a n-th request be the last one, which notifies. */
static __attribute__((noinline)) void end_after(struct stepaf_verbs_forms *forms, uint32_t n)
{
    if (forms->n) {
        struct ibv_send_wr *last = &forms->write[forms->n - 1];
        last->opcode = IBV_WR_RDMA_WRITE;
        last->next = last + 1;
    }
    forms->n = n;
    forms->write[n - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    forms->write[n - 1].next = NULL;
}

/* What the writes bring, and the 32 bits. False: there is none, or one is empty, needs several
 * requests or is in GPU memory. */
static bool fill(struct stepaf_verbs *verbs, const struct stepaf_post *post)
{
    const struct stepaf_verbs_rail *rail = &verbs->rails[0];
    struct stepaf_verbs_forms *forms = &verbs->forms;
    uint32_t n = post->n_xfer, longest = 0;
    uint64_t sum = 0;

    if (!n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        uint32_t bytes = xfer->bytes;
        if (__builtin_expect(bytes - 1 >= rail->max_write, 0))
            return false; /* an empty one may be of no region */
        const struct stepaf_verbs_memory *memory = xfer->src_region->registration;
        if (__builtin_expect(memory->on_gpu, 0))
            return false;
        sum += bytes;
        longest = bytes > longest ? bytes : longest;
        forms->piece[i] = (struct ibv_sge){(uintptr_t)xfer->src, bytes, memory->mr[0]->lkey};
        forms->write[i].send_flags = bytes <= rail->inline_bytes ? IBV_SEND_INLINE : 0;
    }
    if (n != forms->n)
        end_after(forms, n);
    forms->write[n - 1].imm_data = htonl(post->imm);
    forms->last_flags = forms->write[n - 1].send_flags;
    forms->bytes = sum;
    forms->held = longest > rail->inline_bytes;
    return true;
}

/* Where they go. */
static inline void address(struct stepaf_verbs *verbs, const struct stepaf_verbs_link *link,
                           const struct stepaf_post *post)
{
    /* One that fails is heard of even if that was not asked for. */
    uint64_t id = link->wr_id + link->paths[0].posted;
    const struct stepaf_xfer *xfer = post->xfer, *end = xfer + post->n_xfer;
    struct ibv_send_wr *wr = verbs->forms.write;

    do {
        const struct stepaf_verbs_rmem *rmem = (const struct stepaf_verbs_rmem *)xfer->dst;
        wr->wr_id = ++id;
        wr->wr.rdma.remote_addr = rmem->address + xfer->dst_offset;
        wr->wr.rdma.rkey = rmem->key[0];
        wr++;
    } while (++xfer != end);
}

static inline int hand_over(struct stepaf_verbs *verbs, struct stepaf_verbs_link *link, uint32_t n)
{
    struct stepaf_verbs_forms *forms = &verbs->forms;
    struct stepaf_verbs_path *path = &link->paths[0];
    unsigned flags = forms->last_flags;
    struct ibv_send_wr *bad;

    path->tx_next++;
    path->free_receives--;
    path->free_requests -= n;
    path->posted += n;
    link->base.bytes_sent += forms->bytes;
    link->base.messages_sent++;
    if (forms->held || path->posted - path->asked >= verbs->depth / 4) {
        flags |= IBV_SEND_SIGNALED;
        path->asked = path->posted;
    }
    forms->write[n - 1].send_flags = flags;
    return verbs->provider->post_send(path->qp, forms->write, &bad);
}

unsigned stepaf_verbs_post_quick(struct stepaf_verbs *verbs, struct stepaf_post *const *posts,
                                 unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct stepaf_post *post = posts[i];
        struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;
        if (!is_quick(verbs, link, post) || !((i && post->is_like) || fill(verbs, post)))
            return i;
        address(verbs, link, post);
        post->state = STEPAF_POST_SENT;
        int error = hand_over(verbs, link, post->n_xfer);
        if (__builtin_expect(error != 0, 0))
            stepaf_verbs_lost(link, "%s, queue pair 0x%x: posting: %s", link->paths[0].rail->name,
                              link->paths[0].qp->qp_num, strerror(error < 0 ? -error : error));
        else if (verbs->forms.held)
            stepaf_verbs_hold(link, post);
    }
    return n;
}
