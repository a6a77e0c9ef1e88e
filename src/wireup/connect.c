/* SPDX-License-Identifier: Apache-2.0 */
/* From adverts to links: opens the transports and connects each peer by the best one that reaches
 * it. */
#include "wireup/connect.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/key.h"
#include "core/msg_log.h"
#include "core/peer.h"
#include "core/peer_renew.h"
#include "core/region.h"
#include "core/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/log.h"
#include "boot/member_net.h"
#include "device/gpu.h"
#include "wireup/import.h"

enum { WAIT_POLLS = 128 /* a few microseconds */, GONE_NS = 500000000, LOOK_NS = 200000 };

/* Set the polls per turn. Several transports are polled round-robin, so none may be polled for
 * long. */
static void set_wait_polls(struct stepaf_ctx *ctx)
{
    ctx->polling.at_once =
        ctx->threads.many || ctx->polling.oversubscribed || ctx->net.n_transports > 1 ? 1
                                                                                      : WAIT_POLLS;
}

/* Append "name: reason" to a list of refusals; without a name, append another list. */
static void add_refusal(char list[STEPAF_REASON_MAX], const char *name, const char *reason)
{
    size_t used = strlen(list);

    int length = snprintf(list + used, STEPAF_REASON_MAX - used, "%s%s%s%s", used ? "; " : "", name,
                          name[0] ? ": " : "", reason);
    stepaf_mark_cut(list + used, STEPAF_REASON_MAX - used, length);
}

/* Close a transport that has no links. */
static void shut(struct stepaf_ctx *ctx, struct stepaf_transport *transport)
{
    for (uint32_t i = 0; i < ctx->memory.n_regions; i++) {
        transport->ops->dereg_mem(transport, &ctx->memory.regions[i]->mem);
        if (ctx->memory.regions[i]->bounce)
            transport->ops->dereg_mem(transport, &ctx->memory.regions[i]->bounce->mem);
    }
    transport->ops->close(transport);
}

/* Open a transport, and register the existing memory with it. */
static stepaf_status_t transport_open(struct stepaf_ctx *ctx, unsigned index,
                                      struct stepaf_transport **transport_p)
{
    const struct stepaf_transport_ops *ops = &ctx->net.ops[index];

    stepaf_fd_begin(); /* for the libraries that the transport uses */
    stepaf_status_t status = ops->open(&ctx->up, ctx->n_peers, transport_p);
    (void)stepaf_fd_end(-1);
    if (!status) {
        (*transport_p)->ops = ops;
        (*transport_p)->index = index;
    }
    for (uint32_t i = 0; !status && i < ctx->memory.n_regions; i++) {
        if (ctx->memory.regions[i]->mem.kind != STEPAF_MEM_HOST)
            continue;
        status = ops->reg_mem(*transport_p, &ctx->memory.regions[i]->mem);
        if (status) {
            stepaf_error_t error = *stepaf_last_error();
            shut(ctx, *transport_p);
            return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "%s", error.text);
        }
    }
    return status;
}

/* Open a transport of the registry, if it can be used. */
static stepaf_status_t try_open(struct stepaf_ctx *ctx, unsigned index)
{
    const struct stepaf_transport_ops *ops = stepaf_transports[index];
    bool asked = ctx->env.transports[0];
    char *unopened = ctx->net.unopened[ctx->net.n_transports], reason[STEPAF_REASON_MAX];

    if (!stepaf_transport_admitted(&ctx->env, ops)) {
        if (asked)
            add_refusal(unopened, ops->name, "STEPAF_TRANSPORTS does not list it");
        return STEPAF_OK;
    }
    if (!ops->probe(&ctx->env, reason)) {
        if (asked)
            return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                    "STEPAF_TRANSPORTS asks for %s: %s", ops->name, reason);
        stepaf_log_info("transport %s is not used: %s", ops->name, reason);
        add_refusal(unopened, ops->name, reason);
        return STEPAF_OK;
    }
    stepaf_status_t status =
        transport_open(ctx, index, &ctx->net.transports[ctx->net.n_transports]);
    if (status == STEPAF_ERR_NO_TRANSPORT && !asked) {
        stepaf_log_warn("transport %s is not used: %s", ops->name, stepaf_last_error()->text);
        add_refusal(unopened, ops->name, stepaf_last_error()->text);
        return STEPAF_OK;
    }
    ctx->net.n_transports += !status;
    return status;
}

