/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans in use: enqueueing, failures. */
#include "engine/relay.h"
#include "engine/stream_any.h"

#include <stdlib.h>
#include <string.h>

static stepaf_status_t no_memory(void)
{
    return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
}

stepaf_status_t stepaf_stream_make(struct stepaf_plan_obj *plan)
{
    struct stepaf_ctx *ctx = plan->ctx;
    bool attention = stepaf_is_attention(ctx);
    struct stepaf_stream *stream = calloc(1, sizeof(*stream));
    struct stepaf_gpu *gpu;

    if (!stream)
        return no_memory();
    plan->stream = stream; /* plan_free ends it */
    stream->plan = plan;
    stream->failed_peer = -1;
    stream->n_out = attention ? plan->n_push : plan->n_pull;
    stream->n_in = attention ? plan->n_pull : plan->n_push;
    if (!stream->n_out || !stream->n_in)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "a stream plan needs something to push and something to pull");
    stepaf_status_t status = stepaf_ctx_gpu(ctx, &gpu);
    if (status)
        return status;
    stream->inlets = calloc((size_t)ctx->n_peers * stream->n_in, sizeof(*stream->inlets));
    stream->n_send = stepaf_legs(ctx->n_peers, stream->n_out);
    stream->n_receive = stepaf_legs(ctx->n_peers, stream->n_in);
    stream->send = calloc((size_t)plan->depth * stream->n_send, sizeof(*stream->send));
    stream->receive = calloc((size_t)plan->depth * stream->n_receive, sizeof(*stream->receive));
    stream->changed = calloc(stream->n_send, sizeof(*stream->changed));
    stream->sent = calloc(plan->depth, sizeof(*stream->sent));
    stream->arrived = calloc(plan->depth, sizeof(*stream->arrived));
    if (!stream->inlets || !stream->send || !stream->receive || !stream->changed || !stream->sent ||
        !stream->arrived)
        return no_memory();
    return STEPAF_OK;
}

void stepaf_stream_free(struct stepaf_stream *stream)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;

    stepaf_relay_free(stream->relay);
    for (uint8_t s = 0; s < stream->plan->depth; s++) {
        if (stream->sent && stream->sent[s])
            stepaf_gpu_event_destroy(ctx->gpu, stream->sent[s]);
        if (stream->arrived && stream->arrived[s])
            stepaf_gpu_event_destroy(ctx->gpu, stream->arrived[s]);
    }
    free(stream->any);
    free(stream->inlets);
    free(stream->send);
    free(stream->receive);
    free(stream->changed);
    free(stream->sent);
    free(stream->arrived);
    free(stream);
}

bool stepaf_stream_busy(const struct stepaf_stream *stream)
{
    return stream->requests || (!stream->failure && stream->n_sent != stream->n_received);
}

/* ---- failures ---- */

/* What the peer has done, or has not. */
static const char *why_over(stepaf_status_t failure)
{
    if (failure == STEPAF_ERR_CANCELED)
        return "has released a batch without an answer";
    if (failure == STEPAF_ERR_PROTOCOL)
        return "has a plan in host memory that does not go along with it: it skips operations, or "
               "has no room for an answer";
    return "has sent nothing for STEPAF_STREAM_TIMEOUT_US";
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
        stepaf_any_blame(stream);
    ctx->changed = true; /* the next commit begins anew */
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
            "stream plan %u is over: nobody has sent anything for "
            "STEPAF_STREAM_TIMEOUT_US; it was the turn of " STEPAF_WHO_FORMAT,
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

stepaf_status_t stepaf_stream_break(struct stepaf_stream *stream, stepaf_status_t status)
{
    if (status) {
        stepaf_stream_fail(stream, status, -1);
        stream->plan->ctx->changed = true;
    }
    return status;
}

void stepaf_streams_peer_lost(struct stepaf_peer *peer)
{
    struct stepaf_ctx *ctx = peer->ctx;

    for (uint32_t i = 0; i < ctx->plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        struct stepaf_stream *stream = plan ? plan->stream : NULL;
        if (!stream || !stream->epoch || stream->failure)
            continue;
        if (stream->relay)
            (void)stepaf_relay_land(stream->relay); /* what it had sent before */
        stepaf_stream_fail(stream, STEPAF_ERR_PEER_LOST, (int)peer->index);
    }
}

/* ---- enqueueing ---- */

stepaf_status_t stepaf_stream_check(struct stepaf_stream *stream)
{
    if (__builtin_expect(!stream->epoch || stream->epoch != stream->plan->ctx->epoch, 0))
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_START,
                                "stream plan %u was made after the last commit",
                                stream->plan->index);
    return stepaf_stream_status(stream);
}

