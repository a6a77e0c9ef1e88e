/* SPDX-License-Identifier: Apache-2.0 */
/* Calls between members: one rank calls another when it has something to say. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/socket.h"
#include "boot/member_net_inside.h"

enum {
    CALL_AGAIN_NS = 50000000, /* after a call that shows nothing about the other end */
    LOOK_MOST_NS = 200000000  /* between two polls: a rank that is only busy polls more often */
};

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
    other->last = NULL;
    other->awaits_losses = false;
}

/* ---- the call ---- */

/* Return whether the failure is this rank's own and not the other's fault. A lack of local ports is
 * such a failure; but for a call to an IPv6 address from a host that has none, that error is
 * permanent. */
static bool is_own_lack(int error, const struct stepaf_control_address *address)
{
    bool is_v4 = address->bytes[10] == 0xff && address->bytes[11] == 0xff && !address->bytes[0];

    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
           error == ENOSPC || (error == EADDRNOTAVAIL && is_v4);
}

void stepaf_member_net_call_anew(struct stepaf_member_net *net, int rank)
{
    net->others[rank].at = 0;
    net->others[rank].is_refused = false;
    net->others[rank].spent_ns = net->others[rank].again_ns = 0;
}

static void leave_address(struct member_other *other)
{
    other->at++;
    other->spent_ns = other->again_ns = 0;
}

/* Mark the rank to be called again, at the same address. */
static void call_later(struct member_other *other, bool lacks)
{
    other->lacks = lacks;
    other->again_ns = stepaf_monotonic_ns() + CALL_AGAIN_NS;
}

/* Return whether a call to this address reaches this host and not the rank's, as with bridges that
 * have the same address on all hosts. */
static bool is_only_own(const struct stepaf_member_net *net, const struct member_other *other,
                        const struct stepaf_control_address *address)
{
    uint64_t theirs = other->addresses.network_id;

    for (unsigned i = 0; i < net->own.n; i++)
        if (memcmp(net->own.bytes[i], address->bytes, sizeof address->bytes) == 0)
            return theirs && net->own.network_id && theirs != net->own.network_id;
    return false;
}

static void note_call_trouble(const struct stepaf_member_net *net, struct member_other *other,
                              const struct stepaf_control_address *address, const char *why,
                              int error)
{
    if (error == ECONNREFUSED && !is_only_own(net, other, address))
        other->is_refused = true;
    snprintf(other->trouble, sizeof other->trouble, "cannot connect: %s", why);
}

/* Call the rank at its address. Returns false if no address is left. */
static bool call_next(struct stepaf_member_net *net, int rank)
{
    struct member_other *other = &net->others[rank];
    struct stepaf_control_address address;

    while (stepaf_consensus_address_at(&net->own, &other->addresses, other->at, &address)) {
        int fd = stepaf_control_connect(&address, other->addresses.port);
        struct stepaf_control_link *link =
            fd >= 0 ? stepaf_control_link_new(&net->control, fd, STEPAF_CONTROL_CALLING) : NULL;
        if (link) {
            other->called = net->consensus.lives[rank];
            link->hello.to = (uint32_t)rank;
            if (!net->control.guests.is_one) /* else the guest's knowledge of lives may be old */
                link->hello.life_called = other->called;
            net->control.links[rank] = link;
            other->looked_ns = stepaf_monotonic_ns();
            other->lacks = false;
            return true;
        }
        int error = fd >= 0 ? ENOMEM : errno;
        note_call_trouble(net, other, &address, stepaf_why(error), error);
        if (fd >= 0)
            stepaf_control_socket_close(fd);
        if (is_own_lack(error, &address)) {
            call_later(other, true);
            return true;
        }
        leave_address(other);
    }
    return false;
}

/* Judge the other end by the end of a call. A connection that could not be made shows that no
 * process listens there. A greeting that has ended does not show that before the time is over: the
 * other end closes a connection whose greeting takes this rank too long, and this rank may have
 * been stopped. */
