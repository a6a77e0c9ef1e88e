/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_TRANSPORT_VERBS_SEND_H
#define STEPAF_TRANSPORT_VERBS_SEND_H

#include <arpa/inet.h>

#include "transport/verbs/verbs.h"

enum { STEPAF_VERBS_CHAIN = STEPAF_MAX_TENSORS + 2 };

/* Work requests of one path that are posted together. Initially only n is set. */
struct stepaf_verbs_chain {
    struct stepaf_verbs_link *link;
    struct stepaf_verbs_path *path;
    unsigned n;
    struct ibv_send_wr wr[STEPAF_VERBS_CHAIN];
    struct ibv_sge sge[STEPAF_VERBS_CHAIN];
};

/* Add a write of @a bytes bytes of a tensor, from byte offset @a at. */
void stepaf_verbs_chain_write(struct stepaf_verbs_chain *chain, const struct stepaf_xfer *xfer,
                              uint32_t at, uint32_t bytes);
/* Add the write of the message itself into the path's ring at the peer. @a slot holds the message
 * until the chain is posted. */
void stepaf_verbs_chain_message(struct stepaf_verbs_chain *chain, const struct stepaf_msg *msg,
                                struct stepaf_verbs_slot *slot);
/* Post the chain; @a tracked: its completion must be reported. Returns false if the path is lost in
 * the process. */
bool stepaf_verbs_chain_submit(struct stepaf_verbs_chain *chain, bool tracked);

/* send.c */
/* Resend a post from its cursor on. Returns false if there is no space for the rest now, or a path
 * is lost in the process. */
bool stepaf_verbs_send_again(struct stepaf_verbs_link *link, struct stepaf_post *post);
/* Send a message of the transport itself over a rail's first path. Returns false if there is no
 * space now. */
bool stepaf_verbs_send_own(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                           const struct stepaf_msg *msg);

/* Return how many more work requests the chain can hold. */
static inline unsigned stepaf_verbs_chain_room(const struct stepaf_verbs_chain *chain)
{
    const struct stepaf_verbs_path *path = chain->path;
    unsigned used = path->wr.posted - path->wr.done + chain->n + STEPAF_VERBS_RESERVED;
    unsigned depth = stepaf_verbs_of(chain->link)->qp.depth;

    return used < depth ? depth - used : 0;
}

/* Return whether the path's peer has, of @a n receives, one left for one more notification. */
static inline bool stepaf_verbs_has_receives(struct stepaf_verbs_path *path, uint32_t n)
{
    if (__builtin_expect(path->tx.next - path->tx.read < n, 1))
        return true;
    uint32_t read = atomic_load_explicit(path->tx_ack, memory_order_acquire);
    /* Untrusted input: ignore a number that was never possible. */
    if (read - path->tx.read <= path->tx.next - path->tx.read)
        path->tx.read = read;
    return path->tx.next - path->tx.read < n;
}

/* Add a work request without data. */
static inline struct ibv_send_wr *stepaf_verbs_chain_empty(struct stepaf_verbs_chain *chain,
                                                           enum ibv_wr_opcode opcode)
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

/* Make the chain's last write notify the peer with @a imm. */
static inline __attribute__((always_inline)) void stepaf_verbs_chain_imm(
    struct stepaf_verbs_chain *chain, uint32_t imm)
{
    struct ibv_send_wr *last =
        chain->n ? &chain->wr[chain->n - 1] : stepaf_verbs_chain_empty(chain, IBV_WR_RDMA_WRITE);

    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->imm_data = htonl(imm);
}

#endif
