/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting, at rank 0, which is the meeting point until all are here. Then it tells each rank
 * where all others listen or, as soon as something is wrong, tells all what is wrong. */
#define _GNU_SOURCE 1 /* POLLRDHUP */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/control.h"
#include "boot/control/socket.h"

enum {
    NAMED_MAX = 8,          /* of the missing ranks */
    LINGER_NS = 2000000000, /* to tell late ranks that there will be no job */
    RETURN_MS = 5000        /* for another process to come in place of one that has ended */
};

static stepaf_status_t open_meeting(struct stepaf_control *control)
{
    const struct stepaf_place *place = &control->place;

    control->listener =
        stepaf_control_listen(place, NULL, place->port, place->port, &control->port);
    if (control->listener >= 0 && stepaf_control_open_door(control)) {
        if (!place->has_secret && !place->is_loopback)
            stepaf_log_warn("tcp bootstrap: no secret is set (STEPAF_SECRET, STEPAF_SECRET_FILE): "
                            "any process that reaches %s can become a rank of this job",
                            place->meet);
        return STEPAF_OK;
    }
    if (errno == EADDRINUSE)
        return stepaf_error_set(
            STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
            "tcp bootstrap: port %u of rank 0 (%s) is in use by another program or another rank 0",
            place->port, place->meet);
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                            "tcp bootstrap: rank 0 cannot listen on port %u (%s): %s", place->port,
                            place->meet, stepaf_why(errno));
}

/* Return whether the connection to a rank has ended, even if its data have not been read that
 * far. */
static bool is_over(const struct stepaf_control_link *link)
{
    struct pollfd one = {.fd = link->fd, .events = POLLRDHUP};

    return link->fd < 0 || (poll(&one, 1, 0) > 0 && one.revents);
}

/* Check an arrival that knows the secret. If something is wrong, text_p is set, and the status is
 * what all ranks get. */
static stepaf_status_t judge_arrival(const struct stepaf_control *control,
                                     const struct stepaf_control_hello *hello, char *text_p,
                                     size_t capacity)
{
    const struct stepaf_place *place = &control->place;
    int rank = (int)hello->from;

    if (hello->version != STEPAF_CONTROL_VERSION) {
        snprintf(text_p, capacity,
                 "tcp bootstrap: %.64s: rank %d has another version of libstepaf than rank 0: "
                 "protocol versions %u and %u",
                 place->meet, rank, hello->version, STEPAF_CONTROL_VERSION);
        return STEPAF_ERR_MISMATCH;
    }
    if (hello->size != (uint32_t)place->size) {
        snprintf(
            text_p, capacity,
            "tcp bootstrap: %.64s: STEPAF_SIZE (WORLD_SIZE) differs: %d at rank 0, %u at rank %d",
            place->meet, place->size, hello->size, rank);
        return STEPAF_ERR_BOOT;
    }
    if (rank <= 0 || rank >= place->size ||
        (control->links[rank] && !is_over(control->links[rank]))) {
        snprintf(text_p, capacity,
                 "tcp bootstrap: %.64s: two processes are rank %d (STEPAF_RANK, RANK)", place->meet,
                 rank);
        return STEPAF_ERR_BOOT;
    }
    return STEPAF_OK;
}

static bool is_here(const struct stepaf_control *control, int rank)
{
    return control->links[rank] && control->links[rank]->state == STEPAF_CONTROL_UP;
}

static int count_here(const struct stepaf_control *control)
{
    int n = 1;

    for (int rank = 1; rank < control->place.size; rank++)
        n += is_here(control, rank);
    return n;
}

/* Tell an arrival why there will be no job. Keep its link as that rank's if there is no other;
 * otherwise free it. */
static void send_away(struct stepaf_control *control, struct stepaf_control_link *link)
{
    int rank = link->rank;

    stepaf_control_tell_failure(link, STEPAF_CONTROL_EXCHANGE);
    if (rank > 0 && rank < control->place.size && !is_here(control, rank)) {
        stepaf_control_link_free(control->links[rank]);
        control->links[rank] = link;
    } else {
        stepaf_control_link_free(link);
    }
}

