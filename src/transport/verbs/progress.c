/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: one completion queue for each rail, polled in batches. */
#include <arpa/inet.h>

#include "base/time.h"
#include "transport/verbs/failover.h"

enum { POLL = 16 };

/* Take the most common completion: a complete message in a notification on path 0, the lead as long
 * as its rail is alive, with none waiting before it. Returns false if it is another completion. */
static inline bool take_short(struct stepaf_verbs *verbs, const struct ibv_wc *wc)
{
    /* The bit of a receive moves above the peer; path and count are 0. */
    uint64_t peer =
        (wc->wr_id << (64 - STEPAF_VERBS_PEER_SHIFT) | wc->wr_id >> STEPAF_VERBS_PEER_SHIFT) -
        (stepaf_verbs_is_receive >> STEPAF_VERBS_PEER_SHIFT);
    uint32_t imm = ntohl(wc->imm_data);

    if (__builtin_expect(peer >= verbs->n_peers || wc->status != IBV_WC_SUCCESS ||
                             !(wc->wc_flags & IBV_WC_WITH_IMM) ||
                             imm >= (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT,
                         0))
        return false;
    struct stepaf_verbs_link *link = verbs->links[peer];
    struct stepaf_verbs_path *path = &link->paths[0];
    if (__builtin_expect(
            !link || link->base.dead || link->rx_arrived != path->rx.next || path != link->lead, 0))
        return false;
    link->rx_arrived++;
    path->rx.next++;
    if (__builtin_expect(path->rx.next - path->rx.refilled >= verbs->qp.refill_from, 0)) {
        stepaf_verbs_give_back(link, path);
        if (link->base.dead)
            return true;
    }
    verbs->base.up->deliver_imm(verbs->base.up, &link->base, imm);
    return true;
}

/* Take completions that were set aside, report to peers for which there was no space, and continue
 * failovers. Return how many events there were. */
static __attribute__((noinline, cold)) unsigned do_due(struct stepaf_verbs *verbs)
{
    if (verbs->aside.n && !verbs->base.up->polled)
        verbs->base.up->polled = stepaf_ticks();
    verbs->due = false;
    unsigned n = stepaf_verbs_aside_take(verbs);
    for (unsigned p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        for (unsigned i = 0; link && !link->base.dead && i < link->n_paths; i++)
            if (link->paths[i].rx.told != link->paths[i].rx.refilled &&
                !stepaf_verbs_tell(link, &link->paths[i], false))
                verbs->due = true;
        if (link && link->halt && !link->base.dead)
            n += stepaf_verbs_failover_step(link);
    }
    return n;
}

/* Take the completions of one rail's completion queue, as many as one poll returns. */
static inline __attribute__((always_inline)) unsigned poll_rail(
    struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail)
{
    struct stepaf_upcalls *up = verbs->base.up;
    struct ibv_wc list[POLL];
    int got = verbs->provider->poll_cq(rail->cq, POLL, list);
    unsigned n = 0;

    if (got > 0 && !up->polled)
        up->polled = stepaf_ticks(); /* one timestamp for all of them */
    for (const struct ibv_wc *wc = list; got-- > 0; wc++)
        n += take_short(verbs, wc) ? 1 : stepaf_verbs_take(verbs, wc);
    return n;
}

unsigned stepaf_verbs_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    unsigned n = 0;

    if (__builtin_expect(verbs->due, 0))
        n += do_due(verbs);
    if (!verbs->n_links)
        return n;
    while (true) {
        const struct stepaf_verbs_rail *rail = verbs->rails;
        do
            n += poll_rail(verbs, rail);
        while (++rail != verbs->rails_end);
        if (n || !--polls)
            return n;
        transport->up->polled = stepaf_ticks();
    }
}

unsigned stepaf_verbs_arm(struct stepaf_transport *transport, int *fds_p, unsigned capacity)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)transport;

    if (verbs->n_rails > capacity || verbs->due)
        return 0;
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        const struct stepaf_verbs_rail *rail = &verbs->rails[r];
        if (!rail->channel || verbs->provider->arm_cq(rail->cq))
            return 0;
        fds_p[r] = rail->channel->fd;
    }
    return verbs->n_rails;
}

void stepaf_verbs_queues_empty(struct stepaf_verbs *verbs)
{
    struct ibv_wc wc[POLL];

    (void)stepaf_verbs_aside_take(verbs);
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        int got;
        do {
            got = verbs->provider->poll_cq(verbs->rails[r].cq, POLL, wc);
            for (int i = 0; i < got; i++)
                (void)stepaf_verbs_take(verbs, &wc[i]);
        } while (got == POLL);
    }
}

void stepaf_verbs_sends_poll(struct stepaf_verbs *verbs)
{
    struct ibv_wc wc[POLL];

    for (unsigned r = 0; r < verbs->n_rails; r++) {
        int got = verbs->provider->poll_cq(verbs->rails[r].cq, POLL, wc);
        for (int i = 0; i < got; i++)
            if (!(wc[i].wr_id & stepaf_verbs_is_receive))
                (void)stepaf_verbs_take(verbs, &wc[i]);
    }
}
