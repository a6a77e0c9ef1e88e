/* SPDX-License-Identifier: Apache-2.0 */
/* The member's side of returns: what a member does for processes that want the places of lost
 * ranks. They have proved that they know the job's secret; their messages are still untrusted
 * input. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/member_net_inside.h"

/* Members that tell an admitted guest the decision, besides its home. Some may not know the
 * decision yet, as they have returned since the home last heard of them, and some may die. */
enum { TELLERS = 3 };

void stepaf_member_net_let_ask(struct stepaf_member_net *net, const uint8_t *key)
{
    memcpy(net->control.guests.key, key, sizeof net->control.guests.key);
    net->control.guests.may_ask = true;
}

bool stepaf_member_net_set_card(struct stepaf_member_net *net, int rank, const void *card,
                                size_t bytes)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(card, bytes);
    const struct stepaf_consensus_blob *kept = &net->cards[rank];
    struct stepaf_member_contact contact;

    if (kept->data && kept->bytes == bytes && !memcmp(kept->data, card, bytes))
        return true; /* a call in progress goes on */
    uint8_t *copy = malloc(bytes + 1);
    if (!copy || !stepaf_member_contact_read(&unpack, &contact)) {
        free(copy);
        return false;
    }
    memcpy(copy, card, bytes);
    free(net->cards[rank].data);
    net->cards[rank] = (struct stepaf_consensus_blob){copy, bytes};
    net->others[rank].addresses = contact.addresses;
    /* The addresses called so far may be those of an earlier process. */
    stepaf_member_net_call_anew(net, rank);
    return true;
}

const struct stepaf_consensus_blob *stepaf_member_net_card(const struct stepaf_member_net *net,
                                                           int rank)
{
    return &net->cards[rank];
}

void stepaf_member_net_set_counts(struct stepaf_member_net *net, uint32_t epoch, uint32_t n_commits)
{
    net->epoch = epoch;
    net->n_commits = n_commits;
}

void stepaf_member_net_address(const struct stepaf_member_net *net,
                               char text_p[STEPAF_MEMBER_NET_ADDRESS_MAX])
{
    const struct stepaf_consensus_addresses *own = &net->own;
    char address[INET6_ADDRSTRLEN];
    size_t used = 0;

    text_p[0] = '\0';
    for (unsigned i = 0; i < own->n; i++) {
        struct in6_addr v6;
        memcpy(&v6, own->bytes[i], sizeof v6);
        bool is_v4 = IN6_IS_ADDR_V4MAPPED(&v6);
        (void)inet_ntop(is_v4 ? AF_INET : AF_INET6, own->bytes[i] + (is_v4 ? 12 : 0), address,
                        sizeof address);
        used +=
            (size_t)snprintf(text_p + used, STEPAF_MEMBER_NET_ADDRESS_MAX - used,
                             is_v4 ? "%s%s:%u" : "%s[%s]:%u", used ? "," : "", address, own->port);
    }
    if (!own->n)
        snprintf(text_p, STEPAF_MEMBER_NET_ADDRESS_MAX, "127.0.0.1:%u", own->port);
}

bool stepaf_member_net_is_wanted(const struct stepaf_member_net *net, int rank)
{
    return net->guests[rank].asks &&
           !(net->consensus.is_member[rank] && !stepaf_consensus_has_lost(&net->consensus, rank));
}

uint32_t stepaf_member_net_asked(const struct stepaf_member_net *net)
{
    return net->n_asked;
}

const struct stepaf_consensus_blob *stepaf_member_net_words(const struct stepaf_member_net *net,
                                                            int rank, uint64_t *id_p)
{
    const struct member_guest *guest = &net->guests[rank];

    *id_p = guest->id;
    return guest->words.data ? &guest->words : NULL;
}

/* ---- frames of guests ---- */

void stepaf_member_host_forget(struct stepaf_member_net *net, int rank)
{
    free(net->guests[rank].words.data);
    net->guests[rank] = (struct member_guest){.asks = false};
}

