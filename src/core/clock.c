/* SPDX-License-Identifier: Apache-2.0 */
/* The common clock of traces: the monotonic clock of world rank 0's node. Ranks of one node share
 * it already. Others estimate their offset at commit by pings over the links, the shortest round
 * trip of several deciding (as NTP does: D. Mills, RFC 5905, section 8).
 *
 * Links join only ranks of different roles in one lane. Each lane has a reference, whose clock is
 * right as it is: of its ranks on rank 0's node the first, or, if none is there, the lane's first
 * rank of all, and then the lane has a time of its own. The ranks of the other role ask the
 * reference, and the ranks of its own role ask the first rank of the other role, once that knows.
 */
#include "core/clock.h"
#include "core/ctx.h"
#include "core/mesh.h"
#include "core/send.h"
#include "core/wait.h"

enum { ROUNDS = 8 };

static int64_t common_now(const struct stepaf_ctx *ctx)
{
    return stepaf_clock_to_ns(&ctx->clock.own, stepaf_ticks()) + ctx->clock.offset_ns;
}

static uint64_t word64(const struct stepaf_msg *msg, int at)
{
    return msg->word[at] | (uint64_t)msg->word[at + 1] << 32;
}

void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_msg pong = *msg;
    uint64_t now = (uint64_t)common_now(peer->ctx);

    pong.type = STEPAF_MSG_PONG;
    pong.word[2] = (uint32_t)now;
    pong.word[3] = (uint32_t)(now >> 32);
    pong.word[4] = peer->ctx->clock.known;
    (void)stepaf_core_send(peer, &pong);
}

void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = peer->ctx;
    uint64_t now = stepaf_ticks(), sent = word64(msg, 0), its_now = word64(msg, 2);

    if (msg->seq != ctx->clock.pong_seq)
        return;
    if (now - sent > now - ctx->clock.own.base_ticks || its_now > INT64_MAX / 2) {
        ctx->counters.dropped_malformed++; /* sent before this clock was, or no time at all */
        return;
    }
    ctx->clock.pong_seq++;
    if (!msg->word[4] || now - sent >= ctx->clock.pong_best)
        return;
    ctx->clock.pong_best = now - sent;
    ctx->clock.pong_offset_ns =
        (int64_t)its_now - stepaf_clock_to_ns(&ctx->clock.own, sent + (now - sent) / 2);
}

/* Ask @a peer until ROUNDS answers from a rank that knows have come. */
static stepaf_status_t ping_peer(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                 int64_t deadline_ns)
{
    int useful = 0;

    ctx->clock.pong_best = UINT64_MAX;
    while (useful < ROUNDS) {
        struct stepaf_waiter waiter = stepaf_waiter_begin();
        uint32_t seq = ctx->clock.pong_seq;
        uint64_t sent = stepaf_ticks();
        struct stepaf_msg ping = {
            .type = STEPAF_MSG_PING, .seq = seq, .word = {(uint32_t)sent, (uint32_t)(sent >> 32)}};
        if (!stepaf_core_send(peer, &ping))
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        while (ctx->clock.pong_seq == seq) {
            if (!stepaf_core_advance(ctx, &waiter, deadline_ns) || peer->lost)
                return stepaf_error_set_peer(peer->lost ? STEPAF_ERR_PEER_LOST : STEPAF_ERR_TIMEOUT,
                                             STEPAF_PHASE_COMMIT, peer->who,
                                             STEPAF_WHO_FORMAT " did not answer a clock ping",
                                             STEPAF_WHO_ARGS(peer->who));
        }
        useful += ctx->clock.pong_best != UINT64_MAX;
    }
    ctx->clock.offset_ns = ctx->clock.pong_offset_ns;
    return STEPAF_OK;
}

/* Answer pings until no peer needs them any more. */
static stepaf_status_t serve(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        while (!ctx->peers[p].synced && !ctx->peers[p].lost) {
            if (!stepaf_core_advance(ctx, &waiter, deadline_ns))
                return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                             ctx->peers[p].who,
                                             STEPAF_WHO_FORMAT " did not finish its clock pings",
                                             STEPAF_WHO_ARGS(ctx->peers[p].who));
        }
    return STEPAF_OK;
}

/* World rank of this lane's reference. */
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

/* Index of the first peer that is a member. */
static uint32_t first_member(const struct stepaf_ctx *ctx)
{
    uint32_t p = 0;

    while (p + 1 < ctx->n_peers && ctx->peers[p].is_out)
        p++;
    return p;
}

/* Index, at the other role's ranks, of the first member of this rank's role and lane. */
static uint32_t first_of_role(const struct stepaf_ctx *ctx)
{
    int group = stepaf_is_attention(ctx) ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN;
    uint32_t rank = ctx->job.mesh.lane;

    while (!ctx->job.members.is[ctx->job.groups[group][rank]]) /* this one is */
        rank += ctx->job.mesh.lanes;
    return stepaf_mesh_index(&ctx->job.mesh, rank);
}

/* Index of the peer that this rank asks. */
static uint32_t find_server(const struct stepaf_ctx *ctx, int reference)
{
    if (ctx->job.ranks[reference].role == ctx->role)
        return first_member(ctx); /* the helper */
    return stepaf_mesh_index(&ctx->job.mesh, ctx->job.ranks[reference].rank);
}

stepaf_status_t stepaf_clock_sync(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    int reference = find_reference(ctx);
    bool is_reference = ctx->job.boot.rank == reference;
    bool is_helper =
        ctx->job.ranks[reference].role != ctx->role && ctx->job.mesh.slot == first_of_role(ctx);
    struct stepaf_peer *server = &ctx->peers[find_server(ctx, reference)];
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_msg synced = {.type = STEPAF_MSG_SYNCED};

    if (ctx->clock.one_node && ctx->env.clock == STEPAF_ENV_CLOCK_auto) {
        ctx->clock.known = true;
        return STEPAF_OK;
    }
    if (!is_reference && !server->lost)
        status = ping_peer(ctx, server, deadline_ns);
    if (status && !server->lost)
        return status;
    status = STEPAF_OK; /* without a server the offset stays, and others may ask this rank */
    ctx->clock.known = true;
    if (!server->lost && !stepaf_core_send(server, &synced))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    if (is_reference || is_helper)
        status = serve(ctx, deadline_ns);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        ctx->peers[p].synced = false;
    return status;
}
