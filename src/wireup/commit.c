/* SPDX-License-Identifier: Apache-2.0 */
/* The collective commit: one exchange with the same outcome of the check everywhere; then links,
 * memory and plans; then READY over every link, so that no rank leaves before all can receive. */
#include <stdlib.h>
#include <string.h>

#include "boot/member_net_return.h"
#include "core/clock.h"
#include "core/deliver.h"
#include "core/feature.h"
#include "core/key_recv.h"
#include "core/key_remove.h"
#include "core/members.h"
#include "core/plan.h"
#include "core/region_remove.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/wait.h"
#include "map/map.h"
#include "wireup/commit.h"
#include "wireup/connect.h"
#include "wireup/lost.h"
#include "wireup/quiesce.h"
#include "wireup/ready.h"
#include "wireup/returns.h"
#include "wireup/returns_say.h"

static stepaf_status_t prepare_commit(struct stepaf_ctx *ctx, int64_t deadline_ns)
{
    stepaf_status_t status = stepaf_commit_quiesce(ctx, deadline_ns);

    if (!status)
        status = stepaf_transports_open(ctx);
    if (!status && !stepaf_is_attention(ctx))
        status = stepaf_key_allocate(ctx);
    if (!status)
        status = ctx->feature->prepare(ctx);
    if (!status)
        stepaf_returns_prepare(ctx);
    return status;
}

/* Return the advert of the rank before @a rank with the same role and lane; NULL: none. */
static const struct stepaf_advert *before_of(const struct stepaf_ctx *ctx, int rank,
                                             const struct stepaf_advert *adverts)
{
    const struct stepaf_rank *its = &ctx->job.ranks[rank];
    int group = its->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;

    for (uint32_t before = its->rank; before >= ctx->job.mesh.lanes;) {
        before -= ctx->job.mesh.lanes;
        const struct stepaf_advert *advert = &adverts[ctx->job.groups[group][before]];
        if (!advert->absent)
            return advert;
    }
    return NULL;
}

/* Return the error of a failed exchange. An error that this rank has found itself says more than
 * the bootstrap's. */
static stepaf_status_t not_exchanged(const struct stepaf_ctx *ctx, stepaf_status_t status,
                                     const stepaf_error_t *own)
{
    stepaf_error_t late = *stepaf_last_error();
    struct stepaf_who missing = {late.peer_role, late.peer_rank, late.peer_world_rank};

    if (own->status)
        return stepaf_error_raise(own);
    if (status != STEPAF_ERR_TIMEOUT || late.status != status)
        return status;
    return stepaf_error_set_peer(status, STEPAF_PHASE_COMMIT, missing,
                                 "%.200s: STEPAF_COMMIT_TIMEOUT_US is %lld us", late.text,
                                 (long long)ctx->env.commit_timeout_us);
}

/* Pack this rank's advert; if out of memory for it, pack that failure. */
static stepaf_status_t pack_own(struct stepaf_ctx *ctx, stepaf_status_t own,
                                struct stepaf_pack *pack_p)
{
    stepaf_advert_pack(ctx, own, pack_p);
    if (!own)
        stepaf_returns_pack(ctx, pack_p);
    if (!pack_p->failed || own)
        return own;
    free(pack_p->data);
    *pack_p = (struct stepaf_pack){0};
    own = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    stepaf_advert_pack(ctx, own, pack_p);
    return own;
}

/* Return whether some rank has failed, so that all ranks know that the commit has. */
static bool any_has_failed(const uint8_t *all, const size_t *offsets, int n)
{
    bool any = false;

    for (int r = 0; r < n; r++)
        any = any || stepaf_advert_has_failed(all + offsets[r], offsets[r + 1] - offsets[r]);
    return any;
}

/* Read the advert of one rank, or mark the rank as absent. */
static stepaf_status_t read_advert(const struct stepaf_ctx *ctx, int rank, const void *all,
                                   const size_t *offsets, struct stepaf_advert *adverts)
{
    const struct stepaf_rank *its = &ctx->job.ranks[rank];
    struct stepaf_advert *advert = &adverts[rank];
    stepaf_status_t status = STEPAF_OK;

    if (ctx->job.members.present[rank])
        status = stepaf_advert_read((const uint8_t *)all + offsets[rank],
                                    offsets[rank + 1] - offsets[rank], its->role, rank,
                                    before_of(ctx, rank, adverts), advert);
    else
        *advert = (struct stepaf_advert){.role = its->role,
                                         .world_rank = rank,
                                         .absent = true,
                                         .was_member = ctx->job.members.is[rank]};
    advert->lane = its->rank % ctx->job.mesh.lanes;
    advert->node_id = its->node_id;
    advert->proxies = its->proxies;
    return status;
}

/* Ask the members to admit this process. A failure of its own concerns nobody else. */
static stepaf_status_t ask_members(struct stepaf_ctx *ctx, stepaf_status_t own,
                                   const struct stepaf_pack *pack, void **all_p, size_t *offsets_p,
                                   int64_t deadline_ns)
{
    return own ? own
               : stepaf_return_ask(ctx, pack->data, pack->bytes, all_p, offsets_p, deadline_ns);
}

