/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: a post becomes a chain of work requests on the lead, posted with one call, and one work
 * request on another path for each piece of a large tensor that goes there. */
#include "transport/verbs/send.h"

#include <arpa/inet.h>
#include <string.h>

#include "transport/verbs/failover.h"

static inline __attribute__((always_inline)) void add_notification(struct stepaf_verbs_chain *chain,
                                                                   const struct stepaf_msg *msg,
                                                                   struct stepaf_verbs_slot *slot)
{
    struct stepaf_verbs_link *link = chain->link;
    uint32_t imm;

    if (chain->path->rail->imm && link->tx_parts == link->tx_parts_told &&
        stepaf_msg_to_imm(msg, &imm))
        stepaf_verbs_chain_imm(chain, imm);
    else
        stepaf_verbs_chain_message(chain, msg, slot);
    chain->path->tx.next++;
    link->base.messages_sent++;
}

/* Send one piece of a large tensor on a path of its own, with a notification. */
static bool send_part(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                      const struct stepaf_xfer *xfer, uint32_t at, uint32_t bytes)
{
    struct stepaf_verbs_chain chain;

    chain.link = link;
    chain.path = path;
    chain.n = 0;
    stepaf_verbs_chain_write(&chain, xfer, at, bytes);
    if (path->rail->imm)
        stepaf_verbs_chain_imm(&chain, (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT);
    else
        (void)stepaf_verbs_chain_empty(&chain, IBV_WR_SEND);
    path->tx.next++;
    return stepaf_verbs_chain_submit(&chain, true);
}

/* Return whether pieces use this path: it is not the lead, and its rail is alive. */
static inline bool takes_parts(const struct stepaf_verbs_link *link,
                               const struct stepaf_verbs_path *path)
{
    return path != link->lead && !path->closed;
}

/* Return how many paths take pieces, including the lead, if all of them have space for one; else
 * 0. */
static unsigned ways(struct stepaf_verbs_link *link)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    unsigned n = 1;

    for (unsigned i = 0; i < link->n_paths; i++) {
        struct stepaf_verbs_path *path = &link->paths[i];
        if (!takes_parts(link, path))
            continue;
        if (path->wr.posted - path->wr.done + 2 + STEPAF_VERBS_RESERVED > verbs->qp.depth ||
            !stepaf_verbs_has_receives(path, verbs->qp.credits))
            return 0;
        n++;
    }
    return n;
}

/* Divide the rest of a tensor, or as much as can be sent now, among all paths. Returns false if
 * there is no space. */
static bool send_divided(struct stepaf_verbs_chain *chain, struct stepaf_post *post)
{
    struct stepaf_verbs_link *link = chain->link;
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    unsigned n = stepaf_verbs_chain_room(chain) < 2 ? 0 : ways(link);
    uint32_t max_write = stepaf_verbs_of(link)->qp.max_write;
    uint64_t most = (uint64_t)n * max_write, counted = link->base.bytes_sent;
    uint32_t bytes = xfer->bytes - post->at_offset, at = post->at_offset;

    if (!n)
        return false;
    if (bytes > most)
        bytes = (uint32_t)most;
    uint32_t each = bytes / n / STEPAF_VERBS_LINE * STEPAF_VERBS_LINE;
    uint32_t first = bytes - each * (n - 1);
    if (first > max_write) /* the remainder beyond whole lines does not fit: sent later */
        first = max_write;
    stepaf_verbs_chain_write(chain, xfer, at, first);
    at += first;
    for (unsigned i = 0; i < link->n_paths; i++) {
        if (!takes_parts(link, &link->paths[i]))
            continue;
        if (!send_part(link, &link->paths[i], xfer, at, each)) {
            link->base.bytes_sent = counted;
            return true; /* lost: the rest does not matter, or everything is resent */
        }
        at += each;
    }
    link->tx_parts++;
    post->at_offset = at;
    return true;
}

/* Send the rest of a tensor, or as much as can be sent now, on the lead alone. Returns false if
 * there is no space. */
static bool send_whole(struct stepaf_verbs_chain *chain, struct stepaf_post *post)
{
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    uint32_t bytes = xfer->bytes - post->at_offset;
    uint32_t most = stepaf_verbs_of(chain->link)->qp.max_write;

    if (stepaf_verbs_chain_room(chain) < 2) /* one is for the notification */
        return false;
    if (bytes > most)
        bytes = most;
    stepaf_verbs_chain_write(chain, xfer, post->at_offset, bytes);
    post->at_offset += bytes;
    return true;
}

/* Return whether the link or a rail of it was lost while a post was being sent. */
static inline bool is_stopped(const struct stepaf_verbs_link *link)
{
    return link->base.dead | (link->halt == STEPAF_VERBS_HALTED);
}

/* Post as many of the post's writes as there is space for. Returns true if all are posted or in the
 * chain. */
static inline __attribute__((always_inline)) bool send_writes(struct stepaf_verbs_chain *chain,
                                                              struct stepaf_post *post)
{
    const struct stepaf_verbs_link *link = chain->link;
    const struct stepaf_env *env = stepaf_verbs_of(link)->base.up->env;

