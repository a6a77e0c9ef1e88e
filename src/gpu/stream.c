/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans: making, freeing and failing one. */
#include "core/plan.h"
#include "core/region_kind.h"
#include "gpu/proxy.h"
#include "gpu/stream_some.h"
#include "gpu/times.h"

#include <stdlib.h>

stepaf_status_t stepaf_stream_make(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx *ctx = plan->ctx;
    bool attention = stepaf_is_attention(ctx);
    struct stepaf_stream *stream = calloc(1, sizeof(*stream));
    struct stepaf_gpu *gpu;

    if (!stream)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    plan->stream = stream; /* plan_free frees it */
    stream->plan = plan;
    stream->failed_peer = -1;
    stream->n_out = attention ? plan->n_push : plan->n_pull;
    stream->n_in = attention ? plan->n_pull : plan->n_push;
    if (!stream->n_out || !stream->n_in)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "a stream plan requires tensors to push and tensors to pull");
    stepaf_status_t status = stepaf_ctx_gpu(ctx, &gpu);
    if (status)
        return status;
    stream->mailboxes = calloc((size_t)ctx->n_peers * stream->n_in, sizeof(*stream->mailboxes));
    stream->launches.n_send = stepaf_launches(ctx->n_peers, stream->n_out);
    stream->launches.n_receive = stepaf_launches(ctx->n_peers, stream->n_in);
    stream->launches.send =
        calloc((size_t)plan->depth * stream->launches.n_send, sizeof(*stream->launches.send));
    stream->launches.receive =
        calloc((size_t)plan->depth * stream->launches.n_receive, sizeof(*stream->launches.receive));
    stream->launches.changed = calloc(stream->launches.n_send, sizeof(*stream->launches.changed));
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (stepaf_peer_proxied(ctx, p))
            stream->launches.n_guard = stepaf_launches(ctx->n_peers, 1);
    stream->launches.guard =
        calloc((size_t)plan->depth * stream->launches.n_guard + 1, sizeof(*stream->launches.guard));
    stream->times_numbers = calloc(ctx->n_peers + 1, sizeof(*stream->times_numbers));
    stream->sent = calloc(plan->depth, sizeof(*stream->sent));
    stream->arrived = calloc(plan->depth, sizeof(*stream->arrived));
    if (!stream->mailboxes || !stream->launches.send || !stream->launches.receive ||
        !stream->launches.changed || !stream->launches.guard || !stream->times_numbers ||
        !stream->sent || !stream->arrived)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    return STEPAF_OK;
}

void stepaf_stream_free(struct stepaf_stream *stream)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;

    stepaf_proxy_free(stream->proxy);
    for (uint8_t s = 0; s < stream->plan->depth; s++) {
        if (stream->sent && stream->sent[s])
            stepaf_gpu_event_destroy(ctx->gpu.device, stream->sent[s]);
        if (stream->arrived && stream->arrived[s])
            stepaf_gpu_event_destroy(ctx->gpu.device, stream->arrived[s]);
    }
    stepaf_times_free(stream->times);
    free(stream->times_numbers);
    free(stream->any);
    free(stream->mailboxes);
    free(stream->launches.send);
    free(stream->launches.receive);
    free(stream->launches.changed);
    free(stream->launches.guard);
    free(stream->sent);
    free(stream->arrived);
    free(stream);
}

struct stepaf_stream *stepaf_stream_after(const struct stepaf_ctx *ctx,
                                          const struct stepaf_stream *before)
{
    const struct stepaf_plan_obj *next = NULL;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream &&
            (!before || stepaf_plan_age(plan) > stepaf_plan_age(before->plan)) &&
            (!next || stepaf_plan_age(plan) < stepaf_plan_age(next)))
            next = plan;
    }
    return next ? next->stream : NULL;
}

/* ---- enqueueing ----
 *
 * A launch waits while a stream is full, also with what the caller has enqueued. It may wait for a
 * peer. A proxied peer waits for the progress thread, which needs the lock, and so does whoever
 * finds that a peer is lost. So the lock is released, and the plan is taken away from other threads
 * instead. */