static void send_refusal(struct stepaf_control_link *link, stepaf_status_t status, int peer,
                         const char *why)
{
    char text[STEPAF_ERROR_TEXT_MAX];
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_REFUSE,
                                         .number = (uint32_t)status,
                                         .detail = (uint32_t)peer,
                                         .bytes = sizeof text};

    memset(text, 0, sizeof text);
    snprintf(text, sizeof text, "%s", why);
    stepaf_control_send(link, &frame, text);
}

static void refuse_guest(struct stepaf_control_link *link, bool for_good, const char *why)
{
    send_refusal(link, for_good ? STEPAF_ERR_BOOT : STEPAF_OK, -1, why);
}

void stepaf_member_host_part(struct stepaf_member_net *net, struct stepaf_control_link *link)
{
    /* Without a refusal, the process would call again, and displace the other one. Only its home
     * refuses it: two processes that call at the same time may reach members in different orders,
     * and both would be rejected. */
    if (link->state == STEPAF_CONTROL_UP && net->guests[link->rank].words.data)
        refuse_guest(link, true, "another process asks for the rank's place");
    stepaf_member_host_forget(net, link->rank);
}

/* Return the value of decision @a number; NULL: it is no longer known. */
static const struct stepaf_consensus_blob *decided_value(const struct stepaf_consensus *consensus,
                                                         uint32_t number)
{
    const struct stepaf_consensus_blob *value =
        number == consensus->number ? &consensus->value : &consensus->before;

    return consensus->number - number <= 1 && value->data ? value : NULL;
}

/* Tell a guest all that it must know; with a number, also the decision by which it is admitted. If
 * that is what the guest has @a seen, say only so: the cards of all ranks are much, and a guest asks
 * every member. */
static void tell_state(struct stepaf_member_net *net, struct stepaf_control_link *link,
                       uint32_t number, uint64_t seen)
{
    const struct stepaf_consensus *consensus = &net->consensus;
    const struct stepaf_consensus_blob *value = number ? decided_value(consensus, number) : NULL;
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_STATE};
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, number);
    stepaf_pack_u32(&pack, net->epoch);
    stepaf_pack_u32(&pack, net->n_commits);
    stepaf_pack_bytes(&pack, net->control.place.key, sizeof net->control.place.key);
    for (int r = 0; r < consensus->size; r++) {
        stepaf_pack_u32(&pack, consensus->lives[r]);
        stepaf_pack_u32(&pack, consensus->gone[r]);
        stepaf_pack_u32(&pack, consensus->is_member[r] ? 1 : net->others[r].has_left ? 2 : 0);
        stepaf_pack_u64(&pack, net->cards[r].bytes);
        stepaf_pack_bytes(&pack, net->cards[r].data, net->cards[r].bytes);
    }
    if (value)
        stepaf_pack_bytes(&pack, value->data, value->bytes);
    size_t bytes = pack.bytes;
    if (!pack.failed && !number && seen && seen == stepaf_member_digest(pack.data, bytes)) {
        pack.bytes = sizeof number;
        stepaf_pack_u64(&pack, seen);
    }
    frame.bytes = pack.bytes;
    if (!pack.failed)
        stepaf_control_send(link, &frame, pack.data);
    else
        refuse_guest(link, false, "a member is out of memory");
    if (pack.data)
        stepaf_proof_forget(pack.data, bytes); /* the key is in it */
    free(pack.data);
}

/* Make the guest's connection the rank's. */
static void take_over(struct stepaf_member_net *net, int rank)
{
    struct stepaf_control *control = &net->control;
    struct stepaf_control_link *link = control->guests.links[rank];

    control->guests.links[rank] = NULL;
    if (link->state != STEPAF_CONTROL_UP) {
        stepaf_control_link_free(link);
    } else if (control->calls[rank]) {
        /* This member's own call, which a guest does not accept. */
        stepaf_control_link_free(control->links[rank]);
        control->links[rank] = link;
    } else {
        control->calls[rank] = link;
    }
    net->others[rank].is_new = true;
}

