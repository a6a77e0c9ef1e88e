/* SPDX-License-Identifier: Apache-2.0 */
/* At the first commit all ranks agree on their links before any waits for another, and so they do about the links
 * to ranks that have returned.
 *
 * Until here each rank has done what it can do alone: for each peer it has taken the best transport that
 * it could set up from its end, and knows nothing of what the peer could. In the first exchange each
 * reports a sum over its links. Where the two ends of some link have taken different transports, the sum
 * of all ranks is not 0; then all report which transports they have taken, and whoever has a better one
 * than its peer follows the peer.
 *
 * Once that is settled, what was begun is waited for, if a transport takes both ends to connect, and seen
 * to work, if connecting does not show that: who finds nothing get through takes the next transport, and the
 * sum tells the peer. Ranks meet when all their links are up, and otherwise from time to time: so a rank that has failed is heard
 * of soon, by those too that have no link to it. */
#include "wireup/agree.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "boot/member_net.h"
#include "core/members.h"
#include "core/peer.h"
#include "wireup/connect.h"

enum {
    NONE = UINT8_MAX,
    DISPUTES_MAX = 2 * STEPAF_MAX_TRANSPORTS,   /* each of them leaves somebody a transport less */
    FIRST_WAIT_MS = 50,                         /* until ranks with links that are not up meet */
    LONGEST_WAIT_MS = 1000,                     /* the wait is doubled each time, up to this */
    LAST_WORDS_US = 2 * LONGEST_WAIT_MS * 1000, /* for a failure, beyond the deadline if need be */
    LAST_WORDS_TIMES = 4 /* as long again as since the ranks have met before the connects */
};

struct agreement {
    struct stepaf_ctx *ctx;
    const struct stepaf_advert *adverts;
    size_t *offsets;
    int64_t began_ns;
    int64_t deadline_ns;
    stepaf_status_t own; /* of this rank: OK, INPROGRESS, or a failure, which is the last error */
    unsigned n_disputes;
    int wait_ms;
    int waits_for; /* the first rank whose links are not all up, by the last reports; -1: none */
    bool in_full;  /* reports have the transports that were taken */
    bool settled;  /* by the last reports both ends of each link have the same transport */
    int n_absent;  /* ranks without a report among the last: they are lost */
    int64_t patience_ns; /* until when members wait for who has returned; 0: nobody has */
};

uint64_t stepaf_agree_link(int attention, int ffn, const char *transport)
{
    uint32_t ranks[2] = {htole32((uint32_t)attention), htole32((uint32_t)ffn)};

    return stepaf_hash(stepaf_hash(STEPAF_HASH_START, ranks, sizeof(ranks)), transport,
                       strlen(transport));
}

void stepaf_agree_pack(const struct stepaf_agree_report *report, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, (uint32_t)report->status);
    stepaf_pack_text(pack, report->status ? report->text : "");
    stepaf_pack_u32(pack, report->pending);
    stepaf_pack_u64(pack, report->sum);
    stepaf_pack_u32(pack, report->n_taken);
    stepaf_pack_bytes(pack, report->taken, report->n_taken);
}

bool stepaf_agree_read(const void *blob, size_t bytes, struct stepaf_agree_report *report_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);

    report_p->status = stepaf_status_from(stepaf_unpack_u32(&unpack));
    stepaf_unpack_text(&unpack, report_p->text, sizeof(report_p->text));
    report_p->pending = stepaf_unpack_u32(&unpack) != 0;
    report_p->sum = stepaf_unpack_u64(&unpack);
    report_p->n_taken = stepaf_unpack_u32(&unpack);
    report_p->taken = stepaf_unpack_bytes(&unpack, report_p->n_taken);
    return !unpack.failed && unpack.at == unpack.end;
}

static stepaf_status_t refuse_malformed(int rank)
{
    return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                            "world rank %d: what it says of its links is malformed", rank);
}