static void judge_call(struct stepaf_member_net *net, int rank)
{
    struct stepaf_control_link *link = net->control.links[rank];
    struct member_other *other = &net->others[rank];
    struct stepaf_control_address address = {.scope = 0};

    if (!link->has_been_up) { /* else messages were sent, and it may be called immediately */
        (void)stepaf_consensus_address_at(&net->own, &other->addresses, other->at, &address);
        bool lacks = (link->trouble && !link->error) || is_own_lack(link->error, &address);
        note_call_trouble(net, other, &address,
                          link->trouble ? link->trouble : stepaf_why(link->error), link->error);
        bool is_gone = !link->hello.magic || link->error == ESTALE;
        if (!lacks && (is_gone || other->spent_ns >= MEMBER_CONNECT_NS))
            leave_address(other);
        else
            call_later(other, lacks);
    }
    stepaf_control_link_free(link);
    net->control.links[rank] = NULL;
}

/* Count the time for one address. Time in which this rank was stopped, or busy with other things,
 * does not count; nor does time in which the other end has accepted the connection but says
 * nothing. */
static void count_time(struct member_other *other, const struct stepaf_control_link *link)
{
    int64_t now_ns = stepaf_monotonic_ns(), gap_ns = now_ns - other->looked_ns;
    bool counts = link ? link->state == STEPAF_CONTROL_CALLING : other->again_ns && !other->lacks;

    if (counts)
        other->spent_ns += gap_ns < LOOK_MOST_NS ? gap_ns : LOOK_MOST_NS;
    other->looked_ns = now_ns;
}

/* ---- messages ---- */

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
    struct member_other *other = &net->others[to];

    if (link)
        put_message(link, type, data, bytes);
    if (!queued)
        return link != NULL;
    *queued = (struct member_queued){.type = type, .bytes = bytes};
    memcpy(queued->data, data, bytes);
    if (other->last)
        other->last->next = queued;
    else
        other->queue = queued;
    other->last = queued;
    return true;
}

bool stepaf_member_net_can_say_losses(struct stepaf_member_net *net, int to)
{
    if (stepaf_member_net_way(net, to))
        return true;
    net->others[to].awaits_losses = true;
    return false;
}

static void say_queued(struct stepaf_member_net *net, int rank, struct stepaf_control_link *way)
{
    struct member_other *other = &net->others[rank];

    if (other->awaits_losses)
        stepaf_consensus_report(&net->consensus, rank);
    for (struct member_queued *queued = other->queue; queued; queued = queued->next)
        put_message(way, queued->type, queued->data, queued->bytes);
    stepaf_member_net_drop(net, rank);
    other->spent_ns = other->again_ns = 0;
    other->lacks = false;
    other->trouble[0] = '\0';
}

static void give_up_calling(struct stepaf_member_net *net, int rank)
{
    struct member_other *other = &net->others[rank];

    stepaf_member_net_drop(net, rank);
    other->is_over = other->is_refused; /* else it may be stopped, or its network slow */
    if (net->control.guests.is_one ||   /* a guest declares no rank lost, and calls again */
        stepaf_consensus_has_lost(&net->consensus, rank))
        return;
    memcpy(other->reason, other->trouble, sizeof other->reason);
    stepaf_log_info("members: world rank %d (life %u) is lost: %s", rank,
                    net->consensus.lives[rank], other->reason);
    stepaf_consensus_lose(&net->consensus, rank);
}

void stepaf_member_net_look_after(struct stepaf_member_net *net, int rank)
{
    struct stepaf_control_link *link = net->control.links[rank];
    struct stepaf_control_link *way = stepaf_member_net_way(net, rank);
    struct member_other *other = &net->others[rank];

    if (way) {
        other->is_refused = other->is_over = false;
        say_queued(net, rank, way);
        return;
    }
    count_time(other, link);
    if (link && link->state == STEPAF_CONTROL_CALLING && other->spent_ns >= MEMBER_CONNECT_NS)
        stepaf_control_link_close(link, "the host does not answer", ETIMEDOUT);
    if (link && link->state != STEPAF_CONTROL_CLOSED)
        return;
    if (link)
        judge_call(net, rank);
    if (stepaf_monotonic_ns() >= other->again_ns && !call_next(net, rank))
        give_up_calling(net, rank); /* no process listens there any more */
}

const char *stepaf_member_net_hindrance(const struct stepaf_member_net *net, int rank)
{
    return net->others[rank].lacks ? net->others[rank].trouble : "";
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
