/* SPDX-License-Identifier: Apache-2.0 */
/* READY over every link, so that no rank leaves a commit before all can receive. */
#include "wireup/ready.h"
#include "core/plan_announce.h"
#include "core/remote_plan.h"
#include "core/returned.h"
#include "core/send.h"
#include "core/wait.h"

void stepaf_send_ready(struct stepaf_peer *peer, uint32_t epoch, stepaf_status_t status)
{
    struct stepaf_msg msg = {.type = STEPAF_MSG_READY, .seq = epoch, .word = {(uint32_t)status}};

    if (status == STEPAF_ERR_HANDLE) /* this rank is finalized: the peer's own handle is valid */
        msg.word[0] = (uint32_t)STEPAF_ERR_PEER_LOST;
    stepaf_core_tell(peer, &msg);
}

/* At an FFN rank, check that all plans that the peer has announced are complete. */
static stepaf_status_t check_remotes(const struct stepaf_peer *peer)
{
    if (peer->oom)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < peer->n_remotes; i++) {
        const struct stepaf_remote_plan *remote = peer->remotes[i];
        if (remote && remote->n_known != remote->n_push + remote->n_pull)
            return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, peer->who,
                                         "the plans of " STEPAF_WHO_FORMAT " are malformed",
                                         STEPAF_WHO_ARGS(peer->who));
    }
    return STEPAF_OK;
}

static bool is_ready(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer)
{
    return peer->ready_epoch == ctx->epoch;
}

/* Return the error of a peer that has sent nothing by this rank's deadline. */
static stepaf_status_t fail_late(const struct stepaf_peer *peer)
{
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT, peer->who,
                                 STEPAF_WHO_FORMAT " did not become ready in time",
                                 STEPAF_WHO_ARGS(peer->who));
}

/* Return the error of a peer that has reported a failed commit. If the peer's own deadline has
 * passed, another rank was late, and the peer does not say which. */
static stepaf_status_t fail_refused(const struct stepaf_peer *peer)
{
    if (peer->ready_status == STEPAF_ERR_TIMEOUT)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                STEPAF_WHO_FORMAT " timed out waiting for another rank",
                                STEPAF_WHO_ARGS(peer->who));
    return stepaf_error_set_peer(peer->ready_status, STEPAF_PHASE_COMMIT, peer->who,
                                 STEPAF_WHO_FORMAT " failed in the commit",
                                 STEPAF_WHO_ARGS(peer->who));
}

/* Return a peer that has reported a failed commit, for which all fail; NULL: none. A process that
 * has returned since may have reported another status. A rank that is out may have reported about
 * the commit that continues without it. */
static const struct stepaf_peer *find_refuser(struct stepaf_ctx *ctx)
{
    for (uint32_t p = 0; ctx->commit.is_refused && p < ctx->n_peers; p++)
        if (!ctx->peers[p].is_out && is_ready(ctx, &ctx->peers[p]) && ctx->peers[p].ready_status &&
            !stepaf_returned_go_on(&ctx->peers[p]))
            return &ctx->peers[p];
    return NULL;
}

/* Wait for one peer's READY, unless another peer has failed: until @a until_ns, or @a deadline_ns if
 * that is earlier. FFN ranks send theirs when all attention ranks' have arrived: by then the peers'
 * plans have arrived, and no attention rank leaves before all have entered the last exchange. */
static stepaf_status_t await_ready(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                   int64_t until_ns, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    if (peer->is_out)
        return STEPAF_OK;
    while (!is_ready(ctx, peer)) {
        bool more = stepaf_core_advance(ctx, &waiter, stepaf_earlier_ns(until_ns, deadline_ns));
        const struct stepaf_peer *refuser = find_refuser(ctx);
        if (refuser)
            return fail_refused(refuser);
        if (peer->lost && !is_ready(ctx, peer)) /* as if lost after its READY */
            return STEPAF_OK;
        if (!more && !is_ready(ctx, peer) && stepaf_returned_is_late(peer, until_ns, deadline_ns))
            return STEPAF_OK;
        if (!more && !is_ready(ctx, peer))
            return fail_late(peer);
    }
    if (peer->ready_status && !stepaf_returned_go_on(peer))
        return fail_refused(peer);
    return STEPAF_OK;
}

/* Wait for all peers that have returned in this commit, or for all others. */
static stepaf_status_t await_peers(struct stepaf_ctx *ctx, bool returned, int64_t deadline_ns)
{
    int64_t until_ns = returned ? stepaf_returned_until_ns(ctx) : deadline_ns;
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t p = 0; !status && p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        if (stepaf_returned_is(peer) != returned)
            continue;
        status = await_ready(ctx, peer, until_ns, deadline_ns);
        /* A lost peer may have died while announcing its plans. */
        if (!status && !stepaf_is_attention(ctx) && !peer->lost)
            status = check_remotes(peer);
    }
    return status;
}

/* FFN ranks that have not returned are awaited first: once they are ready, no attention rank holds
 * up those that have. */
stepaf_status_t stepaf_commit_handshake(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    bool attention = stepaf_is_attention(ctx);
    stepaf_status_t status = attention ? stepaf_plans_announce(ctx) : STEPAF_OK;

    for (uint32_t p = 0; attention && p < ctx->n_peers; p++)
        stepaf_send_ready(&ctx->peers[p], ctx->epoch, status);
    if (!status)
        status = await_peers(ctx, false, deadline_ns);
    if (!status)
        status = await_peers(ctx, true, deadline_ns);
    for (uint32_t p = 0; !attention && p < ctx->n_peers; p++)
        stepaf_send_ready(&ctx->peers[p], ctx->epoch, status);
    while (!status && !stepaf_list_empty(&ctx->net.queued))
        if (!stepaf_core_advance(ctx, &waiter, deadline_ns))
            status = stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                      "a peer does not accept messages");
    return status;
}
