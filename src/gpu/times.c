/* SPDX-License-Identifier: Apache-2.0 */
/* A stream plan's timestamps: their memory, and what is enqueued. */
#include "gpu/times.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/round.h"
#include "core/plan.h"
#include "gpu/stream_some.h"
#include "gpu/times_clock.h"

enum {
    ALIGN = 512,
    FFN_SLOTS = 512 /* batches that an attention rank may still ask for; its own are depth */
};

bool stepaf_times_wanted(const struct stepaf_stream *stream)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    return ctx->env.stream_times == STEPAF_ENV_STREAM_TIMES_on &&
           !stepaf_gpu_facts(ctx->gpu.device)->untimed;
}

/* No peer is waited for if some answers are enough, or any batch. */
static bool sees_arrivals(const struct stepaf_stream *stream)
{
    return !stepaf_some_is_asked(stream) && !stream->any;
}

/* With STEPAF_PLAN_ANY each worker can have depth batches here, and as many that are answered. */
static uint32_t count_slots(const struct stepaf_stream *stream)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->any ? 2 * plan->depth * plan->ctx->n_peers : 0;

    if (stepaf_is_attention(plan->ctx))
        return plan->depth;
    return n > FFN_SLOTS ? n : FFN_SLOTS;
}

/* GPU memory: counts, of the ring, and by slot and kind; then heads, and their peers, slot by
 * slot. */
static uint64_t heads_bytes(const struct stepaf_stream *stream)
{
    uint64_t n = stream->plan->ctx->n_peers;

    return stepaf_round_up(n * stream->n_in * sizeof(struct stepaf_timestamp_head), ALIGN) +
           stepaf_round_up(n * sizeof(uint16_t), ALIGN);
}

static uint64_t all_counts_bytes(const struct stepaf_stream *stream)
{
    uint64_t n = 1 + (uint64_t)stream->plan->depth * STEPAF_TIMESTAMP_KINDS;

    return stepaf_round_up(n * sizeof(uint32_t), ALIGN);
}

uint64_t stepaf_times_control_bytes(const struct stepaf_stream *stream)
{
    if (!stepaf_times_wanted(stream))
        return 0;
    return all_counts_bytes(stream) +
           (sees_arrivals(stream) ? stream->plan->depth * heads_bytes(stream) : 0);
}

uint64_t stepaf_times_ring_bytes(const struct stepaf_ctx *ctx)
{
    return stepaf_round_up_power((uint64_t)ctx->env.stream_times_kept) *
           sizeof(struct stepaf_timestamp);
}

/* ---- the commit ---- */

void stepaf_times_free(struct stepaf_times *times)
{
    if (!times)
        return;
    free(times->slots);
    free(times->op_peers);
    free(times->ticks);
    free(times->arrivals);
    free(times);
}

static struct stepaf_times *make_times(const struct stepaf_stream *stream)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    size_t n_peers = plan->ctx->n_peers;
    struct stepaf_times *times = calloc(1, sizeof(*times));

    if (!times)
        return NULL;
    times->n_slots = count_slots(stream);
    times->slots = calloc(times->n_slots, sizeof(times->slots[0]));
    if (stepaf_is_attention(plan->ctx))
        times->op_peers = calloc(times->n_slots * n_peers + 1, sizeof(times->op_peers[0]));
    times->ticks = calloc(times->n_slots * n_peers * 2 + 1, sizeof(times->ticks[0]));
    if (sees_arrivals(stream))
        times->arrivals =
            calloc((size_t)plan->depth * stream->launches.n_receive, sizeof(times->arrivals[0]));
    if (!times->slots || !times->ticks || (stepaf_is_attention(plan->ctx) && !times->op_peers) ||
        (sees_arrivals(stream) && !times->arrivals)) {
        stepaf_times_free(times);
        return NULL;
    }
    return times;
}

