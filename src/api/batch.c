/* SPDX-License-Identifier: Apache-2.0 */
/* Batches in the public interface: receiving, querying, answering, releasing. */
#include "core/batch.h"
#include "api/fill.h"
#include "api/handles.h"
#include "core/batch_ahead.h"
#include "core/batch_end.h"
#include "core/progress.h"
#include "core/remote_plan.h"
#include "core/thread.h"
#include "core/wait.h"

static stepaf_status_t check_recv(const struct stepaf_ctx *ctx, stepaf_from_t from, uint32_t flags,
                                  const stepaf_batch_h *batches_p, int capacity, const int *n_p)
{
    bool each = from == STEPAF_FROM_EACH;

    if (stepaf_is_attention(ctx))
        return stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_RECV, "only FFN ranks receive");
    if (!each && from != STEPAF_FROM_ANY)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RECV,
                                "from is %d, which is neither STEPAF_FROM_ANY nor _EACH",
                                (int)from);
    if (flags && (flags != STEPAF_RECV_SKIP_LOST || !each))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RECV,
                                "flags are 0x%x, which are not for this kind of receive", flags);
    if (!batches_p || !n_p)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RECV, "batches_p or n_p is NULL");
    if (capacity < (each ? (int)ctx->n_peers : 1))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RECV,
                                "capacity is %d, but %u batches may arrive", capacity,
                                each ? ctx->n_peers : 1);
    if (!atomic_load_explicit(&ctx->commit.n_done, memory_order_relaxed) || ctx->inbox.handler)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_RECV,
                                ctx->inbox.handler ? "a handler is set" : "not committed yet");
    return STEPAF_OK;
}

static stepaf_status_t lost(const struct stepaf_peer *peer)
{
    return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_RECV, peer->who,
                                 STEPAF_WHO_FORMAT " is lost: %s", STEPAF_WHO_ARGS(peer->who),
                                 peer->reason);
}

/* Take what is there. Return STEPAF_INPROGRESS if it is not enough yet. */
static stepaf_status_t take_any(struct stepaf_ctx *ctx, stepaf_batch_h *batches_p, int capacity,
                                int *n_p, uint64_t now)
{
    struct stepaf_batch_obj *batch;
    int n = 0;

    while (n < capacity && (batch = stepaf_batch_take(ctx, NULL, now)))
        batches_p[n++] = stepaf_batch_handle(batch);
    if (n) {
        *n_p = n;
        return STEPAF_OK;
    }
    return ctx->n_alive ? STEPAF_INPROGRESS : lost(&ctx->peers[0]);
}

/* Check whether each rank has a batch, except lost ranks if they may be left out. */
static stepaf_status_t all_ready(const struct stepaf_ctx *ctx, uint32_t flags)
{
    const struct stepaf_peer *missing = NULL;

    if (ctx->inbox.n_peers == ctx->n_peers)
        return STEPAF_OK;
    if (ctx->n_alive == ctx->n_peers)
        return STEPAF_INPROGRESS;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        if (!stepaf_list_empty(&peer->ready))
            continue;
        if (!peer->lost)
            missing = missing ? missing : peer;
        else if (!(flags & STEPAF_RECV_SKIP_LOST) && !peer->is_out)
            return lost(peer);
    }
    if (missing)
        return STEPAF_INPROGRESS;
    return ctx->inbox.n_peers ? STEPAF_OK : lost(&ctx->peers[0]);
}

static stepaf_status_t take_each(struct stepaf_ctx *ctx, uint32_t flags, stepaf_batch_h *batches_p,
                                 int *n_p, uint64_t now)
{
    stepaf_status_t status = all_ready(ctx, flags);

    if (status)
        return status;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_batch_obj *batch = stepaf_batch_take(ctx, &ctx->peers[p], now);
        batches_p[p] = batch ? stepaf_batch_handle(batch) : NULL;
    }
    *n_p = (int)ctx->n_peers;
    return STEPAF_OK;
}

static stepaf_status_t no_batch(const struct stepaf_ctx *ctx, bool each)
{
    for (uint32_t p = 0; each && p < ctx->n_peers; p++)
        if (!ctx->peers[p].lost && stepaf_list_empty(&ctx->peers[p].ready))
            return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RECV, ctx->peers[p].who,
                                         "no batch of " STEPAF_WHO_FORMAT " in time",
                                         STEPAF_WHO_ARGS(ctx->peers[p].who));
    return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_RECV, "no batch in time");
}

