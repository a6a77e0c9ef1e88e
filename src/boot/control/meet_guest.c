/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting, for ranks other than 0: find rank 0, which may come later, and wait there until all
 * have come. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/control.h"
#include "boot/control/socket.h"

enum {
    RETRY_FIRST_NS = 2000000,  /* before the second call; each later wait is longer by half */
    RETRY_LAST_NS = 200000000, /* but no longer than this */
    CONNECT_NS = 2000000000,   /* for one address, before the next is tried */
    RESOLVE_NS = 1000000000,   /* between queries to the name service */
    GRACE_NS = 500000000,      /* beyond the deadline, to receive from rank 0 who is missing */
    TELL_NS = 2000000000       /* for a rank that cannot take part to find rank 0 and say so */
};

/* Whom to call, and the result of the last call. */
struct call {
    struct stepaf_control_address addresses[STEPAF_CONTROL_ADDRESSES];
    int n;
    int64_t resolve_ns;              /* when to look the addresses up again */
    enum stepaf_control_state state; /* how far the call got */
    char why[160];
    stepaf_error_t trouble; /* why this rank cannot take part; STEPAF_OK: it can */
    bool is_told;           /* rank 0 has been told the trouble */
};

static stepaf_status_t open_own_door(struct stepaf_control *control)
{
    const struct stepaf_place *place = &control->place;

    control->listener =
        stepaf_control_listen(place, NULL, place->first_port, place->last_port, &control->port);
    if (control->listener >= 0)
        return STEPAF_OK;
    if (errno == EADDRINUSE && place->first_port)
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "tcp bootstrap: rank %d: no free port in STEPAF_NET_PORTS=%u-%u",
                                place->rank, place->first_port, place->last_port);
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                            "tcp bootstrap: rank %d cannot listen: %s", place->rank,
                            stepaf_why(errno));
}

static struct stepaf_control_link *call_address(struct stepaf_control *control,
                                                const struct stepaf_control_address *address,
                                                int64_t deadline_ns)
{
    int fd = stepaf_control_connect(address, control->place.port);

    if (fd < 0)
        return NULL;
    struct stepaf_control_link *link = stepaf_control_link_new(control, fd, STEPAF_CONTROL_CALLING);
    if (!link) {
        stepaf_control_socket_close(fd);
        errno = ENOMEM;
        return NULL;
    }
    int64_t left_ms = (deadline_ns - stepaf_monotonic_ns()) / 1000000;
    link->hello.left_ms = left_ms < 0 ? 0 : left_ms > INT32_MAX ? INT32_MAX : (uint32_t)left_ms;
    return link;
}

/* Send the trouble to rank 0, which tells all ranks, this one included: by then it has received the
 * trouble. */
static void tell_trouble(struct stepaf_control_link *link, struct call *call)
{
    struct stepaf_control *control = link->control;
    struct stepaf_control_failure *failure = &control->failures[STEPAF_CONTROL_EXCHANGE];

    if (call->trouble.status == STEPAF_OK || call->is_told)
        return;
    *failure = (struct stepaf_control_failure){.status = call->trouble.status,
                                               .rank = control->place.rank};
    snprintf(failure->text, sizeof failure->text, "%s", call->trouble.text);
    stepaf_control_tell_failure(link, STEPAF_CONTROL_EXCHANGE);
    failure->status = STEPAF_OK;
    call->is_told = true;
}

/* Continue the call until there is a table, or a failure, or no more chance of either. Returns true
 * if no other call is to be made. */
static bool stay_on(struct stepaf_control *control, struct stepaf_control_link *link,
                    int64_t deadline_ns, struct call *call_p)
{
    const struct stepaf_control_failure *failure = &control->failures[STEPAF_CONTROL_EXCHANGE];
    int64_t connect_ns = stepaf_monotonic_ns() + CONNECT_NS;
    struct stepaf_control_parcel *table = NULL;

    control->links[0] = link;
    for (;;) {
        /* A host that accepts the connection and says nothing may be slow, or the wrong one: try
         * another address, if there is one. */
        bool is_short = link->state == STEPAF_CONTROL_CALLING ||
                        (call_p->n > 1 && !stepaf_control_is_proven(link));
        int64_t limit_ns = is_short && connect_ns < deadline_ns ? connect_ns : deadline_ns;
        if (link->state == STEPAF_CONTROL_UP && limit_ns < INT64_MAX - GRACE_NS)
            limit_ns += GRACE_NS;
        if (link->state != STEPAF_CONTROL_CLOSED)
            call_p->state = link->state;
        if (link->state == STEPAF_CONTROL_UP)
            tell_trouble(link, call_p);
        table = stepaf_control_take(link, STEPAF_CONTROL_TABLE, 0, 0);
        if (table || failure->status != STEPAF_OK || link->state == STEPAF_CONTROL_CLOSED)
            break;
        if (!stepaf_control_wait(control, limit_ns)) {
            stepaf_control_link_close(link, "no answer", ETIMEDOUT);
            break;
        }
    }
    bool is_over = failure->status != STEPAF_OK;
    if (table && !(is_over = stepaf_control_take_table(control, table)))
        stepaf_control_link_close(link, "the other end has sent malformed data", EPROTO);
    free(table);
    if (control->has_met && link->state == STEPAF_CONTROL_CLOSED && !link->has_left)
        stepaf_control_note_lost(control, 0); /* directly after the table */
    if (is_over)
        return true;
    snprintf(call_p->why, sizeof call_p->why, "%s",
             link->trouble ? link->trouble : strerror(link->error));
    /* Errors of the system, such as EACCES because of a route, may pass. */
    is_over = link->trouble && (link->error == EACCES || link->error == EPROTO);
    control->links[0] = NULL;
    stepaf_control_link_free(link);
    return is_over;
}

