/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that exchanges and barriers need. Of two ranks the one with the higher number calls,
 * so that both never do. All ranks called rank 0 when they met. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/time.h"
#include "base/why.h"
#include "boot/control/control.h"
#include "boot/control/socket.h"

enum {
    AGAIN_NS = 20000000,    /* before a call is tried again */
    SILENT_NS = 2000000000, /* for a call, before that counts as no answer */
    NEWS_NS = 500000000     /* beyond the deadline, to receive what others know */
};

static const char *channel_word(int channel)
{
    return channel == STEPAF_CONTROL_EXCHANGE ? "exchange" : "barrier";
}

static bool note_fate(struct stepaf_control *control, int channel, int rank)
{
    char text[STEPAF_CONTROL_TEXT_MAX];

    snprintf(text, sizeof text, "tcp bootstrap: %s: world rank %d has %s", channel_word(channel),
             rank, control->fates[rank] & STEPAF_CONTROL_HAS_LEFT ? "finalized" : "ended");
    stepaf_control_note_failure(control, channel, STEPAF_ERR_PEER_LOST, rank, text);
    return false;
}

bool stepaf_control_goes_on(struct stepaf_control *control, int channel, const int *ranks, int n,
                            int awaited)
{
    if (control->failures[channel].status != STEPAF_OK)
        return false;
    if (control->fates[awaited])
        return note_fate(control, channel, awaited);
    for (int i = 0; i < n; i++) {
        int rank = ranks ? ranks[i] : i;
        if (control->fates[rank] & STEPAF_CONTROL_IS_LOST)
            return note_fate(control, channel, rank);
    }
    return true;
}

void stepaf_control_give_up(struct stepaf_control *control, int channel, int rank, int round)
{
    int64_t limit_ns = stepaf_monotonic_ns() + NEWS_NS;
    char text[STEPAF_CONTROL_TEXT_MAX];

    if (control->gives_up) {
        snprintf(text, sizeof text, "tcp bootstrap: %s: world rank %d has given up",
                 channel_word(channel), control->place.rank);
        stepaf_control_note_failure(control, channel, STEPAF_ERR_TIMEOUT, control->place.rank,
                                    text);
        return;
    }
    /* The other rank may know why it cannot reach this rank. */
    bool is_to_call = rank > control->place.rank && !control->links[rank];
    while ((round > 0 || is_to_call) && control->failures[channel].status == STEPAF_OK)
        if (!stepaf_control_wait(control, limit_ns))
            break;
    int last = stepaf_control_last_of(control, channel, rank);
    snprintf(text, sizeof text, "tcp bootstrap: %s: world rank %d did not arrive in time",
             channel_word(channel), last);
    stepaf_control_note_failure(control, channel, STEPAF_ERR_TIMEOUT, last, text);
}

/* Call @a rank where the table says; returns false with errno if the call cannot even begin. */
static bool call_rank(struct stepaf_control *control, int rank)
{
    const struct stepaf_control_entry *entry = &control->entries[rank];
    struct stepaf_control_address address = {.scope = 0};

    memcpy(address.bytes, entry->address, sizeof address.bytes);
    if (entry->is_near)
        address = control->host_address;
    else if (stepaf_control_is_link_local(&address)) /* on the link where rank 0 is */
        address.scope = control->host_address.scope;
    int fd = stepaf_control_connect(&address, entry->port);
    if (fd < 0)
        return false;
    struct stepaf_control_link *link = stepaf_control_link_new(control, fd, STEPAF_CONTROL_CALLING);
    if (!link) {
        stepaf_control_socket_close(fd);
        errno = ENOMEM;
        return false;
    }
    link->hello.to = (uint32_t)rank;
    stepaf_control_link_free(control->links[rank]);
    control->links[rank] = link;
    return true;
}

/* The kernel of the other host answers a call even if no process looks, so an answer that does not
 * come is not the other rank's doing. The call goes on. */