void stepaf_stream_take_out(struct stepaf_stream *stream)
{
    stream->enqueueing = true;
    stepaf_lock_leave(&stream->plan->ctx->lock);
}

void stepaf_stream_put_back(struct stepaf_stream *stream)
{
    stepaf_lock_enter(&stream->plan->ctx->lock);
    stream->enqueueing = false;
}

bool stepaf_streams_enqueueing(const struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream && plan->stream->enqueueing)
            return true;
    }
    return false;
}

bool stepaf_stream_busy(struct stepaf_stream *stream)
{
    (void)stepaf_stream_status(stream); /* takes a failure that only the GPU has noticed */
    return stream->enqueueing || stream->requests ||
           (!stream->failure && stream->n_sent != stream->n_received);
}

/* ---- failures ---- */

/* Return what the peer has done, or has failed to do. */
static const char *why_over(stepaf_status_t failure)
{
    if (failure == STEPAF_ERR_CANCELED)
        return "has released a batch without an answer";
    if (failure == STEPAF_ERR_PROTOCOL)
        return "has a plan in host memory that does not fit the stream plan: it skips operations, "
               "or has no space for an answer";
    return "has sent nothing for STEPAF_STREAM_TIMEOUT_US";
}

/* Report the failure that ended the plan. */
static stepaf_status_t report(const struct stepaf_stream *stream, const stepaf_error_t *why)
{
    struct stepaf_who who = {why->peer_role, why->peer_rank, why->peer_world_rank};

    return stepaf_error_set_peer(why->status, why->phase, who, "stream plan %u is over: %s",
                                 stream->plan->index, why->text);
}

/* The plan is over. If any peer would have done, find out whether a lost peer is the reason. */
static void attribute_any(struct stepaf_stream *stream)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    if (stream->failure != STEPAF_ERR_TIMEOUT || !(stream->watch->peer & STEPAF_WATCH_ANY))
        return;
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (ctx->peers[p].lost && !ctx->peers[p].is_out) {
            stream->failed_peer = (int)p;
            return;
        }
}

stepaf_status_t stepaf_stream_status(struct stepaf_stream *stream)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;

    if (!stream->failure && stream->watch) {
        uint32_t fault = __atomic_load_n(&stream->watch->fault, __ATOMIC_ACQUIRE);
        uint32_t peer = stream->watch->peer & ~STEPAF_WATCH_ANY;
        if (fault && peer < ctx->n_peers) {
            stream->failed_peer = (int)peer;
            stream->failure =
                ctx->peers[stream->failed_peer].lost ? STEPAF_ERR_PEER_LOST : STEPAF_ERR_TIMEOUT;
        }
    }
    if (__builtin_expect(!stream->failure, 1))
        return STEPAF_OK;
    if (stream->any)
        attribute_any(stream);
    ctx->commit.changed = true; /* the next commit starts over */
    if (stream->why.status && (stream->failed_peer < 0 || !ctx->peers[stream->failed_peer].lost))
        return report(stream, &stream->why);
    if (stream->failed_peer < 0)
        return stepaf_error_set(stream->failure, STEPAF_PHASE_NONE,
                                "stream plan %u is over: CUDA has refused a part of an operation",
                                stream->plan->index);
    struct stepaf_peer *peer = &ctx->peers[stream->failed_peer];
    if (peer->lost)
        stream->failure = STEPAF_ERR_PEER_LOST;
    stepaf_phase_t phase = stepaf_is_attention(ctx) ? STEPAF_PHASE_RESPONSE : STEPAF_PHASE_RECV;
    if (stream->failure == STEPAF_ERR_PEER_LOST)
        return stepaf_error_set_peer(stream->failure, phase, peer->who,
                                     "stream plan %u is over: " STEPAF_WHO_FORMAT " is lost: %s",
                                     stream->plan->index, STEPAF_WHO_ARGS(peer->who), peer->reason);
    if (stream->failure == STEPAF_ERR_TIMEOUT && stream->any &&
        stream->watch->peer & STEPAF_WATCH_ANY)
        return stepaf_error_set_peer(
            stream->failure, phase, peer->who,
            "stream plan %u is over: no peer has sent anything for STEPAF_STREAM_TIMEOUT_US; the "
            "next one due was " STEPAF_WHO_FORMAT,
            stream->plan->index, STEPAF_WHO_ARGS(peer->who));
    return stepaf_error_set_peer(
        stream->failure, phase, peer->who, "stream plan %u is over: " STEPAF_WHO_FORMAT " %s",
        stream->plan->index, STEPAF_WHO_ARGS(peer->who), why_over(stream->failure));
}

