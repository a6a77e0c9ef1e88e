/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: a post becomes a chain of work requests on path 0, handed over by one call, and for each
 * piece of a large tensor that goes another way one there. */
#include "transport/verbs/send.h"

#include <arpa/inet.h>
#include <string.h>

/* Signal at least every quarter of the queue, so that room is heard of in time. */
static inline bool is_due(const struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path,
                          unsigned n)
{
    return path->posted + n - path->asked >= verbs->depth / 4;
}

bool stepaf_verbs_chain_submit(struct stepaf_verbs_chain *chain, bool tracked)
{
    struct stepaf_verbs_link *link = chain->link;
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[chain->path];
    unsigned n = chain->n;
    struct ibv_send_wr *last, *bad;

    if (!n)
        return true;
    path->free_requests = 0; /* to be found out anew */
    path->free_receives = 0;
    last = &chain->wr[n - 1];
    for (unsigned i = 0; i < n; i++) {
        chain->wr[i].next = &chain->wr[i + 1];
        /* One that fails is heard of even if that was not asked for. */
        chain->wr[i].wr_id = stepaf_verbs_wr_id(link->base.peer, chain->path, ++path->posted);
    }
    last->next = NULL;
    if (tracked || is_due(verbs, path, 0)) {
        last->send_flags |= IBV_SEND_SIGNALED;
        path->asked = path->posted;
    }
    chain->n = 0;
    int error = verbs->provider->post_send(path->qp, chain->wr, &bad);
    if (__builtin_expect(error != 0, 0))
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: posting: %s", path->rail->name,
                          path->qp->qp_num, strerror(error < 0 ? -error : error));
    return !error;
}

/* Work requests that the chain may still take. */
static inline unsigned room(const struct stepaf_verbs_chain *chain)
{
    const struct stepaf_verbs_path *path = &chain->link->paths[chain->path];
    unsigned used = path->posted - path->done + chain->n + STEPAF_VERBS_RESERVED;
    unsigned depth = stepaf_verbs_of(chain->link)->depth;

    return used < depth ? depth - used : 0;
}

/* Whether the path's peer has a receive left for @a n more notifications. */
static inline bool has_receives(const struct stepaf_verbs *verbs, struct stepaf_verbs_path *path)
{
    if (__builtin_expect(path->tx_next - path->tx_read < verbs->receives, 1))
        return true;
    uint32_t read = atomic_load_explicit(path->tx_ack, memory_order_acquire);
    /* Input from outside: a number that was never possible is not believed. */
    if (read - path->tx_read <= path->tx_next - path->tx_read)
        path->tx_read = read;
    return path->tx_next - path->tx_read < verbs->receives;
}

void stepaf_verbs_chain_write(struct stepaf_verbs_chain *chain, const struct stepaf_xfer *xfer,
                              uint32_t at, uint32_t bytes)
{
    const struct stepaf_verbs_rmem *rmem = (const struct stepaf_verbs_rmem *)xfer->dst;
    const struct stepaf_verbs_memory *memory = xfer->src_region->registration;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(chain->link);
    unsigned rail = chain->path / verbs->n_qps;
    struct ibv_send_wr *wr = &chain->wr[chain->n];
    struct ibv_sge *sge = &chain->sge[chain->n++];

    sge->addr = (uintptr_t)xfer->src + at;
    sge->length = bytes;
    sge->lkey = memory->mr[rail]->lkey;
    wr->sg_list = sge;
    wr->num_sge = bytes > 0; /* to some devices a length of 0 is 2^31 */
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->send_flags = bytes <= verbs->rails[rail].inline_bytes ? IBV_SEND_INLINE : 0;
    wr->wr.rdma.remote_addr = rmem->address + xfer->dst_offset + at;
    wr->wr.rdma.rkey = rmem->key[rail];
    chain->link->base.bytes_sent += bytes;
}

/* A work request without data. */
static struct ibv_send_wr *add_empty(struct stepaf_verbs_chain *chain, enum ibv_wr_opcode opcode)
{
    struct ibv_send_wr *wr = &chain->wr[chain->n++];

    wr->sg_list = NULL;
    wr->num_sge = 0;
    wr->opcode = opcode;
    wr->send_flags = 0;
    wr->wr.rdma.remote_addr = 0;
    wr->wr.rdma.rkey = 0;
    return wr;
}