/* Exchange adverts and check them. The caller owns adverts and *all_p, which is NULL if there was
 * no exchange. *met_p: all ranks have exchanged, and reach the same outcome. */
static stepaf_status_t exchange_adverts(struct stepaf_ctx *ctx, stepaf_status_t own,
                                        int64_t deadline_ns, struct stepaf_advert *adverts,
                                        size_t *offsets, void **all_p, bool *met_p)
{
    struct stepaf_pack pack = {0};
    int size = ctx->job.boot.size, n_read = 0;
    stepaf_status_t status = STEPAF_OK;

    own = pack_own(ctx, own, &pack);
    stepaf_error_t own_error = own ? *stepaf_last_error() : (stepaf_error_t){0};
    if (pack.failed)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    if (!status) {
        status = ctx->job.members.is_guest && !ctx->epoch
                     ? ask_members(ctx, own, &pack, all_p, offsets, deadline_ns)
                     : stepaf_members_exchange(ctx, pack.data, pack.bytes, all_p, offsets,
                                               stepaf_left_us(deadline_ns));
        *met_p = !status;
        if (status)
            status = not_exchanged(ctx, status, &own_error);
    }
    if (!status && ctx->job.members.is_guest && !ctx->epoch)
        stepaf_returns_take_facts(ctx);
    for (; !status && n_read < size; n_read++)
        status = read_advert(ctx, n_read, *all_p, offsets, adverts);
    if (!status && ctx->epoch) /* for a guest, the members have done so */
        status = stepaf_lost_check(ctx, adverts);
    if (!status)
        status = stepaf_returns_check(ctx, adverts);
    if (!status && ctx->job.members.is_guest && !ctx->epoch &&
        !ctx->job.members.returned[ctx->job.boot.rank])
        status = stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                  "the members have admitted this process without its advert");
    if (status == STEPAF_ERR_NO_MEMORY && *all_p && !any_has_failed(*all_p, offsets, size))
        *met_p = false; /* only this rank failed */
    if (own && !strcmp(stepaf_last_error()->text, own_error.text))
        stepaf_error_raise(&own_error); /* this rank's own error, which also names the peer */
    free(pack.data);
    return status;
}

static void free_adverts(const struct stepaf_ctx *ctx, struct stepaf_advert *adverts, void **all_p)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        stepaf_advert_free(&adverts[r]);
    memset(adverts, 0, (size_t)ctx->job.boot.size * sizeof(*adverts));
    free(*all_p);
    *all_p = NULL;
}

/* Find out which ranks reach whose GPU memory, if adverts ask for it, and exchange adverts again if
 * they must change. */
static stepaf_status_t agree_reach(struct stepaf_ctx *ctx, int64_t deadline_ns,
                                   struct stepaf_advert *adverts, size_t *offsets, void **all_p,
                                   bool *met_p)
{
    bool asks = false, again = false;
    stepaf_status_t status;

    for (int r = 0; r < ctx->job.boot.size; r++)
        asks = asks || adverts[r].asks;
    if (!asks)
        return STEPAF_OK;
    status = ctx->feature->agree_reach(ctx, adverts, offsets, stepaf_left_us(deadline_ns), &again);
    if (status)
        *met_p = false;
    if (status || !again)
        return status;
    ctx->feature->undo(ctx);
    free_adverts(ctx, adverts, all_p);
    status = ctx->feature->prepare(ctx);
    return exchange_adverts(ctx, status, deadline_ns, adverts, offsets, all_p, met_p);
}

static void mark_committed(struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->memory.n_regions; i++)
        if (stepaf_is_attention(ctx) || ctx->memory.regions[i]->target)
            ctx->memory.regions[i]->offered = ctx->epoch;
    ctx->commit.changed = false;
}

/* Enter the epoch. Once the adverts are checked, there is no way back: a failure breaks the
 * context. */
static stepaf_status_t enter_epoch(struct stepaf_ctx *ctx, struct stepaf_advert *adverts,
                                   size_t *offsets, int64_t deadline_ns)
{
    int64_t began_ns = stepaf_monotonic_ns();
    stepaf_status_t status = stepaf_returns_adopt(ctx, adverts);
    stepaf_error_t error = status ? *stepaf_last_error() : (stepaf_error_t){0};

    stepaf_lost_take_out(ctx, adverts);
    ctx->epoch++;
    stepaf_members_adopt(ctx);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        stepaf_remote_plans_free(&ctx->peers[p]);
    stepaf_core_hear(ctx, true);
    status = status ? stepaf_error_raise(&error) : stepaf_peers_connect(ctx, adverts);
    if (!status)
        status = ctx->feature->join(ctx, adverts);
    status = stepaf_ranks_agree(ctx, adverts, status, offsets, began_ns, deadline_ns);
    if (status) {
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            stepaf_send_ready(&ctx->peers[p], ctx->epoch, status);
        return status;
    }
    stepaf_transports_shrink(ctx);
    mark_committed(ctx);
    status = stepaf_commit_handshake(ctx, deadline_ns);
    if (!status)
        stepaf_members_settled(ctx);
    if (!status && (ctx->gpu.streams || ctx->memory.withdrawn))
        status = stepaf_regions_quiesce(ctx, deadline_ns);
    ctx->feature->retire(ctx);
    if (!status)
        stepaf_keys_free_withdrawn(ctx);
    if (!status)
        status = stepaf_transports_trim(ctx);
    if (!status)
        ctx->feature->ready(ctx);
    if (!status)
        status = stepaf_clock_sync(ctx, deadline_ns);
    if (!status && ctx->epoch == 1 && ctx->env.print_map)
        status = stepaf_map_print(ctx, stepaf_left_us(deadline_ns));
    if (!status)
        atomic_fetch_add_explicit(&ctx->commit.n_done, 1, memory_order_relaxed);
    return status;
}

