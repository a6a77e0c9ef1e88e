/* SPDX-License-Identifier: Apache-2.0 */
#include "wireup/returns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "boot/member_net_return.h"
#include "core/members.h"
#include "core/peer.h"
#include "core/peer_renew.h"
#include "core/plan.h"
#include "wireup/connect.h"

/* ---- cards ---- */

bool stepaf_return_card_keep(struct stepaf_ctx *ctx, int rank, const struct stepaf_hello *hello,
                             const void *blob, size_t bytes, int role)
{
    struct stepaf_pack pack = {0};

    stepaf_member_contact_pack(&hello->contact, &pack);
    stepaf_pack_u32(&pack, (uint32_t)role);
    stepaf_pack_bytes(&pack, blob, bytes);
    bool is_kept = !pack.failed &&
                   stepaf_member_net_set_card(ctx->job.members.net, rank, pack.data, pack.bytes);
    free(pack.data);
    return is_kept;
}

bool stepaf_return_card_read(const void *card, size_t bytes, struct stepaf_unpack *words_p,
                             struct stepaf_hello *hello_p, int *role_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(card, bytes);
    struct stepaf_member_contact contact;

    if (!card || !stepaf_member_contact_read(&unpack, &contact))
        return false;
    *role_p = (int)stepaf_unpack_u32(&unpack);
    *words_p = unpack;
    return !unpack.failed && (*role_p == STEPAF_ATTENTION || *role_p == STEPAF_FFN) &&
           stepaf_hello_read(unpack.at, (size_t)(unpack.end - unpack.at), hello_p);
}

/* ---- what members say ---- */

static struct stepaf_peer *returning_peer(struct stepaf_ctx *ctx, int world_rank)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].who.world_rank == world_rank)
            return &ctx->peers[p];
    return NULL;
}

/* Plans on streams, and GPU memory, take more to be had anew than links. */
static bool uses_gpu(const struct stepaf_ctx *ctx)
{
    bool has_streams = ctx->gpu.streams || ctx->gpu.device || ctx->gpu.asks;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        has_streams = has_streams || (plan && plan->stream);
    }
    return has_streams;
}

/* Whether its place is free here, and the process that had it can write nothing here any more. */
static bool can_take_back(struct stepaf_ctx *ctx, int rank)
{
    const struct stepaf_peer *peer = returning_peer(ctx, rank);

    if (rank == ctx->job.boot.rank ||
        (ctx->job.members.is[rank] &&
         !stepaf_consensus_has_lost(stepaf_member_net_consensus(ctx->job.members.net), rank)))
        return false;
    return !peer || (peer->lost && (!peer->link || peer->link->ops->is_over(peer->link)));
}

void stepaf_returns_prepare(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    bool any = false;

    memset(members->returned, 0, (size_t)ctx->job.boot.size);
    memset(members->can_return, 0, (size_t)ctx->job.boot.size);
    if (!members->net || !members->has_cards || !ctx->epoch || uses_gpu(ctx))
        return;
    for (int r = 0; r < ctx->job.boot.size; r++) {
        members->can_return[r] = can_take_back(ctx, r);
        any = any || members->can_return[r];
    }
    if (any && !stepaf_transports_reopen(ctx))
        memset(members->can_return, 0, (size_t)ctx->job.boot.size);
}

void stepaf_returns_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    const struct stepaf_ctx_members *members = &ctx->job.members;
    uint32_t n_back = 0, n_guests = 0;
    uint64_t id;

    for (int r = 0; r < ctx->job.boot.size; r++) {
        n_back += members->can_return[r];
        n_guests += members->can_return[r] && stepaf_member_net_words(members->net, r, &id);
    }
    stepaf_pack_u32(pack, n_back);
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (members->can_return[r])
            stepaf_pack_u32(pack, (uint32_t)r);
    stepaf_pack_u32(pack, n_guests);
    for (int r = 0; r < ctx->job.boot.size; r++) {
        const struct stepaf_consensus_blob *words =
            members->can_return[r] ? stepaf_member_net_words(members->net, r, &id) : NULL;
        if (!words)
            continue;
        stepaf_pack_u32(pack, (uint32_t)r);
        stepaf_pack_u64(pack, id);
        stepaf_pack_u64(pack, words->bytes);
        stepaf_pack_bytes(pack, words->data, words->bytes);
    }
}

/* ---- the verdict ---- */

/* A guest, as its home tells of it. */
struct guest {
    uint64_t id;
    struct stepaf_unpack card, advert;
    struct stepaf_hello hello;
    int role;
};

