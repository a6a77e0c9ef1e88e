/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs for the processes that take lost peers' places. The queue pairs of the lost peer are
 * destroyed, so that nothing that it has sent can arrive any more. The remaining completions of the
 * lost peer are taken from the completion queues while its link is dead: completions are identified
 * by peer and path, and would otherwise be taken for those of the next link. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/verbs.h"

/* The dead link stays for the holders of its posts; the posts are complete. */
static void strip(struct stepaf_verbs *verbs, struct stepaf_verbs_link *link)
{
    if (!link->is_bare)
        stepaf_verbs_qps_destroy(verbs, link->base.peer);
    link->is_bare = true;
    (void)stepaf_verbs_let_go(link, true);
}

stepaf_status_t stepaf_verbs_reopen(struct stepaf_transport *transport)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;

    if (verbs->cm.channel)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "verbs: ranks cannot return over connections of librdmacm");
    for (uint32_t p = 0; p < verbs->n_peers; p++)
        if (verbs->links[p] && verbs->links[p]->base.dead)
            strip(verbs, verbs->links[p]);
    stepaf_verbs_queues_empty(verbs);
    for (uint32_t p = 0; p < verbs->n_peers; p++) {
        if ((verbs->links[p] && !verbs->links[p]->base.dead) ||
            stepaf_verbs_qps_are_there(verbs, p))
            continue;
        if (!stepaf_verbs_qps_renew(verbs, p))
            stepaf_log_warn("verbs: no queue pairs for a returning process: %s", strerror(errno));
    }
    return STEPAF_OK;
}

/* Queue pairs were created for all peers that might need them, since it was unknown which peers
 * other transports would reach. */
void stepaf_verbs_shrink(struct stepaf_transport *transport)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;

    stepaf_verbs_cm_unlisten(verbs);
    for (uint32_t p = 0; p < verbs->n_peers; p++)
        if (!verbs->links[p] || verbs->links[p]->is_bare)
            stepaf_verbs_qps_destroy(verbs, p);
}