/* Admit the arrival, or tell all ranks why not, this one included. */
static void receive_arrival(struct stepaf_control *control, struct stepaf_control_link *link)
{
    char text[STEPAF_CONTROL_TEXT_MAX];
    int rank = link->rank;

    if (rank > 0 && rank < control->place.size && is_here(control, rank) && is_over(link)) {
        stepaf_control_link_free(link); /* the rank has called again meanwhile */
        return;
    }
    stepaf_status_t status = judge_arrival(control, &link->hello, text, sizeof text);

    if (status != STEPAF_OK) {
        bool is_rank = rank > 0 && rank < control->place.size;
        stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, status, is_rank ? rank : -1,
                                    text);
        send_away(control, link);
        return;
    }
    stepaf_control_link_free(control->links[rank]);
    control->links[rank] = link;
    link->until_ns = stepaf_monotonic_ns() + (int64_t)link->hello.left_ms * 1000000;
    stepaf_control_welcome(link);
    stepaf_control_parse(link); /* the rank may have come to say that it cannot take part */
}

/* After a failure: also tell the ranks that have not arrived yet. */
static void tell_late_comers(struct stepaf_control *control, int64_t deadline_ns)
{
    int64_t limit_ns = stepaf_monotonic_ns() + LINGER_NS;

    limit_ns = limit_ns < deadline_ns ? limit_ns : deadline_ns;
    while (count_here(control) < control->place.size) {
        struct stepaf_control_link *link = control->arrivals;
        if (!link && !stepaf_control_wait(control, limit_ns))
            return;
        if (!link)
            continue;
        control->arrivals = link->next;
        send_away(control, link);
    }
}

/* "rank 3", "ranks 2, 5, 7 and 40 more" */
static int name_missing(const struct stepaf_control *control, char *text_p, size_t capacity)
{
    int missing = control->place.size - count_here(control), named = 0, first = -1;
    size_t used = (size_t)snprintf(text_p, capacity, missing == 1 ? "rank " : "ranks ");

    for (int rank = 1; rank < control->place.size && named < NAMED_MAX; rank++) {
        if (is_here(control, rank))
            continue;
        first = first < 0 ? rank : first;
        used += (size_t)snprintf(text_p + used, capacity - used, named++ ? ", %d" : "%d", rank);
    }
    if (missing > named)
        snprintf(text_p + used, capacity - used, " and %d more", missing - named);
    return first;
}

/* Write what the reason may be: text for the end of the message. */
static void hint_why(const struct stepaf_control *control, int first, char *text_p, size_t capacity)
{
    *text_p = '\0';
    if (control->links[first])
        snprintf(text_p, capacity, "; rank %d was here and has ended", first);
    else if (control->refused_rank > 0 && !is_here(control, control->refused_rank))
        snprintf(text_p, capacity,
                 "; a process that claims to be rank %d does not know the secret (STEPAF_SECRET)",
                 control->refused_rank);
    else if (count_here(control) == 1 && control->place.size > 2)
        snprintf(text_p, capacity, "; check that %.64s is this host", control->place.host);
}

static void miss_some(struct stepaf_control *control)
{
    char names[96], hint[128], text[STEPAF_CONTROL_TEXT_MAX];
    int first = name_missing(control, names, sizeof names);

    hint_why(control, first, hint, sizeof hint);
    if (control->gives_up)
        snprintf(text, sizeof text, "tcp bootstrap: %.64s: rank 0 has given up; %d of %d are here",
                 control->place.meet, count_here(control), control->place.size);
    else
        snprintf(text, sizeof text,
                 "tcp bootstrap: %.64s: %.80s did not arrive in time; %d of %d are here%.100s",
                 control->place.meet, names, count_here(control), control->place.size, hint);
    stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, STEPAF_ERR_TIMEOUT, first, text);
}

/* Return when the first of the ranks that are here would stop waiting; all are told the same
 * then. */
static int64_t find_deadline(const struct stepaf_control *control, int64_t deadline_ns)
{
    for (int rank = 1; rank < control->place.size; rank++)
        if (is_here(control, rank) && control->links[rank]->until_ns < deadline_ns)
            deadline_ns = control->links[rank]->until_ns;
    return deadline_ns;
}