static void set_slots(const struct stepaf_stream *stream, struct stepaf_times *times)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;

    for (uint32_t s = 0; s < times->n_slots; s++) {
        struct stepaf_times_slot *slot = &times->slots[s];
        slot->arrived = &times->ticks[(size_t)s * 2 * ctx->n_peers];
        slot->unlooked = slot->arrived + ctx->n_peers;
        slot->op.plan = stream->plan;
        slot->op.seq = UINT32_MAX; /* no operation yet */
        slot->op.failed_peer = -1;
        if (!times->op_peers)
            continue;
        slot->op.op_peers = &times->op_peers[(size_t)s * ctx->n_peers];
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            slot->op.op_peers[p].peer = &ctx->peers[p];
    }
}

/* Set the args that all timestamps have in common. */
static void set_point(const struct stepaf_stream *stream, uint8_t *control,
                      struct stepaf_timestamp *ring, struct stepaf_times *times)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    times->point = (struct stepaf_timestamp_args){
        .ring = ring,
        .n_timestamps = (uint32_t *)control,
        .mask = (uint32_t)(stepaf_round_up_power((uint64_t)ctx->env.stream_times_kept) - 1),
        .epoch = ctx->epoch,
        .depth = stream->any ? 1 : stream->plan->depth, /* receives of any are all in order */
        .failed = stream->launches.send[0].args.failed,
        .watch = stream->watch,
        .timeout_ns = (uint64_t)ctx->env.stream_timeout_us * 1000,
    };
}

static uint32_t *count_of(const struct stepaf_times *times, uint32_t slot,
                          enum stepaf_timestamp_kind kind)
{
    return times->point.n_timestamps + 1 + slot * STEPAF_TIMESTAMP_KINDS + kind;
}

/* Find the heads of one launch, of the peers that it waits for. */
static void find_heads(const struct stepaf_stream *stream, const struct stepaf_launch *launch,
                       uint32_t first_peer, struct stepaf_timestamp_head *heads, uint16_t *peers,
                       struct stepaf_timestamp_args *args)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    const struct stepaf_kernel_args *gate = &launch->args;

    for (uint32_t i = 0; i < gate->n_tensors; i += stream->n_in) {
        uint32_t p = first_peer + i / stream->n_in;
        if (ctx->peers[p].lost)
            continue;
        for (uint32_t k = i; k < i + stream->n_in; k++) {
            const struct stepaf_kernel_tensor *tensor = &gate->tensors[k];
            bool led = tensor->copied && tensor->copied != k + 1;
            heads[args->n_peers * stream->n_in + (k - i)] = (struct stepaf_timestamp_head){
                .head = tensor->head,
                .leader = led ? gate->tensors[tensor->copied - 1].head : NULL,
            };
        }
        peers[args->n_peers++] = (uint16_t)p;
    }
}

/* Do the same for all launches of a slot, and write the heads to GPU memory at @a place. */
static stepaf_status_t set_arrivals(const struct stepaf_stream *stream, uint32_t slot,
                                    uint8_t *place, uint8_t *scratch, struct stepaf_times *times)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    uint64_t at_peers =
        heads_bytes(stream) - stepaf_round_up((uint64_t)ctx->n_peers * sizeof(uint16_t), ALIGN);
    struct stepaf_timestamp_head *heads = (struct stepaf_timestamp_head *)scratch;
    uint16_t *peers = (uint16_t *)(scratch + at_peers);
    uint32_t n = 0, n_launches = stream->launches.n_receive;

    for (uint32_t k = 0; k < n_launches; k++) {
        const struct stepaf_launch *launch = &stream->launches.receive[slot * n_launches + k];
        struct stepaf_timestamp_args *args = &times->arrivals[slot * n_launches + k];
        *args = times->point;
        args->n_ops = count_of(times, slot, STEPAF_TIMESTAMP_WAIT_BEGAN);
        args->begins = k == 0;
        args->slot = (uint8_t)slot;
        args->n_each = stream->n_in;
        args->counts = launch->args.counts;
        args->heads = (struct stepaf_timestamp_head *)place + (size_t)n * stream->n_in;
        args->peers = (uint16_t *)(place + at_peers) + n;
        find_heads(stream, launch, k * stepaf_launch_peers(stream->n_in),
                   heads + (size_t)n * stream->n_in, peers + n, args);
        n += args->n_peers;
    }
    return stepaf_gpu_write(ctx->gpu.device, place, scratch, heads_bytes(stream));
}