/* Whether the rank can take @a rank back, and wants to. */
static bool is_willing(const struct stepaf_advert *advert, int rank)
{
    struct stepaf_unpack unpack = advert->guests;
    uint32_t n = stepaf_unpack_u32(&unpack);

    for (; advert->admits && n && !unpack.failed; n--)
        if (stepaf_unpack_u32(&unpack) == (uint32_t)rank && !unpack.failed)
            return true;
    return false;
}

/* Find what it tells of a guest that wants the place of @a rank. */
static bool find_words(const struct stepaf_advert *advert, int rank, struct guest *guest_p)
{
    struct stepaf_unpack unpack = advert->guests;
    uint32_t n = stepaf_unpack_u32(&unpack);

    (void)stepaf_unpack_bytes(&unpack, (size_t)n * sizeof(uint32_t));
    for (n = stepaf_unpack_u32(&unpack); n && !unpack.failed; n--) {
        uint32_t whose = stepaf_unpack_u32(&unpack);
        uint64_t id = stepaf_unpack_u64(&unpack), bytes = stepaf_unpack_u64(&unpack);
        const void *words = stepaf_unpack_bytes(&unpack, bytes);
        if (!words || whose != (uint32_t)rank)
            continue;
        struct stepaf_unpack its = stepaf_unpack_from(words, bytes);
        uint64_t card_bytes = stepaf_unpack_u64(&its);
        const void *card = stepaf_unpack_bytes(&its, card_bytes);
        if (!card)
            return false;
        guest_p->id = id;
        guest_p->card = stepaf_unpack_from(card, card_bytes);
        guest_p->advert = its;
        return true;
    }
    return false;
}

/* The guest of the first member that tells of one, if all would have it. */
static bool find_guest(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts, int rank,
                       struct guest *guest_p)
{
    const uint8_t *present = ctx->job.members.present; /* guests whose adverts are there are not */
    bool is_found = false;

    for (int r = 0; r < ctx->job.boot.size; r++)
        if (present[r] && !is_willing(&adverts[r], rank))
            return false;
    for (int r = 0; r < ctx->job.boot.size && !is_found; r++)
        is_found = present[r] && find_words(&adverts[r], rank, guest_p);
    return is_found;
}

static stepaf_status_t check_hello(const struct stepaf_ctx *ctx, int rank, struct guest *guest)
{
    size_t bytes = (size_t)(guest->card.end - guest->card.at);
    struct stepaf_unpack words;

    if (!stepaf_return_card_read(guest->card.at, bytes, &words, &guest->hello, &guest->role) ||
        guest->hello.wire != STEPAF_WIRE_VERSION || !guest->hello.contact.addresses.port)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "what it says of itself is malformed");
    if (guest->hello.status)
        return stepaf_error_set(guest->hello.status, STEPAF_PHASE_COMMIT, "%s", guest->hello.text);
    if (guest->role != ctx->job.ranks[rank].role ||
        guest->hello.digest != stepaf_env_digest(&ctx->env))
        return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                                "its role or its settings differ from the job's");
    return STEPAF_OK;
}

static const struct stepaf_advert *first_present(const struct stepaf_advert *adverts)
{
    while (adverts->absent)
        adverts++;
    return adverts;
}

/* Read its advert into the lost rank's place, as if it had been in the exchange. */
static stepaf_status_t read_guest(const struct stepaf_ctx *ctx, int rank, struct guest *guest,
                                  struct stepaf_advert *adverts)
{
    stepaf_status_t status = check_hello(ctx, rank, guest);
    uint32_t epoch = first_present(adverts)->epoch;
    uint32_t lane = adverts[rank].lane;
    struct stepaf_advert advert;

    if (!status)
        status =
            stepaf_advert_read(guest->advert.at, (size_t)(guest->advert.end - guest->advert.at),
                               guest->role, rank, NULL, &advert);
    if (status)
        return status;
    advert.lane = lane;
    advert.node_id = guest->hello.node_id;
    advert.proxies = guest->hello.proxies;
    advert.epoch = epoch;
    advert.changed = true;
    adverts[rank] = advert;
    if (advert.asks)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                "it asks for GPU memory, which a rank cannot return with");
    return stepaf_adverts_check(adverts, ctx->job.boot.size, ctx->job.boot.rank, ctx->feature);
}

static void turn_guest_away(struct stepaf_ctx *ctx, int rank, const struct guest *guest)
{
    stepaf_log_warn("a process that wants the place of world rank %d is turned away: %s", rank,
                    stepaf_last_error()->text);
    if (ctx->epoch)
        stepaf_member_net_turn_away(ctx->job.members.net, rank, guest->id,
                                    stepaf_last_error()->text);
}