void stepaf_stream_fail(struct stepaf_stream *stream, stepaf_status_t status, int peer)
{
    if (stream->failure)
        return;
    stream->failure = status;
    stream->failed_peer = peer;
    __atomic_store_n(&stream->watch->abort, 1, __ATOMIC_RELEASE);
}

/* Return the index of the peer that @a error names; -1: none. */
static int find_blamed(const struct stepaf_ctx *ctx, const stepaf_error_t *error)
{
    for (uint32_t p = 0; error->peer_world_rank >= 0 && p < ctx->n_peers; p++)
        if (ctx->peers[p].who.world_rank == error->peer_world_rank)
            return (int)p;
    return -1;
}

void stepaf_stream_fail_as(struct stepaf_stream *stream, stepaf_status_t status, int peer)
{
    const stepaf_error_t *error = stepaf_last_error();

    if (!stream->failure && error->status == status) {
        stream->why = *error;
        if (peer < 0)
            peer = find_blamed(stream->plan->ctx, error);
    }
    stepaf_stream_fail(stream, status, peer);
}

stepaf_status_t stepaf_stream_break(struct stepaf_stream *stream, stepaf_status_t status)
{
    if (status) {
        stepaf_stream_fail(stream, status, -1);
        stream->plan->ctx->commit.changed = true;
    }
    return status;
}

/* Return whether @a watch is that of plan number @a i, which does without its lost peers. */
static bool does_without(const struct stepaf_ctx *ctx, uint32_t i,
                         const struct stepaf_gpu_watch *watch)
{
    const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);

    return plan && plan->stream && plan->stream->watch == watch &&
           stepaf_some_goes_on(plan->stream);
}

void stepaf_streams_peer_lost(struct stepaf_peer *peer)
{
    struct stepaf_ctx *ctx = peer->ctx;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        struct stepaf_stream *stream = plan ? plan->stream : NULL;
        if (!stream || !stream->epoch || stream->failure)
            continue;
        if (stepaf_some_goes_on(stream)) {
            stepaf_some_lose(stream, peer->index);
            continue;
        }
        if (stream->proxy)
            (void)stepaf_proxy_land(stream->proxy); /* what the peer sent before */
        stepaf_stream_fail(stream, STEPAF_ERR_PEER_LOST, (int)peer->index);
    }
    /* Plans that have ended may have left waits on streams. */
    for (struct stepaf_streams *streams = ctx->gpu.streams; streams; streams = streams->before)
        for (uint32_t i = 0; i < streams->n_watches; i++)
            if (!does_without(ctx, i, &streams->watches[i]))
                __atomic_store_n(&streams->watches[i].abort, 1, __ATOMIC_RELEASE);
}

stepaf_status_t stepaf_stream_check(struct stepaf_stream *stream)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    if (__builtin_expect(ctx->state != STEPAF_CTX_OPEN, 0))
        return stepaf_error_set(
            STEPAF_ERR_STATE, STEPAF_PHASE_START,
            ctx->state == STEPAF_CTX_BROKEN
                ? "a commit failed halfway: the context can only be finalized"
            : ctx->state == STEPAF_CTX_LEFT
                ? "this rank has left the job: the context can only be finalized"
                : "a commit is in progress");
    if (__builtin_expect(!stream->epoch || stream->epoch != ctx->epoch, 0))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                "stream plan %u was made after the last commit",
                                stream->plan->index);
    return stepaf_stream_status(stream);
}
