/* SPDX-License-Identifier: Apache-2.0 */
/* Watching peers: by their process on the same node, else by whether they take in what is written. */
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "base/time.h"
#include "transport/ofi/ofi.h"

#ifndef SYS_pidfd_open /* headers before Linux 5.3; the number is the same on all machines */
#define SYS_pidfd_open 434
#endif

static const int64_t look_ns = 1000000, ping_ns = 500000000;

void stepaf_ofi_watch(struct stepaf_ofi_link *link, uint32_t pid)
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

static void ofi_look_after(struct stepaf_ofi *ofi, struct stepaf_ofi_link *link, int64_t now)
{
    struct stepaf_upcalls *up = ofi->base.up;
    struct pollfd pollfd = {.fd = link->pidfd, .events = POLLIN};

    if (link->pidfd >= 0 && poll(&pollfd, 1, 0) > 0) {
        (void)stepaf_ofi_progress(&ofi->base, 1); /* what has come before */
        if (!link->base.dead)
            up->lost(up, &link->base, "its process has ended");
        return;
    }
    if (link->proof.state != STEPAF_OFI_PROVEN)
        return;
    if (link->heard != link->noticed) {
        link->noticed = link->heard;
        link->heard_ns = now;
    }
    /* A credit says nothing new, but shows whether the peer can be written to. */
    if (now - link->heard_ns > ping_ns && !link->control.pending)
        (void)stepaf_ofi_control(link, STEPAF_OFI_CREDIT);
    if (!link->base.dead && link->pidfd < 0 &&
        now - link->heard_ns > up->env->ofi_peer_timeout_us * 1000)
        up->lost(up, &link->base, "it takes in nothing");
}

void stepaf_ofi_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    int64_t now = stepaf_monotonic_ns();

    if (now - ofi->looked_ns < look_ns)
        return;
    ofi->looked_ns = now;
    for (uint32_t p = 0; p < ofi->n_peers; p++) {
        struct stepaf_ofi_link *link = &ofi->links[p];
        if (!link->used || link->base.dead)
            continue;
        if (link->taken != link->told && link->proof.state == STEPAF_OFI_PROVEN)
            (void)stepaf_ofi_control(link, STEPAF_OFI_CREDIT);
        if (!link->base.dead)
            ofi_look_after(ofi, link, now);
    }
}

bool stepaf_ofi_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;

    (void)begin;
    (void)stepaf_ofi_progress(transport, 1);
    for (uint32_t p = 0; p < ofi->n_peers; p++)
        for (int i = 0; ofi->links[p].used && i < STEPAF_OFI_RING; i++)
            if (ofi->links[p].flight[i].pending) {
                *peer_p = p;
                return false;
            }
    return true;
}
