/* SPDX-License-Identifier: Apache-2.0 */
/* Make a link from a peer's announcement: the peer's queue pairs for this rank, the address of its
 * ring, and the part of its memory to write acknowledgements to. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/failover.h"

/* Flags in a rail's second word, above the port it listens on. */
enum { HOW_CM = 1 << 16, HOW_IWARP = 1 << 17, HOW_GLOBAL = 1 << 18, HOW_V2 = 1 << 19 };

struct announced_rail {
    uint16_t lid;
    uint8_t mtu;
    uint8_t link_layer;
    bool cm;
    bool iwarp;
    bool global;
    bool v2;
    uint16_t pkey;
    uint16_t port; /* where it listens; 0: nowhere */
    union ibv_gid gid;
    uint32_t control_key;
};

/* The announcement of a rank. */
struct announced {
    uint32_t n_rails;
    uint32_t n_qps;
    uint32_t n_peers;
    uint32_t receives;
    uint32_t psn;
    uint64_t control;
    uint32_t stride;
    uint32_t acks;
    uint32_t ring;
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];
    struct announced_rail rails[STEPAF_VERBS_RAILS_MAX];
    const uint8_t *qpns; /* n_peers times n_rails times n_qps */
};

void stepaf_verbs_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)transport;

    stepaf_pack_u32(pack, verbs->n_rails);
    stepaf_pack_u32(pack, verbs->n_qps);
    stepaf_pack_u32(pack, verbs->n_peers);
    stepaf_pack_u32(pack, verbs->qp.receives);
    stepaf_pack_u32(pack, verbs->qp.psn);
    stepaf_pack_u64(pack, (uintptr_t)verbs->control.base);
    stepaf_pack_u32(pack, verbs->control.layout.stride);
    stepaf_pack_u32(pack, verbs->control.layout.acks_in);
    stepaf_pack_u32(pack, verbs->control.layout.ring);
    stepaf_pack_bytes(pack, verbs->secret, sizeof(verbs->secret));
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        const struct stepaf_verbs_rail *rail = &verbs->rails[r];
        stepaf_pack_u32(pack, rail->port.lid | (uint32_t)rail->port.mtu << 16 |
                                  (uint32_t)rail->port.link_layer << 24);
        stepaf_pack_u32(pack, rail->listens | (rail->cm ? HOW_CM : 0u) |
                                  (rail->iwarp ? HOW_IWARP : 0u) |
                                  (rail->global ? HOW_GLOBAL : 0u) | (rail->v2 ? HOW_V2 : 0u));
        stepaf_pack_bytes(pack, rail->port.gid.raw, sizeof(rail->port.gid.raw));
        stepaf_pack_u32(pack, rail->control_mr->rkey);
        stepaf_pack_u32(pack, rail->port.pkey);
    }
    for (unsigned i = 0; i < verbs->n_peers * verbs->n_paths; i++)
        stepaf_pack_u32(pack, verbs->qps[i] ? verbs->qps[i]->qp_num : 0);
}

/* Returns false if malformed. */
static bool unpack_rail(struct stepaf_unpack *unpack, struct announced_rail *rail)
{
    uint32_t facts = stepaf_unpack_u32(unpack);
    uint32_t how = stepaf_unpack_u32(unpack);
    const void *gid = stepaf_unpack_bytes(unpack, sizeof(rail->gid.raw));

    rail->lid = (uint16_t)facts;
    rail->mtu = (uint8_t)(facts >> 16);
    rail->link_layer = (uint8_t)(facts >> 24);
    rail->port = (uint16_t)how;
    rail->cm = how & HOW_CM;
    rail->iwarp = how & HOW_IWARP;
    rail->global = how & HOW_GLOBAL;
    rail->v2 = how & HOW_V2;
    if (!gid || rail->mtu < IBV_MTU_256 || rail->mtu > IBV_MTU_4096)
        return false;
    memcpy(rail->gid.raw, gid, sizeof(rail->gid.raw));
    rail->control_key = stepaf_unpack_u32(unpack);
    rail->pkey = (uint16_t)stepaf_unpack_u32(unpack);
    return true;
}