/* Which of the peer's transports has been taken, as the peer counts them. */
static uint8_t taken_for(const struct stepaf_peer *peer, const struct stepaf_advert *advert)
{
    struct stepaf_unpack unused;
    uint32_t index = NONE;

    (void)stepaf_advert_transport(advert, peer->link->ops->name, &unused, &index);
    return (uint8_t)index;
}

/* Whether the link is one of those that ranks agree on: behind the first commit, to who has returned. */
static bool counts_here(const struct stepaf_peer *peer)
{
    return peer->ctx->epoch == 1 || (!peer->lost && stepaf_peer_is_new(peer));
}

static uint64_t sum_of_links(const struct stepaf_ctx *ctx)
{
    bool attention = stepaf_is_attention(ctx);
    int rank = ctx->job.boot.rank;
    uint64_t sum = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        int its = peer->who.world_rank;
        const char *name = peer->link->ops->name;
        if (!counts_here(peer))
            continue;
        sum += attention ? stepaf_agree_link(rank, its, name) : -stepaf_agree_link(its, rank, name);
    }
    return sum;
}

/* A peer that was lost before its link was up. */
static stepaf_status_t check_lost(const struct stepaf_ctx *ctx)
{
    for (uint32_t p = 0; ctx->epoch == 1 && ctx->n_alive < ctx->n_peers && p < ctx->n_peers; p++)
        if (ctx->peers[p].lost)
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

/* Whether members go on without it, if its link does not come about: it has only just returned. */
static bool give_up(const struct agreement *a, uint32_t p, const char *reason)
{
    const struct stepaf_ctx_job *job = &a->ctx->job;
    struct stepaf_peer *peer = &a->ctx->peers[p];

    if (job->members.returned[job->boot.rank] || !job->members.returned[peer->who.world_rank])
        return false;
    stepaf_peer_cut(peer, reason);
    return true;
}

/* A link over which nothing gets through: take the transport that is the next best. */
static stepaf_status_t leave_link(const struct agreement *a, unsigned t, uint32_t peer,
                                  const char *reason)
{
    struct stepaf_ctx *ctx = a->ctx;
    struct stepaf_peer *it = &ctx->peers[peer];

    if (t + 1 >= ctx->net.n_transports)
        return not_connected(ctx, STEPAF_ERR_NO_TRANSPORT, ctx->net.transports[t]->ops->name, peer,
                             reason);
    stepaf_status_t status = stepaf_peer_fall_back(ctx, it, &a->adverts[it->who.world_rank],
                                                   ctx->net.transports[t + 1], reason);
    return status ? status : STEPAF_INPROGRESS;
}

/* See whether they work, once all ranks have connected. */
static stepaf_status_t see_whether_links_work(const struct agreement *a, bool late)
{
    const struct stepaf_ctx *ctx = a->ctx;
    stepaf_status_t all = STEPAF_OK;

    for (unsigned t = 0; t < ctx->net.n_transports; t++) {
        struct stepaf_transport *transport = ctx->net.transports[t];
        char reason[STEPAF_REASON_MAX] = "nothing has come through in time";
        uint32_t peer = 0;
        stepaf_status_t status = transport->ops->prove_links(transport, a->settled, &peer, reason);
        if (status == STEPAF_ERR_NO_TRANSPORT)
            status = leave_link(a, t, peer, reason);
        else if (status < 0 || (status && late))
            status = not_connected(ctx, status < 0 ? status : STEPAF_ERR_TIMEOUT,
                                   transport->ops->name, peer, reason);
        if (status < 0)
            return status;
        all = status ? status : all;
    }
    return all;
}

/* Go on with all links that were begun. STEPAF_INPROGRESS: some are not up, which is a failure when @a
 * late. */
static stepaf_status_t step(const struct agreement *a, int wait_ms, bool late)
{
    const struct stepaf_ctx *ctx = a->ctx;
    stepaf_status_t all = STEPAF_OK;

    for (unsigned t = 0; t < ctx->net.n_transports; t++) {
        struct stepaf_transport *transport = ctx->net.transports[t];
        char reason[STEPAF_REASON_MAX];
        uint32_t peer = 0;
        stepaf_status_t status;
        bool is_over = a->patience_ns && stepaf_monotonic_ns() >= a->patience_ns;
        do
            status =
                transport->ops->finish_connects(transport, a->deadline_ns, wait_ms, &peer, reason);
        while ((status < 0 || (status && is_over)) && give_up(a, peer, reason));
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
static stepaf_status_t await_links(const struct agreement *a)
{
    int64_t until_ns = stepaf_monotonic_ns() + a->wait_ms * 1000000LL;
    stepaf_status_t status;
    bool late, over;

    do {
        int64_t now_ns = stepaf_monotonic_ns();
        late = now_ns >= a->deadline_ns;
        over = late || now_ns >= until_ns;
        status = step(a, over ? 0 : 1, late);
    } while (status == STEPAF_INPROGRESS && !over);
    if (!status && late && a->waits_for >= 0)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                                "world rank %d has not connected to all of its peers in time",
                                a->waits_for);
    return status;
}

/* The better one of two transports does not work both ways: where a peer has taken a lesser one, it is
 * followed. */
static stepaf_status_t follow_peers(struct agreement *a, const uint8_t *all)
{
    struct stepaf_ctx *ctx = a->ctx;
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t p = 0; p < ctx->n_peers && !status; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        int rank = peer->who.world_rank;
        struct stepaf_agree_report report;
        unsigned mine = 0;
        if (!counts_here(peer))
            continue;
        (void)stepaf_agree_read(all + a->offsets[rank], a->offsets[rank + 1] - a->offsets[rank],
                                &report);
        uint8_t taken =
            ctx->job.mesh.slot < report.n_taken ? report.taken[ctx->job.mesh.slot] : NONE;
        if (taken >= ctx->net.n_transports)
            return refuse_malformed(rank);
        while (ctx->net.transports[mine] != peer->link->transport)
            mine++;
        if (mine < taken)
            status = stepaf_peer_fall_back(ctx, peer, &a->adverts[rank], ctx->net.transports[taken],
                                           "the other end cannot use it");
    }
    return status;
}

/* Whether the rank's report counts: one that has just returned, and reports a failure, is lost to the members, who
 * all see the same. */
static bool is_heard(const struct agreement *a, int rank, const uint8_t *all)
{
    const struct stepaf_ctx_members *members = &a->ctx->job.members;
    struct stepaf_agree_report report;

    if (!a->patience_ns)
        return true;
    if (!members->present[rank])
        return false;
    return !members->returned[rank] || members->returned[a->ctx->job.boot.rank] ||
           (stepaf_agree_read(all + a->offsets[rank], a->offsets[rank + 1] - a->offsets[rank],
                              &report) &&
            !report.status);
}

/* Who is not heard is lost; whether that is news. */
static bool note_absent(struct agreement *a, const uint8_t *all)
{
    struct stepaf_ctx *ctx = a->ctx;
    int n_before = a->n_absent;

    a->n_absent = 0;
    for (int r = 0; r < ctx->job.boot.size; r++) {
        bool is_lost = !is_heard(a, r, all);
        a->n_absent += is_lost;
        if (is_lost && ctx->job.members.is[r])
            stepaf_member_net_lose(ctx->job.members.net, r, "it has failed in the commit");
    }
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        if (peer->lost || is_heard(a, peer->who.world_rank, all))
            continue;
        if (stepaf_peer_is_new(peer))
            stepaf_peer_cut(peer, "the other ranks have lost it in the commit");
        else
            stepaf_peer_fail(peer, "the other ranks have lost it in the commit");
    }
    return a->n_absent != n_before;
}

