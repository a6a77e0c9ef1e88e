/* SPDX-License-Identifier: Apache-2.0 */
/* Proxy plans: plans in host memory that an attention rank starts for the proxied peers of its
 * stream plans. */
#include <stdlib.h>

#include "core/plan.h"
#include "core/plan_announce.h"
#include "core/plan_end.h"
#include "core/progress.h"
#include "gpu/proxy.h"

/* Make the proxy plan of a stream plan, with the same keys, to and from the proxied peers'
 * buffers. */
static stepaf_status_t proxy_plan_make(struct stepaf_proxy *proxy, const stepaf_tensor_t *push,
                                       const stepaf_tensor_t *pull)
{
    const struct stepaf_plan_obj *plan = proxy->stream->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    bool *left_out = calloc(ctx->n_peers, sizeof(*left_out));
    struct stepaf_plan_obj *proxy_plan;
    stepaf_status_t status = left_out ? STEPAF_OK : stepaf_error_no_memory(STEPAF_PHASE_COMMIT);

    if (!status)
        status = stepaf_plan_make(ctx, push, plan->n_push, pull, (int)ctx->n_peers * plan->n_pull,
                                  STEPAF_PLAN_SCATTER | STEPAF_PLAN_PROXY, &proxy_plan);
    if (status) {
        free(left_out);
        return status;
    }
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        left_out[p] = !proxy->peers[p].proxied;
    proxy_plan->proxied.left_out = left_out;
    proxy_plan->proxied.proxy = proxy;
    proxy_plan->proxied.ahead = proxy->ahead;
    proxy->proxy_plan = proxy_plan;
    return STEPAF_OK;
}

stepaf_status_t stepaf_proxy_make_plan(struct stepaf_stream *stream)
{
    struct stepaf_proxy *proxy = stream->proxy;
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n_pull = plan->ctx->n_peers * plan->n_pull, p = 0;
    stepaf_tensor_t push[STEPAF_MAX_TENSORS], *pull;

    if (!proxy || !stepaf_is_attention(plan->ctx))
        return STEPAF_OK;
    pull = calloc(n_pull, sizeof(*pull));
    if (!pull)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    while (!proxy->peers[p].proxied)
        p++;
    for (uint32_t i = 0; i < plan->n_push; i++)
        push[i] = (stepaf_tensor_t){plan->push[i].key->id, proxy->out[p * plan->n_push + i].data,
                                    plan->push[i].bytes};
    for (uint32_t at = 0; at < n_pull; at++)
        pull[at] = (stepaf_tensor_t){plan->pull[at].key->id, proxy->in[at].data,
                                     proxy->in[at].data ? plan->pull[at].bytes : 0};
    stepaf_status_t status = proxy_plan_make(proxy, push, pull);
    free(pull);
    return status;
}

/* Forget receive buffers that a proxy plan holds from the commit before: they are never given
 * back. */
static void forget_buffers(const struct stepaf_plan_obj *proxy_plan)
{
    for (uint8_t s = 0; s < proxy_plan->depth; s++)
        for (uint32_t i = 0; proxy_plan->ops[s].n_held && i < proxy_plan->n_push; i++)
            proxy_plan->push[i].key->busy &= ~proxy_plan->ops[s].bit;
}

void stepaf_proxies_free_plans(struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan || !plan->proxied.is || plan->proxied.proxy)
            continue;
        forget_buffers(plan);
        stepaf_plan_free(plan);
    }
}

/* ---- the plan ends ---- */

/* Check that everything that was enqueued for proxied peers has been sent. */
static stepaf_status_t check_passed(struct stepaf_stream *stream)
{
    if (stepaf_proxy_is_ahead(stream->proxy))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                "a stream has not completed the plan's last operation");
    stepaf_core_progress(stream->plan->ctx); /* answers that are written leave now */
    (void)stepaf_stream_status(stream);      /* a failure that only the GPU knows of */
    return STEPAF_OK;
}

/* End a stream plan's proxy plan, and give back what peers have sent. After a failure peers may
 * still be about to answer the proxy plan; then it ends with the next commit. */
static stepaf_status_t end_proxy(struct stepaf_stream *stream)
{
    struct stepaf_plan_obj *proxy_plan = stream->proxy->proxy_plan;
    stepaf_status_t status = proxy_plan ? stepaf_plan_idle(proxy_plan) : STEPAF_OK;

    if (status && !stream->failure)
        return status; /* the plan goes on */
    if (!status && proxy_plan && proxy_plan->usable == proxy_plan->ctx->epoch)
        stepaf_plan_announce_end(proxy_plan, proxy_plan->ctx->n_peers);
    stepaf_proxy_finish_batches(stream->proxy);
    /* A graph that is replayed nevertheless must not wait. */
    __atomic_store_n(&stream->watch->abort, 1, __ATOMIC_RELEASE);
    if (!status && proxy_plan)
        stepaf_plan_free(proxy_plan);
    return STEPAF_OK;
}

stepaf_status_t stepaf_proxy_end_plan(struct stepaf_stream *stream)
{
    stepaf_status_t status = stream->proxy ? check_passed(stream) : STEPAF_OK;

    return status || !stream->proxy ? status : end_proxy(stream);
}

/* Operations that graphs replay are counted on the GPU and in the proxy, but not here. Then nobody
 * knows which of them a request means. */
bool stepaf_proxy_carrier(const struct stepaf_op *op, uint32_t p,
                          const struct stepaf_op **carrier_p)
{
    const struct stepaf_stream *stream = op->plan->stream;
    const struct stepaf_proxy *proxy = stream->proxy;
    uint64_t last = stream->n_sent - 1, depth = op->plan->depth;
    uint64_t n = last - (last + depth - op->slot) % depth; /* the last operation in that slot */

    *carrier_p = NULL;
    if (!proxy || !proxy->peers[p].proxied || !proxy->proxy_plan || !stream->n_sent ||
        proxy->n_started > stream->n_sent)
        return false;
    const struct stepaf_op *its = &proxy->proxy_plan->ops[op->slot];
    if (n < proxy->n_started && its->seq == (uint32_t)n)
        *carrier_p = its;
    return true;
}