/* Returns false if malformed. */
static bool verbs_unpack_address(struct stepaf_unpack *unpack, struct announced *announced_p)
{
    announced_p->n_rails = stepaf_unpack_u32(unpack);
    announced_p->n_qps = stepaf_unpack_u32(unpack);
    announced_p->n_peers = stepaf_unpack_u32(unpack);
    announced_p->receives = stepaf_unpack_u32(unpack);
    announced_p->psn = stepaf_unpack_u32(unpack);
    announced_p->control = stepaf_unpack_u64(unpack);
    announced_p->stride = stepaf_unpack_u32(unpack);
    announced_p->acks = stepaf_unpack_u32(unpack);
    announced_p->ring = stepaf_unpack_u32(unpack);
    const void *secret = stepaf_unpack_bytes(unpack, sizeof(announced_p->secret));
    if (!secret || !announced_p->n_rails || announced_p->n_rails > STEPAF_VERBS_RAILS_MAX ||
        !announced_p->n_qps || announced_p->n_qps > STEPAF_VERBS_QPS_MAX)
        return false;
    memcpy(announced_p->secret, secret, sizeof(announced_p->secret));
    for (unsigned r = 0; r < announced_p->n_rails; r++)
        if (!unpack_rail(unpack, &announced_p->rails[r]))
            return false;
    uint64_t bytes = (uint64_t)announced_p->n_peers * announced_p->n_rails * announced_p->n_qps * 4;
    if ((uint64_t)(unpack->end - unpack->at) < bytes)
        return false;
    announced_p->qpns = stepaf_unpack_bytes(unpack, bytes);
    return !unpack->failed;
}

/* Return whether the peer has a queue pair for each path to this rank. */
static bool has_qpns(const struct announced *announced, uint32_t slot)
{
    uint32_t n = announced->n_rails * announced->n_qps, qpn;

    for (uint32_t i = 0; i < n; i++) {
        memcpy(&qpn, announced->qpns + ((size_t)slot * n + i) * 4, sizeof(qpn));
        if (!qpn)
            return false;
    }
    return true;
}

/* Return why the P_Keys of the two ends do not match; NULL if they do. The upper bit marks full
 * members. */
static const char *pkey_misfit(uint16_t mine, uint16_t its)
{
    if (!mine || !its)
        return NULL;
    if ((mine ^ its) & 0x7fff)
        return "the two ends are in different partitions: STEPAF_VERBS_PKEY chooses";
    return (mine | its) & 0x8000 ? NULL : "both ends are only limited members of the partition";
}

/* Return why the two ends of a rail do not match; NULL if they do. */
static const char *misfit(const struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *mine,
                          const struct announced_rail *its)
{
    bool is_ethernet = mine->port.link_layer == IBV_LINK_LAYER_ETHERNET;

    if (its->link_layer != mine->port.link_layer)
        return "one end is InfiniBand, the other is not";
    if (its->iwarp != mine->iwarp)
        return "one end is iWARP, the other is not";
    if (its->cm != mine->cm)
        return "one end is connected by librdmacm, the other is not";
    if (mine->cm && verbs->base.up->initiates && !its->port)
        return "it listens on no port";
    if ((mine->cm || is_ethernet) &&
        stepaf_verbs_is_ipv4(&its->gid) != stepaf_verbs_is_ipv4(&mine->port.gid))
        return "one end has an address of IPv4, the other of IPv6";
    if (!mine->cm && its->v2 != mine->v2)
        return "one end is RoCE v1, the other v2: STEPAF_VERBS_GID_INDEX chooses";
    if (!mine->cm && !is_ethernet &&
        mine->port.gid.global.subnet_prefix != its->gid.global.subnet_prefix)
        return "it is on another subnet";
    return mine->cm ? NULL : pkey_misfit(mine->port.pkey, its->pkey);
}

/* Return whether the two ranks can communicate; if not, @a reason says why. */
static bool suits(const struct stepaf_verbs *verbs, const struct announced *announced,
                  uint32_t slot, char *reason)
{
    if (announced->n_qps != verbs->n_qps || announced->receives != verbs->qp.receives ||
        slot >= announced->n_peers) {
        snprintf(reason, STEPAF_REASON_MAX, "its announcement does not fit this rank's settings");
        return false;
    }
    for (unsigned r = 0; r < announced->n_rails && r < verbs->n_rails; r++) {
        const char *why = misfit(verbs, &verbs->rails[r], &announced->rails[r]);
        if (!why)
            continue;
        snprintf(reason, STEPAF_REASON_MAX, "rail %u (%.40s): %s", r, verbs->rails[r].name, why);
        return false;
    }
    return true;
}

