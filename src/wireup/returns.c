/* SPDX-License-Identifier: Apache-2.0 */
/* Guests in a member's commit: checking them, and adopting those that are admitted. */
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
#include "wireup/return_card.h"
#include "wireup/returns_say.h"

/* ---- who is where ---- */

static void take_facts(struct stepaf_ctx *ctx, int rank, const struct stepaf_hello *hello)
{
    struct stepaf_rank *its = &ctx->job.ranks[rank];

    its->proxies = hello->proxies;
    its->pid = hello->pid;
    its->node_id = hello->node_id;
}

void stepaf_returns_take_facts(struct stepaf_ctx *ctx)
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

/* ---- the check ---- */

/* A guest, as its home reports it. */
struct guest {
    uint64_t id;
    struct stepaf_unpack card, advert;
    struct stepaf_hello hello;
    int role;
    bool is_compared; /* with all other adverts */
};

/* Find what a member reports of a guest that wants the place of @a rank. */
static bool find_words(const struct stepaf_advert *advert, int rank, struct guest *guest_p)
{
    uint64_t id = 0, bytes = 0;
    const void *words = stepaf_returns_find(advert, rank, &id, &bytes);

    if (!words)
        return false;
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

/* Find the guest that the first member reports, if all members would admit it. */
static bool find_guest(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts, int rank,
                       struct guest *guest_p)
{
    /* guests whose adverts are in place are not present */
    const uint8_t *present = ctx->job.members.present;
    bool is_found = false;

    for (int r = 0; r < ctx->job.boot.size; r++)
        if (present[r] && !stepaf_returns_is_willing(&adverts[r], &adverts[rank]))
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
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, "its hello is malformed");
    if (guest->hello.status)
        return stepaf_error_set(guest->hello.status, STEPAF_PHASE_COMMIT, "%s", guest->hello.text);
    if (guest->role != ctx->job.ranks[rank].role ||
        guest->hello.digest != stepaf_env_digest(&ctx->env))
        return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                                "its role or its settings differ from the job's");
    return STEPAF_OK;
}

/* Return whether stream plans would reach the guest by another way than the process that had its
 * place: through GPU memory, which the others prepare before they learn of the guest, or through
 * the host. */
static bool has_moved(const struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                      const struct stepaf_advert *before, const struct stepaf_advert *its)
{
    for (int r = 0; r < ctx->job.boot.size; r++) {
        const struct stepaf_advert *other = &adverts[r];
        if (!other->absent && other->role != its->role && other->lane == its->lane &&
            (stepaf_advert_has_streams(other) || stepaf_advert_has_streams(its)) &&
            stepaf_adverts_proxied(other, before) != stepaf_adverts_proxied(other, its))
            return true;
    }
    return false;
}

static stepaf_status_t refuse_way(bool has_lived)
{
    if (has_lived)
        return stepaf_error_set(
            STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
            "there are stream plans, and their tensors took another path to the "
            "process that had the place: it was on another host, or only one "
            "of both has a GPU, or STEPAF_CUDA_PROXY=always");
    return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                            "stream plans expect a new rank on the only host of the job, by GPU "
                            "memory; in a job on several hosts, STEPAF_CUDA_PROXY=always there");
}

static const struct stepaf_advert *first_present(const struct stepaf_advert *adverts)
{
    while (adverts->absent)
        adverts++;
    return adverts;
}

/* Read the guest's advert into the lost rank's place, as if it had been in the exchange. */
static stepaf_status_t read_guest(const struct stepaf_ctx *ctx, int rank, struct guest *guest,
                                  struct stepaf_advert *adverts)
{
    stepaf_status_t status = check_hello(ctx, rank, guest);
    struct stepaf_advert advert, before = adverts[rank];
    uint32_t epoch = first_present(adverts)->epoch;

    if (!status)
        status =
            stepaf_advert_read(guest->advert.at, (size_t)(guest->advert.end - guest->advert.at),
                               guest->role, rank, NULL, &advert);
    if (status)
        return status;
    advert.lane = before.lane;
    advert.node_id = guest->hello.node_id;
    advert.proxies = guest->hello.proxies;
    advert.epoch = epoch;
    advert.changed = true;
    adverts[rank] = advert;
    if (advert.asks)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                "it asks which GPUs reach each other, which the others do not "
                                "ask again");
    if (has_moved(ctx, adverts, &before, &advert))
        return refuse_way(ctx->job.ranks[rank].pid);
    guest->is_compared = true;
    return stepaf_adverts_check(adverts, ctx->job.boot.size, rank, ctx->feature);
}