/* Fill in the optional operations that each transport of the registry omits, once. */
static stepaf_status_t complete_ops(struct stepaf_ctx *ctx)
{
    unsigned n = 0;

    while (stepaf_transports[n])
        n++;
    if (n > STEPAF_MAX_TRANSPORTS)
        return stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_COMMIT,
                                "the registry has %u transports, but the limit is %d", n,
                                STEPAF_MAX_TRANSPORTS);
    if (!ctx->net.ops)
        ctx->net.ops = calloc(n + 1, sizeof(*ctx->net.ops));
    if (!ctx->net.ops)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (unsigned i = 0; i < n; i++) {
        const char *missing = stepaf_transport_lacks(stepaf_transports[i]);
        if (missing)
            return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT,
                                    "transport %u of the registry lacks the operation %s", i,
                                    missing);
        ctx->net.ops[i] = stepaf_transport_complete(stepaf_transports[i]);
        stepaf_msg_log_wrap(ctx, &ctx->net.ops[i]);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_transports_open(struct stepaf_ctx *ctx)
{
    stepaf_status_t status = STEPAF_OK;

    if (ctx->net.n_transports)
        return STEPAF_OK;
    ctx->up.initiates = stepaf_is_attention(ctx);
    ctx->up.gpu = ctx->gpu.device ? stepaf_gpu_facts(ctx->gpu.device)->bus : NULL;
    memset(ctx->net.unopened, 0, sizeof(ctx->net.unopened));
    status = complete_ops(ctx);
    for (unsigned i = 0; !status && stepaf_transports[i]; i++)
        status = try_open(ctx, i);
    if (status) { /* another commit may find all usable */
        stepaf_error_t error = *stepaf_last_error();
        while (ctx->net.n_transports)
            shut(ctx, ctx->net.transports[--ctx->net.n_transports]);
        return stepaf_error_raise(&error);
    }
    set_wait_polls(ctx);
    return STEPAF_OK;
}

/* Return an open transport by its number in the registry; NULL: not open. */
static struct stepaf_transport *find_in_use(const struct stepaf_ctx *ctx, unsigned index)
{
    for (unsigned t = 0; t < ctx->net.n_transports; t++)
        if (ctx->net.transports[t]->index == index)
            return ctx->net.transports[t];
    return NULL;
}

/* Reopen a transport, in its place among the open ones. */
static struct stepaf_transport *open_again(struct stepaf_ctx *ctx, unsigned index)
{
    struct stepaf_transport *transport = NULL;
    char reason[STEPAF_REASON_MAX];
    unsigned at = ctx->net.n_transports;

    if (!ctx->net.ops[index].probe(&ctx->env, reason) || transport_open(ctx, index, &transport))
        return NULL;
    for (; at && ctx->net.transports[at - 1]->index > index; at--)
        ctx->net.transports[at] = ctx->net.transports[at - 1];
    ctx->net.transports[at] = transport;
    ctx->net.n_transports++;
    set_wait_polls(ctx);
    return transport;
}

uint32_t stepaf_transports_reopen(struct stepaf_ctx *ctx, char reason[STEPAF_REASON_MAX])
{
    uint32_t reopened = 0;

    snprintf(reason, STEPAF_REASON_MAX,
             "only links by shm, tcp, verbs and ofi can be made anew, and it uses others");
    for (unsigned i = 0; stepaf_transports[i]; i++) {
        if (!(ctx->net.ops[i].caps & STEPAF_TRANSPORT_RETURNS) ||
            !stepaf_transport_admitted(&ctx->env, &ctx->net.ops[i]))
            continue;
        struct stepaf_transport *transport = find_in_use(ctx, i);
        if (transport && transport->ops->reopen(transport)) {
            snprintf(reason, STEPAF_REASON_MAX, "it cannot make links anew: %.150s",
                     stepaf_last_error()->text);
            stepaf_log_warn("transport %s cannot reconnect returning ranks: %s",
                            transport->ops->name, stepaf_last_error()->text);
            continue;
        }
        if (transport || open_again(ctx, i))
            reopened |= 1u << i;
    }
    return reopened;
}