/* Welcome a guest that calls after its admission. Either its connections were broken when it was
 * admitted, and it has called again since nobody could tell it; or it has been told, and had called
 * this member before. */
static bool welcome_late(struct stepaf_member_net *net, struct stepaf_control_link *link,
                         uint64_t id)
{
    struct member_other *other = &net->others[link->rank];

    if (id != other->guest_id || !other->admitted_by)
        return false;
    take_over(net, link->rank);
    other->is_new = false;
    if (decided_value(&net->consensus, other->admitted_by))
        tell_state(net, link, other->admitted_by, 0);
    else
        refuse_guest(link, true, "the members have gone on without this process");
    return true;
}

/* Read a guest's request: whether it asks, its id, the digest of the state that it has (0: none),
 * and words for its home. Returns false if the request is invalid. */
static bool read_ask(struct stepaf_unpack *unpack, bool *asks_p, uint64_t *id_p, uint64_t *seen_p)
{
    uint32_t bits = stepaf_unpack_u32(unpack);

    *asks_p = bits != 0;
    *id_p = stepaf_unpack_u64(unpack);
    *seen_p = bits & STEPAF_ASK_HAS_SEEN ? stepaf_unpack_u64(unpack) : 0;
    return !unpack->failed && (*asks_p || unpack->at == unpack->end);
}

bool stepaf_member_host_tell_again(struct stepaf_member_net *net, struct stepaf_control_link *link,
                                   const void *data, size_t bytes)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, bytes);
    const struct member_other *other = &net->others[link->rank];
    uint64_t id, seen;
    bool asks;

    if (!read_ask(&unpack, &asks, &id, &seen) || !asks)
        return false;
    if (id == other->guest_id && decided_value(&net->consensus, other->admitted_by))
        tell_state(net, link, other->admitted_by, 0);
    else
        refuse_guest(link, true, "the members have gone on without this process");
    return true;
}

static bool hear_guest(struct stepaf_member_net *net, struct stepaf_control_link *link,
                       const struct stepaf_control_frame *frame, const void *data)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, frame->bytes);
    struct member_guest *guest = &net->guests[link->rank];
    char text[STEPAF_MEMBER_NET_REASON_MAX];
    uint64_t id, seen;
    bool asks;

    if (!read_ask(&unpack, &asks, &id, &seen))
        return false;
    size_t bytes = (size_t)(unpack.end - unpack.at);
    bool is_free = !net->consensus.is_member[link->rank] ||
                   stepaf_consensus_has_lost(&net->consensus, link->rank);
    if (!is_free && asks && welcome_late(net, link, id))
        return true;
    if (!is_free) /* the guest may know better: if the rank can no longer be called, it is lost */
        stepaf_consensus_report(&net->consensus, link->rank);
    if (!is_free && !asks) {
        snprintf(text, sizeof text, "world rank %d is not lost", link->rank);
        refuse_guest(link, false, text);
        return true;
    }
    if (asks) { /* this member may not have noticed yet that the place is free */
        bool is_same = guest->asks && guest->id == id;
        uint8_t *words = bytes ? malloc(bytes) : NULL;
        if (bytes && !words)
            return false;
        if (bytes)
            memcpy(words, unpack.at, bytes);
        net->n_asked += !is_same;
        if (bytes || !is_same) {
            free(guest->words.data);
            *guest = (struct member_guest){.asks = true, .id = id, .words = {words, bytes}};
        }
    }
    /* Else the guest has not read what it was last told, and asks again. */
    if (!stepaf_control_has_unsent(link))
        tell_state(net, link, 0, seen);
    return true;
}

/* Take a message of a guest that another member has already admitted by a decision that this one
 * has not reached: the machine defers it. A process that only knows the secret does not speak for a
 * rank that has its process. */
