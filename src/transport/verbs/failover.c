/* SPDX-License-Identifier: Apache-2.0 */
/* Failover, from a rail's death until both ends know which messages the other end has. */
#include "transport/verbs/failover.h"

#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "transport/verbs/send.h"

/* How long a device may take to return receives that will never be used. Some never return them. */
enum { FLUSH_US = 100000 };

unsigned stepaf_verbs_failover_reserve(const struct stepaf_verbs *verbs)
{
    return 2 * (verbs->n_rails - 1);
}

static unsigned n_rails(const struct stepaf_verbs_link *link)
{
    return link->n_paths / stepaf_verbs_of(link)->n_qps;
}

static struct stepaf_verbs_path *first_path(struct stepaf_verbs_link *link, unsigned rail)
{
    return &link->paths[rail * stepaf_verbs_of(link)->n_qps];
}

static uint32_t arrived(const struct stepaf_verbs_link *link, const struct stepaf_verbs_path *path)
{
    return path == link->lead ? link->rx_arrived : path->rx.next;
}

/* Stop all traffic on these paths, however late. Returns false if the device does not ensure
 * that. A device that has been removed is told nothing any more: the kernel has destroyed its queue
 * pairs before it says DEVICE_FATAL, and answers EIO. */
static bool close_paths(struct stepaf_verbs_link *link, unsigned rail)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    bool all = true;

    for (unsigned i = 0; i < link->n_paths; i++) {
        struct stepaf_verbs_path *path = &link->paths[i];
        if (path->rail_index != rail)
            continue;
        path->closed = true;
        path->wr.done = path->wr.asked = path->wr.posted;
        int error = verbs->provider->modify_qp(path->qp, &attr, IBV_QP_STATE);
        all = (!error || (error == EIO && path->rail->fatal)) && all;
    }
    return all;
}

bool stepaf_verbs_failover_close(struct stepaf_verbs_link *link, unsigned rail, const char *reason)
{
    struct stepaf_verbs_failover *failover = link->failover;
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);

    if (!failover || link->base.dead || verbs->closing)
        return false;
    unsigned closed = failover->closed | 1u << rail;
    if (closed == failover->closed)
        return true;
    if (closed + 1 == 1u << n_rails(link))
        return false;
    failover->closed = (uint8_t)closed;
    failover->closed_at = stepaf_ticks();
    failover->told = 0;
    failover->switched = false;
    failover->taken_told = false;
    link->halt = STEPAF_VERBS_HALTED;
    verbs->due = true;
    stepaf_log_warn("verbs: %s is given up for peer %u, others go on: %s", verbs->rails[rail].name,
                    link->base.peer, reason);
    if (!close_paths(link, rail))
        stepaf_verbs_lost(link, "%s has failed, and its queue pairs cannot be closed: %s",
                          verbs->rails[rail].name, reason);
    return true;
}

static void take_closed(struct stepaf_verbs_link *link, const struct stepaf_msg *msg)
{
    struct stepaf_verbs_failover *failover = link->failover;

    if ((msg->slot & failover->its_closed) != failover->its_closed)
        return; /* the peer has sent a newer message over another rail meanwhile */
    memcpy(failover->its_sent, msg->word, sizeof(failover->its_sent));
    failover->its_closed = msg->slot;
    for (unsigned r = 0; r < n_rails(link); r++)
        if (msg->slot & 1u << r &&
            !stepaf_verbs_failover_close(link, r, "the other end has given up this rail"))
            stepaf_verbs_lost(link, "all rails are dead, at one end or the other");
}

void stepaf_verbs_failover_told(struct stepaf_verbs_link *link, const struct stepaf_msg *msg)
{
    struct stepaf_verbs_failover *failover = link->failover;
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    bool names_rails = failover && msg->slot && !(msg->slot >> n_rails(link));

    if (msg->type == STEPAF_VERBS_MSG_NOTHING && failover)
        return;
    verbs->due = true;
    if (msg->type == STEPAF_VERBS_MSG_CLOSED && names_rails &&
        msg->n_words * sizeof(msg->word[0]) == sizeof(failover->its_sent)) {
        take_closed(link, msg);
    } else if (msg->type == STEPAF_VERBS_MSG_TAKEN && names_rails) {
        failover->its_taken_of = msg->slot;
        failover->its_taken = msg->seq;
    } else {
        verbs->base.up->dropped_malformed++;
    }
}

/* Read the message in a path's ring for notification @a number, if it is one of the transport
 * itself. */
static bool peek(const struct stepaf_verbs_link *link, const struct stepaf_verbs_path *path,
                 uint32_t number, struct stepaf_msg *msg_p)
{
    const struct stepaf_verbs_slot *slot =
        &path->ring[(number - 1) & (stepaf_verbs_of(link)->qp.receives - 1)];

    *msg_p = slot->msg;
    return slot->number == number && msg_p->n_words <= STEPAF_MSG_WORDS &&
           msg_p->type >= STEPAF_MSG_TRANSPORT;
}

void stepaf_verbs_failover_read(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                                uint32_t number)
{
    struct stepaf_msg msg;

    if (peek(link, path, number, &msg))
        stepaf_verbs_failover_told(link, &msg);
    else
        stepaf_verbs_of(link)->base.up->dropped_malformed++;
}

