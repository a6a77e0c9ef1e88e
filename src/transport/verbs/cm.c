/* SPDX-License-Identifier: Apache-2.0 */
/* Connections through librdmacm: the addresses of rails, listening, and the calls of a link. */
#include "transport/verbs/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/env_text.h"
#include "base/error.h"

enum { LISTEN_TRIES = 16 };

/* Return whether the rail's entry of the GID table is an IP address that other ranks can use. */
static bool is_address(const struct stepaf_verbs_rail *rail)
{
    static const union ibv_gid none;

    return !rail->iwarp && rail->port.link_layer == IBV_LINK_LAYER_ETHERNET &&
           !stepaf_verbs_is_link_local(&rail->port.gid) &&
           memcmp(&rail->port.gid, &none, sizeof(none)) != 0;
}

stepaf_status_t stepaf_verbs_cm_rail(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail)
{
    const struct stepaf_verbs_cm_ops *ops = verbs->provider->cm;

    if (!ops->open)
        return stepaf_error_set(
            STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
            "verbs: %s requires librdmacm to connect, but this library was built without it",
            rail->name);
    if (!stepaf_proof_ready())
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "verbs: %s: cannot initialize libsodium", rail->name);
    if (!verbs->cm.channel)
        verbs->cm.channel = ops->open();
    if (!verbs->cm.channel)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "verbs: %s: librdmacm cannot be used: %s (is rdma_ucm loaded, and "
                                "is /dev/infiniband/rdma_cm there?)",
                                rail->name, strerror(errno));
    rail->cm = true;
    if (is_address(rail))
        return STEPAF_OK;
    int error = ops->address(verbs->cm.channel, rail->context, rail->port.number, &rail->port.gid);
    if (error)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "verbs: %s: no IP address for librdmacm: %s", rail->name,
                                error == ENODEV ? "its network interface has none"
                                                : strerror(error));
    return STEPAF_OK;
}

/* Listen on one port. Return 0 or errno. */
static int listen_at(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail, uint16_t port)
{
    const struct stepaf_verbs_cm_ops *ops = verbs->provider->cm;
    struct rdma_cm_id *id = ops->create(verbs->cm.channel, NULL, 0);
    int error;

    if (!id)
        return errno;
    error = ops->listen(id, &rail->port.gid, &port);
    if (error) {
        ops->destroy(id);
        return error;
    }
    rail->listener = id;
    rail->listens = port;
    return 0;
}

/* On iWARP, a free port from librdmacm may be taken: its ports are TCP ports as well. */
static int listen_on(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail, uint16_t first,
                     uint16_t last)
{
    int error = EADDRINUSE;

    for (int i = 0; !first && i < LISTEN_TRIES && error == EADDRINUSE; i++)
        error = listen_at(verbs, rail, 0);
    for (uint32_t port = first; first && port <= last && error == EADDRINUSE; port++)
        error = listen_at(verbs, rail, (uint16_t)port);
    return error;
}

stepaf_status_t stepaf_verbs_cm_listen(struct stepaf_verbs *verbs)
{
    const char *ports = verbs->base.up->env->net_ports;
    uint16_t first, last;

    if (verbs->base.up->initiates || !verbs->cm.channel)
        return STEPAF_OK;
    if (!stepaf_env_ports(ports, &first, &last))
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_PORTS: \"%.32s\" is not first-last, such as "
                                "20000-20999",
                                ports);
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        struct stepaf_verbs_rail *rail = &verbs->rails[r];
        int error = rail->cm ? listen_on(verbs, rail, first, last) : 0;
        if (error)
            return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                    "verbs: %s: cannot listen%s%.32s: %s", rail->name,
                                    first ? " on any port of STEPAF_NET_PORTS=" : "", ports,
                                    strerror(error));
    }
    return STEPAF_OK;
}

void stepaf_verbs_cm_unlisten(struct stepaf_verbs *verbs)
{
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        struct stepaf_verbs_rail *rail = &verbs->rails[r];
        if (rail->listener)
            verbs->provider->cm->destroy(rail->listener);
        rail->listener = NULL;
        rail->listens = 0;
    }
}

void stepaf_verbs_cm_close(struct stepaf_verbs *verbs)
{
    stepaf_verbs_cm_unlisten(verbs);
    if (verbs->cm.channel)
        verbs->provider->cm->close(verbs->cm.channel);
    verbs->cm.channel = NULL;
}

void stepaf_verbs_cm_expect(struct stepaf_verbs_link *link, unsigned path,
                            const union ibv_gid *address, uint16_t port)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_call *call = &link->calls[path];

    *call = (struct stepaf_verbs_call){
        .link = link, .address = *address, .port = port, .index = (uint8_t)path};
    stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_IDLE);
    if (!verbs->base.up->initiates || link->paths[path].rail->iwarp)
        stepaf_verbs_call_await(call);
    verbs->cm.next = 0;            /* it may come late, after other calls were begun */
    if (verbs->base.up->initiates) /* not all ranks begin with the same peer */
        verbs->cm.first = link->slot % verbs->n_peers;
}

void stepaf_verbs_cm_hang_up(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);

    for (unsigned i = 0; link->calls && i < link->n_paths; i++) {
        struct stepaf_verbs_call *call = &link->calls[i];
        if (call->state == STEPAF_VERBS_CALL_NONE)
            continue;
        if (call->state >= STEPAF_VERBS_CALL_ACCEPTED && call->state <= STEPAF_VERBS_CALL_UP)
            verbs->provider->cm->disconnect(call->id);
        stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_NONE);
    }
}

void stepaf_verbs_cm_forget(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);

    for (unsigned i = 0; link->calls && i < link->n_paths; i++)
        if (link->calls[i].id)
            verbs->provider->cm->destroy(link->calls[i].id);
    free(link->calls);
    link->calls = NULL;
}