bool stepaf_peer_may_reconnect(const struct stepaf_peer *peer, uint32_t reopened)
{
    const struct stepaf_ctx_net *net = &peer->ctx->net;
    bool is_local_only = true;

    for (unsigned i = 0; stepaf_transports[i]; i++)
        if (reopened & 1u << i && !(net->ops[i].caps & STEPAF_TRANSPORT_LOCAL))
            return true;
    if (peer->link && peer->link != &peer->nowhere)
        return reopened & 1u << peer->link->transport->index;
    for (unsigned t = 0; t < net->n_transports; t++)
        is_local_only = is_local_only && net->transports[t]->ops->caps & STEPAF_TRANSPORT_LOCAL;
    return reopened && is_local_only;
}

static bool is_used(const struct stepaf_ctx *ctx, const struct stepaf_transport *transport)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].link && ctx->peers[p].link->transport == transport)
            return true;
    return false;
}

void stepaf_transports_shrink(struct stepaf_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->net.n_transports; i++)
        ctx->net.transports[i]->ops->shrink(ctx->net.transports[i]);
}

stepaf_status_t stepaf_transports_trim(struct stepaf_ctx *ctx)
{
    unsigned n = 0, n_before = ctx->net.n_transports;

    for (unsigned i = 0; i < ctx->net.n_transports; i++) {
        struct stepaf_transport *transport = ctx->net.transports[i];
        if (!is_used(ctx, transport)) {
            shut(ctx, transport);
            continue;
        }
        ctx->net.transports[n++] = transport;
    }
    ctx->net.n_transports = n;
    set_wait_polls(ctx);
    return n < n_before ? stepaf_regions_pin_again(ctx) : STEPAF_OK;
}

/* Connect a peer by one transport. On failure there is no link, and the reason is noted. */
static stepaf_status_t connect_by(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                  const struct stepaf_advert *advert,
                                  struct stepaf_transport *transport)
{
    const struct stepaf_rank *rank = &ctx->job.ranks[peer->who.world_rank];
    struct stepaf_peer_facts facts = {
        .peer = peer->index,
        .index_at_peer = ctx->job.mesh.slot,
        .world_rank = peer->who.world_rank,
        .node_id = rank->node_id,
        .pid = rank->pid,
    };
    char reason[STEPAF_REASON_MAX] = "it does not offer this transport";
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_unpack unpack;
    uint32_t index;

    if (ctx->epoch > 1 && !(transport->ops->caps & STEPAF_TRANSPORT_RETURNS)) {
        add_refusal(peer->refused, transport->ops->name, "it does not support returning ranks");
        return STEPAF_OK;
    }
    if (stepaf_advert_transport(advert, transport->ops->name, &unpack, &index)) {
        reason[0] = '\0';
        status = transport->ops->connect(transport, &facts, &unpack, &peer->link, reason);
    }
    if (peer->link)
        peer->link->ops = transport->ops;      /* the complete operations */
    if (!status && (!peer->link || reason[0])) /* or the link is limited */
        add_refusal(peer->refused, transport->ops->name, reason);
    return status;
}

static stepaf_status_t not_reached(const struct stepaf_peer *peer)
{
    return stepaf_error_set_peer(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, peer->who,
                                 "no transport reaches " STEPAF_WHO_FORMAT ": %s",
                                 STEPAF_WHO_ARGS(peer->who),
                                 peer->refused[0] ? peer->refused : "no transport is open");
}

static stepaf_status_t connect_peer(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                    const struct stepaf_advert *advert)
{
    stepaf_status_t status = STEPAF_OK;

    for (unsigned t = 0; t < ctx->net.n_transports && !status && !peer->link; t++) {
        if (ctx->net.unopened[t][0])
            add_refusal(peer->refused, "", ctx->net.unopened[t]);
        status = connect_by(ctx, peer, advert, ctx->net.transports[t]);
    }
    if (!status && !peer->link && ctx->net.unopened[ctx->net.n_transports][0])
        add_refusal(peer->refused, "", ctx->net.unopened[ctx->net.n_transports]);
    return status || peer->link ? status : not_reached(peer);
}

/* For the map: note how GPU memory goes to a peer. */
static void note_gpu(struct stepaf_peer *peer)
{
    char text[STEPAF_REASON_MAX];

    peer->ctx->feature->describe(peer, text);
    if (text[0] && !strstr(peer->refused, "GPU memory: "))
        add_refusal(peer->refused, "GPU memory", text);
}

/* Find whether one transport serves all links. Posts of several peers then go to it in one call. */
static void find_sole(struct stepaf_ctx *ctx)
{
    const struct stepaf_transport_ops *only = NULL;
    bool is_one = true;

    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_link *link = ctx->peers[p].link;
        if (link == &ctx->peers[p].nowhere) /* nothing is posted to it */
            continue;
        is_one = is_one && (!only || link->ops == only);
        only = link->ops;
    }
    ctx->net.only_ops = is_one ? only : NULL;
}