void stepaf_verbs_failover_seek(struct stepaf_verbs_link *link)
{
    uint32_t mask = stepaf_verbs_of(link)->qp.receives - 1;
    struct stepaf_msg msg;

    for (uint32_t n = link->lead->rx.next; n != link->rx_arrived; n++) {
        uint32_t *imm = &link->imms[n & mask];
        if (*imm != stepaf_verbs_ring_imm(n + 1) || !peek(link, link->lead, n + 1, &msg) ||
            msg.type == STEPAF_VERBS_MSG_NOTHING)
            continue;
        *imm = stepaf_verbs_nothing;
        stepaf_verbs_failover_told(link, &msg);
    }
}

/* Tell the peer, over every rail that is left, which rails are closed. Returns false if some have
 * no space now. */
static bool tell_closed(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs_failover *failover = link->failover;
    struct stepaf_msg msg = {.type = STEPAF_VERBS_MSG_CLOSED,
                             .slot = failover->closed,
                             .n_words = sizeof(failover->its_sent) / sizeof(msg.word[0])};
    uint16_t sent[STEPAF_VERBS_PATHS_MAX] = {0};
    unsigned untold = ((1u << n_rails(link)) - 1) & ~failover->closed & ~failover->told;

    for (unsigned i = 0; i < link->n_paths; i++)
        sent[i] = (uint16_t)link->paths[i].tx.next;
    for (unsigned r = 0; r < n_rails(link); r++)
        sent[first_path(link, r) - link->paths] += (uint16_t)(untold >> r & 1u);
    memcpy(msg.word, sent, sizeof(sent));
    for (unsigned r = 0; r < n_rails(link); r++) {
        if (!(untold & 1u << r))
            continue;
        if (!stepaf_verbs_send_own(link, first_path(link, r), &msg))
            return false;
        failover->told |= (uint8_t)(1u << r);
    }
    return true;
}

/* Return whether every expected notification has been processed: those a closed path had delivered,
 * or those another path must still deliver. */
static bool is_all_here(const struct stepaf_verbs_link *link, unsigned i)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    const struct stepaf_verbs_path *path = &link->paths[i];

    if (!path->closed)
        return (int16_t)((uint16_t)arrived(link, path) - link->failover->its_sent[i]) >= 0;
    return path->out ||
           arrived(link, path) + path->rx.flushed - path->rx.refilled == verbs->qp.receives ||
           stepaf_ticks() - link->failover->closed_at > FLUSH_US * verbs->ticks_per_us;
}

/* Discard messages that wait for a PART: it will not arrive. Make the first remaining rail the
 * lead, and count PARTs and messages from here on. */
static void switch_over(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs_failover *failover = link->failover;
    struct stepaf_verbs_path *lead = link->lead;
    uint32_t taken = lead->rx.next - failover->rx_aside;

    lead->rx.next = link->rx_arrived;
    stepaf_verbs_give_back(link, lead);
    for (unsigned i = link->n_paths; i--;) {
        struct stepaf_verbs_path *path = &link->paths[i];
        path->rx.parts_from = path->rx.next;
        path->out = path->closed;
        if (!path->closed && path->ring)
            lead = path;
    }
    link->lead = lead;
    link->rx_arrived = lead->rx.next;
    failover->rx_aside = lead->rx.next - taken;
    failover->switched = true;
}

static bool tell_taken(struct stepaf_verbs_link *link)
{
    const struct stepaf_verbs_failover *failover = link->failover;
    struct stepaf_msg msg = {.type = STEPAF_VERBS_MSG_TAKEN,
                             .slot = failover->closed,
                             .seq = link->lead->rx.next - failover->rx_aside};

    return stepaf_verbs_send_own(link, link->lead, &msg);
}

/* Return whether both ends have exchanged all failover messages. */
static bool is_agreed(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs_failover *failover = link->failover;

    if (!tell_closed(link) || failover->its_closed != failover->closed)
        return false;
    for (unsigned i = 0; i < link->n_paths && !failover->switched; i++)
        if (!is_all_here(link, i))
            return false;
    if (!failover->switched)
        switch_over(link);
    failover->taken_told = failover->taken_told || tell_taken(link);
    return failover->taken_told && failover->its_taken_of == failover->closed;
}

unsigned stepaf_verbs_failover_step(struct stepaf_verbs_link *link)
{
    unsigned n = 0;

    if (link->halt == STEPAF_VERBS_HALTED && is_agreed(link) && link->halt == STEPAF_VERBS_HALTED &&
        !link->base.dead)
        n = stepaf_verbs_resend_begin(link, link->failover->its_taken);
    stepaf_verbs_resend(link);
    if (link->halt >= STEPAF_VERBS_RESENDS && !link->base.dead)
        stepaf_verbs_of(link)->due = true;
    return n;
}

void stepaf_verbs_failover_end(struct stepaf_verbs_link *link)
{
    for (unsigned at = 0; at < STEPAF_VERBS_HELD_POSTS; at++)
        for (unsigned i = 0; i < link->n_paths; i++) {
            uint32_t *upto = &link->held_upto[at * link->n_paths + i];
            if (link->halt >= STEPAF_VERBS_RESENDS)
                *upto = link->paths[i].wr.asked;
        }
    link->halt = STEPAF_VERBS_RUNS;
    (void)stepaf_verbs_let_go(link, false);
}