/* End the use of the context: what plans name may be gone, or this rank has left. */
static void break_up(struct stepaf_ctx *ctx, enum stepaf_ctx_state state)
{
    ctx->state = state;
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan)
            plan->usable = 0;
    }
}

/* Return whether a guest that was not admitted can ask again. */
static bool may_try_again(const struct stepaf_ctx *ctx, stepaf_status_t status)
{
    return status && !ctx->epoch && ctx->job.members.is_guest &&
           stepaf_member_net_admission(ctx->job.members.net) == STEPAF_MEMBER_WAITS;
}

/* Let the others see that this rank has entered a commit because it leaves, so that they enter
 * too. */
static void announce_leaving(struct stepaf_ctx *ctx)
{
    ctx->commit.changed = true;
    stepaf_member_net_tell_leaving(ctx->job.members.net, true);
    stepaf_member_net_pump(ctx->job.members.net);
}

/* Undo leaving: this rank stays a member, and now reports the peers that it has lost meanwhile. */
static void stay(struct stepaf_ctx *ctx)
{
    struct stepaf_member_net *net = ctx->job.members.net;

    ctx->job.members.will.leaves = false;
    stepaf_member_net_tell_leaving(net, false);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].lost && !ctx->peers[p].is_out)
            stepaf_member_net_lose(net, ctx->peers[p].who.world_rank, ctx->peers[p].reason);
}

/* Return whether the others continue without this rank: they may have checked the adverts already,
 * and be ahead of this rank. */
static bool has_left(const struct stepaf_ctx *ctx, stepaf_status_t status)
{
    return !status || (status == STEPAF_ERR_PEER_LOST &&
                       stepaf_member_net_consensus(ctx->job.members.net)->is_out);
}

stepaf_status_t stepaf_core_commit(struct stepaf_ctx *ctx, const struct stepaf_commit_will *will,
                                   int64_t deadline_ns)
{
    struct stepaf_advert *adverts = calloc((size_t)ctx->job.boot.size, sizeof(*adverts));
    size_t *offsets = calloc((size_t)ctx->job.boot.size + 1, sizeof(*offsets));
    stepaf_status_t status;
    bool met = false;
    void *all = NULL;

    if (!adverts || !offsets) { /* before anything is announced */
        free(adverts);
        free(offsets);
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    ctx->job.members.will = *will;
    if (ctx->job.members.net)
        stepaf_member_net_set_new(ctx->job.members.net, NULL);
    if (will->leaves)
        announce_leaving(ctx);
    status = prepare_commit(ctx, deadline_ns);
    status = exchange_adverts(ctx, status, deadline_ns, adverts, offsets, &all, &met);
    if (!status)
        status = agree_reach(ctx, deadline_ns, adverts, offsets, &all, &met);
    if (will->leaves && has_left(ctx, status)) {
        status = STEPAF_OK;
        break_up(ctx, STEPAF_CTX_LEFT);
        goto out;
    }
    if (status) {
        stepaf_core_hear(ctx, true); /* the last epoch stays in force */
        if (will->leaves)
            stay(ctx);
        if (!stepaf_is_attention(ctx))
            stepaf_key_allocate_undo(ctx);
        ctx->feature->undo(ctx);
        if ((!met || status == STEPAF_ERR_TIMEOUT) && !may_try_again(ctx, status))
            break_up(ctx, STEPAF_CTX_BROKEN);
        for (uint32_t p = 0; p < ctx->n_peers && !met; p++) /* the peers may have met */
            stepaf_send_ready(&ctx->peers[p], ctx->epoch + 1, status);
        if (!met && all && !ctx->epoch &&
            !ctx->job.members.is_guest) /* the others, agreeing on links, learn of the failure */
            status = stepaf_ranks_agree(ctx, adverts, status, offsets, stepaf_monotonic_ns(),
                                        deadline_ns);
        goto out;
    }
    status = enter_epoch(ctx, adverts, offsets, deadline_ns);
    if (status)
        break_up(ctx, STEPAF_CTX_BROKEN);
out:
    ctx->gpu.proxies_still = false;
    ctx->commit.exclusive = false;
    ctx->commit.has_entered = false;
    free_adverts(ctx, adverts, &all);
    free(adverts);
    free(offsets);
    return status;
}
