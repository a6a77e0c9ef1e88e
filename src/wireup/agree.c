/* SPDX-License-Identifier: Apache-2.0 */
/* At the first commit all ranks agree on their links before any waits for another, and so they do
 * about the links to ranks that have returned.
 *
 * Until here each rank has done what it can do alone: for each peer it has taken the best transport
 * that it could set up from its end, and knows nothing of what the peer could. In the first
 * exchange each reports a sum over its links. Where the two ends of some link have taken different
 * transports, the sum of all ranks is not 0; then all report which transports they have taken, and
 * whoever has a better one than its peer follows the peer.
 *
 * Once that is settled, what was begun is waited for, if a transport takes both ends to connect,
 * and seen to work, if connecting does not show that: who finds nothing get through takes the next
 * transport, and the sum tells the peer. Ranks meet when all their links are up, and otherwise from
 * time to time: so a rank that has failed is heard of soon, by those too that have no link to
 * it. */
#include "wireup/agree.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "core/members.h"
#include "core/peer_renew.h"
#include "wireup/agree_return.h"
#include "wireup/connect.h"

enum {
    NONE = UINT8_MAX,
    DISPUTES_MAX = 2 * STEPAF_MAX_TRANSPORTS,   /* each of them leaves somebody a transport less */
    FIRST_WAIT_MS = 50,                         /* until ranks with links that are not up meet */
    LONGEST_WAIT_MS = 1000,                     /* the wait is doubled each time, up to this */
    HELD_UP_MS = 100,                           /* for one look at the links */
    LAST_WORDS_US = 2 * LONGEST_WAIT_MS * 1000, /* for a failure, beyond the deadline if need be */
    LAST_WORDS_TIMES = 4 /* as long again as since the ranks have met before the connects */
};

static stepaf_status_t refuse_malformed(const struct stepaf_ctx *ctx, int rank)
{
    return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, stepaf_who_is(ctx, rank),
                                 "world rank %d: its report on its links is malformed", rank);
}

/* Which of the peer's transports has been taken, as the peer counts them. */
static uint8_t taken_for(const struct stepaf_peer *peer, const struct stepaf_advert *advert)
{
    struct stepaf_unpack unused;
    uint32_t index = NONE;

    if (peer->link)
        (void)stepaf_advert_transport(advert, peer->link->ops->name, &unused, &index);
    return (uint8_t)index;
}

static uint64_t sum_of_links(const struct stepaf_ctx *ctx)
{
    bool attention = stepaf_is_attention(ctx);
    int rank = ctx->job.boot.rank;
    uint64_t sum = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        int its = peer->who.world_rank;
        if (!stepaf_agree_concerns(peer))
            continue;
        const char *name = peer->link->ops->name;
        sum += attention ? stepaf_agree_link(rank, its, name) : -stepaf_agree_link(its, rank, name);
    }
    return sum;
}

/* A peer that was lost before its link was up. */
static stepaf_status_t check_lost(const struct stepaf_ctx *ctx)
{
    for (uint32_t p = 0; ctx->epoch == 1 && ctx->n_alive < ctx->n_peers && p < ctx->n_peers; p++)
        if (ctx->peers[p].lost && !ctx->peers[p].is_out)
            return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT,
                                         ctx->peers[p].who, STEPAF_WHO_FORMAT " is lost: %s",
                                         STEPAF_WHO_ARGS(ctx->peers[p].who), ctx->peers[p].reason);
    return STEPAF_OK;
}

static stepaf_status_t not_connected(const struct stepaf_ctx *ctx, stepaf_status_t status,
                                     const char *transport, uint32_t peer, const char *reason)
{
    struct stepaf_who who = ctx->peers[peer].who;

    return stepaf_error_set_peer(status, STEPAF_PHASE_COMMIT, who,
                                 "cannot connect to " STEPAF_WHO_FORMAT ": %s: %s",
                                 STEPAF_WHO_ARGS(who), transport, reason);
}

/* A link over which nothing gets through: take the transport that is the next best. */
static stepaf_status_t leave_link(struct stepaf_agreement *a, unsigned t, uint32_t peer,
                                  const char *reason)
{
    struct stepaf_ctx *ctx = a->ctx;
    struct stepaf_peer *it = &ctx->peers[peer];

    if (t + 1 >= ctx->net.n_transports)
        return not_connected(ctx, STEPAF_ERR_NO_TRANSPORT, ctx->net.transports[t]->ops->name, peer,
                             reason);
    stepaf_status_t status = stepaf_peer_fall_back(ctx, it, &a->adverts[it->who.world_rank],
                                                   ctx->net.transports[t + 1], reason);
    if (status)
        return status;
    a->settled = false; /* the peer has to follow */
    return STEPAF_INPROGRESS;
}

