/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in notifications. What they say is input: it is compared with what is known before it
 * changes anything. */
#include <arpa/inet.h>
#include <string.h>

#include "transport/verbs/verbs.h"

int stepaf_verbs_refill(struct stepaf_verbs_link *link, unsigned index, uint32_t n)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[index];
    struct ibv_recv_wr *first = verbs->forms.receive, *bad;
    uint64_t id = stepaf_verbs_is_receive | stepaf_verbs_wr_id(link->base.peer, index, 0);
    uint32_t at = path->rx_refilled;
    /* Only messages, which are path 0's, bring anything, but soft-iWARP wants a place always. */
    bool has_place = index == 0 || path->rail->iwarp;
    int error = 0;

    while (n && !error) {
        uint32_t some = n < STEPAF_VERBS_REFILL ? n : STEPAF_VERBS_REFILL;
        for (uint32_t i = 0; i < some; i++, at++) {
            first[i].wr_id = id;
            verbs->forms.place[i].addr = (uintptr_t)&link->ring[at & (verbs->receives - 1)];
            verbs->forms.place[i].lkey = path->rail->control_mr->lkey;
            first[i].num_sge = has_place;
        }
        first[some - 1].next = NULL;
        error = verbs->provider->post_recv(path->qp, first, &bad);
        first[some - 1].next = &first[some];
        n -= some;
    }
    return error < 0 ? -error : error;
}

/* Give receives back once half are used up, and tell the peer. */
static void give_back(struct stepaf_verbs_link *link, unsigned index)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[index];
    uint32_t n = path->rx_next - path->rx_refilled;

    if (__builtin_expect(n < verbs->receives / 2, 1))
        return;
    int error = stepaf_verbs_refill(link, index, n);
    if (error) {
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: posting receives: %s", path->rail->name,
                          path->qp->qp_num, strerror(error));
        return;
    }
    path->rx_refilled += n;
    if (!stepaf_verbs_tell(link, index, false) && !link->base.dead)
        verbs->tell_due = true;
}

static bool parts_are_here(const struct stepaf_verbs_link *link, uint32_t parts)
{
    for (unsigned i = 1; i < link->n_paths; i++)
        if ((int32_t)(link->paths[i].rx_next - parts) < 0)
            return false;
    return true;
}

/* Read notification @a imm, which is the next one. False: it waits for PARTs. */
static bool take_next(struct stepaf_verbs_link *link, uint32_t imm)
{
    struct stepaf_host *host = link->base.transport->host;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[0];
    const struct stepaf_verbs_slot *slot = &link->ring[path->rx_next & (verbs->receives - 1)];
    struct stepaf_msg msg;
    bool good;

    if (imm >> STEPAF_IMM_CODE_SHIFT != STEPAF_IMM_OTHER) {
        path->rx_next++;
        host->deliver_imm(host, &link->base, imm);
        return true;
    }
    good = slot->number == path->rx_next + 1 &&
           (imm & STEPAF_VERBS_NUMBER_MASK) == (slot->number & STEPAF_VERBS_NUMBER_MASK) &&
           slot->msg.n_words <= STEPAF_MSG_WORDS && slot->msg.type < STEPAF_MSG_TRANSPORT;
    if (good && __builtin_expect(!parts_are_here(link, slot->parts), 0))
        return false;
    path->rx_next++;
    if (!good) {
        host->dropped_malformed++;
        return true;
    }
    msg = slot->msg;
    host->deliver(host, &link->base, &msg);
    return true;
}

/* Take what has arrived on path 0, as far as its PARTs are here. */
static void drain(struct stepaf_verbs_link *link)
{
    uint32_t mask = stepaf_verbs_of(link)->receives - 1;
    struct stepaf_verbs_path *path = &link->paths[0];

    while (path->rx_next != link->rx_arrived && !link->base.dead)
        if (!take_next(link, link->imms[path->rx_next & mask]))
            return;
    if (!link->base.dead)
        give_back(link, 0);
}

bool stepaf_verbs_arrived_short(struct stepaf_verbs *verbs, const struct ibv_wc *wc)
{
    uint64_t peer = (wc->wr_id & ~stepaf_verbs_is_receive) >> STEPAF_VERBS_PEER_SHIFT;
    uint32_t imm = ntohl(wc->imm_data);

    /* A receive, of path 0. */
    if (wc->wr_id != (stepaf_verbs_is_receive | peer << STEPAF_VERBS_PEER_SHIFT) || wc->status ||
        !(wc->wc_flags & IBV_WC_WITH_IMM) || imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_OTHER ||
        peer >= verbs->n_peers)
        return false;
    struct stepaf_verbs_link *link = verbs->links[peer];
    struct stepaf_verbs_path *path = &link->paths[0];
    if (!link || link->base.dead || link->rx_arrived != path->rx_next)
        return false;
    link->rx_arrived++;
    path->rx_next++;
    verbs->base.host->deliver_imm(verbs->base.host, &link->base, imm);
    if (__builtin_expect(path->rx_next - path->rx_refilled >= verbs->receives / 2, 0) &&
        !link->base.dead)
        give_back(link, 0);
    return true;
}

void stepaf_verbs_arrived(struct stepaf_verbs_link *link, unsigned index, const struct ibv_wc *wc)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[index];

    if (__builtin_expect(index, 0)) {
        path->rx_next++;
        give_back(link, index);
        drain(link);
        return;
    }
    if (__builtin_expect(link->rx_arrived - path->rx_next >= verbs->receives, 0)) {
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: it notifies more than it may",
                          path->rail->name, path->qp->qp_num);
        return;
    }
    uint32_t imm = (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT |
                   ((link->rx_arrived + 1) & STEPAF_VERBS_NUMBER_MASK);
    if (wc->wc_flags & IBV_WC_WITH_IMM)
        imm = ntohl(wc->imm_data);
    link->imms[link->rx_arrived++ & (verbs->receives - 1)] = imm;
    drain(link);
}