static void look_up_host(const char *host, int64_t limit_ns, struct call *call)
{
    int error;

    if (strcmp(host, "localhost") == 0) { /* where rank 0 listens, whatever the resolver says */
        static const struct stepaf_control_address loopback = {
            .bytes = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
        call->addresses[0] = loopback;
        call->n = 1;
        return;
    }
    if (stepaf_monotonic_ns() < call->resolve_ns)
        return;
    call->n = stepaf_control_resolve(host, call->addresses, limit_ns, &error);
    call->resolve_ns = stepaf_monotonic_ns() + RESOLVE_NS;
    if (error == STEPAF_CONTROL_NO_ANSWER)
        snprintf(call->why, sizeof call->why, "the name service has not answered");
    else if (call->n == 0)
        snprintf(call->why, sizeof call->why, "the name has no address: %s",
                 error ? gai_strerror(error) : "no usable address");
}

/* Call each address of the host once. Returns true if no other call is to be made. */
static bool call_meeting(struct stepaf_control *control, int64_t deadline_ns, struct call *call)
{
    look_up_host(control->place.host, deadline_ns, call);
    for (int i = 0; i < call->n; i++) {
        const struct stepaf_control_address *address = &call->addresses[i];
        struct stepaf_control_link *link = call_address(control, address, deadline_ns);
        control->host_address = *address;
        if (link && stay_on(control, link, deadline_ns, call))
            return true;
        if (!link)
            snprintf(call->why, sizeof call->why, "%s", stepaf_why(errno));
    }
    return false;
}

/* Fail without rank 0, which was not found or not understood: only this rank knows. */
static void fail_alone(struct stepaf_control *control, const struct call *call, bool is_refused)
{
    static const char *const how_far[] = {
        [STEPAF_CONTROL_CLOSED] = "rank 0 did not arrive in time",
        [STEPAF_CONTROL_CALLING] = "rank 0 did not arrive in time",
        [STEPAF_CONTROL_GREETING] = "a process listens there, but does not answer as rank 0 does",
        [STEPAF_CONTROL_ANSWERED] = "rank 0 did not gather all ranks in time",
        [STEPAF_CONTROL_UP] = "rank 0 did not gather all ranks in time",
    };
    char text[STEPAF_CONTROL_TEXT_MAX];

    if (is_refused)
        snprintf(text, sizeof text, "tcp bootstrap: %.64s: rank %d was rejected: %.100s%s",
                 control->place.meet, control->place.rank, call->why,
                 strstr(call->why, "secret")
                     ? " (STEPAF_SECRET, STEPAF_SECRET_FILE), or belongs to another job"
                     : "");
    else
        snprintf(text, sizeof text, "tcp bootstrap: %.64s: %s: %.140s", control->place.meet,
                 how_far[call->state], call->why);
    stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE,
                                is_refused ? STEPAF_ERR_BOOT : STEPAF_ERR_TIMEOUT, 0, text);
}

stepaf_status_t stepaf_control_meet_guest(struct stepaf_control *control, int64_t deadline_ns)
{
    struct call call = {.state = STEPAF_CONTROL_CLOSED, .why = "no answer"};
    int64_t pause_ns = RETRY_FIRST_NS;
    bool is_over = false;

    if (open_own_door(control) != STEPAF_OK) {
        int64_t tell_ns = stepaf_monotonic_ns() + TELL_NS;
        call.trouble = *stepaf_last_error();
        deadline_ns = tell_ns < deadline_ns ? tell_ns : deadline_ns;
    }
    while (!(is_over = call_meeting(control, deadline_ns, &call)) &&
           stepaf_monotonic_ns() < deadline_ns && !stepaf_interrupted()) {
        int64_t left_ns = deadline_ns - stepaf_monotonic_ns();
        nanosleep(&(struct timespec){0, pause_ns < left_ns || left_ns < 0 ? pause_ns : left_ns},
                  NULL);
        pause_ns = pause_ns * 3 / 2 < RETRY_LAST_NS ? pause_ns * 3 / 2 : RETRY_LAST_NS;
    }
    if (call.trouble.status)
        stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, call.trouble.status,
                                    control->place.rank, call.trouble.text);
    if (!control->has_met && control->failures[STEPAF_CONTROL_EXCHANGE].status == STEPAF_OK)
        fail_alone(control, &call, is_over);
    /* A rank that was told earlier may already be waiting there. */
    if (control->has_met && !stepaf_control_open_door(control))
        stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, STEPAF_ERR_BOOT, -1,
                                    "tcp bootstrap: cannot accept connections of other ranks");
    return stepaf_control_raise(control, STEPAF_CONTROL_EXCHANGE);
}
