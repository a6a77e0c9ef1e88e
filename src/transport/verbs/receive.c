/* SPDX-License-Identifier: Apache-2.0 */
/* Take in notifications. They are untrusted input: each is compared with known facts before it
 * changes anything. */
#include <arpa/inet.h>

#include "base/time.h"
#include "transport/last_rail.h"
#include "transport/verbs/failover.h"

/* Report which rail was the last with its share of a message. */
static void tell_last_rail(struct stepaf_verbs_link *link, const struct stepaf_msg *msg)
{
    uint64_t here[STEPAF_VERBS_RAILS_MAX] = {0};

    here[link->lead->rail_index] = link->waits_since ? link->waits_since : stepaf_ticks();
    for (unsigned i = 0; i < link->n_paths; i++) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        if (path != link->lead && !path->out && path->rx.came > here[path->rail_index])
            here[path->rail_index] = path->rx.came;
    }
    stepaf_tell_last_rail(&link->base, msg, 0, here, STEPAF_VERBS_RAILS_MAX);
}

static bool parts_are_here(const struct stepaf_verbs_link *link, uint32_t parts)
{
    for (unsigned i = 0; i < link->n_paths; i++) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        if (path != link->lead && !path->out &&
            (int32_t)(path->rx.next - path->rx.parts_from - parts) < 0)
            return false;
    }
    return true;
}

/* Return whether the next message has arrived with all its PARTs; then it is about to be taken. */
static __attribute__((noinline)) bool take_parts(struct stepaf_verbs_link *link,
                                                 const struct stepaf_verbs_slot *slot)
{
    uint32_t parts = slot->parts;
    bool are_here = parts_are_here(link, parts);
    struct stepaf_msg msg;

    if (!link->base.transport->up->held_up)
        return are_here;
    if (!are_here) {
        if (!link->waits_since)
            link->waits_since = stepaf_ticks();
        return false;
    }
    msg = slot->msg;
    if (parts != link->rx_parts)
        tell_last_rail(link, &msg);
    link->rx_parts = parts;
    link->waits_since = 0;
    return true;
}

/* Consume a notification that is not for the core; @a aside: the peer does not count it as a
 * message either. */
static void take_own(struct stepaf_verbs_link *link, bool aside)
{
    link->lead->rx.next++;
    if (link->failover)
        link->failover->rx_aside += aside;
}

/* Process notification @a imm, which is the next one. Returns false if it waits for PARTs. */
static bool take_next(struct stepaf_verbs_link *link, uint32_t imm)
{
    struct stepaf_upcalls *up = link->base.transport->up;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = link->lead;
    const struct stepaf_verbs_slot *slot = &path->ring[path->rx.next & (verbs->qp.receives - 1)];
    struct stepaf_msg msg;
    bool good;

    if (imm >> STEPAF_IMM_CODE_SHIFT != STEPAF_IMM_OTHER) {
        path->rx.next++;
        up->deliver_imm(up, &link->base, imm);
        return true;
    }
    good = slot->number == path->rx.next + 1 && imm == stepaf_verbs_ring_imm(slot->number) &&
           slot->msg.n_words <= STEPAF_MSG_WORDS;
    if (__builtin_expect(good && slot->msg.type >= STEPAF_MSG_TRANSPORT, 0)) {
        msg = slot->msg;
        take_own(link, msg.type != STEPAF_VERBS_MSG_NOTHING);
        stepaf_verbs_failover_told(link, &msg);
        return true;
    }
    if (good && __builtin_expect(link->n_paths > 1, 0) && !take_parts(link, slot))
        return false;
    if (!good) {
        bool seen = link->failover && imm == stepaf_verbs_nothing;
        take_own(link, seen);
        up->dropped_malformed += !seen;
        return true;
    }
    path->rx.next++;
    msg = slot->msg;
    up->deliver(up, &link->base, &msg);
    return true;
}

/* Take what has arrived on the lead, up to the first message that waits for PARTs. */
static void drain_lead(struct stepaf_verbs_link *link)
{
    uint32_t mask = stepaf_verbs_of(link)->qp.receives - 1;
    struct stepaf_verbs_path *path = link->lead;

    while (path->rx.next != link->rx_arrived && !link->base.dead)
        if (!take_next(link, link->imms[path->rx.next & mask])) {
            if (link->failover)
                stepaf_verbs_failover_seek(link);
            return;
        }
    if (!link->base.dead)
        stepaf_verbs_give_back(link, path);
}

/* Take a PART, or a message of the transport itself. */
static void arrived_aside(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                          const struct ibv_wc *wc)
{
    bool in_ring = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) & STEPAF_VERBS_IN_RING
                                                  : wc->byte_len > 0;

    if (path->out)
        return;
    path->rx.next++;
    if (link->base.transport->up->held_up)
        path->rx.came = stepaf_ticks();
    if (in_ring && link->failover && path->ring)
        stepaf_verbs_failover_read(link, path, path->rx.next);
    stepaf_verbs_give_back(link, path);
    drain_lead(link);
}

void stepaf_verbs_arrived(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                          const struct ibv_wc *wc)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);

    if (__builtin_expect(path != link->lead, 0)) {
        arrived_aside(link, path, wc);
        return;
    }
    if (__builtin_expect(link->rx_arrived - path->rx.next >= verbs->qp.receives, 0)) {
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: it has sent more notifications than it may",
                          path->rail->name, path->qp->qp_num);
        return;
    }
    uint32_t imm = stepaf_verbs_ring_imm(link->rx_arrived + 1);
    if (wc->wc_flags & IBV_WC_WITH_IMM)
        imm = ntohl(wc->imm_data);
    link->imms[link->rx_arrived++ & (verbs->qp.receives - 1)] = imm;
    drain_lead(link);
}