/* What all have reported: every rank comes to the same verdict. STEPAF_INPROGRESS: they have to meet
 * again. */
static stepaf_status_t check_all(struct agreement *a, const uint8_t *all)
{
    bool is_news = a->patience_ns && note_absent(a, all);
    uint64_t sum = 0;

    a->waits_for = -1;
    for (int r = 0; r < a->ctx->job.boot.size; r++) {
        struct stepaf_agree_report report;
        if (!is_heard(a, r, all))
            continue;
        if (!stepaf_agree_read(all + a->offsets[r], a->offsets[r + 1] - a->offsets[r], &report))
            return refuse_malformed(r);
        if (report.status)
            return stepaf_error_set(report.status, STEPAF_PHASE_COMMIT, "world rank %d: %.280s", r,
                                    report.text);
        if (report.pending && a->waits_for < 0)
            a->waits_for = r;
        sum += report.sum;
    }
    if (is_news) /* the sums may be from before it */
        return STEPAF_INPROGRESS;
    a->settled = !sum;
    if (!sum) {
        int longer = a->wait_ms ? 2 * a->wait_ms : FIRST_WAIT_MS;
        a->wait_ms = longer < LONGEST_WAIT_MS ? longer : LONGEST_WAIT_MS;
        return a->waits_for < 0 ? STEPAF_OK : STEPAF_INPROGRESS;
    }
    if (a->n_disputes++ == DISPUTES_MAX)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "ranks do not come to agree on the transports of their links");
    if (a->in_full)
        a->own = follow_peers(a, all);
    a->in_full = true;
    return STEPAF_INPROGRESS;
}

