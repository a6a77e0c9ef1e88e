/* SPDX-License-Identifier: Apache-2.0 */
/* The common clock: the monotonic clock of world rank 0's node. Ranks of that node share it.
 * Other ranks estimate the offset of their clock from it: at commit by some probes in sequence,
 * later by the probes that clock_keep.c sends.
 *
 * Links join only ranks of different roles in one lane. Each lane has a reference, whose clock
 * is right by definition: the first of the lane's ranks on rank 0's node. If no rank of the lane
 * is there, the reference is the lane's first rank, and the lane has a time of its own. The
 * ranks of the other role ask the reference. The ranks of the reference's role ask the first
 * rank of the other role (the helper), once the helper knows. */
#include "core/clock.h"
#include "core/clock_keep.h"
#include "core/ctx.h"
#include "core/mesh.h"
#include "core/returned.h"
#include "core/send.h"
#include "core/wait.h"

enum { ROUNDS = 8 };

static int64_t until_for(const struct stepaf_peer *peer, int64_t deadline_ns)
{
    return stepaf_returned_is(peer) ? stepaf_returned_until_ns(peer->ctx) : deadline_ns;
}

/* Ask @a peer until ROUNDS answers have arrived from a rank that knows the clock. */
static stepaf_status_t ask_often(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                 int64_t deadline_ns)
{
    int64_t until_ns = until_for(peer, deadline_ns);
    uint32_t upto = ctx->clock.n_probes + ROUNDS;

    while ((int32_t)(upto - ctx->clock.n_probes) > 0) {
        struct stepaf_waiter waiter = stepaf_waiter_begin();
        if (!stepaf_clock_ask(peer))
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        while (peer->clock.asked) {
            bool more = stepaf_core_advance(ctx, &waiter, stepaf_earlier_ns(until_ns, deadline_ns));
            if (!more && !peer->lost)
                (void)stepaf_returned_is_late(peer, until_ns, deadline_ns);
            if (!more || peer->lost)
                return stepaf_error_set_peer(peer->lost ? STEPAF_ERR_PEER_LOST : STEPAF_ERR_TIMEOUT,
                                             STEPAF_PHASE_COMMIT, peer->who,
                                             STEPAF_WHO_FORMAT " did not answer a clock ping",
                                             STEPAF_WHO_ARGS(peer->who));
        }
    }
    return STEPAF_OK;
}

/* Answer pings until no peer needs them any more. */
static stepaf_status_t serve(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_waiter waiter = stepaf_waiter_begin();
        int64_t until_ns = until_for(&ctx->peers[p], deadline_ns);
        while (!ctx->peers[p].clock.synced && !ctx->peers[p].lost) {
            if (!stepaf_core_advance(ctx, &waiter, stepaf_earlier_ns(until_ns, deadline_ns)) &&
                !stepaf_returned_is_late(&ctx->peers[p], until_ns, deadline_ns))
                return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                             ctx->peers[p].who,
                                             STEPAF_WHO_FORMAT " did not finish its clock pings",
                                             STEPAF_WHO_ARGS(ctx->peers[p].who));
        }
    }
    return STEPAF_OK;
}

/* Return the world rank of this lane's reference. */
static int find_reference(const struct stepaf_ctx *ctx)
{
    int first = -1;

    for (int r = 0; r < ctx->job.boot.size; r++) {
        if (!stepaf_mesh_has(&ctx->job.mesh, ctx->job.ranks[r].rank) || !ctx->job.members.is[r])
            continue;
        if (ctx->job.ranks[r].node_id == ctx->job.ranks[0].node_id)
            return r;
        if (first < 0)
            first = r;
    }
    return first;
}

/* Return the index of the first peer that is a member. */
static uint32_t first_member(const struct stepaf_ctx *ctx)
{
    uint32_t p = 0;

    while (p + 1 < ctx->n_peers && ctx->peers[p].is_out)
        p++;
    return p;
}

/* Return the index, at the other role's ranks, of the first member of this rank's role and lane. */
static uint32_t first_of_role(const struct stepaf_ctx *ctx)
{
    int group = stepaf_is_attention(ctx) ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN;
    uint32_t rank = ctx->job.mesh.lane;

    /* this rank is a member: the loop ends */
    while (!ctx->job.members.is[ctx->job.groups[group][rank]])
        rank += ctx->job.mesh.lanes;
    return stepaf_mesh_index(&ctx->job.mesh, rank);
}

/* Return the index of the peer that this rank asks. */
static uint32_t find_server(const struct stepaf_ctx *ctx, int reference)
{
    if (ctx->job.ranks[reference].role == ctx->role)
        return first_member(ctx); /* the helper */
    return stepaf_mesh_index(&ctx->job.mesh, ctx->job.ranks[reference].rank);
}

/* Return whether the clock of @a reference's node is the common clock unchanged. If an earlier
 * reference on another node is gone, it is not: the new reference continues with its estimate. */
static bool is_zero(struct stepaf_ctx *ctx, int reference)
{
    const struct stepaf_rank *ranks = ctx->job.ranks;
    struct stepaf_ctx_clock *clock = &ctx->clock;
    bool first = !clock->known;

    clock->is_zero =
        ranks[reference].node_id == ranks[0].node_id || first ||
        (clock->is_zero && ranks[reference].node_id == ranks[clock->reference].node_id);
    clock->reference = reference;
    return clock->is_zero;
}

stepaf_status_t stepaf_clock_sync(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    int reference = find_reference(ctx);
    bool is_reference = ctx->job.boot.rank == reference;
    bool is_helper =
        ctx->job.ranks[reference].role != ctx->role && ctx->job.mesh.slot == first_of_role(ctx);
    bool by_node = ctx->env.clock == STEPAF_ENV_CLOCK_auto;
    bool zero = is_zero(ctx, reference);
    struct stepaf_peer *server = &ctx->peers[find_server(ctx, reference)];
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_msg synced = {.type = STEPAF_MSG_SYNCED};

    ctx->clock.is_nodes =
        by_node && zero &&
        ctx->job.ranks[reference].node_id == ctx->job.ranks[ctx->job.boot.rank].node_id;
    stepaf_clock_follow(ctx, is_reference || ctx->clock.is_nodes ? -1 : (int)server->index, zero);
    if (ctx->clock.one_node && by_node) {
        ctx->clock.known = true;
        return STEPAF_OK;
    }
    ctx->clock.probes = true;
    if (ctx->clock.server >= 0 && !server->lost)
        status = ask_often(ctx, server, deadline_ns);
    if (status && !server->lost)
        return status;
    status = STEPAF_OK; /* without a server the offset stays, and others may ask this rank */
    ctx->clock.known = true;
    if (!server->lost && !stepaf_core_send(server, &synced))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    if (is_reference || is_helper)
        status = serve(ctx, deadline_ns);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        ctx->peers[p].clock.synced = false;
    return status;
}
