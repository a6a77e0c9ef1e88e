/* SPDX-License-Identifier: Apache-2.0 */
/* The process that takes the place: where it calls, and what does not fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "returns.h"

const char returns_secret[] = "of this test alone";

bool returns_tell_address(const struct rank *rank)
{
    char text[1024];
    size_t room = (HS_STAMPS - STAMP_ADDRESS) * sizeof(int64_t);

    if (!HS_OK(stepaf_members_address(rank->job->ctx, text, sizeof(text))))
        return false;
    size_t bytes = strcspn(text, ",");
    if (!HS_TRUE(bytes < room))
        return false;
    memset((void *)&rank->job->shared->stamp[STAMP_ADDRESS], 0, room);
    memcpy((void *)&rank->job->shared->stamp[STAMP_ADDRESS], text, bytes);
    return true;
}

stepaf_status_t returns_init_back(const struct rank *rank, const char *its_secret, int number,
                                  int64_t timeout_us, stepaf_context_h *ctx_p)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = rank->job->split};
    const char *boot = getenv("TEST_BOOT_TCP"); /* as hs_init takes it */
    bool by_torchrun = boot && !strcmp(boot, "torchrun");
    char text[32];

    setenv("STEPAF_JOIN", (const char *)&rank->job->shared->stamp[STAMP_ADDRESS], 1);
    setenv("STEPAF_SECRET", its_secret, 1);
    snprintf(text, sizeof(text), "%d", number);
    setenv(by_torchrun ? "RANK" : "STEPAF_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", rank->job->size);
    setenv(by_torchrun ? "WORLD_SIZE" : "STEPAF_SIZE", text, 1);
    snprintf(text, sizeof(text), "%lld", (long long)timeout_us);
    setenv("STEPAF_INIT_TIMEOUT_US", text, 1);
    stepaf_status_t status = stepaf_init(NULL, &params, ctx_p);
    unsetenv("STEPAF_JOIN");
    return status;
}

/* It would fit, but the others' commit does not admit anybody: its deadline says so. */
static void ask_to_be_kept_out(const struct rank *rank)
{
    stepaf_context_h ctx = NULL;

    setenv("STEPAF_COMMIT_TIMEOUT_US", "1000000", 1);
    bool is_open = HS_OK(returns_init_back(rank, returns_secret, rank->job->rank, 10000000, &ctx));
    unsetenv("STEPAF_COMMIT_TIMEOUT_US");
    if (!is_open)
        return;
    HS_OK(stepaf_key_declare(ctx, MEMBER_PUSH, STEPAF_PUSH, RETURNS_BYTES, NULL));
    HS_OK(stepaf_key_declare(ctx, MEMBER_PULL, STEPAF_PULL, RETURNS_BYTES, NULL));
    HS_REFUSED(stepaf_commit(ctx), STEPAF_ERR_TIMEOUT);
    if (!strstr(stepaf_last_error()->text, "its commit admits no process"))
        HS_FAILED("%s", stepaf_last_error()->text);
    stepaf_finalize(ctx);
}

/* Somebody has that place, which a busy machine takes longer to say. */
static void ask_for_taken_place(const struct rank *rank, int other)
{
    stepaf_context_h ctx = NULL;
    bool is_told = false;

    for (int64_t us = 100000; us < 30000000 && !is_told && !hs_failed(); us *= 4) {
        HS_REFUSED(returns_init_back(rank, returns_secret, other, us, &ctx), STEPAF_ERR_TIMEOUT);
        is_told = strstr(stepaf_last_error()->text, "is not lost") != NULL;
    }
    if (!is_told)
        HS_FAILED("%s", stepaf_last_error()->text);
}

void returns_ask_in_vain(const struct rank *rank)
{
    int other =
        (rank->job->rank + 2) % rank->job->size; /* whoever is called is the first or second */
    stepaf_context_h ctx = NULL;
    char text[128];

    HS_REFUSED(returns_init_back(rank, "guessed", rank->job->rank, 10000000, &ctx),
               STEPAF_ERR_BOOT);
    HS_TRUE(strstr(stepaf_last_error()->text, "STEPAF_SECRET") != NULL);
    HS_REFUSED(returns_init_back(rank, "", rank->job->rank, 10000000, &ctx), STEPAF_ERR_SETTING);
    ask_for_taken_place(rank, other);
    /* Another size of a key: it is turned away, and the commit of the others goes on. */
    if (!HS_OK(returns_init_back(rank, returns_secret, rank->job->rank, 10000000, &ctx)))
        return;
    HS_OK(stepaf_key_declare(ctx, MEMBER_PUSH, STEPAF_PUSH, RETURNS_BYTES / 2, NULL));
    HS_OK(stepaf_key_declare(ctx, MEMBER_PULL, STEPAF_PULL, RETURNS_BYTES, NULL));
    HS_REFUSED(stepaf_commit(ctx), STEPAF_ERR_MISMATCH); /* as in a first commit */
    int peer = stepaf_last_error()->peer_world_rank, own = rank->job->rank;
    snprintf(text, sizeof(text),
             "key 1: world rank %d declares shape (%d), world rank %d shape (%d)",
             peer < own ? peer : own, peer < own ? RETURNS_BYTES : RETURNS_BYTES / 2,
             peer < own ? own : peer, peer < own ? RETURNS_BYTES / 2 : RETURNS_BYTES);
    if (peer < 0 || peer == own || strcmp(stepaf_last_error()->text, text) != 0)
        HS_FAILED("%s, of world rank %d; should be: %s", stepaf_last_error()->text, peer, text);
    stepaf_finalize(ctx);
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_VAIN], 1);
    ask_to_be_kept_out(rank);
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_VAIN], 1);
}
