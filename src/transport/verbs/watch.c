/* SPDX-License-Identifier: Apache-2.0 */
/* Watch for trouble that polling does not show: events of devices, and peers that no longer
 * acknowledge. */
#include "base/log.h"
#include "base/time.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/failover.h"
#include "transport/verbs/rail.h"

enum { LOOK_US = 10000, ASK_PER_TIMEOUT = 4 };

/* Handle a queue pair in error; @a fatal: another rail would fail as well. */
static void lose_pair(struct stepaf_verbs *verbs, const struct ibv_qp *qp, bool fatal,
                      const char *what)
{
    for (unsigned i = 0; i < verbs->n_peers * verbs->n_paths; i++) {
        struct stepaf_verbs_link *link = verbs->links[i / verbs->n_paths];
        if (verbs->qps[i] != qp || !link || i % verbs->n_paths >= link->n_paths)
            continue;
        struct stepaf_verbs_path *path = &link->paths[i % verbs->n_paths];
        if (!fatal)
            stepaf_verbs_path_lost(link, path, "%s", what);
        else if (!path->closed)
            stepaf_verbs_lost(link, "%s: %s", path->rail->name, what);
    }
}

/* Handle a rail in error; @a fatal: lose the link also if there is no other rail. */
static void lose_rail(struct stepaf_verbs *verbs, unsigned rail, bool fatal, const char *what)
{
    for (unsigned p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        if (!link || rail * verbs->n_qps >= link->n_paths)
            continue;
        if (!stepaf_verbs_failover_close(link, rail, what) && fatal)
            stepaf_verbs_lost(link, "%s: %s", verbs->rails[rail].name, what);
    }
}

/* Describe, as text, how the address that peers send to has changed; NULL if it has not. */
static const char *address_change(const struct stepaf_verbs *verbs,
                                  const struct stepaf_verbs_rail *rail)
{
    struct ibv_port_attr port;

    if (rail->port.link_layer == IBV_LINK_LAYER_ETHERNET)
        return stepaf_verbs_gid_change(verbs, rail);
    return !verbs->provider->query_port(rail->context, rail->port.number, &port) &&
                   port.lid != rail->port.lid
               ? "the LID that peers send to has changed"
               : NULL;
}

/* Record trouble with the port or its address. If there is another rail, operations in flight
 * continue there immediately. The last rail is retried for a while, since it may recover. */
static void take_trouble(struct stepaf_verbs *verbs, unsigned index, const char *trouble)
{
    struct stepaf_verbs_rail *rail = &verbs->rails[index];

    rail->trouble = trouble;
    if (!trouble)
        return;
    stepaf_log_warn("verbs: %s: %s", rail->name, trouble);
    lose_rail(verbs, index, false, trouble);
}

static void take_event(struct stepaf_verbs *verbs, unsigned index,
                       const struct ibv_async_event *event)
{
    const struct stepaf_verbs_rail *rail = &verbs->rails[index];
    const char *what = verbs->provider->event_text(event->event_type);

    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_PATH_MIG_ERR:
        lose_pair(verbs, event->element.qp, false, what);
        break;
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        lose_pair(verbs, event->element.qp, true, what);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        verbs->rails[index].fatal = true;
        lose_rail(verbs, index, true, what);
        break;
    case IBV_EVENT_CQ_ERR:
        lose_rail(verbs, index, true, what);
        break;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
        if (event->element.port_num != rail->port.number)
            break;
        if (event->event_type == IBV_EVENT_PORT_ERR) {
            take_trouble(verbs, index, what);
            break;
        }
        stepaf_log_warn("verbs: %s: %s", rail->name, what);
        take_trouble(verbs, index, address_change(verbs, rail));
        break;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        if (event->element.port_num == rail->port.number)
            take_trouble(verbs, index, address_change(verbs, rail));
        break;
    default:
        stepaf_log_debug("verbs: %s: %s", rail->name, what);
    }
}

/* Return whether a signaled request of a path is still in flight. */
static bool is_asked(const struct stepaf_verbs_path *path)
{
    return path->wr.asked != path->wr.done && (int32_t)(path->wr.asked - path->wr.done) > 0;
}

