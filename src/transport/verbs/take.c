/* SPDX-License-Identifier: Apache-2.0 */
/* Completions of sends, of receives, and of failed requests. */
#include "transport/verbs/failover.h"

/* Note that a send, and all sends before it on its queue pair, are complete. */
static unsigned send_ended(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                           uint64_t wr_id)
{
    uint32_t count = (uint32_t)wr_id;

    if (count - path->wr.done <= path->wr.posted - path->wr.done)
        path->wr.done = count;
    return link->n_held && link->halt != STEPAF_VERBS_HALTED ? stepaf_verbs_let_go(link, false) : 0;
}

/* Return whether the error is a fault of one of the two ends, so that another rail would fail as
 * well. */
static bool is_mistake(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
        return true;
    default:
        return false;
    }
}

/* Handle a work request that has failed, or was flushed after another failure. */
static __attribute__((noinline, cold)) unsigned failed(struct stepaf_verbs_link *link,
                                                       struct stepaf_verbs_path *path,
                                                       const struct ibv_wc *wc)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    const char *what = wc->status == IBV_WC_WR_FLUSH_ERR ? "closed after an error of either end"
                                                         : verbs->provider->status_text(wc->status);

    /* The queue pairs of a dead link may no longer exist. */
    if (!link->base.dead && is_mistake(wc->status) && !path->closed)
        stepaf_verbs_lost(link, "%s, queue pair 0x%x: %s", path->rail->name, path->qp->qp_num,
                          what);
    else
        stepaf_verbs_path_lost(link, path, "%s", what);
    if (!(wc->wr_id & stepaf_verbs_is_receive))
        return send_ended(link, path, wc->wr_id);
    path->rx.flushed += path->closed;
    return 0;
}

__attribute__((noinline)) unsigned stepaf_verbs_take(struct stepaf_verbs *verbs,
                                                     const struct ibv_wc *wc)
{
    bool is_receive = wc->wr_id & stepaf_verbs_is_receive;
    uint64_t peer = stepaf_verbs_peer_of(wc->wr_id);
    unsigned index = (unsigned)(wc->wr_id >> STEPAF_VERBS_PATH_SHIFT & 0xff);
    struct stepaf_verbs_link *link = peer < verbs->n_peers ? verbs->links[peer] : NULL;

    if (__builtin_expect(!link || index >= link->n_paths, 0))
        return 0; /* of a link that was given up */
    struct stepaf_verbs_path *path = &link->paths[index];
    if (__builtin_expect(wc->status != IBV_WC_SUCCESS, 0))
        return failed(link, path, wc);
    if (!is_receive)
        return send_ended(link, path, wc->wr_id);
    if (__builtin_expect(link->base.dead, 0))
        return 0;
    stepaf_verbs_arrived(link, path, wc);
    return 1;
}
