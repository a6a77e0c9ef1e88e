/* SPDX-License-Identifier: Apache-2.0 */
/* Twins: plans in host memory that an attention rank starts for its stream plans' relayed peers. */
#include <stdlib.h>

#include "gpu/proxy.h"

/* The twin of a stream plan: the same keys, to and from the relayed peers' places. */
static stepaf_status_t twin_make(struct stepaf_relay *relay, const stepaf_tensor_t *push,
                                 const stepaf_tensor_t *pull)
{
    const struct stepaf_plan_obj *plan = relay->stream->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    bool *left_out = calloc(ctx->n_peers, sizeof(*left_out));
    struct stepaf_plan_obj *twin;
    stepaf_status_t status = left_out ? STEPAF_OK : stepaf_error_no_memory(STEPAF_PHASE_COMMIT);

    if (!status)
        status = stepaf_plan_make(ctx, push, plan->n_push, pull, (int)ctx->n_peers * plan->n_pull,
                                  STEPAF_PLAN_SCATTER | STEPAF_PLAN_TWIN, &twin);
    if (status) {
        free(left_out);
        return status;
    }
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        left_out[p] = !relay->peers[p].relayed;
    twin->left_out = left_out;
    twin->relay = relay;
    relay->twin = twin;
    return STEPAF_OK;
}

stepaf_status_t stepaf_relay_make_twin(struct stepaf_stream *stream)
{
    struct stepaf_relay *relay = stream->relay;
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n_pull = plan->ctx->n_peers * plan->n_pull, p = 0;
    stepaf_tensor_t push[STEPAF_MAX_TENSORS], *pull;

    if (!relay || !stepaf_is_attention(plan->ctx))
        return STEPAF_OK;
    pull = calloc(n_pull, sizeof(*pull));
    if (!pull)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    while (!relay->peers[p].relayed)
        p++;
    for (uint32_t i = 0; i < plan->n_push; i++)
        push[i] = (stepaf_tensor_t){plan->push[i].key->id, relay->out[p * plan->n_push + i].data,
                                    plan->push[i].bytes};
    for (uint32_t at = 0; at < n_pull; at++)
        pull[at] = (stepaf_tensor_t){plan->pull[at].key->id, relay->in[at].data,
                                     relay->in[at].data ? plan->pull[at].bytes : 0};
    stepaf_status_t status = twin_make(relay, push, pull);
    free(pull);
    return status;
}

/* Receive buffers that a twin holds are of the commit before: nobody gives them back any more. */
static void forget_buffers(const struct stepaf_plan_obj *twin)
{
    for (uint8_t s = 0; s < twin->depth; s++)
        for (uint32_t i = 0; twin->ops[s].n_held && i < twin->n_push; i++)
            twin->push[i].key->busy &= ~twin->ops[s].bit;
}

void stepaf_relays_sweep(struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        if (!plan || !plan->is_twin || plan->relay)
            continue;
        forget_buffers(plan);
        stepaf_plan_free(plan);
    }
}

/* ---- the plan ends ---- */

/* Whether all that was enqueued for relayed peers is carried. */
static stepaf_status_t check_passed(struct stepaf_stream *stream)
{
    if (stepaf_relay_is_ahead(stream->relay))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "a stream has not come by the plan's last operation");
    stepaf_engine_progress(stream->plan->ctx); /* answers that are written go now */
    (void)stepaf_stream_status(stream);        /* a failure that only the GPU knows */
    return STEPAF_OK;
}

/* End a stream plan's twin, and give back what peers have sent. After a failure peers may still be
 * about to answer the twin: then it ends with the next commit. */
static stepaf_status_t end_relay(struct stepaf_stream *stream)
{
    struct stepaf_plan_obj *twin = stream->relay->twin;
    stepaf_status_t status = twin ? stepaf_plan_idle(twin) : STEPAF_OK;

    if (status && !stream->failure)
        return status; /* the plan goes on */
    if (!status && twin && twin->usable == twin->ctx->epoch)
        stepaf_plan_announce_end(twin, twin->ctx->n_peers);
    stepaf_relay_let_go(stream->relay);
    /* A graph that is replayed all the same must not wait. */
    __atomic_store_n(&stream->watch->abort, 1, __ATOMIC_RELEASE);
    if (!status && twin)
        stepaf_plan_free(twin);
    return STEPAF_OK;
}

stepaf_status_t stepaf_relay_end_plan(struct stepaf_stream *stream)
{
    stepaf_status_t status = stream->relay ? check_passed(stream) : STEPAF_OK;

    return status || !stream->relay ? status : end_relay(stream);
}