static void say_silent(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                       int64_t timeout_us)
{
    stepaf_verbs_path_lost(link, path, "it has acknowledged nothing for %lld us%s",
                           (long long)timeout_us,
                           path->wr.done ? ""
                                         : ", and nothing before: check that the network permits "
                                           "RDMA (UDP port 4791, VLAN, MTU)");
}

/* A live peer acknowledges what is written to it. If no request in flight would report that, write
 * a word, so often that a lost peer is found within the timeout. @a anew: the last check is so long
 * ago that later arrivals may still be in the queue. */
static void watch_path(struct stepaf_verbs *verbs, struct stepaf_verbs_link *link,
                       struct stepaf_verbs_path *path, uint64_t now, bool anew)
{
    int64_t timeout_us = verbs->base.up->env->verbs_peer_timeout_us;
    uint64_t ask_after = (uint64_t)timeout_us / ASK_PER_TIMEOUT * verbs->ticks_per_us;
    bool asked = is_asked(path);

    if (path->closed)
        return;
    /* A request signaled only now has not been waited for, however long ago the last check was. */
    if (!path->wr.quiet_since || path->wr.done != path->wr.quiet_done ||
        (asked && !path->was_asked) || anew) {
        path->wr.quiet_since = now;
        path->wr.quiet_done = path->wr.done;
        path->was_asked = asked;
    } else if (!asked) {
        if (now - path->wr.quiet_since < ask_after)
            return;
        (void)stepaf_verbs_tell(link, path, true);
        path->wr.quiet_since = now;
        path->was_asked = is_asked(path);
    } else if (now - path->wr.quiet_since > (ASK_PER_TIMEOUT - 1) * ask_after) {
        stepaf_verbs_sends_note(verbs); /* nobody may have polled for as long */
        if (path->wr.done == path->wr.quiet_done)
            say_silent(link, path, timeout_us);
    }
}

void stepaf_verbs_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    struct ibv_async_event event;
    uint64_t now = stepaf_ticks(), ago = now - verbs->looked;

    if (ago < LOOK_US * verbs->ticks_per_us)
        return;
    verbs->looked = now;
    bool anew = ago > 2 * LOOK_US * verbs->ticks_per_us &&
                ago > (uint64_t)transport->up->env->verbs_peer_timeout_us / 2 * verbs->ticks_per_us;
    for (unsigned r = 0; r < verbs->n_rails; r++)
        while (verbs->provider->take_event(verbs->rails[r].context, &event))
            take_event(verbs, r, &event);
    if (verbs->cm.channel)
        stepaf_verbs_cm_watch(verbs);
    for (unsigned p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        for (unsigned i = 0; link && !link->base.dead && i < link->n_paths; i++)
            watch_path(verbs, link, &link->paths[i], now, anew);
    }
}

/* Return whether the peer has acknowledged what a path had posted when settling began; write a word
 * if no request would report it. The device no longer uses what a dead rail still had. */
static bool is_settled(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path)
{
    if (path->closed || (int32_t)(path->wr.done - path->settle) >= 0)
        return true;
    if (!is_asked(path))
        (void)stepaf_verbs_tell(link, path, true);
    return false;
}

bool stepaf_verbs_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    bool quiet = true;

    for (uint32_t p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        /* Posts that a dead rail has lost are read again, unless this end closes. */
        bool resends = link && link->halt >= STEPAF_VERBS_RESENDS && !verbs->closing;
        for (unsigned i = 0; link && !link->base.dead && i < link->n_paths; i++) {
            struct stepaf_verbs_path *path = &link->paths[i];
            if (begin || resends)
                path->settle = path->wr.posted;
            if (is_settled(link, path) && !resends)
                continue;
            quiet = false;
            *peer_p = p;
        }
    }
    return quiet;
}

void stepaf_verbs_drain(struct stepaf_verbs *verbs, int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);
    bool more = true;
    uint32_t peer;

    for (bool begin = true; more && stepaf_monotonic_ns() < deadline_ns; begin = false) {
        more = !stepaf_verbs_is_quiet(&verbs->base, begin, &peer);
        if (more)
            stepaf_verbs_sends_poll(verbs);
    }
}