/* See whether the links of one transport work, once all ranks have connected. Until then nothing is
 * sent over them, and no peer is lost for that. All links that do not work are left in one go: the
 * ranks then have to settle once. */
static stepaf_status_t prove_links(struct stepaf_agreement *a, unsigned t, bool late)
{
    struct stepaf_transport *transport = a->ctx->net.transports[t];
    bool begin = a->settled, has_waited = stepaf_agree_has_waited(a) && !late;
    stepaf_status_t all = STEPAF_OK;

    for (;;) {
        char reason[STEPAF_REASON_MAX] = "no data has got through in time";
        uint32_t peer = 0;
        stepaf_status_t status = transport->ops->prove_links(transport, begin, &peer, reason);
        bool leaves =
            status == STEPAF_ERR_NO_TRANSPORT ||
            (status == STEPAF_INPROGRESS && has_waited && stepaf_agree_may_give_up(a, peer));
        bool goes_on = status >= 0 && !leaves;
        if (goes_on && !(status && late))
            return status ? status : all;
        status = leaves ? leave_link(a, t, peer, reason)
                        : not_connected(a->ctx, status < 0 ? status : STEPAF_ERR_TIMEOUT,
                                        transport->ops->name, peer, reason);
        if (status == STEPAF_INPROGRESS)
            all = status;
        else if (goes_on || !stepaf_agree_may_give_up(a, peer))
            return status;
        else
            stepaf_peer_cut(&a->ctx->peers[peer], stepaf_last_error()->text);
    }
}

static stepaf_status_t see_whether_links_work(struct stepaf_agreement *a, bool late)
{
    stepaf_status_t all = STEPAF_OK;

    for (unsigned t = 0; t < a->ctx->net.n_transports; t++) {
        stepaf_status_t status = prove_links(a, t, late);
        if (status < 0)
            return status;
        all = status ? status : all;
    }
    return all;
}

/* Go on with all links that were begun. STEPAF_INPROGRESS: some are not up, which is a failure when
 * @a late. */
static stepaf_status_t step(struct stepaf_agreement *a, int wait_ms, bool late)
{
    const struct stepaf_ctx *ctx = a->ctx;
    stepaf_status_t all = STEPAF_OK;

    for (unsigned t = 0; t < ctx->net.n_transports; t++) {
        struct stepaf_transport *transport = ctx->net.transports[t];
        char reason[STEPAF_REASON_MAX] = "it is not connected yet";
        uint32_t peer = 0;
        stepaf_status_t status;
        while ((status = transport->ops->finish_connects(transport, a->deadline_ns, wait_ms, &peer,
                                                         reason)) &&
               (status < 0 || stepaf_agree_has_waited(a)) && stepaf_agree_may_give_up(a, peer))
            stepaf_peer_cut(&ctx->peers[peer], reason);
        if (status < 0 || (status && late))
            return not_connected(ctx, status < 0 ? status : STEPAF_ERR_TIMEOUT,
                                 transport->ops->name, peer, reason);
        all = status ? status : all;
    }
    if (!all)
        all = see_whether_links_work(a, late);
    stepaf_status_t lost = all < 0 ? STEPAF_OK : check_lost(ctx);
    return lost ? lost : all;
}

/* Wait for links, but not for long. */
static stepaf_status_t await_links(struct stepaf_agreement *a)
{
    int64_t until_ns = stepaf_monotonic_ns() + a->wait_ms * 1000000LL;
    stepaf_status_t status;
    bool late, over;

    do {
        int64_t now_ns = stepaf_monotonic_ns();
        late = now_ns >= a->deadline_ns || stepaf_interrupted();
        over = late || now_ns >= until_ns;
        status = step(a, over ? 0 : 1, late);
        int64_t took_ns = stepaf_monotonic_ns() - now_ns;
        if (took_ns >= HELD_UP_MS * 1000000LL) /* a step takes a millisecond or two */
            stepaf_agree_allow_for(a, took_ns);
    } while (status == STEPAF_INPROGRESS && !over);
    if (!status && late && a->waits_for >= 0)
        return stepaf_error_set_peer(
            STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT, stepaf_who_is(a->ctx, a->waits_for),
            "world rank %d has not connected to all of its peers in time", a->waits_for);
    return status;
}