static void lack_descriptors(struct stepaf_control *control)
{
    char text[STEPAF_CONTROL_TEXT_MAX];

    snprintf(text, sizeof text,
             "tcp bootstrap: %.64s: rank 0 has too few file descriptors for the connections of all "
             "ranks (ulimit -n); %d of %d are here",
             control->place.meet, count_here(control), control->place.size);
    stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, STEPAF_ERR_BOOT, 0, text);
    /* These ranks have been told, and those that have not need the space. */
    for (int rank = 1; rank < control->place.size; rank++) {
        stepaf_control_link_free(control->links[rank]);
        control->links[rank] = NULL;
    }
}

/* Return a rank that was here and has ended, if no other process has come in its place in time; -1:
 * there is none. *limit_ns_p, until when to wait, is brought forward. */
static int find_ended(struct stepaf_control *control, int64_t *limit_ns_p)
{
    int64_t now_ns = stepaf_monotonic_ns();

    for (int rank = 1; rank < control->place.size; rank++) {
        struct stepaf_control_link *link = control->links[rank];
        if (!link || link->state == STEPAF_CONTROL_UP)
            continue;
        if (!link->has_ended)
            link->until_ns = now_ns + RETURN_MS * 1000000LL;
        link->has_ended = true;
        if (now_ns >= link->until_ns)
            return rank;
        if (link->until_ns < *limit_ns_p)
            *limit_ns_p = link->until_ns;
    }
    return -1;
}

static void give_up_ended(struct stepaf_control *control, int rank)
{
    char text[STEPAF_CONTROL_TEXT_MAX];

    snprintf(text, sizeof text,
             "tcp bootstrap: %.64s: rank %d was here and has ended; %d of %d are here",
             control->place.meet, rank, count_here(control), control->place.size);
    stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, STEPAF_ERR_PEER_LOST, rank, text);
}

/* Receive ranks until all are here, or something is wrong. */
static void gather_ranks(struct stepaf_control *control, int64_t last_ns)
{
    const struct stepaf_control_failure *failure = &control->failures[STEPAF_CONTROL_EXCHANGE];

    while (failure->status == STEPAF_OK &&
           (control->arrivals || count_here(control) < control->place.size)) {
        struct stepaf_control_link *link = control->arrivals;
        int64_t deadline_ns = find_deadline(control, last_ns), limit_ns = deadline_ns;
        int ended = link ? -1 : find_ended(control, &limit_ns);
        if (link) {
            control->arrivals = link->next;
            receive_arrival(control, link);
        } else if (ended >= 0) {
            give_up_ended(control, ended);
        } else if (control->accept.error == EMFILE) {
            lack_descriptors(control);
        } else if (!stepaf_control_wait(control, limit_ns) && !control->arrivals &&
                   (control->gives_up || stepaf_monotonic_ns() >= deadline_ns)) {
            miss_some(control);
        }
    }
}

stepaf_status_t stepaf_control_meet_host(struct stepaf_control *control, int64_t deadline_ns)
{
    const struct stepaf_control_failure *failure = &control->failures[STEPAF_CONTROL_EXCHANGE];
    stepaf_status_t status = open_meeting(control);

    if (status != STEPAF_OK) {
        stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, status, -1,
                                    stepaf_last_error()->text);
        return status;
    }
    gather_ranks(control, deadline_ns);
    if (failure->status != STEPAF_OK && failure->status != STEPAF_ERR_TIMEOUT)
        tell_late_comers(control, find_deadline(control, deadline_ns));
    /* Do this first, so that a rank that comes for the next context finds the next listener. */
    stepaf_control_shut_door(control);
    if (failure->status == STEPAF_OK && !stepaf_control_give_table(control))
        stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, STEPAF_ERR_NO_MEMORY, 0,
                                    "tcp bootstrap: rank 0 has no memory for the table of ranks");
    return stepaf_control_raise(control, STEPAF_CONTROL_EXCHANGE);
}