/* The guest is told the outcome of the comparison as if it had made that itself. */
static void turn_guest_away(struct stepaf_ctx *ctx, int rank, const struct guest *guest)
{
    stepaf_error_t why = *stepaf_last_error();

    stepaf_log_warn("a process that asks for the place of world rank %d is rejected: %s", rank,
                    why.text);
    if (!guest->is_compared &&
        why.status != STEPAF_ERR_BOOT) /* to BOOT the guest adds this itself */
        snprintf(why.text, sizeof(why.text),
                 "the members have rejected this process as world rank %d: %.200s", rank,
                 stepaf_last_error()->text);
    if (ctx->epoch)
        stepaf_member_net_turn_away(ctx->job.members.net, rank, guest->id, &why);
}

/* Try to admit one guest. Afterwards the guest is in its place, or the place is unchanged. */
static stepaf_status_t try_guest(struct stepaf_ctx *ctx, int rank, struct stepaf_advert *adverts)
{
    struct stepaf_advert before = adverts[rank];
    struct guest guest = {0};

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
    if (base && base != STEPAF_ERR_STATE) /* STATE may mean that nothing has changed */
        return base;
    for (int r = 0; r < size; r++) {
        stepaf_status_t status = adverts[r].absent ? try_guest(ctx, r, adverts) : STEPAF_OK;
        if (status)
            return status;
        any = any || ctx->job.members.returned[r];
    }
    return any || !base ? STEPAF_OK : stepaf_error_raise(&error);
}

/* ---- adoption ---- */

static bool is_on_one_node(const struct stepaf_ctx *ctx)
{
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (ctx->job.members.is[r] && ctx->job.ranks[r].node_id != ctx->job.topo.node_id)
            return false;
    return true;
}

static struct stepaf_peer *returning_peer(struct stepaf_ctx *ctx, int world_rank)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].who.world_rank == world_rank)
            return &ctx->peers[p];
    return NULL;
}

/* Make a guest a member in all tables. If the words are missing, they are those of this process
 * itself. */
static stepaf_status_t adopt_guest(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   int rank)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    /* with the decision that admits this process */
    bool has_come = members->is_guest && !ctx->epoch;
    struct stepaf_peer *peer = returning_peer(ctx, rank);
    struct guest guest = {0};
    bool is_found = false;

    for (int r = 0; r < ctx->job.boot.size && !is_found; r++)
        is_found = r != rank && members->present[r] && !members->returned[r] &&
                   find_words(&adverts[r], rank, &guest);
    if (!is_found || check_hello(ctx, rank, &guest))
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "the hello of world rank %d is missing or malformed", rank);
    if (!has_come && !stepaf_member_net_admit(members->net, rank, guest.id, guest.card.at,
                                              (size_t)(guest.card.end - guest.card.at)))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    take_facts(ctx, rank, &guest.hello);
    if (peer && !has_come)
        stepaf_peer_renew(peer);
    return STEPAF_OK;
}

/* Continue after a failure: this rank must still notify the others, so everything needed for that
 * is done. */
stepaf_status_t stepaf_returns_adopt(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    bool is_new = members->is_guest && !ctx->epoch, any = false;
    stepaf_error_t error = {0};
    uint32_t epoch = ctx->epoch;

    members->is_on_trial = is_new;
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (members->returned[r]) {
            if (adopt_guest(ctx, adverts, r))
                error = *stepaf_last_error();
            any = true;
        }
    for (int r = 0; r < ctx->job.boot.size; r++)
        if (members->returned[r])
            members->present[r] = members->is[r] = 1;
    if (members->net)
        stepaf_member_net_set_new(members->net, members->returned);
    if (is_new)
        stepaf_member_net_counts(members->net, &ctx->epoch, &ctx->commit.n);
    if (any)
        ctx->clock.one_node = is_on_one_node(ctx);
    if (any && !is_new) {
        stepaf_member_net_set_counts(members->net, epoch, ctx->commit.n);
        stepaf_member_net_welcome(members->net);
    }
    return error.status ? stepaf_error_raise(&error) : STEPAF_OK;
}
