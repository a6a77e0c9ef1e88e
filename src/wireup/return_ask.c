/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's init, and its first commit until the members admit it. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "boot/member_net_return.h"
#include "wireup/return_card.h"
#include "wireup/returns.h"

enum { LOOK_MS = 1 };

/* ---- init ---- */

static const char *role_of(int role)
{
    return role == STEPAF_FFN ? "FFN" : "attention";
}

/* Collect what each rank has reported; for this rank, the guest's own words @a own. */
static stepaf_status_t read_cards(const struct stepaf_ctx *ctx, const struct stepaf_pack *own,
                                  struct stepaf_pack *all, size_t *offsets_p, uint8_t *roles_p)
{
    struct stepaf_hello hello;
    int role;

    for (int r = 0; r < ctx->job.boot.size; r++) {
        const struct stepaf_consensus_blob *card = stepaf_member_net_card(ctx->job.members.net, r);
        struct stepaf_unpack words = {0};
        if (!stepaf_return_card_read(card->data, card->bytes, &words, &hello, &role) ||
            (hello.is_vacant && stepaf_member_net_consensus(ctx->job.members.net)->is_member[r]))
            return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_INIT,
                                    "what a member reports about world rank %d is malformed", r);
        if (r == ctx->job.boot.rank)
            words = stepaf_unpack_from(own->data, own->bytes);
        roles_p[r] = (uint8_t)role;
        offsets_p[r] = all->bytes;
        stepaf_pack_bytes(all, words.at, (size_t)(words.end - words.at));
    }
    offsets_p[ctx->job.boot.size] = all->bytes;
    return all->failed ? stepaf_error_no_memory(STEPAF_PHASE_INIT) : STEPAF_OK;
}

static stepaf_status_t take_place(struct stepaf_ctx *ctx, stepaf_role_t said,
                                  const struct stepaf_member_contact *contact,
                                  const struct stepaf_pack *own, int role)
{
    struct stepaf_hello hello = {.contact = *contact};
    int rank = ctx->job.boot.rank;

    if (said != STEPAF_ROLE_AUTO && (int)said != role)
        return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                "world rank %d is an %s rank of this job, and a process that takes "
                                "its place cannot be an %s rank",
                                rank, role_of(role), role_of(said));
    if (!stepaf_return_card_keep(ctx, rank, &hello, own->data, own->bytes, role))
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    for (int r = 0; r < ctx->job.boot.size; r++)
        ctx->job.members.is[r] = stepaf_member_net_consensus(ctx->job.members.net)->is_member[r];
    ctx->job.members.is[rank] = 0;
    ctx->job.members.is_guest = true;
    return STEPAF_OK;
}

stepaf_status_t stepaf_return_look(struct stepaf_ctx *ctx, const struct stepaf_boot_return *returns,
                                   stepaf_role_t said, const struct stepaf_member_contact *contact,
                                   const struct stepaf_pack *own, void **all_p, size_t *offsets_p,
                                   uint8_t *roles_p, int64_t timeout_us)
{
    struct stepaf_member_net *net = ctx->job.members.net;
    struct stepaf_pack all = {0};

    if (!net)
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "this process cannot connect to members: %.200s",
                                ctx->job.members.mute);
    if (!stepaf_member_net_be_guest(net, returns->key))
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    stepaf_status_t status =
        stepaf_member_net_look(net, returns->join, stepaf_deadline_ns(timeout_us));
    if (!status)
        status = read_cards(ctx, own, &all, offsets_p, roles_p);
    if (!status)
        status = take_place(ctx, said, contact, own, roles_p[ctx->job.boot.rank]);
    if (status)
        free(all.data);
    else
        *all_p = all.data;
    return status;
}

/* ---- the first commit ---- */

