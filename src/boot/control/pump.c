/* SPDX-License-Identifier: Apache-2.0 */
/* The pump that moves control connections on, since there is no thread for that. A thread that
 * exchanges, waits or asks for lost ranks does it for all. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <stepaf/boot.h>

#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/control.h"
#include "boot/control/socket.h"

enum {
    EVENTS_MAX = 256,         /* at a time */
    READ_BYTES = 256 << 10,   /* at a time */
    GREETING_BYTES = 4096,    /* the most that a process that is no rank yet can send */
    STRANGERS_MORE = 64,      /* beyond the number of ranks, before the oldest must go */
    STRANGER_NS = 2000000000, /* for a stranger to say who it is */
    NO_FILE_NS = 20000000,    /* between tries to accept without a free file descriptor */
    LOOK_MS = 2500,           /* between checks for hosts that do not answer */
    SILENT_MS = 20000,        /* for so long */
    ALONE_MS = 100,           /* between checks of the deadline */
    CROWDED_MS = 5            /* if another thread may have taken what this one waits for */
};

/* ---- strangers ---- */

static void remove_stranger(struct stepaf_control *control, struct stepaf_control_link *link)
{
    struct stepaf_control_link **at = &control->strangers;

    while (*at && *at != link)
        at = &(*at)->next;
    if (*at) {
        *at = link->next;
        control->n_strangers--;
    }
}

/* Close the oldest stranger that has not proved that it knows the secret; if it was a rank, it
 * calls again. */
static void dismiss_oldest(struct stepaf_control *control)
{
    struct stepaf_control_link *oldest = NULL;

    for (struct stepaf_control_link *at = control->strangers; at; at = at->next)
        if (!oldest || at->state == STEPAF_CONTROL_STRANGER ||
            oldest->state != STEPAF_CONTROL_STRANGER)
            oldest = at;
    remove_stranger(control, oldest);
    stepaf_control_link_free(oldest);
}

static void forget_late(struct stepaf_control *control)
{
    int64_t now_ns = control->strangers ? stepaf_monotonic_ns() : 0;

    for (struct stepaf_control_link *at = control->strangers, *next; at; at = next) {
        next = at->next;
        if (now_ns < at->until_ns)
            continue;
        remove_stranger(control, at);
        stepaf_control_link_free(at);
    }
}

/* Give a guest its seat. The last process to ask for a place gets it: a process may have been
 * restarted twice. */
static void seat_guest(struct stepaf_control *control, struct stepaf_control_link *link)
{
    struct stepaf_control_link **at;

    if (link->rank < 0 || link->rank >= control->place.size || link->rank == control->place.rank) {
        stepaf_control_link_free(link);
        return;
    }
    at = &control->guests.links[link->rank];
    if (*at)
        control->user.guest_ended(control->user.arg, *at);
    stepaf_control_link_free(*at);
    *at = link;
    stepaf_control_welcome(link);
    stepaf_control_parse(link);
}

/* Admit a caller that has proved that it knows the secret. Once ranks have met, the call is judged
 * here: a caller has a higher rank, and calls once. Among members, any may call. */
static void admit_rank(struct stepaf_control *control, struct stepaf_control_link *link)
{
    remove_stranger(control, link);
    if (control->guests.links && stepaf_control_is_by_guest(link)) {
        seat_guest(control, link);
    } else if (control->calls) {
        if (link->rank < 0 || link->rank >= control->place.size ||
            link->rank == control->place.rank ||
            link->hello.life < control->guests.lives[link->rank]) {
            stepaf_control_link_free(link);
            return;
        }
        /* A rank does not call twice: the earlier connection is over. */
        stepaf_control_link_free(control->calls[link->rank]);
        control->calls[link->rank] = link;
        stepaf_control_welcome(link);
        stepaf_control_parse(link);
    } else if (!control->has_met) {
        link->next = control->arrivals;
        control->arrivals = link;
    } else if (link->rank > control->place.rank && link->rank < control->place.size &&
               !control->links[link->rank]) {
        control->links[link->rank] = link;
        stepaf_control_welcome(link);
        stepaf_control_parse(link);
    } else {
        stepaf_control_link_free(link);
    }
}

/* ---- reading ---- */

