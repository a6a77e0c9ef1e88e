/* SPDX-License-Identifier: Apache-2.0 */
/* In the first commit: does anything get through? A reliable datagram endpoint connects to nobody before the first
 * write, and what goes wrong then would show only in the first operation. Each side writes a hello, and a link is
 * proven where the own one is done and the peer's is here: whoever does not hear takes another transport, and the
 * other side follows. */
#include <time.h>

#include "base/fd.h"
#include "base/time.h"
#include "transport/ofi/ofi.h"

static bool gets_through(const struct stepaf_ofi_link *link)
{
    const struct stepaf_ofi_proof *proof = &link->proof;

    return proof->state != STEPAF_OFI_REFUTED && proof->sent && proof->here &&
           !link->control.pending;
}

static void say_hello(struct stepaf_ofi_link *link)
{
    struct stepaf_ofi_proof *proof = &link->proof;

    if (!proof->since_ns)
        proof->since_ns = stepaf_monotonic_ns();
    if (proof->sent || proof->state == STEPAF_OFI_REFUTED)
        return;
    stepaf_fd_begin(); /* the first write makes libfabric connect */
    proof->sent = stepaf_ofi_control(link, STEPAF_OFI_HELLO);
    (void)stepaf_fd_end(-1);
}

static bool takes_too_long(const struct stepaf_ofi *ofi, const struct stepaf_ofi_link *link)
{
    return link->proof.state == STEPAF_OFI_REFUTED ||
           stepaf_monotonic_ns() - link->proof.since_ns >=
               ofi->base.up->env->ofi_peer_timeout_us * 1000;
}

/* What was seen of a link over which nothing gets through. */
static const char *finding(const struct stepaf_ofi *ofi, const struct stepaf_ofi_link *link)
{
    const struct stepaf_ofi_proof *proof = &link->proof;

    if (proof->state == STEPAF_OFI_REFUTED)
        return ofi->f.calls->strerror(proof->error);
    if (!proof->sent)
        return "libfabric has not connected to it";
    return proof->here ? "it takes in nothing" : "it has not written";
}

stepaf_status_t stepaf_ofi_prove_links(struct stepaf_transport *transport, bool begin,
                                       uint32_t *peer_p, char *reason)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    stepaf_status_t status = STEPAF_OK;

    if (begin)
        (void)stepaf_ofi_progress(transport, 1);
    for (uint32_t p = 0; p < ofi->n_peers; p++) {
        struct stepaf_ofi_link *link = &ofi->links[p];
        if (!link->used || link->base.dead || link->proof.state == STEPAF_OFI_PROVEN)
            continue;
        if (begin)
            say_hello(link);
        if (gets_through(link)) {
            link->proof.state = STEPAF_OFI_PROVEN;
            link->heard_ns = stepaf_monotonic_ns();
        } else if (begin && takes_too_long(ofi, link)) {
            *peer_p = p;
            snprintf(reason, STEPAF_REASON_MAX,
                     "%.40s: nothing gets through: %.80s (does the network let it pass?)",
                     ofi->f.info->fabric_attr->prov_name, finding(ofi, link));
            return STEPAF_ERR_NO_TRANSPORT;
        } else {
            status = STEPAF_INPROGRESS;
        }
    }
    return status;
}

/* Links are up at once, as far as this side can say. What is left is to wait for what proves them. */
stepaf_status_t stepaf_ofi_finish_connects(struct stepaf_transport *transport, int64_t deadline_ns,
                                           int wait_ms, uint32_t *peer_p, char *reason)
{
    const struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    const struct timespec pause = {.tv_nsec = 200000};
    bool waits = false;

    (void)deadline_ns;
    (void)peer_p;
    (void)reason;
    for (uint32_t p = 0; p < ofi->n_peers; p++)
        waits |= ofi->links[p].used && !ofi->links[p].base.dead &&
                 ofi->links[p].proof.state == STEPAF_OFI_UNPROVEN;
    if (waits && wait_ms && !stepaf_ofi_progress(transport, 1))
        (void)nanosleep(&pause, NULL);
    return STEPAF_OK;
}