/* Have the chain's last write notify the peer by @a imm. */
static void add_imm(struct stepaf_verbs_chain *chain, uint32_t imm)
{
    struct ibv_send_wr *last =
        chain->n ? &chain->wr[chain->n - 1] : add_empty(chain, IBV_WR_RDMA_WRITE);

    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->imm_data = htonl(imm);
}

/* The message itself, into the peer's ring. */
static void add_message(struct stepaf_verbs_chain *chain, const struct stepaf_msg *msg,
                        struct stepaf_verbs_slot *slot)
{
    struct stepaf_verbs_link *link = chain->link;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[0];
    uint32_t at = path->tx_next & (verbs->receives - 1);
    uint32_t bytes = (uint32_t)(offsetof(struct stepaf_verbs_slot, msg.word) +
                                msg->n_words * sizeof(msg->word[0]));
    unsigned index = chain->n;

    if (link->send_ring) /* the peer has read what was there before */
        slot = &link->send_ring[at];
    slot->number = path->tx_next + 1;
    slot->parts = link->tx_parts;
    memcpy(&slot->msg, msg, bytes - offsetof(struct stepaf_verbs_slot, msg));
    link->tx_parts_told = link->tx_parts;
    struct ibv_send_wr *wr = add_empty(chain, IBV_WR_SEND);
    chain->sge[index] = (struct ibv_sge){(uintptr_t)slot, bytes, path->rail->control_mr->lkey};
    wr->sg_list = &chain->sge[index];
    wr->num_sge = 1;
    wr->send_flags = bytes <= path->rail->inline_bytes ? IBV_SEND_INLINE : 0;
    if (!path->rail->imm)
        return;
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->wr.rdma.remote_addr = link->ring_at + (uint64_t)at * sizeof(*slot);
    wr->wr.rdma.rkey = path->peer_control_key;
    wr->imm_data = htonl((uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT |
                         (slot->number & STEPAF_VERBS_NUMBER_MASK));
}

static void add_notification(struct stepaf_verbs_chain *chain, const struct stepaf_msg *msg,
                             struct stepaf_verbs_slot *slot)
{
    struct stepaf_verbs_link *link = chain->link;
    uint32_t imm;

    if (link->paths[0].rail->imm && link->tx_parts == link->tx_parts_told &&
        stepaf_msg_compact(msg, &imm))
        add_imm(chain, imm);
    else
        add_message(chain, msg, slot);
    link->paths[0].tx_next++;
    link->base.messages_sent++;
}

/* One piece of a large tensor on a path of its own, with a notification. */
static bool send_part(struct stepaf_verbs_link *link, unsigned path, const struct stepaf_xfer *xfer,
                      uint32_t at, uint32_t bytes)
{
    struct stepaf_verbs_chain chain;

    chain.link = link;
    chain.path = path;
    chain.n = 0;
    stepaf_verbs_chain_write(&chain, xfer, at, bytes);
    if (link->paths[path].rail->imm)
        add_imm(&chain, (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT);
    else
        (void)add_empty(&chain, IBV_WR_SEND);
    link->paths[path].tx_next++;
    return stepaf_verbs_chain_submit(&chain, true);
}

/* Divide what is left of a tensor, or as much as goes at once, among all paths. False: no room. */
static bool send_divided(struct stepaf_verbs_chain *chain, struct stepaf_post *post)
{
    struct stepaf_verbs_link *link = chain->link;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    uint64_t most = (uint64_t)link->n_paths * verbs->rails[0].max_write;
    uint32_t bytes = xfer->bytes - post->at_offset, at = post->at_offset;

    if (bytes > most)
        bytes = (uint32_t)most;
    if (room(chain) < 2)
        return false;
    for (unsigned i = 1; i < link->n_paths; i++) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        if (path->posted - path->done + 2 + STEPAF_VERBS_RESERVED > verbs->depth ||
            !has_receives(verbs, &link->paths[i]))
            return false;
    }
    uint32_t each = bytes / link->n_paths / STEPAF_VERBS_LINE * STEPAF_VERBS_LINE;
    uint32_t first = bytes - each * (link->n_paths - 1);
    stepaf_verbs_chain_write(chain, xfer, at, first);
    at += first;
    for (unsigned i = 1; i < link->n_paths; i++, at += each)
        if (!send_part(link, i, xfer, at, each))
            return true; /* lost: what is left does not matter */
    link->tx_parts++;
    post->at_offset = at;
    return true;
}

/* The same on path 0 alone. */
static bool send_whole(struct stepaf_verbs_chain *chain, struct stepaf_post *post)
{
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    uint32_t bytes = xfer->bytes - post->at_offset;
    uint32_t most = chain->link->paths[0].rail->max_write;

    if (room(chain) < 2) /* one is the notification's */
        return false;
    if (bytes > most)
        bytes = most;
    stepaf_verbs_chain_write(chain, xfer, post->at_offset, bytes);
    post->at_offset += bytes;
    return true;
}

/* Hand over as much of the post's writes as there is room for. True: all but what is in the chain. */
static bool send_writes(struct stepaf_verbs_chain *chain, struct stepaf_post *post)
{
    const struct stepaf_verbs_link *link = chain->link;
    const struct stepaf_env *env = stepaf_verbs_of(link)->base.host->env;

    for (; post->at < post->n_xfer; post->at++, post->at_offset = 0) {
        const struct stepaf_xfer *xfer = &post->xfer[post->at];
        bool divided = __builtin_expect(link->n_paths > 1, 0) &&
                       xfer->bytes >= (uint64_t)env->verbs_stripe_bytes;
        while (post->at_offset < xfer->bytes) {
            if (!(divided ? send_divided(chain, post) : send_whole(chain, post)))
                return false;
            if (__builtin_expect(link->base.dead, 0))
                return true;
            if (chain->n == STEPAF_VERBS_CHAIN - 1 && !stepaf_verbs_chain_submit(chain, false))
                return true;
        }
    }
    return true;
}

/* Whether a device reads the tensors after the post was handed over. */
static bool uses_tensors(const struct stepaf_verbs_link *link, const struct stepaf_post *post)
{
    for (unsigned i = 0; i < post->n_xfer; i++)
        if (post->xfer[i].bytes > link->paths[0].rail->inline_bytes)
            return true;
    return false;
}

static void post_one(struct stepaf_post *post)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    bool held = uses_tensors(link, post);
    struct stepaf_verbs_chain chain;
    struct stepaf_verbs_slot slot;

