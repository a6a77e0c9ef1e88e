/* SPDX-License-Identifier: Apache-2.0 */
/* The watching of peers: of a peer's process on the same node; otherwise of whether the peer takes
 * in writes. */
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "base/time.h"
#include "transport/fabric/link.h"

#ifndef SYS_pidfd_open /* headers before Linux 5.3; the number is the same on all machines */
#define SYS_pidfd_open 434
#endif

static const int64_t look_ns = 1000000, ping_ns = 500000000;
enum { PINGS_PER_TIMEOUT = 4 };

void stepaf_fabric_watch(struct stepaf_fabric_link *link, uint32_t pid)
{
    link->heard_ns = stepaf_monotonic_ns();
    link->pidfd = -1;
    if (!link->is_local)
        return;
    stepaf_fork_begin();
    stepaf_fd_begin();
    int fd = stepaf_fd_end((int)syscall(SYS_pidfd_open, pid, 0));
    link->pidfd = stepaf_fork_end(fd);
}

/* Return how long a peer may be silent before it is probed. */
static int64_t ask_after_ns(const struct stepaf_fabric *fabric)
{
    int64_t part_ns = *fabric->timeout_us * 1000 / PINGS_PER_TIMEOUT;

    return part_ns < ping_ns ? part_ns : ping_ns;
}

/* Declare a peer lost. What it has sent before is delivered; what others have sent is not, since it
 * may be of the next epoch. */
static void lose_found(struct stepaf_fabric *fabric, struct stepaf_fabric_link *link,
                       const char *reason)
{
    stepaf_fabric_deliver(link);
    if (!link->base.dead)
        fabric->base.up->lost(fabric->base.up, &link->base, reason);
}

void stepaf_fabric_lose(struct stepaf_fabric_link *link, int error)
{
    struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    char reason[STEPAF_REASON_MAX];

    if (!link->used || link->base.dead)
        return;
    if (link->proof.state != STEPAF_FABRIC_PROVEN) { /* the link takes another transport */
        link->proof.state = STEPAF_FABRIC_REFUTED;
        link->proof.error = error;
        return;
    }
    if (fabric->asked == link) {
        fabric->asked_error = error;
        return;
    }
    snprintf(reason, sizeof(reason), "%.60s: %.100s", fabric->name, fabric->strerror(error));
    fabric->base.up->lost(fabric->base.up, &link->base, reason);
}

/* Probe a peer with a credit during a check. If the credit is rejected for good, what the peer has
 * sent before is delivered, and then the link is lost. */
static void ask_by_credit(struct stepaf_fabric *fabric, struct stepaf_fabric_link *link)
{
    fabric->asked = link;
    fabric->asked_error = 0;
    (void)fabric->calls->control(link, STEPAF_FABRIC_CREDIT);
    fabric->asked = NULL;
    if (!fabric->asked_error)
        return;
    stepaf_fabric_deliver(link);
    stepaf_fabric_lose(link, fabric->asked_error);
}

/* Check one link. @a anew: the last check was so long ago that silence means nothing. */
static void look_after_fabric(struct stepaf_fabric *fabric, struct stepaf_fabric_link *link,
                              int64_t now, bool anew)
{
    struct pollfd pollfd = {.fd = link->pidfd, .events = POLLIN};

    if (link->pidfd >= 0 && poll(&pollfd, 1, 0) > 0) {
        fabric->calls->set_aside(fabric); /* the peer may have written since */
        lose_found(fabric, link, "its process has ended");
        return;
    }
    if (link->proof.state != STEPAF_FABRIC_PROVEN)
        return;
    if (link->heard != link->noticed || anew) {
        link->noticed = link->heard;
        link->heard_ns = now;
    }
    /* A credit has no news, but shows whether the peer can be written to. */
    if (now - link->heard_ns > ask_after_ns(fabric) && !link->control.pending)
        ask_by_credit(fabric, link);
    if (!link->base.dead && link->pidfd < 0 && now - link->heard_ns > *fabric->timeout_us * 1000)
        lose_found(fabric, link, "it accepts no data");
}

void stepaf_fabric_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_fabric *fabric = (struct stepaf_fabric *)transport;
    int64_t now = stepaf_monotonic_ns();

    if (now - fabric->looked_ns < look_ns)
        return;
    bool anew = now - fabric->looked_ns > ask_after_ns(fabric);
    fabric->looked_ns = now;
    fabric->calls->set_aside(fabric); /* it may be that no thread reads */
    for (uint32_t p = 0; p < fabric->n_peers; p++) {
        struct stepaf_fabric_link *link = stepaf_fabric_link(fabric, p);
        if (!link->used || link->base.dead)
            continue;
        if (link->taken != link->told && link->proof.state == STEPAF_FABRIC_PROVEN)
            ask_by_credit(fabric, link);
        if (!link->base.dead)
            look_after_fabric(fabric, link, now, anew);
    }
}