/* Format the address of the first rail: an IP address, or, on InfiniBand, a LID. */
static void format_rail_address(const struct stepaf_verbs_rail *rail,
                                char text_p[STEPAF_LINK_ADDRESS])
{
    bool is_ipv4 = stepaf_verbs_is_ipv4(&rail->port.gid);

    if (rail->port.link_layer != IBV_LINK_LAYER_ETHERNET)
        snprintf(text_p, STEPAF_LINK_ADDRESS, "lid %u", rail->port.lid);
    else
        (void)inet_ntop(is_ipv4 ? AF_INET : AF_INET6, &rail->port.gid.raw[is_ipv4 ? 12 : 0], text_p,
                        STEPAF_LINK_ADDRESS);
}

static void link_free(struct stepaf_verbs_link *link)
{
    free(link->calls);
    free(link->failover);
    free(link->imms);
    free(link->held_upto);
    free(link);
}

static struct stepaf_verbs_link *verbs_link_make(struct stepaf_verbs *verbs,
                                                 const struct stepaf_peer_facts *facts,
                                                 unsigned n_paths)
{
    struct stepaf_verbs_link *link =
        calloc(1, sizeof(*link) + n_paths * sizeof(struct stepaf_verbs_path));

    if (!link)
        return NULL;
    link->base = (struct stepaf_link){
        .ops = verbs->base.ops, .transport = &verbs->base, .peer = facts->peer};
    snprintf(link->base.name, sizeof(link->base.name), "verbs;%.24s", verbs->rails[0].name);
    format_rail_address(&verbs->rails[0], link->base.address);
    link->n_paths = n_paths;
    link->quick = n_paths == 1 && verbs->rails[0].imm;
    link->wr_id = stepaf_verbs_wr_id(facts->peer, 0, 0);
    link->slot = facts->index_at_peer;
    if (verbs->cm.channel)
        link->calls = calloc(n_paths, sizeof(link->calls[0]));
    link->imms = calloc(verbs->qp.receives, sizeof(link->imms[0]));
    link->held_upto = calloc((size_t)STEPAF_VERBS_HELD_POSTS * n_paths, sizeof(link->held_upto[0]));
    if (n_paths > verbs->n_qps)
        link->failover = stepaf_verbs_failover_make(verbs);
    if (link->imms && link->held_upto && !link->calls == !verbs->cm.channel &&
        (link->failover || n_paths == verbs->n_qps))
        return link;
    link_free(link);
    return NULL;
}

/* Set the pointers to the places of this pair of ranks at both ends. */
static void point(const struct stepaf_verbs *verbs, struct stepaf_verbs_link *link,
                  const struct announced *announced, uint32_t slot)
{
    uint8_t *mine = verbs->control.base + (size_t)link->base.peer * verbs->control.layout.stride;
    uint64_t its = announced->control + (uint64_t)slot * announced->stride;

    link->lead = &link->paths[0];
    link->held_from = link->failover ? 1 : verbs->rails[0].max.inline_bytes + 1;
    for (unsigned i = 0; i < link->n_paths; i++) {
        struct stepaf_verbs_path *path = &link->paths[i];
        path->rail_index = (uint8_t)(i / verbs->n_qps);
        path->rail = (struct stepaf_verbs_rail *)&verbs->rails[path->rail_index];
        path->wr_id = stepaf_verbs_wr_id(link->base.peer, i, 0);
        path->qp = verbs->qps[link->base.peer * verbs->n_paths + i];
        path->peer_control_key = announced->rails[i / verbs->n_qps].control_key;
        path->tx_ack =
            (const _Atomic uint32_t *)(mine + verbs->control.layout.acks_in) + (size_t)i * 2;
        path->rx_ack = (uint32_t *)(mine + verbs->control.layout.acks_out) + (size_t)i * 2;
        path->rx_ack_at = its + announced->acks + (uint64_t)i * 8;
        if (i % verbs->n_qps)
            continue;
        uint32_t at = path->rail_index * verbs->qp.receives;
        path->ring = (struct stepaf_verbs_slot *)(mine + verbs->control.layout.ring) + at;
        path->ring_at = its + announced->ring + (uint64_t)at * sizeof(path->ring[0]);
        if (verbs->control.layout.stride > verbs->control.layout.send_ring)
            path->send_ring =
                (struct stepaf_verbs_slot *)(mine + verbs->control.layout.send_ring) + at;
    }
}

