/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of work requests: fill them in, and post them with one call. */
#include <string.h>

#include "transport/verbs/send.h"

/* Signal at least every quarter of the queue, so that free space is reported in time. */
static inline bool is_due(const struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path,
                          unsigned n)
{
    return path->wr.posted + n - path->wr.asked >= verbs->qp.depth / 4;
}

bool stepaf_verbs_chain_submit(struct stepaf_verbs_chain *chain, bool tracked)
{
    struct stepaf_verbs_link *link = chain->link;
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = chain->path;
    unsigned n = chain->n;
    uint32_t posted = path->wr.posted;
    struct ibv_send_wr *last, *bad;

    if (!n)
        return true;
    path->tx.room = 0; /* must be computed again */
    last = &chain->wr[n - 1];
    for (unsigned i = 0; i < n; i++) {
        chain->wr[i].next = &chain->wr[i + 1];
        /* A failed request is reported even if it is not signaled. */
        chain->wr[i].wr_id = path->wr_id | ++posted;
    }
    path->wr.posted = posted;
    last->next = NULL;
    if (tracked || is_due(verbs, path, 0)) {
        last->send_flags |= IBV_SEND_SIGNALED;
        path->wr.asked = path->wr.posted;
    }
    chain->n = 0;
    int error = verbs->provider->post_send(path->qp, chain->wr, &bad);
    if (__builtin_expect(error != 0, 0))
        stepaf_verbs_path_lost(link, path, "posting: %s", strerror(error < 0 ? -error : error));
    return !error;
}

void stepaf_verbs_chain_write(struct stepaf_verbs_chain *chain, const struct stepaf_xfer *xfer,
                              uint32_t at, uint32_t bytes)
{
    const struct stepaf_verbs_rmem *rmem = (const struct stepaf_verbs_rmem *)xfer->dst;
    const struct stepaf_verbs_memory *memory = xfer->src_mem->registration[STEPAF_TRANSPORT_verbs];
    const struct stepaf_verbs_path *path = chain->path;
    struct ibv_send_wr *wr = &chain->wr[chain->n];
    struct ibv_sge *sge = &chain->sge[chain->n++];

    sge->addr = (uintptr_t)xfer->src + at;
    sge->length = bytes;
    sge->lkey = memory->mr[path->rail_index]->lkey;
    wr->sg_list = sge;
    wr->num_sge = bytes > 0; /* some devices take a length of 0 for 2^31 */
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->send_flags = bytes <= path->rail->max.inline_bytes && !memory->on_gpu ? IBV_SEND_INLINE : 0;
    wr->wr.rdma.remote_addr = rmem->address + xfer->dst_offset + at;
    wr->wr.rdma.rkey = rmem->key[path->rail_index];
    chain->link->base.bytes_sent += bytes;
    chain->path->bytes_sent += bytes;
}

void stepaf_verbs_chain_message(struct stepaf_verbs_chain *chain, const struct stepaf_msg *msg,
                                struct stepaf_verbs_slot *slot)
{
    struct stepaf_verbs_link *link = chain->link;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    const struct stepaf_verbs_path *path = chain->path;
    uint32_t at = path->tx.next & (verbs->qp.receives - 1);
    uint32_t bytes = (uint32_t)(offsetof(struct stepaf_verbs_slot, msg.word) +
                                msg->n_words * sizeof(msg->word[0]));
    unsigned index = chain->n;

    if (path->send_ring) /* the peer has read the previous content */
        slot = &path->send_ring[at];
    slot->number = path->tx.next + 1;
    slot->parts = link->tx_parts;
    memcpy(&slot->msg, msg, bytes - offsetof(struct stepaf_verbs_slot, msg));
    link->tx_parts_told = link->tx_parts;
    struct ibv_send_wr *wr = stepaf_verbs_chain_empty(chain, IBV_WR_SEND);
    chain->sge[index] = (struct ibv_sge){(uintptr_t)slot, bytes, path->rail->control_mr->lkey};
    wr->sg_list = &chain->sge[index];
    wr->num_sge = 1;
    wr->send_flags = bytes <= path->rail->max.inline_bytes ? IBV_SEND_INLINE : 0;
    if (!path->rail->imm)
        return;
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->wr.rdma.remote_addr = path->ring_at + (uint64_t)at * sizeof(*slot);
    wr->wr.rdma.rkey = path->peer_control_key;
    wr->imm_data = htonl(stepaf_verbs_ring_imm(slot->number));
}