static stepaf_status_t begin_asking(struct stepaf_ctx *ctx, const void *advert, size_t bytes)
{
    struct stepaf_member_net *net = ctx->job.members.net;
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(net, ctx->job.boot.rank);
    struct stepaf_pack pack = {0};

    stepaf_pack_u64(&pack, card->bytes);
    stepaf_pack_bytes(&pack, card->data, card->bytes);
    stepaf_pack_bytes(&pack, advert, bytes);
    bool asks = !pack.failed && stepaf_member_net_ask(net, pack.data, pack.bytes);
    free(pack.data);
    return asks ? STEPAF_OK : stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
}

/* The members' check has an outcome for this process as for any rank in a first commit. */
static stepaf_status_t turned_away(const struct stepaf_ctx *ctx)
{
    const char *answer = stepaf_member_net_answer(ctx->job.members.net);
    int peer;
    stepaf_status_t status = stepaf_member_net_refusal(ctx->job.members.net, &peer);

    if (status != STEPAF_ERR_BOOT && peer >= 0)
        return stepaf_error_set_peer(status, STEPAF_PHASE_COMMIT, stepaf_who_is(ctx, peer), "%s",
                                     answer);
    if (status != STEPAF_ERR_BOOT)
        return stepaf_error_set(status, STEPAF_PHASE_COMMIT, "%s", answer);
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_COMMIT,
                            "the members have rejected this process as world rank %d: "
                            "%.200s",
                            ctx->job.boot.rank, answer);
}

static stepaf_status_t not_admitted(const struct stepaf_ctx *ctx)
{
    const char *answer = stepaf_member_net_answer(ctx->job.members.net);
    const char *why_over = stepaf_member_net_members_over(ctx->job.members.net);

    if (atomic_load(&ctx->threads.closing))
        return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_COMMIT,
                                "another thread finalizes the context");
    if (stepaf_member_net_admission(ctx->job.members.net) == STEPAF_MEMBER_TURNED_AWAY)
        return turned_away(ctx);
    if (why_over)
        return stepaf_error_set(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_COMMIT,
                                "no member is left that could admit this process as world "
                                "rank %d: %.160s",
                                ctx->job.boot.rank, why_over);
    return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_COMMIT,
                            "no commit of the members has admitted this process as world rank %d%s"
                            "%.160s: they have to commit with STEPAF_COMMIT_ADMIT, or "
                            "STEPAF_RETURN=admit",
                            ctx->job.boot.rank, *answer ? ": " : "", answer);
}

stepaf_status_t stepaf_return_ask(struct stepaf_ctx *ctx, const void *advert, size_t bytes,
                                  void **all_p, size_t *offsets_p, int64_t deadline_ns)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    struct stepaf_member_net *net = members->net;
    struct pollfd polled = {.fd = stepaf_member_net_fd(net), .events = POLLIN};
    stepaf_status_t status = begin_asking(ctx, advert, bytes);

    while (!status && stepaf_member_net_admission(net) == STEPAF_MEMBER_WAITS &&
           !stepaf_member_net_members_over(net) && stepaf_monotonic_ns() < deadline_ns &&
           !atomic_load(&ctx->threads.closing) && !stepaf_interrupted()) {
        (void)poll(&polled, 1, LOOK_MS);
        stepaf_member_net_pump(net);
    }
    if (!status && stepaf_member_net_admission(net) != STEPAF_MEMBER_ADMITTED) {
        status = not_admitted(ctx);
        stepaf_member_net_withdraw(net);
    }
    if (status)
        return status;
    status = stepaf_member_net_decision(net, all_p, offsets_p, members->present);
    /* A rank with words in the decision was a member before it. A rank that left by the decision
     * may be no member any more to the member that has informed this process. */
    for (int r = 0; r < ctx->job.boot.size; r++)
        members->is[r] =
            stepaf_member_net_consensus(net)->is_member[r] || (!status && members->present[r]);
    members->is[ctx->job.boot.rank] = 0; /* it becomes a member by the check, as for the others */
    return status;
}