static bool hear_early_word(struct stepaf_member_net *net, int rank, const void *data, size_t bytes)
{
    struct stepaf_consensus_message message;

    if (!stepaf_consensus_message_read(data, bytes, net->consensus.size, &message))
        return false;
    return message.life <= net->consensus.lives[rank] ||
           stepaf_consensus_take(&net->consensus, rank, &message);
}

bool stepaf_member_host_take(struct stepaf_member_net *net, struct stepaf_control_link *link,
                             const struct stepaf_control_frame *frame, const void *data)
{
    if (frame->type == STEPAF_CONTROL_ASK)
        return hear_guest(net, link, frame, data);
    if (frame->type == STEPAF_CONTROL_CONSENSUS)
        return hear_early_word(net, link->rank, data, frame->bytes);
    if (frame->type != STEPAF_CONTROL_BYE)
        return false;
    link->has_left = true;
    stepaf_member_host_forget(net, link->rank);
    return true;
}

/* ---- results ---- */

void stepaf_member_net_turn_away(struct stepaf_member_net *net, int rank, uint64_t id,
                                 const stepaf_error_t *why)
{
    struct stepaf_control_link *link = net->control.guests.links[rank];

    if (net->guests[rank].id != id)
        return;
    if (link)
        send_refusal(link, why->status, why->peer_world_rank, why->text);
    stepaf_member_host_forget(net, rank);
}

void stepaf_member_net_excuse(struct stepaf_member_net *net, int rank, const char *why)
{
    if (net->guests[rank].asks && net->control.guests.links[rank])
        refuse_guest(net->control.guests.links[rank], false, why);
}

/* The connections with the lost process must not be taken for connections with this process, which
 * may have called already. */
static void part_with(struct stepaf_member_net *net, int rank)
{
    struct stepaf_control *control = &net->control;
    struct stepaf_control_link *call = control->calls[rank];

    stepaf_member_net_drop(net, rank);
    stepaf_control_link_free(control->links[rank]);
    control->links[rank] = NULL;
    if (call && call->hello.life < net->consensus.lives[rank]) {
        stepaf_control_link_free(call);
        control->calls[rank] = NULL;
    }
    control->fates[rank] = 0;
}

bool stepaf_member_net_admit(struct stepaf_member_net *net, int rank, uint64_t id, const void *card,
                             size_t bytes)
{
    static const stepaf_error_t is_taken = {.status = STEPAF_ERR_BOOT,
                                            .peer_world_rank = -1,
                                            .text = "another process has taken the rank's place"};
    struct member_guest *guest = &net->guests[rank];

    stepaf_consensus_admit(&net->consensus, rank);
    net->others[rank].leaves = net->others[rank].has_left = false;
    net->others[rank].reason[0] = '\0';
    net->others[rank].guest_id = id;
    net->others[rank].admitted_by = net->consensus.number;
    net->others[rank].was_at_home = guest->asks && guest->id == id && guest->words.data;
    part_with(net, rank);
    if (guest->asks && guest->id != id)
        stepaf_member_net_turn_away(net, rank, guest->id, &is_taken);
    else if (guest->asks && net->control.guests.links[rank])
        take_over(net, rank);
    stepaf_member_host_forget(net, rank);
    return stepaf_member_net_set_card(net, rank, card, bytes);
}

void stepaf_member_net_welcome(struct stepaf_member_net *net)
{
    const struct stepaf_consensus *consensus = &net->consensus;
    int n_before = 0;

    for (int r = 0; r < consensus->rank; r++) /* admitted ranks tell nobody */
        n_before += consensus->is_member[r] && !stepaf_consensus_has_lost(consensus, r) &&
                    net->others[r].admitted_by != consensus->number;
    for (int r = 0; r < consensus->size; r++) {
        struct stepaf_control_link *link = stepaf_member_net_way(net, r);
        if (net->others[r].is_new && link && (n_before < TELLERS || net->others[r].was_at_home))
            tell_state(net, link, consensus->number, 0);
        net->others[r].is_new = false;
    }
}