    post->state = STEPAF_POST_SENT;
    if (__builtin_expect(link->base.dead, 0))
        return; /* nobody will read it */
    chain.link = link;
    chain.path = 0;
    chain.n = 0;
    if (__builtin_expect((held && link->n_held == STEPAF_VERBS_HELD_POSTS) || !room(&chain) ||
                             !has_receives(verbs, &link->paths[0]) || !send_writes(&chain, post) ||
                             !room(&chain),
                         0)) {
        post->state = STEPAF_POST_QUEUED;
        (void)stepaf_verbs_chain_submit(&chain, true);
        if (link->base.dead)
            post->state = STEPAF_POST_SENT;
        return;
    }
    if (__builtin_expect(link->base.dead, 0))
        return;
    add_notification(&chain, &post->msg, &slot);
    if (stepaf_verbs_chain_submit(&chain, held) && held)
        stepaf_verbs_hold(link, post);
}

void stepaf_verbs_post(struct stepaf_post *const *posts, unsigned n)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)posts[0]->link->transport;

    for (unsigned i = 0; i < n; i++) {
        i += stepaf_verbs_post_quick(verbs, posts + i, n - i);
        if (i < n)
            post_one(posts[i]);
    }
}

bool stepaf_verbs_tell(struct stepaf_verbs_link *link, unsigned index, bool asking)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[index];
    struct stepaf_verbs_chain chain;

    if (path->posted - path->done >= verbs->depth)
        return false;
    chain.link = link;
    chain.path = index;
    chain.n = 0;
    path->rx_told = path->rx_refilled;
    *path->rx_ack = path->rx_told;
    struct ibv_send_wr *wr = add_empty(&chain, IBV_WR_RDMA_WRITE);
    chain.sge[0] = (struct ibv_sge){(uintptr_t)path->rx_ack, sizeof(*path->rx_ack),
                                    path->rail->control_mr->lkey};
    wr->sg_list = chain.sge;
    wr->num_sge = 1;
    wr->send_flags = sizeof(*path->rx_ack) <= path->rail->inline_bytes ? IBV_SEND_INLINE : 0;
    wr->wr.rdma.remote_addr = path->rx_ack_at;
    wr->wr.rdma.rkey = path->peer_control_key;
    return stepaf_verbs_chain_submit(&chain, asking);
}