static stepaf_status_t begin_times(struct stepaf_stream *stream, uint8_t *control,
                                   struct stepaf_timestamp *ring, struct stepaf_times *times)
{
    uint8_t *scratch = calloc(1, heads_bytes(stream)), *heads = control + all_counts_bytes(stream);
    stepaf_status_t status = STEPAF_OK;

    if (!scratch)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    set_slots(stream, times);
    set_point(stream, control, ring, times);
    for (uint32_t s = 0; !status && times->arrivals && s < stream->plan->depth; s++)
        status = set_arrivals(stream, s, heads + s * heads_bytes(stream), scratch, times);
    free(scratch);
    return status ? status : stepaf_gpu_clock_begin(stream->plan->ctx);
}

void stepaf_times_begin(struct stepaf_stream *stream, uint8_t *control,
                        struct stepaf_timestamp *ring)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_watch *watch = ctx->polling.watch;
    struct stepaf_times *times = make_times(stream);
    stepaf_status_t status = times ? begin_times(stream, control, ring, times)
                                   : stepaf_error_no_memory(STEPAF_PHASE_COMMIT);

    if (status) {
        stepaf_log_warn("stream plan %u takes no timestamps: %s", stream->plan->index,
                        stepaf_last_error()->text);
        stepaf_times_free(times);
        return;
    }
    bool watched = watch && stepaf_is_attention(ctx) && watch->ops->meet(watch, stream->plan, 0);
    for (uint32_t s = 0; s < times->n_slots; s++)
        times->slots[s].op.answers.watched = watched;
    stream->times = times;
}

/* ---- hot ---- */

stepaf_status_t stepaf_times_enqueue(const struct stepaf_stream *stream,
                                     enum stepaf_timestamp_kind kind, uint8_t slot,
                                     const uint32_t *name, void *cuda_stream, bool *begun_p)
{
    struct stepaf_timestamp_args args = stream->times->point;
    stepaf_status_t status;

    args.kind = (uint8_t)kind;
    args.slot = slot;
    args.n_ops = count_of(stream->times, slot, kind);
    args.named = name || (stream->any && kind == STEPAF_TIMESTAMP_WAIT_OVER);
    args.name = name ? *name : 0;
    status = stepaf_gpu_timestamp(stream->plan->ctx->gpu.device, STEPAF_KERNEL_TIMESTAMP, &args,
                                  cuda_stream);
    *begun_p = *begun_p || !status;
    return status;
}

stepaf_status_t stepaf_times_enqueue_arrivals(const struct stepaf_stream *stream, uint8_t slot,
                                              uint32_t k, void *cuda_stream, bool *begun_p)
{
    const struct stepaf_times *times = stream->times;
    stepaf_status_t status;

    if (!times->arrivals)
        return k ? STEPAF_OK
                 : stepaf_times_enqueue(stream, STEPAF_TIMESTAMP_WAIT_BEGAN, slot, NULL,
                                        cuda_stream, begun_p);
    const struct stepaf_timestamp_args *args =
        &times->arrivals[slot * stream->launches.n_receive + k];
    if (k && !args->n_peers)
        return STEPAF_OK;
    status = stepaf_gpu_timestamp(stream->plan->ctx->gpu.device, STEPAF_KERNEL_ARRIVALS, args,
                                  cuda_stream);
    *begun_p = *begun_p || !status;
    return status;
}