/* Put the sizes and places of one operation into a copy of its legs. */
static stepaf_status_t change(const struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                              int n_tensors, struct stepaf_leg *legs)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->n_out, all = plan->ctx->n_peers * n;
    bool attention = stepaf_is_attention(plan->ctx);
    bool each = plan->scatter || !attention;

    if (n_tensors < 0 || (uint32_t)n_tensors != (each ? all : n))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "%d tensors given where the plan has %u", n_tensors,
                                each ? all : n);
    for (uint32_t i = 0; i < all; i++) {
        const stepaf_tensor_t *tensor = &tensors[each ? i : i % n];
        const struct stepaf_key *key = attention ? plan->push[i % n].key : plan->pull[i].key;
        struct stepaf_lane *lane = stepaf_leg_lane(legs, n, i / n, i % n);
        if (tensor->key != key->id)
            return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                    "tensor %u is of key %llu, planned was %llu", i,
                                    (unsigned long long)tensor->key, (unsigned long long)key->id);
        if (tensor->bytes > lane->bytes)
            return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_START,
                                    "tensor %u: %zu bytes, planned were %u", i, tensor->bytes,
                                    lane->bytes);
        lane->bytes = (uint32_t)tensor->bytes;
        if (!tensor->data || !tensor->bytes)
            continue;
        const struct stepaf_region *region =
            stepaf_region_find(plan->ctx, tensor->data, tensor->bytes);
        if (!region || (region->kind != STEPAF_MEM_CUDA && !region->pinned))
            return stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_START,
                                    "tensor %u: its %zu bytes are neither in registered GPU memory "
                                    "nor in host memory that a stream plan names",
                                    i, tensor->bytes);
        if (lane->copied && !stepaf_stream_copies(plan->ctx, lane->peer, region))
            return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_START,
                                    "tensor %u is in host memory, and planned was GPU memory, "
                                    "which a copy engine takes to a peer by way of the host",
                                    i);
        lane->data = tensor->data;
    }
    for (uint32_t k = 0; k < stream->n_send; k++)
        stepaf_stream_touch(&legs[k].flow);
    return STEPAF_OK;
}

/* Whether @a next goes on where @a lane ends, at both sides: then one copy does for both. */
static bool goes_on(const struct stepaf_lane *lane, const struct stepaf_lane *next, uint32_t bytes)
{
    return next->copied && next->peer == lane->peer && next->data == lane->data + bytes &&
           next->body == lane->body + bytes;
}

/* Whether all that copy engines write is as large as planned. */
static bool as_planned(const struct stepaf_flow *flow, const struct stepaf_flow *planned)
{
    for (uint32_t i = 0; i < flow->n_lanes; i++)
        if (flow->lanes[i].copied && flow->lanes[i].bytes != planned->lanes[i].bytes)
            return false;
    return true;
}

/* Tell of what copy engines have written, without a kernel. */
static stepaf_status_t tell(struct stepaf_gpu *gpu, const struct stepaf_flow *flow, bool all,
                            void *cuda_stream)
{
    struct stepaf_gpu_word words[STEPAF_GPU_WORDS];
    uint32_t n_words = 0;

    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        bool leads = lane->copied == i + 1;
        if (lane->copied && (leads || !all))
            words[n_words++] = (struct stepaf_gpu_word){
                (uint64_t *)(lane->head + STEPAF_HEAD_TELLS) + 1,
                (uint64_t)lane->bytes << 32 | (all ? STEPAF_TOLD_ALL : STEPAF_TOLD),
            };
    }
    return stepaf_gpu_store(gpu, words, n_words, cuda_stream);
}

/* Let copy engines write what is theirs. */
static stepaf_status_t copy(struct stepaf_gpu *gpu, const struct stepaf_flow *flow,
                            const struct stepaf_flow *planned, void *cuda_stream)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0, next; i < flow->n_lanes && !status; i = next) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        size_t bytes = lane->bytes;
        next = i + 1;
        if (!lane->copied)
            continue;
        for (; next < flow->n_lanes && bytes <= UINT32_MAX &&
               goes_on(lane, &flow->lanes[next], (uint32_t)bytes);
             next++)
            bytes += flow->lanes[next].bytes;
        if (bytes)
            status = stepaf_gpu_copy(gpu, lane->body, lane->data, bytes, cuda_stream);
    }
    return status ? status : tell(gpu, flow, as_planned(flow, planned), cuda_stream);
}

