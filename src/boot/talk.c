/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/talk.h"

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
#include "boot/talk_inside.h"

enum {
    CONNECT_NS =
        2000000000, /* for one address; a host that has not answered by then is not there */
    FAREWELL_BYTES = 4096
};

const struct stepaf_accord *stepaf_talk_accord(const struct stepaf_talk *talk)
{
    return &talk->accord;
}

int stepaf_talk_fd(const struct stepaf_talk *talk)
{
    return talk->control.epoll_fd;
}

const char *stepaf_talk_reason(const struct stepaf_talk *talk, int rank)
{
    return talk->others[rank].reason;
}

void stepaf_talk_lose(struct stepaf_talk *talk, int rank, const char *why)
{
    if (rank == talk->accord.rank || talk->accord.lost[rank])
        return;
    snprintf(talk->others[rank].reason, STEPAF_TALK_REASON_MAX, "%s", why);
    stepaf_accord_lose(&talk->accord, rank);
}

/* ---- calling ---- */

static bool is_way(const struct stepaf_control_link *link)
{
    return link && link->state == STEPAF_CONTROL_UP;
}

static struct stepaf_control_link *way_to(const struct stepaf_talk *talk, int rank)
{
    if (is_way(talk->control.links[rank]))
        return talk->control.links[rank];
    return is_way(talk->control.calls[rank]) ? talk->control.calls[rank] : NULL;
}

static void drop_letters(struct talk_other *other)
{
    while (other->letters) {
        struct talk_letter *letter = other->letters;
        other->letters = letter->next;
        free(letter);
    }
}

/* Call the rank at its next address. False: there is none left. */
static bool call_next(struct stepaf_talk *talk, int rank)
{
    struct talk_other *other = &talk->others[rank];
    struct stepaf_control_address address;

    while (stepaf_accord_address_at(&talk->own, &other->addresses, other->at, &address)) {
        other->at++;
        int fd = stepaf_control_connect(&address, other->addresses.port);
        struct stepaf_control_link *link =
            fd >= 0 ? stepaf_control_link_new(&talk->control, fd, STEPAF_CONTROL_CALLING) : NULL;
        if (!link) {
            snprintf(other->reason, sizeof other->reason, "it cannot be called: %s",
                     stepaf_why(fd >= 0 ? ENOMEM : errno));
            if (fd >= 0)
                stepaf_control_socket_close(fd);
            continue;
        }
        link->hello.to = (uint32_t)rank;
        stepaf_control_link_free(talk->control.links[rank]);
        talk->control.links[rank] = link;
        other->until_ns = stepaf_monotonic_ns() + CONNECT_NS;
        return true;
    }
    return false;
}

static void say_letter(struct stepaf_control_link *link, const uint8_t *data, size_t bytes)
{
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_ACCORD, .bytes = bytes};

    stepaf_control_send(link, &frame, data);
}

/* Send, or keep it until there is a connection. Nothing of the machine is called from here. */
static void send_message(void *arg, int to, const struct stepaf_accord_message *message)
{
    struct stepaf_talk *talk = arg;
    struct stepaf_control_link *link = way_to(talk, to);
    size_t bytes = 0;
    uint8_t *data = stepaf_accord_message_pack(message, talk->accord.size, &bytes);
    struct talk_letter *letter = link || !data ? NULL : malloc(sizeof *letter + bytes);
    struct talk_letter **at = &talk->others[to].letters;

    if (link && data)
        say_letter(link, data, bytes);
    if (letter) {
        *letter = (struct talk_letter){.bytes = bytes};
        memcpy(letter->data, data, bytes);
        while (*at)
            at = &(*at)->next;
        *at = letter;
    }
    free(data);
}