stepaf_status_t stepaf_recv(stepaf_context_h handle, stepaf_from_t from, uint32_t flags,
                            int64_t timeout_us, stepaf_batch_h *batches_p, int capacity, int *n_p)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    bool each = from == STEPAF_FROM_EACH;
    uint64_t called = stepaf_ticks(); /* taken before anything has arrived, when it costs no time */
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);
    bool more = true;

    if (status)
        return status;
    status = check_recv(ctx, from, flags, batches_p, capacity, n_p);
    while (!status) {
        unsigned happened =
            timeout_us ? stepaf_core_progress_waiting(ctx) : stepaf_core_progress(ctx);
        status = each ? take_each(ctx, flags, batches_p, n_p, called)
                      : take_any(ctx, batches_p, capacity, n_p, called);
        if (status != STEPAF_INPROGRESS)
            break;
        if (!more) {
            status = timeout_us ? no_batch(ctx, each) : STEPAF_ERR_TIMEOUT;
            break;
        }
        status = STEPAF_OK;
        more = happened ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                        : stepaf_waiter_idle(ctx, &waiter, timeout_us);
    }
    return stepaf_leave_wait(ctx, status);
}

/* Wait until the current call of the handler has returned, if another thread makes it. */
static stepaf_status_t await_call(struct stepaf_ctx *ctx)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    uint32_t n = ctx->inbox.n_dispatched;

    while (stepaf_core_is_dispatching(ctx) && ctx->inbox.n_dispatched == n)
        if (!stepaf_waiter_idle(ctx, &waiter, -1))
            return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_NONE,
                                    "the previous handler has not returned in time");
    return STEPAF_OK;
}

stepaf_status_t stepaf_batch_set_handler(stepaf_context_h handle, stepaf_batch_cb_t handler,
                                         void *arg)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (stepaf_is_attention(ctx)) {
        status = stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE, "only FFN ranks receive");
    } else {
        ctx->inbox.handler = handler;
        ctx->inbox.handler_arg = arg;
        status = await_call(ctx);
    }
    return stepaf_leave_wait(ctx, status);
}

stepaf_status_t stepaf_batch_query(stepaf_batch_h handle, stepaf_batch_info_t *info_p)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    const struct stepaf_remote_plan *remote = batch->remote;
    stepaf_batch_info_t info = {
        .attention_rank = remote->peer->who.rank,
        .plan = remote->number,
        .sequence = batch->seq,
        .n_tensors = remote->n_push,
        .n_answers = remote->n_pull,
    };
    status = info_p ? stepaf_fill(info_p, "stepaf_batch_info_t", STEPAF_FIRST_BATCH_INFO, &info,
                                  sizeof(info))
                    : stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "info_p is NULL");
    stepaf_leave(stepaf_batch_ctx(batch));
    return status;
}

/* @a what: that the batch has no such tensor. */
static stepaf_status_t no_tensor(const char *what, int index)
{
    return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                            "the batch %s %d, or info_p is NULL", what, index);
}

stepaf_status_t stepaf_batch_tensor(stepaf_batch_h handle, int index, stepaf_tensor_info_t *info_p)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    const struct stepaf_remote_plan *remote = batch->remote;
    if ((unsigned)index >= remote->n_push || !info_p) {
        status = no_tensor("has no pushed tensor", index);
    } else {
        const struct stepaf_remote_plan_push *push = &remote->push[index];
        status = stepaf_fill_tensor(push->key, push->key->id,
                                    push->data + (size_t)batch->slot * push->key->max_bytes,
                                    batch->bytes[index], push->key->max_bytes, info_p);
    }
    stepaf_leave(stepaf_batch_ctx(batch));
    return status;
}

stepaf_status_t stepaf_batch_answer(stepaf_batch_h handle, int index, stepaf_tensor_info_t *info_p)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    const struct stepaf_remote_plan *remote = batch->remote;
    if ((unsigned)index >= remote->n_pull || !info_p) {
        status = no_tensor("expects no answer", index);
    } else {
        const struct stepaf_remote_plan_pull *pull = &remote->pull[index];
        status =
            stepaf_fill_tensor(pull->key, pull->key_id, NULL, pull->bytes, pull->bytes, info_p);
    }
    stepaf_leave(stepaf_batch_ctx(batch));
    return status;
}

stepaf_status_t stepaf_respond_tensor(stepaf_batch_h handle, int index,
                                      const stepaf_tensor_t *tensor)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    status = stepaf_batch_send_ahead(batch, index, tensor);
    stepaf_leave(stepaf_batch_ctx(batch));
    return status;
}

stepaf_status_t stepaf_confirm(stepaf_batch_h handle)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    status = stepaf_batch_confirm(batch);
    stepaf_leave(stepaf_batch_ctx(batch));
    return status;
}

stepaf_status_t stepaf_respond(stepaf_batch_h handle, const stepaf_tensor_t *tensors, int n_tensors,
                               uint32_t flags, stepaf_request_h *request_p)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    struct stepaf_ctx *ctx = stepaf_batch_ctx(batch);
    status = stepaf_batch_respond(batch, tensors, n_tensors, flags);
    if (!status && request_p)
        *request_p = stepaf_response_handle(batch);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_release(stepaf_batch_h handle)
{
    struct stepaf_batch_obj *batch;
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);

    if (status)
        return status;
    struct stepaf_ctx *ctx = stepaf_batch_ctx(batch);
    stepaf_batch_finish(batch);
    stepaf_leave(ctx);
    return STEPAF_OK;
}
