/* SPDX-License-Identifier: Apache-2.0 */
/* Init's part for connections between members. */
#include "wireup/init_members.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "boot/boot_return.h"
#include "boot/member_net_return.h"
#include "wireup/return_card.h"
#include "wireup/returns.h"

stepaf_status_t stepaf_init_make_room(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_job *job = &ctx->job;
    int n = (int)(ctx->env.room_attention + ctx->env.room_ffn);

    if (n && !*ctx->env.secret && !*ctx->env.secret_file)
        return stepaf_error_set(
            STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
            "STEPAF_ROOM_ATTENTION and STEPAF_ROOM_FFN require a secret, which processes that join "
            "must know: set STEPAF_SECRET or STEPAF_SECRET_FILE");
    if (stepaf_boot_returns(&job->boot))
        job->n_started -= n; /* the job size of a returning process includes them */
    else if (n)
        stepaf_boot_room_add(&job->room, n, &job->boot);
    if (job->n_started < 1)
        return stepaf_error_set(
            STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
            "STEPAF_ROOM_ATTENTION and STEPAF_ROOM_FFN leave no rank that starts with the job");
    return STEPAF_OK;
}

stepaf_status_t stepaf_init_let_ask(struct stepaf_ctx *ctx)
{
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    bool has_secret = false;
    stepaf_status_t status = stepaf_boot_return_key(&ctx->env, &has_secret, key);

    if (!status && has_secret && ctx->job.members.net) {
        stepaf_member_net_let_ask(ctx->job.members.net, key);
        ctx->job.members.has_cards = true; /* set before the cards are kept */
    }
    stepaf_proof_forget(key, sizeof(key));
    return status;
}

/* Keep what a process that takes a lost rank's place will be told. */
static bool keep_cards(struct stepaf_ctx *ctx, const struct stepaf_heard *heard)
{
    bool are_kept = true;

    for (int r = 0; ctx->job.members.has_cards && r < ctx->job.boot.size; r++)
        are_kept = are_kept && stepaf_return_card_keep(
                                   ctx, r, &heard->hellos[r], heard->all + heard->offsets[r],
                                   heard->offsets[r + 1] - heard->offsets[r], heard->roles[r]);
    return are_kept;
}

void stepaf_init_meet(struct stepaf_ctx *ctx, const struct stepaf_heard *heard)
{
    const struct stepaf_hello *hellos = heard->hellos;
    struct stepaf_ctx_members *members = &ctx->job.members;
    struct stepaf_member_contact *contacts = calloc((size_t)ctx->job.boot.size, sizeof(*contacts));
    bool can_call = contacts && members->net;

    for (int r = 0; r < ctx->job.boot.size && ctx->job.boot.size > 1; r++) {
        if (contacts)
            contacts[r] = hellos[r].contact;
        if (hellos[r].is_vacant && can_call)
            stepaf_member_net_vacate(members->net, r);
        if (hellos[r].is_vacant || hellos[r].contact.addresses.port)
            continue;
        snprintf(members->mute, sizeof(members->mute), "world rank %d cannot listen: %.100s", r,
                 hellos[r].mute);
        can_call = false;
    }
    if (can_call && !(stepaf_member_net_meet(members->net, contacts) && keep_cards(ctx, heard))) {
        snprintf(members->mute, sizeof(members->mute), "out of memory");
        can_call = false;
    }
    free(contacts);
    if (can_call)
        return;
    if (ctx->job.n_started < ctx->job.boot.size)
        stepaf_log_warn("no process can join later (STEPAF_ROOM_ATTENTION, STEPAF_ROOM_FFN): %s",
                        members->mute);
    members->has_cards = false;
    stepaf_member_net_close(members->net);
    members->net = NULL;
}
