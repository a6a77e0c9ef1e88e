/* SPDX-License-Identifier: Apache-2.0 */
/* Withdrawing keys: a key leaves ctx->memory.keys at once, and is freed by the next commit, which ends what
 * peers know of it. */
#include <stdlib.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/key_remove.h"
#include "core/plan.h"
#include "core/plan_end.h"
#include "core/table.h"

/* End the plans that name @a key, if they are none of the caller's. A stream plan's proxy plan that has
 * outlived it goes at the next commit, before the key does. */
static stepaf_status_t end_plans(struct stepaf_ctx *ctx, const struct stepaf_key *key)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan || plan->proxied.is || !stepaf_plan_names(plan, key))
            continue;
        status = plan->cached.is
                     ? stepaf_plan_idle(plan)
                     : stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                        "plan %u names key %llu", i, (unsigned long long)key->id);
    }
    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->cached.is && stepaf_plan_names(plan, key))
            status = stepaf_plan_end(plan);
    }
    return status;
}

static void key_free(struct stepaf_key *key)
{
    stepaf_recv_bufs_free(key);
    free(key->remote);
    free(key);
}

/* Free the key that was withdrawn last. */
static void forget(struct stepaf_ctx *ctx)
{
    struct stepaf_key *key = ctx->memory.withdrawn;

    ctx->memory.withdrawn = key->next;
    stepaf_key_release_bufs(ctx, key);
    key_free(key);
}

stepaf_status_t stepaf_key_remove(struct stepaf_ctx *ctx, uint64_t id)
{
    struct stepaf_key *key = stepaf_key_find(ctx, id);
    stepaf_status_t status;

    if (!key)
        return stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE, "key %llu is not declared",
                                (unsigned long long)id);
    status = end_plans(ctx, key);
    if (status)
        return status;
    stepaf_key_unlist(ctx, key);
    key->until = ctx->epoch;
    key->next = ctx->memory.withdrawn;
    ctx->memory.withdrawn = key;
    if (key->since > ctx->epoch) /* nobody knows it */
        forget(ctx);
    return STEPAF_OK;
}

void stepaf_keys_free_withdrawn(struct stepaf_ctx *ctx)
{
    while (ctx->memory.withdrawn)
        forget(ctx);
}

void stepaf_keys_free(struct stepaf_ctx *ctx)
{
    for (struct stepaf_key *key = ctx->memory.withdrawn, *next; key; key = next) {
        next = key->next;
        key_free(key);
    }
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++)
        key_free(ctx->memory.keys[i]);
    free(ctx->memory.keys);
}
