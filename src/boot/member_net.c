/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/member_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/env_text.h"
#include "base/fork.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/socket.h"
#include "boot/member_net_inside.h"

enum {
    CONNECT_NS =
        2000000000, /* for one address; a host that has not answered by then is not there */
    FAREWELL_BYTES = 4096
};

const struct stepaf_consensus *stepaf_member_net_consensus(const struct stepaf_member_net *net)
{
    return &net->consensus;
}

int stepaf_member_net_fd(const struct stepaf_member_net *net)
{
    return net->control.epoll_fd;
}

const char *stepaf_member_net_reason(const struct stepaf_member_net *net, int rank)
{
    return net->others[rank].reason;
}

void stepaf_member_net_lose(struct stepaf_member_net *net, int rank, const char *why)
{
    if (rank == net->consensus.rank || net->consensus.lost[rank])
        return;
    snprintf(net->others[rank].reason, STEPAF_MEMBER_NET_REASON_MAX, "%s", why);
    stepaf_consensus_lose(&net->consensus, rank);
}

/* ---- calling ---- */

static bool is_way(const struct stepaf_control_link *link)
{
    return link && link->state == STEPAF_CONTROL_UP;
}

static struct stepaf_control_link *way_to(const struct stepaf_member_net *net, int rank)
{
    if (is_way(net->control.links[rank]))
        return net->control.links[rank];
    return is_way(net->control.calls[rank]) ? net->control.calls[rank] : NULL;
}

static void drop_queue(struct member_other *other)
{
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
        other->until_ns = stepaf_monotonic_ns() + CONNECT_NS;
        return true;
    }
    return false;
}

static void put_message(struct stepaf_control_link *link, const uint8_t *data, size_t bytes)
{
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_CONSENSUS, .bytes = bytes};

    stepaf_control_send(link, &frame, data);
}

/* Send, or keep it until there is a connection. Nothing of the machine is called from here. */
static void send_message(void *arg, int to, const struct stepaf_consensus_message *message)
{
    struct stepaf_member_net *net = arg;
    struct stepaf_control_link *link = way_to(net, to);
    size_t bytes = 0;
    uint8_t *data = stepaf_consensus_message_pack(message, net->consensus.size, &bytes);
    struct member_queued *queued = link || !data ? NULL : malloc(sizeof *queued + bytes);
    struct member_queued **at = &net->others[to].queue;

    if (link && data)
        put_message(link, data, bytes);
    if (queued) {
        *queued = (struct member_queued){.bytes = bytes};
        memcpy(queued->data, data, bytes);
        while (*at)
            at = &(*at)->next;
        *at = queued;
    }
    free(data);
}

