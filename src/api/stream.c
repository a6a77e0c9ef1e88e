/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans in the public interface. */
#include <stepaf/stream.h>

#include <stddef.h>

#include "api/fill.h"
#include "api/handles.h"
#include "api/params.h"
#include "core/plan.h"
#include "core/progress.h"
#include "core/wait.h"
#include "gpu/stream_any.h"
#include "gpu/stream_some.h"

/* Kernels write the structure that callers read. */
_Static_assert(offsetof(stepaf_answers_t, mask) == offsetof(struct stepaf_some_slot, mask) &&
                   offsetof(stepaf_answers_t, given_up) ==
                       offsetof(struct stepaf_some_slot, given_up) &&
                   offsetof(stepaf_answers_t, late) == offsetof(struct stepaf_some_slot, late),
               "stepaf_plan_answers");

/* Enter with a stream plan of a rank of @a role. The lock is held on success. */
static stepaf_status_t enter(stepaf_plan_h handle, stepaf_role_t role,
                             struct stepaf_stream **stream_p)
{
    struct stepaf_plan_obj *plan;
    stepaf_status_t status = stepaf_enter_plan(handle, &plan);

    if (status)
        return status;
    struct stepaf_ctx *ctx = plan->ctx;
    if (role != STEPAF_ROLE_AUTO && ctx->role != role)
        status = stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE, "only %s ranks call this",
                                  role == STEPAF_FFN ? "FFN" : "attention");
    else if (!plan->stream)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE,
                                  "the plan was not made with STEPAF_PLAN_STREAM");
    if (status)
        stepaf_leave(ctx);
    else
        *stream_p = plan->stream;
    return status;
}

/* Enter when no other thread is enqueueing to the stream plan. That ends with the other's
 * launch. */
static stepaf_status_t enter_alone(stepaf_plan_h handle, stepaf_role_t role,
                                   struct stepaf_stream **stream_p)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    stepaf_status_t status = enter(handle, role, stream_p);

    while (__builtin_expect(!status && (*stream_p)->enqueueing, 0)) {
        struct stepaf_ctx *ctx = (*stream_p)->plan->ctx;
        (void)stepaf_waiter_idle(ctx, &waiter, INT32_MAX);
        stepaf_leave(ctx); /* then look again: the plan may be gone */
        status = enter(handle, role, stream_p);
    }
    return status;
}

static const stepaf_error_t no_slot = {
    .status = STEPAF_ERR_WOULD_BLOCK,
    .phase = STEPAF_PHASE_START,
    .peer_role = -1,
    .peer_rank = -1,
    .peer_world_rank = -1,
    .text = "as many operations of the plan as its depth are started and not waited for",
};

static const stepaf_error_t all_received = {
    .status = STEPAF_ERR_WOULD_BLOCK,
    .phase = STEPAF_PHASE_RECV,
    .peer_role = -1,
    .peer_rank = -1,
    .peer_world_rank = -1,
    .text = "as many batches as the plan's depth are received and not answered",
};