/* Note that the connection to a rank has ended. Before all have met, the meeting judges that. */
static void note_end(struct stepaf_control_link *link)
{
    struct stepaf_control *control = link->control;

    if (!control->has_met || !stepaf_control_is_placed(link) || link->has_left)
        return;
    if (control->user.guest_ended && stepaf_control_is_guest(link))
        control->user.guest_ended(control->user.arg, link);
    else if (!link->has_been_up) /* only the call has failed */
        return;
    else if (control->user.ended)
        control->user.ended(control->user.arg, link->rank, false);
    else
        stepaf_control_note_lost(control, link->rank);
}

static bool make_space(struct stepaf_control_link *link, size_t bytes)
{
    if (link->room - link->have >= bytes)
        return true;
    size_t room = link->room * 2 > link->have + bytes ? link->room * 2 : link->have + bytes;
    uint8_t *in = realloc(link->in, room);
    if (!in)
        return false;
    link->in = in;
    link->room = room;
    return true;
}

static void read_link(struct stepaf_control_link *link)
{
    bool is_rank = link->state == STEPAF_CONTROL_UP && stepaf_control_is_placed(link);
    size_t most = is_rank ? READ_BYTES : GREETING_BYTES;

    if (!is_rank && link->have >= GREETING_BYTES)
        stepaf_control_link_close(link, "another program answers there", EPROTO);
    if (link->fd < 0)
        return;
    if (!make_space(link, most)) {
        stepaf_control_link_close(link, "no memory for received data", ENOMEM);
        return;
    }
    ssize_t got = recv(link->fd, link->in + link->have, most, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        stepaf_control_link_close(link, got ? NULL : "the other end has closed the connection",
                                  got ? errno : ECONNRESET);
        return;
    }
    link->have += (size_t)got;
}

/* Check whether connect() has completed. */
static void finish_connect(struct stepaf_control_link *link)
{
    int error = 0;
    socklen_t bytes = sizeof error;

    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (!error && stepaf_control_is_to_itself(link->fd)) {
        stepaf_control_end_at_once(link->fd);
        error = ECONNREFUSED;
    }
    if (error)
        stepaf_control_link_close(link, NULL, error);
    else if (stepaf_control_watch(link, false))
        stepaf_control_greet(link);
    else
        stepaf_control_link_close(link, NULL, errno);
}

/* Handle an event on a connection. */
static void turn_link(struct stepaf_control *control, struct stepaf_control_link *link,
                      uint32_t events)
{
    bool was_stranger =
        link->state == STEPAF_CONTROL_STRANGER || link->state == STEPAF_CONTROL_CHALLENGED;

    if (link->state == STEPAF_CONTROL_CALLING) {
        finish_connect(link);
        return;
    }
    if (events & EPOLLOUT)
        stepaf_control_flush(link);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        read_link(link);
    stepaf_control_greeted(link);
    if (was_stranger && link->state == STEPAF_CONTROL_UP) {
        admit_rank(control, link);
        return;
    }
    if (was_stranger && link->fd < 0) {
        remove_stranger(control, link);
        stepaf_control_link_free(link);
        return;
    }
    stepaf_control_parse(link);
    if (link->fd < 0)
        note_end(link);
}

/* ---- the door ---- */

/* Without a file descriptor, or kernel memory, callers wait in the queue: a stranger must go, or
 * all must wait. */
static void note_no_accept(struct stepaf_control *control, int error)
{
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
        return;
    if (!control->accept.has_warned)
        stepaf_log_warn("tcp bootstrap: cannot accept connections: %s", stepaf_why(error));
    control->accept.has_warned = true;
    if (control->strangers) {
        dismiss_oldest(control);
        return;
    }
    control->accept.error = error;
    control->accept.again_ns = stepaf_monotonic_ns() + NO_FILE_NS;
    stepaf_control_unwatch(control, control->listener);
}

/* Try to accept again, after a pause. */
static void accept_again(struct stepaf_control *control)
{
    if (control->listener >= 0 && control->accept.error &&
        stepaf_monotonic_ns() >= control->accept.again_ns && stepaf_control_open_door(control))
        control->accept.error = 0;
}