static void note_silence(const struct stepaf_control_link *link, struct stepaf_control_try *attempt,
                         int64_t now_ns)
{
    if (link->state != STEPAF_CONTROL_CALLING)
        return;
    if (attempt->silent_ns == 0)
        attempt->silent_ns = now_ns;
    if (now_ns - attempt->silent_ns < SILENT_NS)
        return;
    attempt->is_own = false;
    snprintf(attempt->why, sizeof attempt->why, "no answer (does a firewall drop packets?)");
}

/* Call the rank, if it is this rank's part to do so and no call is in progress. Returns when to
 * check again. */
static int64_t call_if_down(struct stepaf_control *control, int rank,
                            struct stepaf_control_try *attempt, int64_t deadline_ns)
{
    const struct stepaf_control_link *link = control->links[rank];
    int64_t now_ns = stepaf_monotonic_ns();

    if (control->place.rank < rank)
        return deadline_ns;
    if (link && link->state != STEPAF_CONTROL_CLOSED) {
        if (link->state == STEPAF_CONTROL_UP)
            *attempt->why = '\0';
        else
            note_silence(link, attempt, now_ns);
        return deadline_ns;
    }
    attempt->silent_ns = 0;
    if (link) {
        attempt->is_own = false;
        snprintf(attempt->why, sizeof attempt->why, "%s",
                 link->trouble ? link->trouble : stepaf_why(link->error));
    }
    if (now_ns >= attempt->again_ns) {
        if (!call_rank(control, rank)) {
            attempt->is_own = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
            snprintf(attempt->why, sizeof attempt->why, "%s", stepaf_why(errno));
            stepaf_control_link_free(control->links[rank]);
            control->links[rank] = NULL;
        }
        attempt->again_ns = now_ns + AGAIN_NS;
    }
    return attempt->again_ns < deadline_ns ? attempt->again_ns : deadline_ns;
}

/* Fail because this rank could not reach the listening rank; @a attempt says which of the two lacks
 * something. */
static void fail_reach(struct stepaf_control *control, int channel, int rank,
                       const struct stepaf_control_try *attempt)
{
    char text[STEPAF_CONTROL_TEXT_MAX];

    snprintf(text, sizeof text, "tcp bootstrap: %s: world rank %d cannot reach world rank %d: %s",
             channel_word(channel), control->place.rank, rank, attempt->why);
    stepaf_control_note_failure(control, channel, STEPAF_ERR_TIMEOUT,
                                attempt->is_own ? control->place.rank : rank, text);
}

bool stepaf_control_move_on(struct stepaf_control *control, int rank, int channel,
                            struct stepaf_control_try *attempt, int64_t deadline_ns)
{
    int64_t limit_ns = call_if_down(control, rank, attempt, deadline_ns);
    int64_t from_ns = stepaf_control_waits_from(deadline_ns);

    control->waiting[channel].is_on = true;
    control->waiting[channel].rank = rank;
    if (stepaf_monotonic_ns() >= from_ns)
        stepaf_control_say_waits(control, channel);
    else if (limit_ns > from_ns)
        limit_ns = from_ns;
    if (stepaf_control_wait(control, limit_ns))
        return true;
    if (!control->gives_up && stepaf_monotonic_ns() < deadline_ns)
        return true;
    if (*attempt->why)
        fail_reach(control, channel, rank, attempt);
    return false;
}

struct stepaf_control_link *stepaf_control_reach(struct stepaf_control *control, int rank,
                                                 int channel, int64_t deadline_ns)
{
    struct stepaf_control_try attempt = {.again_ns = 0};
    int needed = channel == STEPAF_CONTROL_EXCHANGE ? control->place.size : 0;

    for (;;) {
        struct stepaf_control_link *link = control->links[rank];
        if (link && link->state == STEPAF_CONTROL_UP)
            return link;
        if (!stepaf_control_goes_on(control, channel, NULL, needed, rank) ||
            !stepaf_control_move_on(control, rank, channel, &attempt, deadline_ns))
            return NULL;
    }
}