/* Bring one queue pair up; librdmacm connects its queue pairs later, all together. */
static bool path_connect(struct stepaf_verbs *verbs, struct stepaf_verbs_link *link, unsigned i,
                         const struct announced *announced, uint32_t slot, char *reason)
{
    const struct announced_rail *its = &announced->rails[i / verbs->n_qps];
    struct stepaf_verbs_path *path = &link->paths[i];
    uint32_t at = slot * announced->n_rails * announced->n_qps + i;
    struct stepaf_verbs_far far = {
        .lid = its->lid, .mtu = its->mtu, .global = its->global, .gid = its->gid};
    const char *step = "preparing";
    int error;

    if (path->rail->cm) {
        stepaf_verbs_cm_expect(link, i, &its->gid, its->port);
        return true;
    }
    memcpy(&far.qpn, announced->qpns + (size_t)at * 4, sizeof(far.qpn));
    far.psn = (announced->psn + far.qpn) & 0xffffff;
    error = stepaf_verbs_qp_prepare(verbs, path);
    if (!error) {
        step = "posting receives";
        error = stepaf_verbs_refill(link, path, verbs->qp.receives);
    }
    if (!error)
        error = stepaf_verbs_qp_connect(verbs, path, &far, &step);
    if (!error) {
        step = "choosing the bond's port";
        error = stepaf_verbs_lag_apply(verbs, link, i);
    }
    if (error)
        snprintf(reason, STEPAF_REASON_MAX, "%.40s, queue pair 0x%x: %s: %.60s", path->rail->name,
                 path->qp->qp_num, step, strerror(error));
    return !error;
}

stepaf_status_t stepaf_verbs_connect(struct stepaf_transport *transport,
                                     const struct stepaf_peer_facts *facts,
                                     struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                     char *reason)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    struct announced announced;

    *link_p = NULL;
    if (!verbs_unpack_address(unpack, &announced)) {
        snprintf(reason, STEPAF_REASON_MAX, "its announcement is malformed");
        return STEPAF_OK;
    }
    if (!suits(verbs, &announced, facts->index_at_peer, reason))
        return STEPAF_OK;
    if (!stepaf_verbs_qps_are_there(verbs, facts->peer) ||
        !has_qpns(&announced, facts->index_at_peer)) {
        snprintf(reason, STEPAF_REASON_MAX,
                 "one of the ends has no queue pairs for a returning process");
        return STEPAF_OK;
    }
    unsigned n_rails = announced.n_rails < verbs->n_rails ? announced.n_rails : verbs->n_rails;
    struct stepaf_verbs_link *link = verbs_link_make(verbs, facts, n_rails * verbs->n_qps);
    if (!link)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    memcpy(link->secret, announced.secret, sizeof(link->secret));
    point(verbs, link, &announced, facts->index_at_peer);
    verbs->links[facts->peer] = link;
    verbs->quick = verbs->quick || link->quick;
    verbs->n_links++;
    for (unsigned i = 0; i < link->n_paths; i++)
        if (!path_connect(verbs, link, i, &announced, facts->index_at_peer, reason)) {
            stepaf_verbs_disconnect(&link->base);
            return STEPAF_OK;
        }
    *link_p = &link->base;
    return STEPAF_OK;
}

void stepaf_verbs_disconnect(struct stepaf_link *base)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)base;
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);

    stepaf_verbs_cm_hang_up(link);
    if (!link->is_bare)
        stepaf_verbs_qps_destroy(verbs, base->peer);
    stepaf_verbs_cm_forget(link);
    (void)stepaf_verbs_let_go(link, true);
    /* Nothing writes there now, and the counts of the next link start at 0. */
    memset(verbs->control.base + (size_t)base->peer * verbs->control.layout.stride, 0,
           verbs->control.layout.stride);
    verbs->links[base->peer] = NULL;
    verbs->n_links--;
    link_free(link);
}