static void pack_report(const struct agreement *a, struct stepaf_pack *pack)
{
    struct stepaf_ctx *ctx = a->ctx;
    struct stepaf_agree_report report = {.pending = a->own == STEPAF_INPROGRESS};
    uint8_t *taken = NULL;

    if (a->own < 0) {
        report.status = a->own;
        memcpy(report.text, stepaf_last_error()->text, sizeof(report.text));
    } else {
        report.sum = sum_of_links(ctx);
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

/* How long to wait for the others. Who has failed waits only so that they hear of it: one may be dead, and
 * never come. */
static int64_t report_us(const struct agreement *a)
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
static stepaf_status_t exchange_reports(struct agreement *a)
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
    if (pack.failed)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    else
        status = a->patience_ns ? stepaf_members_exchange(ctx, pack.data, pack.bytes, &all,
                                                          a->offsets, report_us(a))
                                : ctx->job.boot.allgather(ctx->job.boot.self, pack.data, pack.bytes,
                                                          &all, a->offsets, report_us(a));
    if (a->own < 0)
        status = stepaf_error_raise(&own);
    else if (!status)
        status = check_all(a, all);
    free(pack.data);
    free(all);
    return status;
}

static bool any_returned(const struct stepaf_ctx *ctx)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (ctx->job.members.returned[r])
            return true;
    return false;
}

stepaf_status_t stepaf_ranks_agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   stepaf_status_t own, size_t *offsets, int64_t began_ns,
                                   int64_t deadline_ns)
{
    struct agreement a = {.ctx = ctx,
                          .adverts = adverts,
                          .offsets = offsets,
                          .began_ns = began_ns,
                          .deadline_ns = deadline_ns,
                          .own = own,
                          .waits_for = -1};
    stepaf_status_t status;

    if (ctx->epoch > 1 && !any_returned(ctx)) /* all links are up */
        return own;
    for (int r = 0; ctx->epoch > 1 && r < ctx->job.boot.size; r++)
        a.n_absent += !ctx->job.members.present[r];
    if (ctx->epoch > 1)
        a.patience_ns = began_ns + (deadline_ns - began_ns) / 2;
    do {
        if (a.own >= 0)
            a.own = await_links(&a);
        status = exchange_reports(&a);
    } while (status == STEPAF_INPROGRESS);
    return status;
}