/* How the call to a rank goes on, if one is wanted. */
static void look_after(struct stepaf_talk *talk, int rank)
{
    struct stepaf_control_link *link = talk->control.links[rank];
    struct talk_other *other = &talk->others[rank];
    struct stepaf_control_link *way = way_to(talk, rank);

    if (way) {
        while (other->letters) {
            struct talk_letter *letter = other->letters;
            say_letter(way, letter->data, letter->bytes);
            other->letters = letter->next;
            free(letter);
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
    if (!call_next(talk, rank)) { /* nobody listens there any more */
        drop_letters(other);
        stepaf_accord_lose(&talk->accord, rank);
    }
}

void stepaf_talk_pump(struct stepaf_talk *talk)
{
    (void)stepaf_control_pump(&talk->control);
    for (int rank = 0; rank < talk->accord.size; rank++)
        if (talk->others[rank].letters)
            look_after(talk, rank);
}

/* ---- being called ---- */

static bool take_letter(void *arg, int rank, const void *data, size_t bytes)
{
    struct stepaf_talk *talk = arg;
    struct stepaf_accord_message message;

    if (!stepaf_accord_message_read(data, bytes, talk->accord.size, &message))
        return false;
    stepaf_accord_take(&talk->accord, rank, &message);
    return true;
}

static void note_ended(void *arg, int rank, bool has_left)
{
    struct stepaf_talk *talk = arg;

    drop_letters(&talk->others[rank]);
    stepaf_talk_lose(talk, rank,
                     has_left ? "it has finalized" : "its control connection has ended");
}

/* ---- beginning and end ---- */

static void free_talk(struct stepaf_talk *talk)
{
    struct stepaf_control *control = &talk->control;

    stepaf_control_shut_door(control);
    for (int rank = 0; rank < control->place.size; rank++) {
        if (control->links)
            stepaf_control_link_free(control->links[rank]);
        if (control->calls)
            stepaf_control_link_free(control->calls[rank]);
        if (talk->others)
            drop_letters(&talk->others[rank]);
    }
    if (control->epoll_fd >= 0)
        stepaf_fork_close(control->epoll_fd);
    stepaf_proof_forget(control->place.key, sizeof control->place.key);
    stepaf_accord_free(&talk->accord);
    free(control->links);
    free(control->calls);
    free(control->fates);
    free(talk->others);
    free(talk);
}

/* Room for all that there can be. */
static struct stepaf_talk *new_talk(int rank, int size)
{
    struct stepaf_talk *talk = calloc(1, sizeof *talk);
    size_t n = (size_t)size;

    if (!talk)
        return NULL;
    struct stepaf_control *control = &talk->control;
    control->place.rank = rank;
    control->place.size = size;
    control->epoll_fd = control->listener = -1;
    control->refused_rank = -1;
    control->user =
        (struct stepaf_control_user){.arg = talk, .take = take_letter, .ended = note_ended};
    control->links = calloc(n, sizeof(struct stepaf_control_link *));
    control->calls = calloc(n, sizeof(struct stepaf_control_link *));
    control->fates = calloc(n, 1);
    talk->others = calloc(n, sizeof *talk->others);
    if (control->links && control->calls && control->fates && talk->others &&
        stepaf_accord_init(&talk->accord, rank, size, send_message, talk))
        return talk;
    free_talk(talk);
    return NULL;
}

/* False: errno says why. */
static bool begin_listening(struct stepaf_talk *talk, const struct stepaf_env *env)
{
    struct stepaf_control *control = &talk->control;
    uint16_t first = 0, last = 0;

    (void)stepaf_env_ports(env->member_ports, &first, &last);
    stepaf_fork_begin();
    control->epoll_fd = stepaf_fork_end(epoll_create1(EPOLL_CLOEXEC));
    if (control->epoll_fd < 0)
        return false;
    control->listener = stepaf_control_listen(&control->place, first, last, &control->port);
    return control->listener >= 0;
}

struct stepaf_talk *stepaf_talk_open(const struct stepaf_env *env, int rank, int size,
                                     struct stepaf_talk_card *card_p,
                                     char reason_p[STEPAF_TALK_REASON_MAX])
{
    struct stepaf_talk_card card = {.addresses.port = 0};
    struct stepaf_talk *talk = new_talk(rank, size);
    const char *why = "no memory";

    *card_p = card;
    if (talk && !stepaf_proof_ready())
        why = "the library that makes proofs cannot be used";
    else if (talk && !begin_listening(talk, env))
        why = stepaf_why(errno);
    else if (talk && !stepaf_proof_draw(card.drawn, sizeof card.drawn))
        why = "the system gives no random numbers";
    else if (talk)
        why = NULL;
    if (why) {
        snprintf(reason_p, STEPAF_TALK_REASON_MAX, "%s", why);
        if (talk)
            free_talk(talk);
        return NULL;
    }
    card.addresses.port = talk->control.port;
    stepaf_accord_addresses_own(env->net_if, &card.addresses);
    talk->own = card.addresses;
    *card_p = card;
    return talk;
}

bool stepaf_talk_meet(struct stepaf_talk *talk, const struct stepaf_talk_card *cards)
{
    struct stepaf_control *control = &talk->control;
    size_t size = (size_t)talk->accord.size;
    uint8_t *drawn = malloc(size * STEPAF_TALK_DRAWN_BYTES);
    static const char word[] = "session";
    uint8_t proof[STEPAF_PROOF_BYTES];

    if (!drawn)
        return false;
    for (size_t rank = 0; rank < size; rank++) {
        memcpy(drawn + rank * STEPAF_TALK_DRAWN_BYTES, cards[rank].drawn, STEPAF_TALK_DRAWN_BYTES);
        talk->others[rank].addresses = cards[rank].addresses;
    }
    stepaf_proof_key(drawn, size * STEPAF_TALK_DRAWN_BYTES, control->place.key);
    stepaf_proof_forget(drawn, size * STEPAF_TALK_DRAWN_BYTES);
    free(drawn);
    stepaf_proof_make(control->place.key, word, sizeof word, proof);
    memcpy(control->session, proof, sizeof control->session);
    control->place.has_secret = control->has_met = true;
    return stepaf_control_open_door(control);
}

/* What has come and was not read would have the system throw away what is on its way. */
static void take_leave_of(struct stepaf_control_link *link)
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

void stepaf_talk_close(struct stepaf_talk *talk)
{
    if (!talk)
        return;
    for (int rank = 0; rank < talk->accord.size; rank++) {
        take_leave_of(talk->control.links[rank]);
        take_leave_of(talk->control.calls[rank]);
    }
    free_talk(talk);
}
