/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of links, in the commit that makes them: whether data get through. An endpoint of a
 * fabric makes no connection before its first send, and errors would show only in the first
 * operation. Each side sends a hello. A link is proven once this side's hello is complete and the
 * peer's has arrived. A side that receives no hello takes another transport, and the other side
 * follows. */
#include <time.h>

#include "base/fd.h"
#include "base/time.h"
#include "transport/fabric/link.h"

static bool gets_through(const struct stepaf_fabric_link *link)
{
    const struct stepaf_fabric_proof *proof = &link->proof;

    return proof->state != STEPAF_FABRIC_REFUTED && proof->sent && proof->here &&
           !link->control.pending;
}

static void say_hello(struct stepaf_fabric_link *link)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    struct stepaf_fabric_proof *proof = &link->proof;

    if (!proof->since_ns)
        proof->since_ns = stepaf_monotonic_ns();
    if (proof->sent || proof->state == STEPAF_FABRIC_REFUTED || (proof->answers && !proof->here))
        return;
    stepaf_fd_begin(); /* the first send makes the library connect */
    proof->sent = fabric->calls->control(link, STEPAF_FABRIC_HELLO);
    (void)stepaf_fd_end(-1);
}

static bool takes_too_long(const struct stepaf_fabric *fabric,
                           const struct stepaf_fabric_link *link)
{
    return link->proof.state == STEPAF_FABRIC_REFUTED ||
           stepaf_monotonic_ns() - link->proof.since_ns >= *fabric->timeout_us * 1000;
}

/* Return a hint for a link over which nothing gets through, if the network can be the reason. */
static const char *hint(const struct stepaf_fabric *fabric, const struct stepaf_fabric_link *link)
{
    bool is_refusal =
        link->proof.state == STEPAF_FABRIC_REFUTED && fabric->is_refusal(link->proof.error);

    return is_refusal ? "" : " (check that the network permits it)";
}

/* Return what was seen of a link over which nothing gets through. */
static const char *finding(const struct stepaf_fabric *fabric,
                           const struct stepaf_fabric_link *link)
{
    const struct stepaf_fabric_proof *proof = &link->proof;

    if (proof->state == STEPAF_FABRIC_REFUTED)
        return fabric->strerror(proof->error);
    if (!proof->sent && (!proof->answers || proof->here))
        return "the library has not connected to it";
    return proof->here ? "it accepts no data" : "it has not written";
}

stepaf_status_t stepaf_fabric_prove_links(struct stepaf_transport *transport, bool begin,
                                          uint32_t *peer_p, char *reason)
{
    struct stepaf_fabric *fabric = (struct stepaf_fabric *)transport;
    stepaf_status_t status = STEPAF_OK;

    if (begin)
        (void)transport->ops->progress(transport, 1);
    for (uint32_t p = 0; p < fabric->n_peers; p++) {
        struct stepaf_fabric_link *link = stepaf_fabric_link(fabric, p);
        if (!link->used || link->base.dead || link->proof.state == STEPAF_FABRIC_PROVEN)
            continue;
        if (begin)
            say_hello(link);
        if (gets_through(link)) {
            link->proof.state = STEPAF_FABRIC_PROVEN;
            link->heard_ns = stepaf_monotonic_ns();
            if (fabric->calls->proven)
                fabric->calls->proven(link);
        } else if (begin && takes_too_long(fabric, link)) {
            *peer_p = p;
            snprintf(reason, STEPAF_REASON_MAX, "%.40s: no data gets through: %.80s%s",
                     fabric->name, finding(fabric, link), hint(fabric, link));
            return STEPAF_ERR_NO_TRANSPORT;
        } else {
            *peer_p = p;
            status = STEPAF_INPROGRESS;
        }
    }
    return status;
}

/* Links are up immediately, as far as this side can say. What remains is to wait for their
 * proof. */
stepaf_status_t stepaf_fabric_finish_connects(struct stepaf_transport *transport,
                                              int64_t deadline_ns, int wait_ms, uint32_t *peer_p,
                                              char *reason)
{
    const struct stepaf_fabric *fabric = (struct stepaf_fabric *)transport;
    const struct timespec pause = {.tv_nsec = 200000};
    bool waits = false;

    (void)deadline_ns;
    (void)peer_p;
    (void)reason;
    for (uint32_t p = 0; p < fabric->n_peers; p++) {
        const struct stepaf_fabric_link *link = stepaf_fabric_link(fabric, p);
        waits |= link->used && !link->base.dead && link->proof.state == STEPAF_FABRIC_UNPROVEN;
    }
    if (waits && wait_ms && !transport->ops->progress(transport, 1))
        (void)nanosleep(&pause, NULL);
    return STEPAF_OK;
}
