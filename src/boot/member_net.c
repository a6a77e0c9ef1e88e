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
#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/socket.h"
#include "boot/member_net_inside.h"

enum { FAREWELL_BYTES = 4096 };

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
    if (rank == net->consensus.rank || stepaf_consensus_has_lost(&net->consensus, rank))
        return;
    snprintf(net->others[rank].reason, STEPAF_MEMBER_NET_REASON_MAX, "%s", why);
    stepaf_log_info("members: world rank %d (life %u) is lost: %s", rank,
                    net->consensus.lives[rank], why);
    stepaf_consensus_lose(&net->consensus, rank);
}

void stepaf_member_net_vacate(struct stepaf_member_net *net, int rank)
{
    stepaf_consensus_vacate(&net->consensus, rank);
    snprintf(net->others[rank].reason, STEPAF_MEMBER_NET_REASON_MAX, "nobody has taken it yet");
}

void stepaf_member_net_tell_leaving(struct stepaf_member_net *net, bool leaves)
{
    const struct stepaf_consensus *consensus = &net->consensus;
    uint32_t word = leaves;

    for (int rank = 0; rank < consensus->size; rank++)
        if (rank != consensus->rank && consensus->is_member[rank] &&
            !stepaf_consensus_has_lost(consensus, rank))
            stepaf_member_net_say(net, rank, STEPAF_CONTROL_LEAVES, (const uint8_t *)&word,
                                  sizeof word);
}

bool stepaf_member_net_leaves(const struct stepaf_member_net *net, int rank)
{
    return net->others[rank].leaves && net->consensus.is_member[rank];
}

void stepaf_member_net_set_left(struct stepaf_member_net *net, int rank)
{
    net->others[rank].has_left = true;
    snprintf(net->others[rank].reason, STEPAF_MEMBER_NET_REASON_MAX, "it has left");
}

bool stepaf_member_net_has_left(const struct stepaf_member_net *net, int rank)
{
    return net->others[rank].has_left;
}

static bool hear_leaving(struct stepaf_member_net *net, int rank, const void *data, size_t bytes)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, bytes);
    uint32_t word = stepaf_unpack_u32(&unpack);

    if (unpack.failed || word > 1)
        return false;
    net->n_asked += word && !net->others[rank].leaves;
    net->others[rank].leaves = word;
    return true;
}

/* Calls nothing of the consensus machine. OUT and RESIGN go only to connected ranks: for a rank
 * that this rank goes on without, or that goes on without this rank, no call is made. */
static void send_message(void *arg, int to, const struct stepaf_consensus_message *message)
{
    struct stepaf_member_net *net = arg;
    size_t bytes = 0;

    if ((message->kind == STEPAF_CONSENSUS_OUT || message->kind == STEPAF_CONSENSUS_RESIGN) &&
        !stepaf_member_net_way(net, to))
        return;
    if (message->kind == STEPAF_CONSENSUS_LOSSES && !stepaf_member_net_can_say_losses(net, to))
        return;
    uint8_t *data = stepaf_consensus_message_pack(message, net->consensus.size, &bytes);

    if (data)
        stepaf_member_net_say(net, to, STEPAF_CONTROL_CONSENSUS, data, bytes);
    free(data);
}

void stepaf_member_net_pump(struct stepaf_member_net *net)
{
    (void)stepaf_control_pump(&net->control);
    for (int rank = 0; rank < net->consensus.size; rank++)
        if (net->others[rank].queue || net->others[rank].awaits_losses)
            stepaf_member_net_look_after(net, rank);
    if (net->control.guests.is_one)
        stepaf_member_guest_pump(net);
}

/* ---- being called ---- */

static bool take_message(void *arg, int rank, const struct stepaf_control_frame *frame,
                         const void *data)
{
    struct stepaf_member_net *net = arg;
    struct stepaf_consensus_message message;

    if (frame->type == STEPAF_CONTROL_WORDS || frame->type == STEPAF_CONTROL_ALL_WORDS)
        return stepaf_member_gather_take(net, rank, frame, data);
    if (frame->type == STEPAF_CONTROL_LEAVES)
        return hear_leaving(net, rank, data, frame->bytes);
    if (frame->type != STEPAF_CONTROL_CONSENSUS ||
        !stepaf_consensus_message_read(data, frame->bytes, net->consensus.size, &message))
        return false;
    uint32_t n_lost = net->consensus.n_lost;
    bool fits = stepaf_consensus_take(&net->consensus, rank, &message);
    if (net->consensus.n_lost != n_lost)
        stepaf_log_info("members: world rank %d (life %u) has reported lost ranks", rank,
                        message.life);
    return fits;
}

static void note_ended(void *arg, int rank, bool has_left)
{
    struct stepaf_member_net *net = arg;

    stepaf_member_net_drop(net, rank);
    stepaf_member_net_lose(net, rank,
                           has_left ? "it has finalized" : "its control connection has ended");
}

static bool take_guest(void *arg, struct stepaf_control_link *link,
                       const struct stepaf_control_frame *frame, const void *data)
{
    struct stepaf_member_net *net = arg;

    if (net->control.guests.is_one)
        return stepaf_member_guest_take(net, link, frame, data);
    if (stepaf_control_is_guest(link))
        return stepaf_member_host_take(net, link, frame, data);
    return frame->type != STEPAF_CONTROL_ASK || /* the guest has been admitted meanwhile */
           stepaf_member_host_tell_again(net, link, data, frame->bytes);
}