/* The better one of two transports does not work both ways: where a peer has taken a lesser one, it
 * is followed. */
static stepaf_status_t follow_peers(struct stepaf_agreement *a, const uint8_t *all)
{
    struct stepaf_ctx *ctx = a->ctx;
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t p = 0; p < ctx->n_peers && !status; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        int rank = peer->who.world_rank;
        struct stepaf_agree_report report;
        unsigned mine = 0;
        if (!stepaf_agree_concerns(peer))
            continue;
        (void)stepaf_agree_read(all + a->offsets[rank], a->offsets[rank + 1] - a->offsets[rank],
                                &report);
        uint8_t taken =
            ctx->job.mesh.slot < report.n_taken ? report.taken[ctx->job.mesh.slot] : NONE;
        if (taken >= ctx->net.n_transports)
            return refuse_malformed(ctx, rank);
        while (ctx->net.transports[mine] != peer->link->transport)
            mine++;
        if (mine < taken)
            status = stepaf_peer_fall_back(ctx, peer, &a->adverts[rank], ctx->net.transports[taken],
                                           "the other end cannot use it");
        if (status && stepaf_agree_may_give_up(a, p)) {
            stepaf_peer_cut(peer, stepaf_last_error()->text);
            status = STEPAF_OK;
        }
    }
    return status;
}

/* What all have reported: every rank comes to the same outcome. STEPAF_INPROGRESS: they have to
 * meet again. */
static stepaf_status_t check_all(struct stepaf_agreement *a, const uint8_t *all)
{
    bool is_news = a->patience_ns && stepaf_agree_note_absent(a, all);
    uint64_t sum = 0;
    uint32_t left_ms = UINT32_MAX;
    bool others_wait = false; /* ranks that have not returned */

    if (is_news) /* in which nobody has waited for links */
        a->patience_ns = stepaf_halfway_ns(a->deadline_ns);
    a->waits_for = -1;
    for (int r = 0; r < a->ctx->job.boot.size; r++) {
        struct stepaf_agree_report report;
        if (!stepaf_agree_hears(a, r, all))
            continue;
        if (!stepaf_agree_read(all + a->offsets[r], a->offsets[r + 1] - a->offsets[r], &report))
            return refuse_malformed(a->ctx, r);
        if (report.status)
            return stepaf_error_set_peer(report.status, STEPAF_PHASE_COMMIT,
                                         stepaf_who_is(a->ctx, r), "world rank %d: %.280s", r,
                                         report.text);
        if (report.pending && a->waits_for < 0)
            a->waits_for = r;
        sum += report.sum;
        if (a->ctx->job.members.returned[r])
            continue;
        others_wait = others_wait || report.pending;
        left_ms = report.left_ms < left_ms ? report.left_ms : left_ms;
    }
    a->ctx->commit.members_deadline_ns = stepaf_deadline_ns(left_ms * 1000LL);
    stepaf_status_t reached = stepaf_agree_reaches(a, all);
    if (reached) /* the others are to hear of it */
        a->own = reached;
    if (is_news || reached) /* the sums may be from before it */
        return STEPAF_INPROGRESS;
    if (!sum && !a->settled && a->patience_ns) { /* returned peers can answer from now on */
        a->patience_ns = stepaf_halfway_ns(a->deadline_ns);
        a->pending_until_ns = 0;
    }
    a->settled = !sum;
    if (!sum) {
        int longer = a->wait_ms ? 2 * a->wait_ms : FIRST_WAIT_MS;
        a->wait_ms = longer < LONGEST_WAIT_MS ? longer : LONGEST_WAIT_MS;
        if (a->patience_ns && a->waits_for >= 0 && !others_wait)
            stepaf_agree_lose_pending(a, all);
        else
            a->pending_until_ns = 0;
        return a->waits_for < 0 ? STEPAF_OK : STEPAF_INPROGRESS;
    }
    if (a->n_disputes++ == DISPUTES_MAX)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "the ranks cannot agree on the transports of their links");
    if (a->in_full)
        a->own = follow_peers(a, all);
    a->in_full = true;
    return STEPAF_INPROGRESS;
}