stepaf_status_t stepaf_start_on_stream(stepaf_plan_h handle, const stepaf_start_params_t *params,
                                       stepaf_stream_t cuda_stream, stepaf_request_h *request_p)
{
    stepaf_start_params_t named = {.n_push = 0};
    struct stepaf_stream *stream;
    stepaf_status_t status = enter_alone(handle, STEPAF_ATTENTION, &stream);
    struct stepaf_op *op = NULL;

    if (status)
        return status;
    struct stepaf_plan_obj *plan = stream->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    if (params)
        status = stepaf_params_of_start(params, &named);
    if (!status && named.flags)
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                  "a start on a stream accepts no flags");
    if (!status && (named.n_answers || named.patience_us))
        status = stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_START,
                                  "on streams, the plan sets how many answers complete its "
                                  "operations (stepaf_plan_set_answers)");
    if (!status)
        status = stepaf_stream_status(stream);
    if (!status && (stream->n_sent - stream->n_received >= plan->depth ||
                    !stepaf_stream_slot_is_free(stream))) /* the wait for its request is enqueued */
        status = stepaf_error_fixed(&no_slot);
    if (!status)
        status = stepaf_stream_send(stream, named.push, named.n_push, cuda_stream,
                                    request_p ? &op : NULL);
    if (!status && request_p)
        *request_p = stepaf_op_handle(op);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_wait_on_stream(stepaf_plan_h handle, stepaf_stream_t cuda_stream)
{
    struct stepaf_stream *stream;
    stepaf_status_t status = enter_alone(handle, STEPAF_ATTENTION, &stream);

    if (status)
        return status;
    struct stepaf_ctx *ctx = stream->plan->ctx;
    status = stepaf_stream_status(stream);
    if (!status && stream->n_sent == stream->n_received)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_RESPONSE,
                                  "no operation of the plan is started and not waited for");
    if (!status)
        status = stepaf_stream_receive(stream, cuda_stream, NULL);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_recv_on_stream(stepaf_plan_h handle, stepaf_stream_t cuda_stream)
{
    struct stepaf_stream *stream;
    stepaf_status_t status = enter_alone(handle, STEPAF_FFN, &stream);

    if (status)
        return status;
    struct stepaf_ctx *ctx = stream->plan->ctx;
    status = stepaf_stream_status(stream);
    if (!status && stream->n_received - stream->n_sent >=
                       (stream->any ? stepaf_any_limit(stream) : stream->plan->depth))
        status = stepaf_error_fixed(&all_received);
    if (!status)
        status = stream->any ? stepaf_any_receive(stream, cuda_stream)
                             : stepaf_stream_receive(stream, cuda_stream, NULL);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_respond_on_stream(stepaf_plan_h handle, const stepaf_tensor_t *tensors,
                                         stepaf_stream_t cuda_stream)
{
    struct stepaf_stream *stream;
    stepaf_status_t status = enter_alone(handle, STEPAF_FFN, &stream);

    if (status)
        return status;
    struct stepaf_ctx *ctx = stream->plan->ctx;
    status = stepaf_stream_status(stream);
    if (!status && stream->n_sent == stream->n_received)
        status = stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_RESPOND,
                                  "no batch of the plan is received and not answered");
    if (!status && stream->any)
        status = stepaf_any_send(stream, tensors, cuda_stream);
    else if (!status)
        status = stepaf_stream_send(stream, tensors, (int)(ctx->n_peers * stream->n_out),
                                    cuda_stream, NULL);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_plan_tensor(stepaf_plan_h handle, unsigned slot, int peer, int index,
                                   stepaf_tensor_info_t *info_p)
{
    struct stepaf_stream *stream;
    stepaf_status_t status = enter(handle, STEPAF_ROLE_AUTO, &stream);

    if (status)
        return status;
    struct stepaf_plan_obj *plan = stream->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    if (!stream->epoch) {
        status =
            stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE, "the plan is not committed yet");
    } else if (slot >= plan->depth || peer < 0 || (uint32_t)peer >= ctx->n_peers || index < 0 ||
               index >= stream->n_in || !info_p) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "the plan has no such slot, peer or tensor");
    } else {
        uint32_t at = (uint32_t)(peer * stream->n_in + index);
        const struct stepaf_mailbox *mailbox = &stream->mailboxes[at];
        const struct stepaf_key *key =
            stepaf_is_attention(ctx) ? plan->pull[at].key : plan->push[index].key;
        status = stepaf_fill_tensor(key, key->id, mailbox->data + (size_t)slot * mailbox->pitch,
                                    mailbox->bytes, mailbox->bytes, info_p);
    }
    stepaf_leave(ctx);
    return status;
}

const uint32_t *stepaf_plan_bytes(stepaf_plan_h handle, unsigned slot)
{
    struct stepaf_stream *stream;
    const uint32_t *landed = NULL;

    if (enter(handle, STEPAF_ROLE_AUTO, &stream))
        return NULL;
    if (stream->epoch && slot < stream->plan->depth)
        landed = stream->launches.receive[slot * stream->launches.n_receive].args.landed;
    stepaf_leave(stream->plan->ctx);
    return landed;
}

const stepaf_answers_t *stepaf_plan_answers(stepaf_plan_h handle, unsigned slot)
{
    struct stepaf_stream *stream;
    const stepaf_answers_t *answers = NULL;

    if (enter(handle, STEPAF_ROLE_AUTO, &stream))
        return NULL;
    if (stream->epoch && stream->some && slot < stream->plan->depth)
        answers = (const stepaf_answers_t *)&stream->some->slots[slot];
    stepaf_leave(stream->plan->ctx);
    return answers;
}

const stepaf_origin_t *stepaf_plan_origin(stepaf_plan_h handle)
{
    struct stepaf_stream *stream;
    const stepaf_origin_t *origin = NULL;

    if (enter(handle, STEPAF_ROLE_AUTO, &stream))
        return NULL;
    if (stream->epoch && stream->any)
        origin = (const stepaf_origin_t *)stream->any->receive.origin;
    stepaf_leave(stream->plan->ctx);
    return origin;
}

stepaf_status_t stepaf_plan_status(stepaf_plan_h handle)
{
    struct stepaf_stream *stream;
    stepaf_status_t status = enter(handle, STEPAF_ROLE_AUTO, &stream);

    if (status)
        return status;
    struct stepaf_ctx *ctx = stream->plan->ctx;
    stepaf_core_progress(ctx);
    status = stepaf_stream_status(stream);
    if (status && status != STEPAF_ERR_PEER_LOST) { /* find out whether the peer has died */
        for (unsigned t = 0; t < ctx->net.n_transports; t++)
            ctx->net.transports[t]->ops->check_peers(ctx->net.transports[t]);
        status = stepaf_stream_status(stream);
    }
    stepaf_leave(ctx);
    return status;
}