static void note_guest_ended(void *arg, struct stepaf_control_link *link)
{
    struct stepaf_member_net *net = arg;

    if (!net->control.guests.is_one)
        stepaf_member_host_part(net, link);
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
            stepaf_member_net_drop(net, rank);
        if (control->guests.links)
            stepaf_control_link_free(control->guests.links[rank]);
        if (net->cards)
            free(net->cards[rank].data);
        if (net->guests)
            free(net->guests[rank].words.data);
    }
    if (control->epoll_fd >= 0)
        stepaf_fork_close(control->epoll_fd);
    stepaf_proof_forget(control->place.key, sizeof control->place.key);
    stepaf_proof_forget(control->guests.key, sizeof control->guests.key);
    stepaf_member_gather_free(net); /* the number of ranks is still needed */
    stepaf_consensus_free(&net->consensus);
    free(control->links);
    free(control->calls);
    free(control->fates);
    free(control->guests.links);
    free(net->cards);
    free(net->guests);
    if (net->returns) {
        free(net->returns->words.data);
        free(net->returns->asked);
    }
    free(net->returns);
    free(net->others);
    free(net);
}

/* Allocate space for all ranks that there can be. */
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
    control->user = (struct stepaf_control_user){.arg = net,
                                                 .take = take_message,
                                                 .ended = note_ended,
                                                 .take_guest = take_guest,
                                                 .guest_ended = note_guest_ended};
    control->links = calloc(n, sizeof(struct stepaf_control_link *));
    control->calls = calloc(n, sizeof(struct stepaf_control_link *));
    control->fates = calloc(n, 1);
    control->guests.links = calloc(n, sizeof(struct stepaf_control_link *));
    net->others = calloc(n, sizeof *net->others);
    net->cards = calloc(n, sizeof *net->cards);
    net->guests = calloc(n, sizeof *net->guests);
    if (control->links && control->calls && control->fates && control->guests.links &&
        net->others && net->cards && net->guests &&
        stepaf_consensus_init(&net->consensus, rank, size, send_message, net)) {
        control->guests.lives = net->consensus.lives;
        net->consensus.value_max = STEPAF_CONTROL_VALUE_MAX;
        return net;
    }
    free_net(net);
    return NULL;
}

/* Returns false with errno. */
static bool begin_listening(struct stepaf_member_net *net, const struct stepaf_env *env)
{
    struct stepaf_control *control = &net->control;
    struct stepaf_control_address one;
    uint16_t first = 0, last = 0;

    stepaf_consensus_address_one(&net->own, &one);
    (void)stepaf_env_ports(env->member_ports, &first, &last);
    stepaf_fork_begin();
    control->epoll_fd = stepaf_fork_end(epoll_create1(EPOLL_CLOEXEC));
    if (control->epoll_fd < 0)
        return false;
    control->listener = stepaf_control_listen(&control->place, env->net_if[0] ? &one : NULL, first,
                                              last, &control->port);
    net->own.port = control->port;
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
    if (net)
        stepaf_consensus_addresses_own(env->net_if, &net->own);
    if (net && !stepaf_proof_ready())
        why = "cannot initialize libsodium";
    else if (net && !begin_listening(net, env))
        why = stepaf_why(errno);
    else if (net && !stepaf_proof_draw(contact.nonce, sizeof contact.nonce))
        why = "no random numbers are available";
    else if (net)
        why = NULL;
    if (why) {
        snprintf(reason_p, STEPAF_MEMBER_NET_REASON_MAX, "%s", why);
        if (net)
            free_net(net);
        return NULL;
    }
    contact.addresses = net->own;
    *contact_p = contact;
    return net;
}

bool stepaf_member_net_meet(struct stepaf_member_net *net,
                            const struct stepaf_member_contact *contacts)
{
    struct stepaf_control *control = &net->control;
    size_t size = (size_t)net->consensus.size;
    uint8_t *nonce = malloc(size * STEPAF_MEMBER_NET_NONCE_BYTES);
    uint8_t key[STEPAF_PROOF_KEY_BYTES];

    if (!nonce)
        return false;
    for (size_t rank = 0; rank < size; rank++) {
        memcpy(nonce + rank * STEPAF_MEMBER_NET_NONCE_BYTES, contacts[rank].nonce,
               STEPAF_MEMBER_NET_NONCE_BYTES);
        net->others[rank].addresses = contacts[rank].addresses;
    }
    stepaf_proof_key(nonce, size * STEPAF_MEMBER_NET_NONCE_BYTES, key);
    stepaf_proof_forget(nonce, size * STEPAF_MEMBER_NET_NONCE_BYTES);
    free(nonce);
    stepaf_member_net_set_key(net, key);
    stepaf_proof_forget(key, sizeof key);
    return stepaf_control_open_door(control);
}

/* Read first: if a socket is closed with unread data, the system discards what is in flight. */
static void send_bye(struct stepaf_control_link *link)
{
    struct stepaf_control_frame bye = {.type = STEPAF_CONTROL_BYE};
    uint8_t sink[FAREWELL_BYTES];

    if (!link || !stepaf_control_is_proven(link))
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
