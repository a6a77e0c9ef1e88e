/* SPDX-License-Identifier: Apache-2.0 */
/* Withdrawing keys: a key leaves ctx->memory.keys immediately and is freed by the next commit,
 * which ends what peers know of it. */
#define _GNU_SOURCE 1 /* tdestroy */

#include <search.h>
#include <stdlib.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/key_remove.h"
#include "core/plan.h"
#include "core/plan_end.h"
#include "core/table.h"

static stepaf_status_t refuse_named(const struct stepaf_ctx *ctx, const struct stepaf_key *key)
{
    uint32_t i = 0;
    const struct stepaf_plan_obj *plan;

    do
        plan = stepaf_table_get(&ctx->tables.plans, i++);
    while (!plan || plan->proxied.is || plan->cached.is || !stepaf_plan_names(plan, key));
    return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE, "plan %u names key %llu", i - 1,
                            (unsigned long long)key->id);
}

/* End the library's own plans that name @a key. A proxy plan that outlives its stream plan ends at
 * the next commit, before the key. */
static stepaf_status_t end_plans(struct stepaf_ctx *ctx, const struct stepaf_key *key)
{
    stepaf_status_t status = STEPAF_OK;
    uint32_t n = 0;

    if (!key->uses)
        return STEPAF_OK;
    for (uint32_t i = 0; i < ctx->cache.n && !status; i++) {
        const struct stepaf_plan_obj *plan = ctx->cache.plans[i];
        unsigned names = stepaf_plan_names(plan, key);
        n += names;
        if (names)
            status = stepaf_plan_idle(plan);
    }
    if (!status && n != key->uses)
        status = refuse_named(ctx, key);
    for (uint32_t i = ctx->cache.n; i > 0 && !status;
         i--) /* the last plan takes the place of an ended one */
        if (stepaf_plan_names(ctx->cache.plans[i - 1], key))
            status = stepaf_plan_end(ctx->cache.plans[i - 1]);
    return status;
}

static void key_free(struct stepaf_ctx *ctx, struct stepaf_key *key)
{
    stepaf_recv_bufs_free(ctx, key);
    free(key->remote);
    free(key);
}

/* Free the key that was withdrawn last. */
static void forget(struct stepaf_ctx *ctx)
{
    struct stepaf_key *key = ctx->memory.withdrawn;

    ctx->memory.withdrawn = key->next;
    (void)tdelete(key, &ctx->memory.withdrawn_tree, stepaf_key_compare);
    stepaf_key_release_bufs(ctx, key);
    key_free(ctx, key);
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
    if (key->since > ctx->epoch) { /* no peer knows it */
        stepaf_key_unlist(ctx, key);
        stepaf_key_release_bufs(ctx, key);
        key_free(ctx, key);
        return STEPAF_OK;
    }
    if (!tsearch(key, &ctx->memory.withdrawn_tree, stepaf_key_compare))
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    stepaf_key_unlist(ctx, key);
    stepaf_recv_bufs_leave(key);
    key->until = ctx->epoch;
    key->next = ctx->memory.withdrawn;
    ctx->memory.withdrawn = key;
    return STEPAF_OK;
}

void stepaf_keys_free_withdrawn(struct stepaf_ctx *ctx)
{
    while (ctx->memory.withdrawn)
        forget(ctx);
}

/* The owner of the list frees the keys themselves. */
static void free_nothing(void *key)
{
    (void)key;
}

void stepaf_keys_free(struct stepaf_ctx *ctx)
{
    for (struct stepaf_key *key = ctx->memory.withdrawn, *next; key; key = next) {
        next = key->next;
        key_free(ctx, key);
    }
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++)
        key_free(ctx, ctx->memory.keys[i]);
    tdestroy(ctx->memory.withdrawn_tree, free_nothing);
    tdestroy(ctx->memory.key_tree, free_nothing);
    free(ctx->memory.keys);
}