/* Try one: it is in its place afterwards, or the place is empty as before. */
static stepaf_status_t try_guest(struct stepaf_ctx *ctx, int rank, struct stepaf_advert *adverts)
{
    struct stepaf_advert before = adverts[rank];
    struct guest guest;

    if (!find_guest(ctx, adverts, rank, &guest))
        return STEPAF_OK;
    stepaf_status_t status = read_guest(ctx, rank, &guest, adverts);
    ctx->job.members.returned[rank] = !status;
    if (!status)
        return STEPAF_OK;
    if (!adverts[rank].absent)
        stepaf_advert_free(&adverts[rank]);
    adverts[rank] = before;
    if (status == STEPAF_ERR_NO_MEMORY)
        return status;
    turn_guest_away(ctx, rank, &guest);
    return STEPAF_OK;
}

stepaf_status_t stepaf_returns_check(struct stepaf_ctx *ctx, struct stepaf_advert *adverts)
{
    int size = ctx->job.boot.size;
    stepaf_status_t base = stepaf_adverts_check(adverts, size, ctx->job.boot.rank, ctx->feature);
    stepaf_error_t error = base ? *stepaf_last_error() : (stepaf_error_t){0};
    bool any = false;

    memset(ctx->job.members.returned, 0, (size_t)size);
    for (int r = 0; r < size; r++)
        if (!adverts[r].absent && adverts[r].status)
            return base;
    if (base && base != STEPAF_ERR_STATE) /* which may be that nothing has changed */
        return base;
    for (int r = 0; r < size; r++) {
        stepaf_status_t status = adverts[r].absent ? try_guest(ctx, r, adverts) : STEPAF_OK;
        if (status)
            return status;
        any = any || ctx->job.members.returned[r];
    }
    return any || !base ? STEPAF_OK : stepaf_error_raise(&error);
}

/* ---- what comes of it ---- */

static void take_facts(struct stepaf_ctx *ctx, int rank, const struct stepaf_hello *hello)
{
    struct stepaf_rank *its = &ctx->job.ranks[rank];

    its->proxies = hello->proxies;
    its->pid = hello->pid;
    its->node_id = hello->node_id;
}

/* A guest has looked at them some time ago: others may have returned since. */
static void take_all_facts(struct stepaf_ctx *ctx)
{
    struct stepaf_unpack words;
    struct stepaf_hello hello;
    int role;

    for (int r = 0; r < ctx->job.boot.size; r++) {
        const struct stepaf_consensus_blob *card = stepaf_member_net_card(ctx->job.members.net, r);
        if (r != ctx->job.boot.rank &&
            stepaf_return_card_read(card->data, card->bytes, &words, &hello, &role))
            take_facts(ctx, r, &hello);
    }
}

static bool is_on_one_node(const struct stepaf_ctx *ctx)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (ctx->job.members.is[r] && ctx->job.ranks[r].node_id != ctx->job.topo.node_id)
            return false;
    return true;
}

/* It is a member, in all tables. Words that are not there are those of this process itself. */
static stepaf_status_t adopt_guest(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   int rank)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    bool has_come = members->is_guest && !ctx->epoch; /* with the decision that admits this one */
    struct stepaf_peer *peer = returning_peer(ctx, rank);
    struct guest guest = {0};
    bool is_found = false;

    for (int r = 0; r < ctx->job.boot.size && !is_found; r++)
        is_found = r != rank && members->present[r] && !members->returned[r] &&
                   find_words(&adverts[r], rank, &guest);
    if (!is_found || check_hello(ctx, rank, &guest))
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "what world rank %d has said is gone", rank);
    if (!has_come && !stepaf_member_net_admit(members->net, rank, guest.id, guest.card.at,
                                              (size_t)(guest.card.end - guest.card.at)))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    take_facts(ctx, rank, &guest.hello);
    if (peer && !has_come)
        stepaf_peer_renew(peer);
    return STEPAF_OK;
}

stepaf_status_t stepaf_returns_adopt(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    bool is_new = members->is_guest && !ctx->epoch, any = false;
    stepaf_status_t status = STEPAF_OK;
    uint32_t epoch = ctx->epoch;

    if (is_new)
        take_all_facts(ctx);
    for (int r = 0; r < ctx->job.boot.size && !status; r++)
        if (members->returned[r]) {
            status = adopt_guest(ctx, adverts, r);
            any = true;
        }
    for (int r = 0; r < ctx->job.boot.size && !status; r++)
        if (members->returned[r])
            members->present[r] = members->is[r] = 1;
    if (is_new)
        stepaf_member_net_counts(members->net, &ctx->epoch, &ctx->commit.n);
    if (status || !any)
        return status;
    ctx->clock.one_node = is_on_one_node(ctx);
    if (!is_new) {
        stepaf_member_net_set_counts(members->net, epoch, ctx->commit.n);
        stepaf_member_net_welcome(members->net);
    }
    return STEPAF_OK;
}
