/* SPDX-License-Identifier: Apache-2.0 */
/* What polling does not tell: events of devices, and peers that acknowledge nothing any more. */
#include "base/log.h"
#include "base/time.h"
#include "transport/verbs/verbs.h"

enum { LOOK_US = 10000, ASK_PER_TIMEOUT = 4 };

static struct stepaf_verbs_link *link_of(const struct stepaf_verbs *verbs, const struct ibv_qp *qp)
{
    for (unsigned i = 0; i < verbs->n_peers * verbs->n_paths; i++)
        if (verbs->qps[i] == qp)
            return verbs->links[i / verbs->n_paths];
    return NULL;
}

static void lose_rail(struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail,
                      const char *what)
{
    for (unsigned p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        for (unsigned i = 0; link && i < link->n_paths; i++)
            if (link->paths[i].rail == rail)
                stepaf_verbs_lost(link, "%s: %s", rail->name, what);
    }
}

static void take_event(struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail,
                       const struct ibv_async_event *event)
{
    const char *what = verbs->provider->event_text(event->event_type);
    struct stepaf_verbs_link *link;

    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
        link = link_of(verbs, event->element.qp);
        if (link)
            stepaf_verbs_lost(link, "%s: %s", rail->name, what);
        break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
        lose_rail(verbs, rail, what);
        break;
    case IBV_EVENT_PORT_ERR: /* what is under way is tried again for a while: it may come back */
    case IBV_EVENT_PORT_ACTIVE:
        if (event->element.port_num == rail->port)
            stepaf_log_warn("verbs: %s: %s", rail->name, what);
        break;
    default:
        stepaf_log_debug("verbs: %s: %s", rail->name, what);
    }
}

/* Whether anything asked of a path is still to come. */
static bool is_asked(const struct stepaf_verbs_path *path)
{
    return path->asked != path->done && (int32_t)(path->asked - path->done) > 0;
}

/* A peer that is there acknowledges what is written to it. Where nothing is under way that would
 * tell, write a word. */
static void look_at(struct stepaf_verbs *verbs, struct stepaf_verbs_link *link, uint64_t now)
{
    struct stepaf_verbs_path *path = &link->paths[0];
    uint64_t timeout = (uint64_t)verbs->base.host->env->verbs_peer_timeout_us * verbs->ticks_per_us;

    if (!is_asked(path)) {
        if (now - link->quiet_since < timeout / ASK_PER_TIMEOUT && link->quiet_since)
            return;
        (void)stepaf_verbs_tell(link, 0, true);
        link->quiet_since = now;
        link->quiet_done = path->done;
    } else if (path->done != link->quiet_done || !link->quiet_since) {
        link->quiet_since = now;
        link->quiet_done = path->done;
    } else if (now - link->quiet_since > timeout) {
        stepaf_verbs_lost(link, "%s: it acknowledges nothing for %lld us", path->rail->name,
                          (long long)verbs->base.host->env->verbs_peer_timeout_us);
    }
}

void stepaf_verbs_idle(struct stepaf_transport *transport)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    struct ibv_async_event event;
    uint64_t now = stepaf_ticks();

    if (now - verbs->looked < LOOK_US * verbs->ticks_per_us)
        return;
    verbs->looked = now;
    for (unsigned r = 0; r < verbs->n_rails; r++)
        while (verbs->provider->take_event(verbs->rails[r].context, &event))
            take_event(verbs, &verbs->rails[r], &event);
    for (unsigned p = 0; p < verbs->n_peers; p++)
        if (verbs->links[p] && !verbs->links[p]->base.dead)
            look_at(verbs, verbs->links[p], now);
}

/* Whether all that the link has sent has arrived; ask if nothing would tell. */
static bool is_drained(struct stepaf_verbs_link *link)
{
    bool all = true;

    for (unsigned i = 0; i < link->n_paths && !link->base.dead; i++) {
        struct stepaf_verbs_path *path = &link->paths[i];
        if (path->done == path->posted)
            continue;
        all = false;
        if (!is_asked(path))
            (void)stepaf_verbs_tell(link, i, true);
    }
    return all || link->base.dead;
}

void stepaf_verbs_drain(struct stepaf_verbs *verbs, int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + timeout_us * 1000;
    bool all = false;

    while (!all && stepaf_monotonic_ns() < deadline_ns) {
        all = true;
        for (unsigned p = 0; p < verbs->n_peers; p++)
            if (verbs->links[p] && !verbs->links[p]->base.dead && !is_drained(verbs->links[p]))
                all = false;
        if (!all)
            stepaf_verbs_sends_poll(verbs);
    }
}