/* Import what a link makes available: the peer's memory, and this rank's keys in it. */
static stepaf_status_t look_up(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                               const struct stepaf_advert *advert)
{
    stepaf_status_t status = stepaf_peer_import(ctx, peer, advert);

    if (!status)
        note_gpu(peer);
    return status;
}

/* Return whether the peer has ended meanwhile, which explains why its memory is unavailable. A
 * process's memory is gone a moment before the process is. Links are not read during the wait:
 * other peers may have announced plans of this epoch, which name memory as it is later in this
 * commit. */
static bool has_ended(const struct stepaf_peer *peer)
{
    static const struct timespec pause = {.tv_nsec = LOOK_NS};
    int64_t until_ns = stepaf_monotonic_ns() + GONE_NS;
    stepaf_error_t error = *stepaf_last_error();

    while (peer->link && peer->ctx->epoch > 1 && !peer->lost && stepaf_monotonic_ns() < until_ns) {
        stepaf_core_look_for_lost(peer->ctx);
        if (!peer->lost)
            (void)nanosleep(&pause, NULL);
    }
    (void)stepaf_error_raise(&error);
    return peer->lost;
}

/* The commit must make the link to such a peer, as the first commit does. */
bool stepaf_peer_is_new(const struct stepaf_peer *peer)
{
    const struct stepaf_ctx_job *job = &peer->ctx->job;

    return job->members.returned[peer->who.world_rank] || job->members.returned[job->boot.rank];
}

/* Return whether the peer has only just returned: what it lacks is no reason for members to
 * fail. */
static bool can_do_without(const struct stepaf_peer *peer)
{
    return peer->ctx->job.members.returned[peer->who.world_rank] &&
           !peer->ctx->job.members.returned[peer->ctx->job.boot.rank];
}

bool stepaf_peer_may_lack(struct stepaf_peer *peer)
{
    if (!can_do_without(peer))
        return has_ended(peer);
    stepaf_peer_cut(peer, stepaf_last_error()->text);
    return true;
}

/* Return why there is no link to a rank that is no member and never was one. */
static const char *why_never(const struct stepaf_peer *peer)
{
    const struct stepaf_member_net *net = peer->ctx->job.members.net;
    const char *why = net ? stepaf_member_net_reason(net, peer->who.world_rank) : "";

    return *why ? why : "it was lost before this process returned";
}

stepaf_status_t stepaf_peers_connect(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        const struct stepaf_advert *advert = &adverts[peer->who.world_rank];
        stepaf_status_t status = STEPAF_OK;
        if (peer->lost)
            continue; /* what is known of the peer stays: earlier posts may name it */
        if (advert->absent && !peer->link) {
            stepaf_peer_cut(peer, why_never(peer));
            peer->is_out = true;
            continue;
        }
        if (!peer->link)
            status = connect_peer(ctx, peer, advert);
        if (!status)
            status = look_up(ctx, peer, advert);
        if (status && !stepaf_peer_may_lack(peer))
            return status;
    }
    find_sole(ctx);
    return STEPAF_OK;
}

stepaf_status_t stepaf_peer_fall_back(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                      const struct stepaf_advert *advert,
                                      struct stepaf_transport *transport, const char *why)
{
    const struct stepaf_transport_ops *better = peer->link->ops;
    stepaf_status_t status = STEPAF_OK;
    unsigned t = 0;

    stepaf_log_warn(STEPAF_WHO_FORMAT ": %s cannot be used: %s: both ends use %s",
                    STEPAF_WHO_ARGS(peer->who), better->name, why, transport->ops->name);
    add_refusal(peer->refused, better->name, why);
    ctx->net.only_ops =
        NULL; /* until all have links again: on failure, each link's own operations notify peers */
    stepaf_peer_release(peer);
    better->disconnect(peer->link);
    peer->link = NULL;
    while (ctx->net.transports[t] != transport)
        t++;
    for (; t < ctx->net.n_transports && !status && !peer->link; t++)
        status = connect_by(ctx, peer, advert, ctx->net.transports[t]);
    if (!status)
        status = peer->link ? look_up(ctx, peer, advert) : not_reached(peer);
    if (!status)
        find_sole(ctx);
    return status;
}