static void pack_report(const struct stepaf_agreement *a, struct stepaf_pack *pack)
{
    struct stepaf_ctx *ctx = a->ctx;
    struct stepaf_agree_report report = {.pending = a->own == STEPAF_INPROGRESS};
    int64_t left_ms = stepaf_left_us(a->deadline_ns) / 1000;
    uint8_t *taken = NULL;

    if (a->own < 0) {
        report.status = a->own;
        memcpy(report.text, stepaf_last_error()->text, sizeof(report.text));
    } else {
        report.sum = sum_of_links(ctx);
        report.left_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
    }
    if (a->own >= 0 && a->in_full) {
        taken = malloc(ctx->n_peers);
        pack->failed = !taken;
        for (uint32_t p = 0; taken && p < ctx->n_peers; p++)
            taken[p] = taken_for(&ctx->peers[p], &a->adverts[ctx->peers[p].who.world_rank]);
        report.taken = taken;
        report.n_taken = taken ? ctx->n_peers : 0;
    }
    stepaf_agree_pack(&report, pack);
    free(taken);
}

/* How long to wait for the others. Who has failed waits only so that they hear of it: one may be
 * dead, and never come. */
static int64_t report_us(const struct stepaf_agreement *a)
{
    int64_t now_ns = stepaf_monotonic_ns();
    int64_t left_us = (a->deadline_ns - now_ns) / 1000;
    int64_t words_us = LAST_WORDS_US + LAST_WORDS_TIMES * (now_ns - a->began_ns) / 1000;

    if (a->own >= 0)
        return left_us > 1 ? left_us : 1;
    if (left_us < LAST_WORDS_US)
        return LAST_WORDS_US;
    return left_us < words_us ? left_us : words_us;
}

/* Meet, and tell all how this rank's links are; a failure, if there is no memory for more. */
static stepaf_status_t exchange_reports(struct stepaf_agreement *a)
{
    struct stepaf_ctx *ctx = a->ctx;
    struct stepaf_pack pack = {0};
    stepaf_status_t status;
    void *all = NULL;

    pack_report(a, &pack);
    if (pack.failed && a->own >= 0) {
        free(pack.data);
        pack = (struct stepaf_pack){0};
        a->own = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        pack_report(a, &pack);
    }
    stepaf_error_t own = *stepaf_last_error();
    int64_t since_ns = stepaf_monotonic_ns();
    if (pack.failed)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    else
        status = a->patience_ns ? stepaf_members_exchange(ctx, pack.data, pack.bytes, &all,
                                                          a->offsets, report_us(a))
                                : ctx->job.boot.allgather(ctx->job.boot.self, pack.data, pack.bytes,
                                                          &all, a->offsets, report_us(a));
    if (a->own < 0)
        status = stepaf_error_raise(&own);
    else if (!status) {
        /* The others have waited for their links for wait_ms of that. */
        stepaf_agree_allow_for(a, stepaf_monotonic_ns() - since_ns - a->wait_ms * 1000000LL);
        status = check_all(a, all);
    }
    free(pack.data);
    free(all);
    return status;
}

/* Which transport each link has, and why none that is better. */
static void say_links(const struct stepaf_ctx *ctx)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        if (stepaf_agree_concerns(peer) && peer->link)
            stepaf_log_debug(
                STEPAF_WHO_FORMAT " is connected by %s%s%s, %s%s", STEPAF_WHO_ARGS(peer->who),
                peer->link->name, peer->link->address[0] ? " at " : "", peer->link->address,
                peer->refused[0] ? "since better ones cannot be used: " : "the best one available",
                peer->refused);
    }
}

stepaf_status_t stepaf_ranks_agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   stepaf_status_t own, size_t *offsets, int64_t began_ns,
                                   int64_t deadline_ns)
{
    struct stepaf_agreement a = {.ctx = ctx,
                                 .adverts = adverts,
                                 .offsets = offsets,
                                 .began_ns = began_ns,
                                 .deadline_ns = deadline_ns,
                                 .own = own,
                                 .waits_for = -1};
    stepaf_status_t status;

    if (ctx->epoch > 1 && !stepaf_agree_has_news(ctx)) /* all links are up */
        return own;
    for (int r = 0; ctx->epoch > 1 && r < ctx->job.boot.size; r++)
        a.n_absent += !ctx->job.members.present[r];
    if (ctx->epoch > 1)
        a.patience_ns = stepaf_halfway_ns(deadline_ns);
    do {
        if (a.own >= 0)
            a.own = await_links(&a);
        /* A rank that has failed only stays to be heard. */
        ctx->job.members.tests_returned =
            a.own >= 0 && a.patience_ns && !ctx->job.members.returned[ctx->job.boot.rank];
        status = exchange_reports(&a);
    } while (status == STEPAF_INPROGRESS);
    ctx->job.members.tests_returned = false;
    if (status)
        return status;
    ctx->job.members.is_on_trial = false;
    say_links(ctx);
    return STEPAF_OK;
}