/* Kernels first: one between two copies takes longer than either. */
static stepaf_status_t send_legs(struct stepaf_stream *stream, const struct stepaf_leg *legs,
                                 const struct stepaf_leg *planned, void *cuda_stream)
{
    struct stepaf_gpu *gpu = stream->plan->ctx->gpu;
    stepaf_status_t status;
    bool begun = false;

    for (uint32_t k = 0; k < stream->n_send; k++) {
        if (!legs[k].blocks)
            continue;
        status = stepaf_gpu_launch(gpu, STEPAF_KERNEL_SEND, &legs[k].flow, legs[k].blocks,
                                   STEPAF_WARP, true, cuda_stream);
        if (status)
            return begun ? stepaf_stream_break(stream, status) : status;
        begun = true;
    }
    for (uint32_t k = 0; k < stream->n_send; k++) {
        status =
            legs[k].copies ? copy(gpu, &legs[k].flow, &planned[k].flow, cuda_stream) : STEPAF_OK;
        if (status)
            return stepaf_stream_break(stream, status);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_stream_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                   int n_tensors, void *cuda_stream, struct stepaf_op **op_p)
{
    struct stepaf_plan_obj *plan = stream->plan;
    uint8_t slot = (uint8_t)(stream->n_sent % plan->depth);
    const struct stepaf_leg *planned = &stream->send[slot * stream->n_send], *legs = planned;
    stepaf_status_t status = stepaf_stream_check(stream);

    if (!status && tensors) {
        legs = stream->changed;
        memcpy(stream->changed, planned, stream->n_send * sizeof(*planned));
        status = change(stream, tensors, n_tensors, stream->changed);
    }
    if (!status && op_p) {
        bool capturing = false;
        status = stepaf_gpu_capturing(plan->ctx->gpu, cuda_stream, &capturing);
        if (capturing)
            status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                      "the stream is captured: replays have no requests");
    }
    if (!status && stream->relay && stepaf_is_attention(plan->ctx))
        status = stepaf_relay_admit(stream->relay);
    if (!status)
        status = send_legs(stream, legs, planned, cuda_stream);
    if (status)
        return status;
    if (op_p)
        status = stepaf_stream_request(stream, slot, cuda_stream, op_p);
    plan->seq++;
    stream->n_sent++;
    if (!status && stream->relay && !stepaf_is_attention(plan->ctx))
        status = stepaf_relay_mark(stream->relay, cuda_stream);
    return stepaf_stream_break(stream, status);
}

static stepaf_status_t receive_legs(struct stepaf_stream *stream, const struct stepaf_leg *legs,
                                    void *cuda_stream)
{
    struct stepaf_gpu *gpu = stream->plan->ctx->gpu;
    stepaf_status_t status;

    for (uint32_t k = 0; k < stream->n_receive; k++) {
        status = stepaf_gpu_launch(gpu, STEPAF_KERNEL_GATE, &legs[k].flow, 1, legs[k].threads,
                                   false, cuda_stream);
        if (status)
            return k ? stepaf_stream_break(stream, status) : status;
        if (legs[k].blocks)
            status = stepaf_gpu_launch(gpu, STEPAF_KERNEL_UNPACK, &legs[k].flow, legs[k].blocks,
                                       STEPAF_WARP, true, cuda_stream);
        if (status)
            return stepaf_stream_break(stream, status);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_stream_receive(struct stepaf_stream *stream, void *cuda_stream)
{
    struct stepaf_plan_obj *plan = stream->plan;
    uint8_t slot = (uint8_t)(stream->n_received % plan->depth);
    stepaf_status_t status = stepaf_stream_check(stream);

    if (!status && stream->relay && !stepaf_is_attention(plan->ctx))
        status = stepaf_relay_admit(stream->relay);
    if (!status && stream->unpacks && !plan->ctx->streams->captured)
        status = stepaf_gpu_capturing(plan->ctx->gpu, cuda_stream, &plan->ctx->streams->captured);
    if (!status)
        status = receive_legs(stream, &stream->receive[slot * stream->n_receive], cuda_stream);
    if (status)
        return status;
    stream->n_received++;
    if (stream->requests & 1u << slot)
        status = stepaf_stream_await(stream, slot, cuda_stream);
    if (!status && stream->relay && stepaf_is_attention(plan->ctx))
        status = stepaf_relay_mark(stream->relay, cuda_stream);
    return stepaf_stream_break(stream, status);
}
