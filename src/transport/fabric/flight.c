/* SPDX-License-Identifier: Apache-2.0 */
/* Links from beginning to end, and the posts in flight over them. */
#include <string.h>

#include "base/fork.h"
#include "base/time.h"
#include "transport/fabric/link.h"

void stepaf_fabric_connect(struct stepaf_fabric_link *link, const struct stepaf_peer_facts *facts,
                           uint64_t token, uint64_t pids)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    struct stepaf_transport *transport = link->base.transport;

    link->base =
        (struct stepaf_link){.ops = transport->ops, .transport = transport, .peer = facts->peer};
    link->token = token;
    link->is_local = facts->node_id == transport->up->topo->node_id && pids && pids == fabric->pids;
    stepaf_fabric_watch(link, facts->pid);
    link->proof.state = STEPAF_FABRIC_UNPROVEN;
    link->used = true;
}

void stepaf_fabric_disconnect(struct stepaf_fabric_link *link)
{
    for (int i = 0; i < STEPAF_FABRIC_RING; i++)
        link->flight[i].post = NULL;
    memset(link->due, 0, sizeof(link->due)); /* what was set aside is not delivered */
    link->open = NULL;
    link->used = false;
    link->has_ended = stepaf_fabric_has_ended(link);
    if (link->pidfd >= 0)
        stepaf_fork_close(link->pidfd);
    link->pidfd = -1;
}

struct stepaf_fabric_flight *stepaf_fabric_begin(struct stepaf_fabric_link *link,
                                                 struct stepaf_post *post)
{
    struct stepaf_fabric_flight *flight = &link->flight[link->sent % STEPAF_FABRIC_RING];

    if (link->open)
        return link->open;
    if (link->sent - link->credit >= STEPAF_FABRIC_RING || flight->pending)
        return NULL;
    link->open = flight;
    flight->pieces = 0;
    post->at = 0;
    post->at_offset = 0;
    return flight;
}

void stepaf_fabric_end_post(struct stepaf_fabric_flight *flight, struct stepaf_post *post)
{
    flight->link->open = NULL;
    flight->post = post;
    if (post)
        post->state = STEPAF_POST_POSTED;
}

void stepaf_fabric_end_send(struct stepaf_fabric_flight *flight)
{
    flight->pending--;
    flight->link->heard++;
    if (!flight->pending && flight->post) {
        if (!flight->link->base.dead)
            flight->post->state = STEPAF_POST_SENT;
        flight->post = NULL;
    }
}

void stepaf_fabric_retire(struct stepaf_post *post)
{
    struct stepaf_fabric_link *link = (struct stepaf_fabric_link *)post->link;

    for (int i = 0; i < STEPAF_FABRIC_RING; i++)
        if (link->flight[i].post == post)
            link->flight[i].post = NULL;
}

bool stepaf_fabric_link_has_pending(const struct stepaf_fabric_link *link)
{
    bool pending = false;

    for (int i = 0; i < STEPAF_FABRIC_RING; i++)
        pending |= link->flight[i].pending > 0;
    return pending;
}

bool stepaf_fabric_has_pending(const struct stepaf_fabric *fabric)
{
    for (uint32_t p = 0; p < fabric->n_peers; p++) {
        const struct stepaf_fabric_link *link = stepaf_fabric_link(fabric, p);
        if (!link->base.dead && (link->control.pending || stepaf_fabric_link_has_pending(link)))
            return true;
    }
    return false;
}

bool stepaf_fabric_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p)
{
    const struct stepaf_fabric *fabric = (struct stepaf_fabric *)transport;

    (void)begin;
    (void)transport->ops->progress(transport, 1);
    for (uint32_t i = 0; i < fabric->n_senders; i++) {
        const struct stepaf_fabric_link *link = fabric->senders[i];
        if (stepaf_fabric_link_has_pending(link)) { /* also a link that is disconnected by now */
            *peer_p = link->base.peer;
            return false;
        }
    }
    return true;
}