static void let_in(struct stepaf_control *control)
{
    struct stepaf_control_link *link;
    int fd = stepaf_control_accept(control->listener);

    if (fd < 0) {
        note_no_accept(control, errno);
        return;
    }
    if (control->n_strangers >= (unsigned)control->place.size + STRANGERS_MORE)
        dismiss_oldest(control);
    link = stepaf_control_link_new(control, fd, STEPAF_CONTROL_STRANGER);
    if (!link) {
        stepaf_control_socket_close(fd);
        return;
    }
    link->until_ns = stepaf_monotonic_ns() + STRANGER_NS;
    link->next = control->strangers;
    control->strangers = link;
    control->n_strangers++;
    turn_link(control, link, EPOLLIN); /* before others can take its place */
}

bool stepaf_control_open_door(struct stepaf_control *control)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->listener, &event) == 0;
}

void stepaf_control_shut_door(struct stepaf_control *control)
{
    if (control->listener >= 0) {
        stepaf_control_unwatch(control, control->listener);
        stepaf_control_socket_close(control->listener);
    }
    control->listener = -1;
    control->accept.error = 0;
    while (control->strangers) {
        struct stepaf_control_link *link = control->strangers;
        control->strangers = link->next;
        stepaf_control_link_free(link);
    }
    control->n_strangers = 0;
}

/* ---- hosts that do not answer ---- */

static void look_at_host(struct stepaf_control_link *link, const struct stepaf_tcp_look *look)
{
    if (!link || link->fd < 0 || link->state == STEPAF_CONTROL_CALLING ||
        !stepaf_tcp_watch_is_silent(&link->watch, link->fd, look))
        return;
    stepaf_control_link_close(link, "the host does not answer", ETIMEDOUT);
    note_end(link);
}

static void look_at_hosts(struct stepaf_control *control)
{
    int64_t now_ms = stepaf_monotonic_ns() / 1000000, ago_ms = now_ms - control->last.looked_ms;
    struct stepaf_tcp_look look = {.now = (uint64_t)now_ms,
                                   .timeout = SILENT_MS,
                                   .since_ms =
                                       ago_ms < UINT32_MAX ? (uint32_t)ago_ms + 1 : UINT32_MAX,
                                   .is_first = ago_ms > 3 * LOOK_MS};

    if (ago_ms < LOOK_MS)
        return;
    control->last.looked_ms = now_ms;
    for (int rank = 0; rank < control->place.size; rank++) {
        look_at_host(control->links[rank], &look);
        if (control->calls)
            look_at_host(control->calls[rank], &look);
        if (control->guests.links)
            look_at_host(control->guests.links[rank], &look);
    }
}

/* ---- the pump ---- */

/* One event at a time: handling it may end a connection that another event is about. */
bool stepaf_control_pump(struct stepaf_control *control)
{
    struct epoll_event event;
    int n = 0;

    accept_again(control);
    while (n < EVENTS_MAX && epoll_wait(control->epoll_fd, &event, 1, 0) > 0) {
        n++;
        if (event.data.ptr)
            turn_link(control, event.data.ptr, event.events);
        else
            let_in(control);
    }
    forget_late(control);
    look_at_hosts(control);
    return n > 0;
}

/* Wait without the lock, which the rank's own calls may need meanwhile, its batch handler's among
 * them. Returns false if another thread finalizes the context. */
static bool wait_for_news(struct stepaf_control *control, int64_t most_ms)
{
    struct pollfd one = {.fd = control->epoll_fd, .events = POLLIN};
    int64_t pause_us = stepaf_boot_advance(), most_us = most_ms * 1000;

    if (pause_us < 0)
        return false;
    int64_t us = pause_us < most_us ? pause_us : most_us;
    atomic_fetch_add(&control->waiters.n_asleep, 1);
    (void)ppoll(&one, 1, &(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
    atomic_fetch_sub(&control->waiters.n_asleep, 1);
    return true;
}

bool stepaf_control_wait(struct stepaf_control *control, int64_t deadline_ns)
{
    bool has_moved = stepaf_control_pump(control);
    int64_t left_ms = (deadline_ns - stepaf_monotonic_ns() + 999999) / 1000000;
    if (left_ms <= 0)
        return false; /* even if strangers keep this one busy */
    if (has_moved)
        return true;
    int64_t most_ms = control->waiters.n++ ? CROWDED_MS : ALONE_MS;
    pthread_mutex_unlock(&control->lock);
    bool goes_on = wait_for_news(control, left_ms < most_ms ? left_ms : most_ms);
    pthread_mutex_lock(&control->lock);
    control->waiters.n--;
    if (!goes_on)
        control->gives_up = true;
    (void)stepaf_control_pump(control);
    return goes_on;
}
