/* SPDX-License-Identifier: Apache-2.0 */
/* End of connecting: until all links are up, and until no more can come. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/time.h"
#include "base/why.h"
#include "transport/tcp/tcp.h"

enum {
    ACCEPT_US = 1000000, /* for which a listener may lack the resources to accept */
    STEPS = 16           /* per call */
};

stepaf_status_t stepaf_tcp_reopen(struct stepaf_transport *transport)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;

    tcp->agreed = false;
    if (transport->up->initiates || tcp->listener.fd >= 0)
        return STEPAF_OK;
    stepaf_status_t status = stepaf_tcp_listen(tcp);
    if (status)
        stepaf_tcp_unlisten(tcp);
    return status;
}

void stepaf_tcp_shrink(struct stepaf_transport *transport)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;

    tcp->agreed = true;
    if (!tcp->count.opening)
        stepaf_tcp_all_opened(tcp);
}

/* Describe what a link that is not up waits for. */
static void say_opening(const struct stepaf_tcp_link *link, char *reason)
{
    char address[STEPAF_TCP_ADDRESS_TEXT];

    if (!link->dial.theirs) {
        snprintf(reason, STEPAF_REASON_MAX, "it has not connected");
        return;
    }
    stepaf_tcp_address_text(&link->dial.theirs->addresses.list[link->dial.trying], link->dial.port,
                            address);
    snprintf(reason, STEPAF_REASON_MAX, "%s has not answered", address);
}

stepaf_status_t stepaf_tcp_finish_connects(struct stepaf_transport *transport, int64_t deadline_ns,
                                           int wait_ms, uint32_t *peer_p, char *reason)
{
    struct stepaf_tcp *tcp = (struct stepaf_tcp *)transport;
    uint64_t patience = ACCEPT_US * tcp->ticks_per_us;

    (void)deadline_ns;
    for (unsigned i = 0; tcp->count.opening && i < STEPS; i++)
        if (!stepaf_tcp_advance(tcp, i ? 0 : wait_ms))
            break;
    for (uint32_t p = 0; tcp->count.opening && p < tcp->n_peers; p++) {
        struct stepaf_tcp_link *link = tcp->links[p];
        if (!link || !link->opening)
            continue;
        *peer_p = p;
        say_opening(link, reason);
        if (!tcp->listener.refused_since || stepaf_ticks() - tcp->listener.refused_since < patience)
            return STEPAF_INPROGRESS;
        snprintf(reason, STEPAF_REASON_MAX, "this rank cannot accept its connection: %s",
                 stepaf_why(tcp->refused_error));
        return STEPAF_ERR_TRANSPORT;
    }
    return STEPAF_OK;
}
