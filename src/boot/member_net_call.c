/* SPDX-License-Identifier: Apache-2.0 */
/* How one rank calls another when it has something to say to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/socket.h"
#include "boot/member_net_inside.h"

static bool is_way(const struct stepaf_control_link *link)
{
    return link && link->state == STEPAF_CONTROL_UP;
}

struct stepaf_control_link *stepaf_member_net_way(const struct stepaf_member_net *net, int rank)
{
    if (is_way(net->control.links[rank]))
        return net->control.links[rank];
    return is_way(net->control.calls[rank]) ? net->control.calls[rank] : NULL;
}

void stepaf_member_net_drop(struct stepaf_member_net *net, int rank)
{
    struct member_other *other = &net->others[rank];

    while (other->queue) {
        struct member_queued *queued = other->queue;
        other->queue = queued->next;
        free(queued);
    }
}

/* Call the rank at its next address. False: there is none left. */
static bool call_next(struct stepaf_member_net *net, int rank)
{
    struct member_other *other = &net->others[rank];
    struct stepaf_control_address address;

    while (stepaf_consensus_address_at(&net->own, &other->addresses, other->at, &address)) {
        other->at++;
        int fd = stepaf_control_connect(&address, other->addresses.port);
        struct stepaf_control_link *link =
            fd >= 0 ? stepaf_control_link_new(&net->control, fd, STEPAF_CONTROL_CALLING) : NULL;
        if (!link) {
            snprintf(other->reason, sizeof other->reason, "it cannot be called: %s",
                     stepaf_why(fd >= 0 ? ENOMEM : errno));
            if (fd >= 0)
                stepaf_control_socket_close(fd);
            continue;
        }
        link->hello.to = (uint32_t)rank;
        stepaf_control_link_free(net->control.links[rank]);
        net->control.links[rank] = link;
        other->called = net->consensus.lives[rank];
        other->until_ns = stepaf_monotonic_ns() + MEMBER_CONNECT_NS;
        return true;
    }
    return false;
}

static void put_message(struct stepaf_control_link *link, uint32_t type, const uint8_t *data,
                        size_t bytes)
{
    struct stepaf_control_frame frame = {.type = type, .bytes = bytes};

    stepaf_control_send(link, &frame, data);
}

bool stepaf_member_net_say(struct stepaf_member_net *net, int to, uint32_t type,
                           const uint8_t *data, size_t bytes)
{
    struct stepaf_control_link *link = stepaf_member_net_way(net, to);
    struct member_queued *queued = link ? NULL : malloc(sizeof *queued + bytes);
    struct member_queued **at = &net->others[to].queue;

    if (link)
        put_message(link, type, data, bytes);
    if (!queued)
        return link != NULL;
    *queued = (struct member_queued){.type = type, .bytes = bytes};
    memcpy(queued->data, data, bytes);
    while (*at)
        at = &(*at)->next;
    *at = queued;
    return true;
}

void stepaf_member_net_look_after(struct stepaf_member_net *net, int rank)
{
    struct stepaf_control_link *link = net->control.links[rank];
    struct member_other *other = &net->others[rank];
    struct stepaf_control_link *way = stepaf_member_net_way(net, rank);

    if (way) {
        while (other->queue) {
            struct member_queued *queued = other->queue;
            put_message(way, queued->type, queued->data, queued->bytes);
            other->queue = queued->next;
            free(queued);
        }
        return;
    }
    if (link && link->state == STEPAF_CONTROL_CALLING && stepaf_monotonic_ns() >= other->until_ns)
        stepaf_control_link_close(link, "its host does not answer", ETIMEDOUT);
    if (link && link->state != STEPAF_CONTROL_CLOSED)
        return;
    if (link)
        snprintf(other->reason, sizeof other->reason, "it cannot be called: %s",
                 link->trouble ? link->trouble : stepaf_why(link->error));
    if (!call_next(net, rank)) { /* nobody listens there any more */
        stepaf_member_net_drop(net, rank);
        if (net->control.guests.is_one) /* who is no member loses nobody, and calls again */
            return;
        stepaf_log_info("world rank %d, in its life %u, is lost among the members: %s", rank,
                        net->consensus.lives[rank], other->reason);
        stepaf_consensus_lose(&net->consensus, rank);
    }
}

void stepaf_member_net_set_key(struct stepaf_member_net *net, const uint8_t *key)
{
    struct stepaf_control *control = &net->control;
    static const char word[] = "session";
    uint8_t proof[STEPAF_PROOF_BYTES];

    memcpy(control->place.key, key, sizeof control->place.key);
    stepaf_proof_make(control->place.key, word, sizeof word, proof);
    memcpy(control->session, proof, sizeof control->session);
    control->place.has_secret = control->has_met = true;
}