    for (; post->at < post->n_xfer; post->at++, post->at_offset = 0) {
        const struct stepaf_xfer *xfer = &post->xfer[post->at];
        bool divided = __builtin_expect(link->n_paths > 1, 0) &&
                       xfer->bytes >= (uint64_t)env->verbs_stripe_bytes;
        while (post->at_offset < xfer->bytes) {
            if (!(divided ? send_divided(chain, post) : send_whole(chain, post)))
                return false;
            if (divided && is_stopped(link))
                return true;
            /* The acknowledgement of a piece shows that the peer is alive, long before the last
             * one's. */
            bool cut = post->at_offset < xfer->bytes;
            if ((cut || chain->n == STEPAF_VERBS_CHAIN - 1) &&
                !stepaf_verbs_chain_submit(chain, cut))
                return true;
        }
    }
    return true;
}

/* Return whether a device reads the tensors after the post was handed over. */
static bool uses_tensors(const struct stepaf_verbs_link *link, const struct stepaf_post *post)
{
    for (unsigned i = 0; i < post->n_xfer; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        const struct stepaf_verbs_memory *memory;
        if (!xfer->bytes)
            continue;
        memory = xfer->src_mem->registration[STEPAF_TRANSPORT_verbs];
        if (xfer->bytes >= link->held_from || memory->on_gpu)
            return true;
    }
    return false;
}

/* Send as far as there is space. Returns true if all is posted or in the chain, or the link is
 * stopped. */
static inline __attribute__((always_inline)) bool send_post(struct stepaf_verbs_chain *chain,
                                                            struct stepaf_post *post)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(chain->link);

    return stepaf_verbs_chain_room(chain) &&
           stepaf_verbs_has_receives(chain->path, verbs->qp.credits) && send_writes(chain, post) &&
           stepaf_verbs_chain_room(chain);
}

/* Queue a post that found no space; the core will offer it again. */
static __attribute__((noinline, cold)) void postpone(struct stepaf_verbs_chain *chain,
                                                     struct stepaf_post *post)
{
    post->state = STEPAF_POST_QUEUED;
    if (!is_stopped(chain->link))
        (void)stepaf_verbs_chain_submit(chain, true);
    if (chain->link->base.dead)
        post->state = STEPAF_POST_SENT;
}

static void verbs_post_one(struct stepaf_post *post)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;
    struct stepaf_verbs_chain chain;
    struct stepaf_verbs_slot slot;

    post->state = STEPAF_POST_SENT;
    if (__builtin_expect(link->base.dead | link->halt, 0)) {
        if (link->base.dead)
            return; /* nobody will read it */
        if (stepaf_verbs_holds_back(link, post))
            return;
    }
    chain.link = link;
    chain.path = link->lead;
    chain.n = 0;
    bool held = uses_tensors(link, post);
    if (__builtin_expect((held && link->n_held >= STEPAF_VERBS_HELD_POSTS) ||
                             !send_post(&chain, post) || is_stopped(link),
                         0)) {
        postpone(&chain, post);
        return;
    }
    add_notification(&chain, &post->msg, &slot);
    if (__builtin_expect(link->failover != NULL, 0))
        stepaf_verbs_log(link, &post->msg);
    if (stepaf_verbs_chain_submit(&chain, held) || !link->base.dead)
        if (held)
            stepaf_verbs_hold(link, post);
}

bool stepaf_verbs_post_long(struct stepaf_post *post)
{
    verbs_post_one(post);
    return post->state != STEPAF_POST_QUEUED;
}

bool stepaf_verbs_send_again(struct stepaf_verbs_link *link, struct stepaf_post *post)
{
    struct stepaf_verbs_chain chain;
    struct stepaf_verbs_slot slot;

    chain.link = link;
    chain.path = link->lead;
    chain.n = 0;
    if (!send_post(&chain, post) || is_stopped(link)) {
        if (!is_stopped(link))
            (void)stepaf_verbs_chain_submit(&chain, true);
        return false;
    }
    add_notification(&chain, &post->msg, &slot);
    return stepaf_verbs_chain_submit(&chain, true);
}

bool stepaf_verbs_send_own(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                           const struct stepaf_msg *msg)
{
    struct stepaf_verbs_chain chain;
    struct stepaf_verbs_slot slot;

    chain.link = link;
    chain.path = path;
    chain.n = 0;
    if (!stepaf_verbs_chain_room(&chain) ||
        !stepaf_verbs_has_receives(path, stepaf_verbs_of(link)->qp.receives))
        return false;
    stepaf_verbs_chain_message(&chain, msg, &slot);
    path->tx.next++;
    return stepaf_verbs_chain_submit(&chain, true);
}

bool stepaf_verbs_tell(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path, bool asking)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_chain chain;

    if (path->closed)
        return true; /* nobody is there to receive the report */
    if (path->wr.posted - path->wr.done >= verbs->qp.depth)
        return false;
    chain.link = link;
    chain.path = path;
    chain.n = 0;
    path->rx.told = path->rx.refilled;
    *path->rx_ack = path->rx.told;
    struct ibv_send_wr *wr = stepaf_verbs_chain_empty(&chain, IBV_WR_RDMA_WRITE);
    chain.sge[0] = (struct ibv_sge){(uintptr_t)path->rx_ack, sizeof(*path->rx_ack),
                                    path->rail->control_mr->lkey};
    wr->sg_list = chain.sge;
    wr->num_sge = 1;
    wr->send_flags = sizeof(*path->rx_ack) <= path->rail->max.inline_bytes ? IBV_SEND_INLINE : 0;
    wr->wr.rdma.remote_addr = path->rx_ack_at;
    wr->wr.rdma.rkey = path->peer_control_key;
    return stepaf_verbs_chain_submit(&chain, asking);
}
