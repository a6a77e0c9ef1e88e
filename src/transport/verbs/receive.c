/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in notifications. What they say is input: it is compared with what is known before it
 * changes anything. */
#include <arpa/inet.h>
#include <string.h>

#include "transport/verbs/failover.h"

void stepaf_verbs_receives_make(struct stepaf_verbs *verbs)
{
    struct stepaf_verbs_receives *forms = &verbs->forms;

    for (unsigned i = 0; i < STEPAF_VERBS_REFILL; i++) {
        forms->place[i].length = sizeof(struct stepaf_verbs_slot);
        forms->receive[i] = (struct ibv_recv_wr){
            .next = i + 1 < STEPAF_VERBS_REFILL ? &forms->receive[i + 1] : NULL,
            .sg_list = &forms->place[i],
        };
    }
}

int stepaf_verbs_refill(struct stepaf_verbs_link *link, const struct stepaf_verbs_path *path,
                        uint32_t n)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct ibv_recv_wr *first = verbs->forms.receive, *bad;
    struct stepaf_verbs_slot *ring = path->ring ? path->ring : link->paths[0].ring;
    uint64_t id = stepaf_verbs_is_receive | path->wr_id;
    uint32_t at = path->rx_refilled;
    /* Only messages that are sent, which a rail's first path has, bring anything, but soft-iWARP
     * wants a place always. */
    bool has_place = path->rail->imm ? path->rail->iwarp : path->ring || path->rail->iwarp;
    int error = 0;

    while (n && !error) {
        uint32_t some = n < STEPAF_VERBS_REFILL ? n : STEPAF_VERBS_REFILL;
        for (uint32_t i = 0; i < some; i++) {
            first[i].wr_id = id;
            first[i].num_sge = has_place;
        }
        for (uint32_t i = 0; has_place && i < some; i++, at++) {
            verbs->forms.place[i].addr = (uintptr_t)&ring[at & (verbs->receives - 1)];
            verbs->forms.place[i].lkey = path->rail->control_mr->lkey;
        }
        first[some - 1].next = NULL;
        error = verbs->provider->post_recv(path->qp, first, &bad);
        first[some - 1].next = &first[some];
        n -= some;
    }
    return error < 0 ? -error : error;
}

void stepaf_verbs_give_back(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    uint32_t n = path->rx_next - path->rx_refilled;

    if (__builtin_expect(n < verbs->refill_from, 1) || path->closed)
        return;
    int error = stepaf_verbs_refill(link, path, n);
    if (error) {
        stepaf_verbs_path_lost(link, path, "posting receives: %s", strerror(error));
        return;
    }
    path->rx_refilled += n;
    if (!stepaf_verbs_tell(link, path, false) && !link->base.dead)
        verbs->due = true;
}

static bool parts_are_here(const struct stepaf_verbs_link *link, uint32_t parts)
{
    for (unsigned i = 0; i < link->n_paths; i++) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        if (path != link->lead && !path->out &&
            (int32_t)(path->rx_next - path->rx_parts_from - parts) < 0)
            return false;
    }
    return true;
}

/* Consume a notification that is not for the core; @a aside: the peer does not count it either. */
static void take_own(struct stepaf_verbs_link *link, bool aside)
{
    link->lead->rx_next++;
    if (link->failover)
        link->failover->rx_aside += aside;
}

/* Read notification @a imm, which is the next one. False: it waits for PARTs. */
static bool take_next(struct stepaf_verbs_link *link, uint32_t imm)
{
    struct stepaf_upcalls *up = link->base.transport->up;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = link->lead;
    const struct stepaf_verbs_slot *slot = &path->ring[path->rx_next & (verbs->receives - 1)];
    struct stepaf_msg msg;
    bool good;

    if (imm >> STEPAF_IMM_CODE_SHIFT != STEPAF_IMM_OTHER) {
        path->rx_next++;
        up->deliver_imm(up, &link->base, imm);
        return true;
    }
    good = slot->number == path->rx_next + 1 && imm == stepaf_verbs_ring_imm(slot->number) &&
           slot->msg.n_words <= STEPAF_MSG_WORDS;
    if (__builtin_expect(good && slot->msg.type >= STEPAF_MSG_TRANSPORT, 0)) {
        msg = slot->msg;
        take_own(link, msg.type != STEPAF_VERBS_MSG_NOTHING);
        stepaf_verbs_failover_told(link, &msg);
        return true;
    }
    if (good && __builtin_expect(!parts_are_here(link, slot->parts), 0))
        return false;
    if (!good) {
        bool seen = link->failover && imm == stepaf_verbs_nothing;
        take_own(link, seen);
        up->dropped_malformed += !seen;
        return true;
    }
    path->rx_next++;
    msg = slot->msg;
    up->deliver(up, &link->base, &msg);
    return true;
}

/* Take what has arrived on the lead, as far as its PARTs are here. */
static void drain(struct stepaf_verbs_link *link)
{
    uint32_t mask = stepaf_verbs_of(link)->receives - 1;
    struct stepaf_verbs_path *path = link->lead;

    while (path->rx_next != link->rx_arrived && !link->base.dead)
        if (!take_next(link, link->imms[path->rx_next & mask])) {
            if (link->failover)
                stepaf_verbs_failover_seek(link);
            return;
        }
    if (!link->base.dead)
        stepaf_verbs_give_back(link, path);
}

/* A PART, or what the transport itself has to say. */
static void arrived_aside(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                          const struct ibv_wc *wc)
{
    bool in_ring = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) & STEPAF_VERBS_IN_RING
                                                  : wc->byte_len > 0;

    if (path->out)
        return;
    path->rx_next++;
    if (in_ring && link->failover && path->ring)
        stepaf_verbs_failover_read(link, path, path->rx_next);
    stepaf_verbs_give_back(link, path);
    drain(link);
}

void stepaf_verbs_arrived(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                          const struct ibv_wc *wc)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);

    if (__builtin_expect(path != link->lead, 0)) {
        arrived_aside(link, path, wc);
        return;
    }
    if (__builtin_expect(link->rx_arrived - path->rx_next >= verbs->receives, 0)) {
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: it notifies more than it may",
                          path->rail->name, path->qp->qp_num);
        return;
    }
    uint32_t imm = stepaf_verbs_ring_imm(link->rx_arrived + 1);
    if (wc->wc_flags & IBV_WC_WITH_IMM)
        imm = ntohl(wc->imm_data);
    link->imms[link->rx_arrived++ & (verbs->receives - 1)] = imm;
    drain(link);
}