/* How the call to a rank goes on, if one is wanted. */
static void look_after(struct stepaf_member_net *net, int rank)
{
    struct stepaf_control_link *link = net->control.links[rank];
    struct member_other *other = &net->others[rank];
    struct stepaf_control_link *way = way_to(net, rank);

    if (way) {
        while (other->queue) {
            struct member_queued *queued = other->queue;
            put_message(way, queued->data, queued->bytes);
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
        drop_queue(other);
        stepaf_consensus_lose(&net->consensus, rank);
    }
}

void stepaf_member_net_pump(struct stepaf_member_net *net)
{
    (void)stepaf_control_pump(&net->control);
    for (int rank = 0; rank < net->consensus.size; rank++)
        if (net->others[rank].queue)
            look_after(net, rank);
}

/* ---- being called ---- */

static bool take_message(void *arg, int rank, const void *data, size_t bytes)
{
    struct stepaf_member_net *net = arg;
    struct stepaf_consensus_message message;

    if (!stepaf_consensus_message_read(data, bytes, net->consensus.size, &message))
        return false;
    stepaf_consensus_take(&net->consensus, rank, &message);
    return true;
}

static void note_ended(void *arg, int rank, bool has_left)
{
    struct stepaf_member_net *net = arg;

    drop_queue(&net->others[rank]);
    stepaf_member_net_lose(net, rank,
                           has_left ? "it has finalized" : "its control connection has ended");
}

/* ---- beginning and end ---- */

static void free_net(struct stepaf_member_net *net)
{
    struct stepaf_control *control = &net->control;

    stepaf_control_shut_door(control);
    for (int rank = 0; rank < control->place.size; rank++) {
        if (control->links)
            stepaf_control_link_free(control->links[rank]);
        if (control->calls)
            stepaf_control_link_free(control->calls[rank]);
        if (net->others)
            drop_queue(&net->others[rank]);
    }
    if (control->epoll_fd >= 0)
        stepaf_fork_close(control->epoll_fd);
    stepaf_proof_forget(control->place.key, sizeof control->place.key);
    stepaf_consensus_free(&net->consensus);
    free(control->links);
    free(control->calls);
    free(control->fates);
    free(net->others);
    free(net);
}

/* Room for all that there can be. */
static struct stepaf_member_net *new_net(int rank, int size)
{
    struct stepaf_member_net *net = calloc(1, sizeof *net);
    size_t n = (size_t)size;

    if (!net)
        return NULL;
    struct stepaf_control *control = &net->control;
    control->place.rank = rank;
    control->place.size = size;
    control->epoll_fd = control->listener = -1;
    control->refused_rank = -1;
    control->user =
        (struct stepaf_control_user){.arg = net, .take = take_message, .ended = note_ended};
    control->links = calloc(n, sizeof(struct stepaf_control_link *));
    control->calls = calloc(n, sizeof(struct stepaf_control_link *));
    control->fates = calloc(n, 1);
    net->others = calloc(n, sizeof *net->others);
    if (control->links && control->calls && control->fates && net->others &&
        stepaf_consensus_init(&net->consensus, rank, size, send_message, net))
        return net;
    free_net(net);
    return NULL;
}

/* False: errno says why. */
static bool begin_listening(struct stepaf_member_net *net, const struct stepaf_env *env)
{
    struct stepaf_control *control = &net->control;
    uint16_t first = 0, last = 0;

    (void)stepaf_env_ports(env->member_ports, &first, &last);
    stepaf_fork_begin();
    control->epoll_fd = stepaf_fork_end(epoll_create1(EPOLL_CLOEXEC));
    if (control->epoll_fd < 0)
        return false;
    control->listener = stepaf_control_listen(&control->place, first, last, &control->port);
    return control->listener >= 0;
}

struct stepaf_member_net *stepaf_member_net_open(const struct stepaf_env *env, int rank, int size,
                                                 struct stepaf_member_contact *contact_p,
                                                 char reason_p[STEPAF_MEMBER_NET_REASON_MAX])
{
    struct stepaf_member_contact contact = {.addresses.port = 0};
    struct stepaf_member_net *net = new_net(rank, size);
    const char *why = "no memory";

    *contact_p = contact;
    if (net && !stepaf_proof_ready())
        why = "the library that makes proofs cannot be used";
    else if (net && !begin_listening(net, env))
        why = stepaf_why(errno);
    else if (net && !stepaf_proof_draw(contact.nonce, sizeof contact.nonce))
        why = "the system gives no random numbers";
    else if (net)
        why = NULL;
    if (why) {
        snprintf(reason_p, STEPAF_MEMBER_NET_REASON_MAX, "%s", why);
        if (net)
            free_net(net);
        return NULL;
    }
    contact.addresses.port = net->control.port;
    stepaf_consensus_addresses_own(env->net_if, &contact.addresses);
    net->own = contact.addresses;
    *contact_p = contact;
    return net;
}

bool stepaf_member_net_meet(struct stepaf_member_net *net,
                            const struct stepaf_member_contact *contacts)
{
    struct stepaf_control *control = &net->control;
    size_t size = (size_t)net->consensus.size;
    uint8_t *nonce = malloc(size * STEPAF_MEMBER_NET_NONCE_BYTES);
    static const char word[] = "session";
    uint8_t proof[STEPAF_PROOF_BYTES];

    if (!nonce)
        return false;
    for (size_t rank = 0; rank < size; rank++) {
        memcpy(nonce + rank * STEPAF_MEMBER_NET_NONCE_BYTES, contacts[rank].nonce,
               STEPAF_MEMBER_NET_NONCE_BYTES);
        net->others[rank].addresses = contacts[rank].addresses;
    }
    stepaf_proof_key(nonce, size * STEPAF_MEMBER_NET_NONCE_BYTES, control->place.key);
    stepaf_proof_forget(nonce, size * STEPAF_MEMBER_NET_NONCE_BYTES);
    free(nonce);
    stepaf_proof_make(control->place.key, word, sizeof word, proof);
    memcpy(control->session, proof, sizeof control->session);
    control->place.has_secret = control->has_met = true;
    return stepaf_control_open_door(control);
}

/* What has come and was not read would have the system throw away what is on its way. */
static void send_bye(struct stepaf_control_link *link)
{
    struct stepaf_control_frame bye = {.type = STEPAF_CONTROL_BYE};
    uint8_t sink[FAREWELL_BYTES];

    if (!is_way(link))
        return;
    stepaf_control_send(link, &bye, NULL);
    if (shutdown(link->fd, SHUT_WR) != 0)
        return;
    while (recv(link->fd, sink, sizeof sink, MSG_DONTWAIT) == (ssize_t)sizeof sink)
        continue;
}

void stepaf_member_net_close(struct stepaf_member_net *net)
{
    if (!net)
        return;
    for (int rank = 0; rank < net->consensus.size; rank++) {
        send_bye(net->control.links[rank]);
        send_bye(net->control.calls[rank]);
    }
    free_net(net);
}
