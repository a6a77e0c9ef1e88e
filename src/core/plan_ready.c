/* SPDX-License-Identifier: Apache-2.0 */
/* Plans at an attention rank: what FFN ranks cannot know yet of what a plan names. */
#include "core/plan_ready.h"
#include "core/ctx.h"
#include "core/key.h"
#include "core/region.h"

/* What a plan lacks to be started. */
struct lack {
    enum { LACKS_NOTHING, LACKS_KEY, LACKS_LINK, LACKS_SOURCE, LACKS_DESTINATION } what;
    uint32_t index; /* of the tensor */
    const struct stepaf_key *key;
    const struct stepaf_peer *peer; /* not reached with the key by any link */
};

/* Return the first peer of the plan that does not receive the key where links reach; NULL: none. */
static const struct stepaf_peer *unreached(const struct stepaf_plan_obj *plan,
                                           const struct stepaf_key *key)
{
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        if (!plan->ctx->peers[p].lost && !stepaf_plan_leaves_out(plan, p) && !key->remote[p].rmem)
            return &plan->ctx->peers[p];
    return NULL;
}

static struct lack find_lack(const struct stepaf_plan_obj *plan)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    for (uint32_t i = 0; i < plan->n_push; i++) {
        const struct stepaf_push *push = &plan->push[i];
        if (push->key->since > ctx->epoch)
            return (struct lack){LACKS_KEY, i, push->key, NULL};
        const struct stepaf_peer *peer = unreached(plan, push->key);
        if (peer)
            return (struct lack){LACKS_LINK, i, push->key, peer};
        if (push->region && !stepaf_region_is_linked(ctx, push->region))
            return (struct lack){LACKS_SOURCE, i, push->key, NULL};
    }
    for (uint32_t i = 0; i < ctx->n_peers * plan->n_pull; i++) {
        const struct stepaf_region *region = plan->pull[i].region;
        if (region && (!region->offered || !stepaf_region_is_linked(ctx, region)))
            return (struct lack){LACKS_DESTINATION, i, plan->pull[i].key, NULL};
    }
    return (struct lack){LACKS_NOTHING, 0, NULL, NULL};
}

bool stepaf_plan_ready(const struct stepaf_plan_obj *plan)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    return ctx->epoch && ctx->state != STEPAF_CTX_BROKEN && ctx->state != STEPAF_CTX_LEFT &&
           !plan->stream && /* for a stream plan, the other side has a plan of its own */
           find_lack(plan).what == LACKS_NOTHING;
}

stepaf_status_t stepaf_plan_refuse_unready(const struct stepaf_plan_obj *plan)
{
    const struct lack lack = find_lack(plan);

    switch (lack.what) {
    case LACKS_KEY:
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                "plan %u: key %llu waits for a commit: commit on all ranks",
                                plan->index, (unsigned long long)lack.key->id);
    case LACKS_LINK:
        return stepaf_error_set_peer(
            STEPAF_ERR_STATE, STEPAF_PHASE_START, lack.peer->who,
            "plan %u: " STEPAF_WHO_FORMAT
            " receives key %llu on streams: only a plan on streams can push it",
            plan->index, STEPAF_WHO_ARGS(lack.peer->who), (unsigned long long)lack.key->id);
    case LACKS_SOURCE:
    case LACKS_DESTINATION:
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                "plan %u: the memory of %s tensor %u (key %llu) waits for a "
                                "commit: commit on all ranks",
                                plan->index, lack.what == LACKS_SOURCE ? "push" : "pull",
                                lack.index, (unsigned long long)lack.key->id);
    case LACKS_NOTHING:
        break;
    }
    return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                            "plan %u waits for a commit: commit on all ranks", plan->index);
}
