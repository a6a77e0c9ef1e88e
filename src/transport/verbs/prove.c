/* SPDX-License-Identifier: Apache-2.0 */
/* Test, in the commit that makes a link, whether data gets through. Two queue pairs are connected without a
 * packet on the wire, so a network that blocks RDMA would show only in the first operation. A word
 * is written on each path, as check_peers does later; a live peer acknowledges it. A connection
 * through librdmacm has already crossed the network. */
#include <stdio.h>

#include "base/time.h"
#include "transport/verbs/cm.h"

/* One path is enough: other silent paths are found later, and closed then. */
static bool is_heard(const struct stepaf_verbs_link *link)
{
    if (link->proof == STEPAF_VERBS_REFUTED) /* a failed request also counts as done */
        return false;
    for (unsigned i = 0; i < link->n_paths; i++)
        if (link->calls || (link->paths[i].wr.done && !link->paths[i].closed))
            return true;
    return false;
}

static void begin_proof(struct stepaf_verbs_link *link)
{
    link->proof = STEPAF_VERBS_ASKED;
    link->asked_at = stepaf_ticks();
    for (unsigned i = 0; i < link->n_paths; i++)
        (void)stepaf_verbs_tell(link, &link->paths[i], true);
}

/* Return whether the link must use another transport. */
static bool is_silent_for_long(const struct stepaf_verbs *verbs,
                               const struct stepaf_verbs_link *link)
{
    uint64_t timeout_us = (uint64_t)verbs->base.up->env->verbs_peer_timeout_us;

    return link->proof == STEPAF_VERBS_REFUTED ||
           stepaf_ticks() - link->asked_at >= timeout_us * verbs->ticks_per_us;
}

stepaf_status_t stepaf_verbs_prove_links(struct stepaf_transport *transport, bool begin,
                                         uint32_t *peer_p, char *reason)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    stepaf_status_t status = STEPAF_OK;

    if (begin)
        stepaf_verbs_sends_note(verbs); /* links that were proven before may have messages */
    for (uint32_t p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        if (!link || link->base.dead || link->proof == STEPAF_VERBS_PROVEN)
            continue;
        if (begin && link->proof == STEPAF_VERBS_UNPROVEN)
            begin_proof(link);
        if (is_heard(link)) {
            link->proof = STEPAF_VERBS_PROVEN;
        } else if (begin && is_silent_for_long(verbs, link)) {
            *peer_p = p;
            snprintf(reason, STEPAF_REASON_MAX,
                     "%.40s: no data gets through: check that the network permits RDMA (UDP port "
                     "4791, VLAN, MTU)",
                     link->paths[0].rail->name);
            return STEPAF_ERR_NO_TRANSPORT;
        } else {
            *peer_p = p;
            status = STEPAF_INPROGRESS;
        }
    }
    return status;
}
