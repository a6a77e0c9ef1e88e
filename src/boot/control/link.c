/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: its life from socket to end, and sending over it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "boot/control/control.h"
#include "boot/control/socket.h"

bool stepaf_control_watch(struct stepaf_control_link *link, bool out)
{
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = link};

    if (epoll_ctl(link->control->epoll_fd, EPOLL_CTL_MOD, link->fd, &event) != 0)
        return false;
    link->wants_out = out;
    return true;
}

void stepaf_control_unwatch(struct stepaf_control *control, int fd)
{
    (void)epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

struct stepaf_control_link *stepaf_control_link_new(struct stepaf_control *control, int fd,
                                                    enum stepaf_control_state state)
{
    struct stepaf_control_link *link = calloc(1, sizeof *link);
    bool out = state == STEPAF_CONTROL_CALLING;
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = link};

    if (!link || epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(link);
        return NULL;
    }
    link->control = control;
    link->fd = fd;
    link->state = state;
    link->rank = -1;
    link->wants_out = out;
    link->has_called = out;
    return link;
}

bool stepaf_control_is_by_guest(const struct stepaf_control_link *link)
{
    static const uint8_t none[STEPAF_CONTROL_NONCE_BYTES];

    return link->control->user.take && memcmp(link->hello.session, none, sizeof none) == 0;
}

bool stepaf_control_is_guest(const struct stepaf_control_link *link)
{
    const struct stepaf_control_guests *guests = &link->control->guests;

    if (guests->is_one)
        return true;
    return guests->links && link->rank >= 0 && link->rank < link->control->place.size &&
           guests->links[link->rank] == link;
}

bool stepaf_control_is_proven(const struct stepaf_control_link *link)
{
    return link->state == STEPAF_CONTROL_UP || link->state == STEPAF_CONTROL_ANSWERED;
}

bool stepaf_control_is_placed(const struct stepaf_control_link *link)
{
    const struct stepaf_control *control = link->control;

    if (link == control->guests.look || (!control->guests.is_one && stepaf_control_is_guest(link)))
        return true;
    return link->rank >= 0 && link->rank < control->place.size &&
           (control->links[link->rank] == link ||
            (control->calls && control->calls[link->rank] == link));
}

void stepaf_control_link_close(struct stepaf_control_link *link, const char *trouble, int error)
{
    if (link->fd < 0)
        return;
    stepaf_control_unwatch(link->control, link->fd);
    stepaf_control_socket_close(link->fd);
    link->fd = -1;
    link->state = STEPAF_CONTROL_CLOSED;
    link->trouble = trouble;
    link->error = error;
    free(link->in);
    free(link->out.data);
    link->in = NULL;
    link->out = (struct stepaf_pack){0};
    stepaf_control_drop_queue(link);
    link->have = link->room = link->queue.sent = 0;
    stepaf_proof_forget(link->seal_in.key, sizeof link->seal_in.key);
    stepaf_proof_forget(link->seal_out.key, sizeof link->seal_out.key);
}

void stepaf_control_link_free(struct stepaf_control_link *link)
{
    struct stepaf_control_parcel *parcel;

    if (!link)
        return;
    stepaf_control_link_close(link, NULL, 0);
    while ((parcel = link->parcels.first)) {
        link->parcels.first = parcel->next;
        free(parcel);
    }
    free(link);
}

bool stepaf_control_has_unsent(const struct stepaf_control_link *link)
{
    return link->out.bytes > 0 || link->queue.first;
}

void stepaf_control_flush(struct stepaf_control_link *link)
{
    while (link->fd >= 0 &&
           (link->queue.sent < link->out.bytes || stepaf_control_seal_more(link))) {
        ssize_t sent = send(link->fd, link->out.data + link->queue.sent,
                            link->out.bytes - link->queue.sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN) {
            /* nobody takes the data; reading will show why */
            link->queue.sent = link->out.bytes;
            stepaf_control_drop_queue(link);
            break;
        }
        if (sent < 0)
            break;
        link->queue.sent += (size_t)sent;
    }
    bool is_done = link->queue.sent == link->out.bytes && !link->queue.first;
    if (is_done) {
        free(link->out.data);
        link->out = (struct stepaf_pack){0};
        link->queue.sent = 0;
    }
    if (link->fd >= 0 && link->wants_out == is_done)
        (void)stepaf_control_watch(link, !is_done);
}

/* Returns false if there is no memory. */
static bool seal_at_once(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                         const void *data)
{
    uint8_t mark[STEPAF_PROOF_MARK_BYTES];
    size_t at = link->out.bytes + sizeof *frame;

    stepaf_pack_bytes(&link->out, frame, sizeof *frame);
    stepaf_pack_bytes(&link->out, data, frame->bytes);
    if (link->out.failed)
        return false;
    stepaf_proof_seal(link->seal_out.key, link->seal_out.n++, frame, sizeof *frame,
                      link->out.data + at, frame->bytes, mark);
    stepaf_pack_bytes(&link->out, mark, sizeof mark);
    return !link->out.failed;
}

void stepaf_control_send(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                         const void *data)
{
    /* A rank that leaves says so even if it does not know yet whether it was admitted. */
    bool can_say = link->state == STEPAF_CONTROL_UP ||
                   (link->state == STEPAF_CONTROL_ANSWERED && frame->type == STEPAF_CONTROL_BYE);

    if (!can_say)
        return;
    bool is_kept = link->queue.first || frame->bytes > STEPAF_CONTROL_PIECE
                       ? stepaf_control_put_off(link, frame, data)
                       : seal_at_once(link, frame, data);
    /* Half a frame is none: let the other end see that the connection is over. */
    if (is_kept)
        stepaf_control_flush(link);
    else
        (void)shutdown(link->fd, SHUT_RDWR);
}

void stepaf_control_welcome(struct stepaf_control_link *link)
{
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_WELCOME};

    stepaf_control_send(link, &frame, NULL);
}

struct stepaf_control_parcel *stepaf_control_take(struct stepaf_control_link *link, uint32_t type,
                                                  uint32_t number, uint32_t detail)
{
    struct stepaf_control_parcel **at = &link->parcels.first;

    for (; *at; at = &(*at)->next) {
        struct stepaf_control_parcel *parcel = *at;
        if (parcel->type == type && parcel->number == number && parcel->detail == detail) {
            *at = parcel->next;
            link->parcels.n--;
            return parcel;
        }
    }
    return NULL;
}
