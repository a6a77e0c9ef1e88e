/* SPDX-License-Identifier: Apache-2.0 */
#include "wireup/returns_say.h"

#include <stdio.h>
#include <string.h>

#include "boot/member_net_return.h"
#include "core/peer.h"
#include "core/plan.h"
#include "wireup/connect.h"

/* Whether the host moves GPU memory by buffers of its own, which the commit does not make anew for
 * one peer. */
static bool has_bounces(const struct stepaf_ctx *ctx)
{
    bool has_streams = false;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->on_gpu && !plan->stream && !plan->proxied.is)
            return true;
        has_streams = has_streams || (plan && plan->stream);
    }
    return ctx->gpu.device && !has_streams;
}

/* Why this rank takes nobody at all; NULL: it does. */
static const char *why_nobody(const struct stepaf_ctx *ctx)
{
    if (!ctx->job.members.will.admits)
        return "its commit admits no process (STEPAF_COMMIT_ADMIT, STEPAF_RETURN=admit)";
    if (ctx->gpu.asks)
        return "it has stream plans for the first time, and must determine which GPUs reach each "
               "other: a later commit can admit the process";
    return has_bounces(ctx)
               ? "no rank can return to it, as it has GPU memory in plans that the host starts"
               : NULL;
}

/* Why it cannot take back this peer; NULL: it can. */
static const char *why_not_peer(const struct stepaf_peer *peer)
{
    if (!peer->lost)
        return "it has not noticed that the rank is lost";
    return peer->link && !peer->link->ops->is_over(peer->link)
               ? "the process that had the place has not ended"
               : NULL;
}

/* A guest that waits is told what it waits for. */
static void excuse(const struct stepaf_ctx *ctx, int rank, const char *why)
{
    char text[STEPAF_MEMBER_NET_REASON_MAX];

    snprintf(text, sizeof(text), "world rank %d: %.130s", ctx->job.boot.rank, why);
    stepaf_member_net_excuse(ctx->job.members.net, rank, text);
}

/* The lost peers, whose places have to be free here. */
static void look_at_peers(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    char reason[STEPAF_REASON_MAX];
    bool any = false;

    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        int rank = ctx->peers[p].who.world_rank;
        const char *why = why_not_peer(&ctx->peers[p]);
        members->can_return[rank] = !why;
        any = any || !why;
        if (why)
            excuse(ctx, rank, why);
    }
    uint32_t reopened = any ? stepaf_transports_reopen(ctx, reason) : 0;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        int rank = ctx->peers[p].who.world_rank;
        if (!members->can_return[rank] || stepaf_peer_may_reconnect(&ctx->peers[p], reopened))
            continue;
        excuse(ctx, rank, reason);
        members->can_return[rank] = 0;
    }
}

void stepaf_returns_prepare(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_members *members = &ctx->job.members;

    memset(members->returned, 0, (size_t)ctx->job.boot.size);
    memset(members->can_return, 0, (size_t)ctx->job.boot.size);
    members->takes_back = false;
    if (!members->net || !members->has_cards || !ctx->epoch)
        return;
    const char *why = why_nobody(ctx);
    members->takes_back = !why;
    for (int r = 0; why && r < ctx->job.boot.size; r++)
        excuse(ctx, r, why);
    if (!why)
        look_at_peers(ctx);
}

/* Who has told this rank that it leaves: should it be gone before all have heard it, it has left
 * all the same. */
static void pack_leaving(const struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    const struct stepaf_member_net *net = ctx->job.members.net;
    uint32_t n = 0;

    for (int r = 0; net && r < ctx->job.boot.size; r++)
        n += stepaf_member_net_leaves(net, r);
    stepaf_pack_u32(pack, n);
    for (int r = 0; n && r < ctx->job.boot.size; r++)
        if (stepaf_member_net_leaves(net, r))
            stepaf_pack_u32(pack, (uint32_t)r);
}

void stepaf_returns_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    const struct stepaf_ctx_members *members = &ctx->job.members;
    uint32_t n_back = 0, n_guests = 0;
    uint64_t id;

    for (int r = 0; members->takes_back && r < ctx->job.boot.size; r++) {
        n_back += members->can_return[r];
        n_guests += stepaf_member_net_words(members->net, r, &id) != NULL;
    }
    stepaf_pack_u32(pack, members->takes_back);
    pack_leaving(ctx, pack);
    stepaf_pack_u32(pack, n_back);
    for (int r = 0; n_back && r < ctx->job.boot.size; r++)
        if (members->can_return[r])
            stepaf_pack_u32(pack, (uint32_t)r);
    stepaf_pack_u32(pack, n_guests);
    for (int r = 0; n_guests && r < ctx->job.boot.size; r++) {
        const struct stepaf_consensus_blob *words = stepaf_member_net_words(members->net, r, &id);
        if (!words)
            continue;
        stepaf_pack_u32(pack, (uint32_t)r);
        stepaf_pack_u64(pack, id);
        stepaf_pack_u64(pack, words->bytes);
        stepaf_pack_bytes(pack, words->data, words->bytes);
    }
}

/* ---- reading ---- */

static bool lists(struct stepaf_unpack *unpack, int rank)
{
    uint32_t n = stepaf_unpack_u32(unpack);
    bool is_there = false;

    for (; n && !unpack->failed; n--)
        is_there = (stepaf_unpack_u32(unpack) == (uint32_t)rank && !unpack->failed) || is_there;
    return is_there;
}

bool stepaf_returns_says_leaving(const struct stepaf_advert *advert, int rank)
{
    struct stepaf_unpack unpack = advert->guests;

    (void)stepaf_unpack_u32(&unpack);
    return lists(&unpack, rank);
}

/* A rank that is none of its peers has nothing here that would have to be free: that all have lost
 * it is enough, and the decision says so, whether this one has heard of it before or not. */
bool stepaf_returns_is_willing(const struct stepaf_advert *advert,
                               const struct stepaf_advert *place)
{
    struct stepaf_unpack unpack = advert->guests;
    bool takes_back = stepaf_unpack_u32(&unpack) != 0;

    (void)lists(&unpack, -1);
    if (!advert->will.admits || !takes_back || unpack.failed)
        return false;
    if (advert->role == place->role || advert->lane != place->lane)
        return true;
    return lists(&unpack, place->world_rank);
}

const void *stepaf_returns_find(const struct stepaf_advert *advert, int rank, uint64_t *id_p,
                                uint64_t *bytes_p)
{
    struct stepaf_unpack unpack = advert->guests;

    (void)stepaf_unpack_u32(&unpack);
    (void)lists(&unpack, -1);
    (void)lists(&unpack, -1);
    for (uint32_t n = stepaf_unpack_u32(&unpack); n && !unpack.failed; n--) {
        uint32_t whose = stepaf_unpack_u32(&unpack);
        *id_p = stepaf_unpack_u64(&unpack);
        *bytes_p = stepaf_unpack_u64(&unpack);
        const void *words = stepaf_unpack_bytes(&unpack, *bytes_p);
        if (words && whose == (uint32_t)rank)
            return words;
    }
    return NULL;
}
