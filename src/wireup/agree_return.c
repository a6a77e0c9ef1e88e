/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on links after the first commit, with ranks that have returned. */
#include "wireup/agree_return.h"

#include "base/time.h"
#include "boot/member_net.h"
#include "core/peer.h"
#include "core/peer_renew.h"
#include "wireup/connect.h"

bool stepaf_agree_has_news(const struct stepaf_ctx *ctx)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (ctx->job.members.returned[r])
            return true;
    return false;
}

bool stepaf_agree_concerns(const struct stepaf_peer *peer)
{
    if (peer->ctx->epoch == 1)
        return !peer->is_out;
    return !peer->lost && stepaf_peer_is_new(peer);
}

bool stepaf_agree_has_waited(const struct stepaf_agreement *a)
{
    return a->settled && a->patience_ns && stepaf_monotonic_ns() >= a->patience_ns;
}

bool stepaf_agree_may_give_up(const struct stepaf_agreement *a, uint32_t p)
{
    const struct stepaf_ctx_job *job = &a->ctx->job;
    const struct stepaf_peer *peer = &a->ctx->peers[p];

    return !peer->lost && job->members.returned[peer->who.world_rank] &&
           !job->members.returned[job->boot.rank];
}

bool stepaf_agree_hears(const struct stepaf_agreement *a, int rank, const uint8_t *all)
{
    const struct stepaf_ctx_members *members = &a->ctx->job.members;
    struct stepaf_agree_report report;

    if (!members->present[rank])
        return false;
    if (!a->patience_ns)
        return true;
    return !members->returned[rank] || rank == a->ctx->job.boot.rank ||
           (stepaf_agree_read(all + a->offsets[rank], a->offsets[rank + 1] - a->offsets[rank],
                              &report) &&
            !report.status);
}

stepaf_status_t stepaf_agree_reaches(const struct stepaf_agreement *a, const uint8_t *all)
{
    const struct stepaf_ctx *ctx = a->ctx;

    for (uint32_t p = 0; ctx->job.members.is_on_trial && p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        if (peer->lost && stepaf_agree_hears(a, peer->who.world_rank, all))
            return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT, peer->who,
                                         "this returning process cannot reach " STEPAF_WHO_FORMAT
                                         ", which is a member: %s",
                                         STEPAF_WHO_ARGS(peer->who), peer->reason);
    }
    return STEPAF_OK;
}

bool stepaf_agree_note_absent(struct stepaf_agreement *a, const uint8_t *all)
{
    struct stepaf_ctx *ctx = a->ctx;
    int n_before = a->n_absent;

    a->n_absent = 0;
    for (int r = 0; r < ctx->job.boot.size; r++) {
        bool is_lost = !stepaf_agree_hears(a, r, all);
        a->n_absent += is_lost;
        if (is_lost && ctx->job.members.is[r])
            stepaf_member_net_lose(ctx->job.members.net, r, "it has failed in the commit");
    }
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        if (peer->lost || stepaf_agree_hears(a, peer->who.world_rank, all))
            continue;
        if (stepaf_peer_is_new(peer))
            stepaf_peer_cut(peer, "the other ranks have lost it in the commit");
        else
            stepaf_peer_fail(peer, "the other ranks have lost it in the commit");
    }
    return a->n_absent != n_before;
}

/* Move a time by @a more_ns, but leave half of what is left. */
static void allow_more(const struct stepaf_agreement *a, int64_t *until_ns, int64_t more_ns)
{
    int64_t latest_ns = stepaf_halfway_ns(a->deadline_ns), moved_ns = *until_ns + more_ns;

    if (*until_ns && *until_ns < latest_ns)
        *until_ns = moved_ns < latest_ns ? moved_ns : latest_ns;
}

void stepaf_agree_allow_for(struct stepaf_agreement *a, int64_t ns)
{
    if (ns <= 0)
        return;
    allow_more(a, &a->patience_ns, ns);
    allow_more(a, &a->pending_until_ns, ns);
}

void stepaf_agree_lose_pending(struct stepaf_agreement *a, const uint8_t *all)
{
    struct stepaf_ctx_members *members = &a->ctx->job.members;
    struct stepaf_agree_report report;

    if (!a->pending_until_ns)
        a->pending_until_ns = stepaf_halfway_ns(a->deadline_ns);
    if (stepaf_monotonic_ns() < a->pending_until_ns || members->returned[a->ctx->job.boot.rank])
        return;
    for (int r = 0; r < a->ctx->job.boot.size; r++)
        if (members->returned[r] && stepaf_agree_hears(a, r, all) &&
            stepaf_agree_read(all + a->offsets[r], a->offsets[r + 1] - a->offsets[r], &report) &&
            report.pending)
            stepaf_member_net_lose(members->net, r,
                                   "its links were not up in time in the commit in which it "
                                   "returned");
}
