/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/times_read.h"

#include "base/log.h"
#include "core/feature.h"
#include "core/meter.h"
#include "core/op_answer.h"
#include "core/wait.h"
#include "gpu/proxy.h"
#include "gpu/times.h"
#include "gpu/times_clock.h"

/* Return the operation near @a near whose lower bits are @a low. */
static uint32_t widen(uint32_t near, uint32_t low)
{
    uint32_t ahead = (low - near) % STEPAF_TIMESTAMP_OPS;

    return near + ahead - (ahead < STEPAF_TIMESTAMP_OPS / 2 ? 0 : STEPAF_TIMESTAMP_OPS);
}

/* ---- one timestamp ---- */

/* A timestamp that was read. */
struct taken {
    uint64_t ticks;
    uint32_t kind, seq, peer;
    uint64_t name; /* NAME */
};

static void stamp(const struct stepaf_stream *stream, const struct taken *taken, uint32_t event,
                  uint32_t plan, uint32_t peer)
{
    stepaf_trace_stamp(&stream->plan->ctx->trace, event, taken->ticks, plan, taken->seq, peer,
                       STEPAF_TRACE_WHOLE, 0);
}

/* Stamp each peer's plan. */
static void stamp_each(const struct stepaf_stream *stream, const struct taken *taken,
                       uint32_t event)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (!ctx->peers[p].lost && stream->times_numbers[p] != STEPAF_TIMES_NONE)
            stamp(stream, taken, event, stream->times_numbers[p], (uint32_t)ctx->peers[p].who.rank);
}

/* Return whether the host transfers everything for the peer, and has counted it. */
static bool is_hosts(const struct stepaf_stream *stream, uint32_t p)
{
    return stepaf_peer_proxied(stream->plan->ctx, p);
}

static void begin_slot(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                       uint32_t seq)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    slot->op.seq = seq;
    slot->is_named = false;
    slot->began = slot->handled = 0;
    slot->op.trace.started = slot->op.trace.notified = 0;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        slot->arrived[p] = 0;
        slot->unlooked[p] = STEPAF_UNLOOKED;
        if (!slot->op.op_peers)
            continue;
        struct stepaf_op_peer *op_peer = &slot->op.op_peers[p];
        op_peer->state = ctx->peers[p].lost ? STEPAF_OP_PEER_LOST : STEPAF_OP_PEER_NONE;
        op_peer->queue_ns = op_peer->work_ns = UINT32_MAX;
    }
}

static void take_answer(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                        const struct taken *taken)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_op_peer *op_peer = &slot->op.op_peers[taken->peer];

    op_peer->answered = taken->ticks;
    op_peer->state = STEPAF_OP_PEER_ANSWERED;
    stamp(stream, taken, STEPAF_EVENT_ANSWERED, stream->plan->index,
          (uint32_t)op_peer->peer->who.rank);
    /* It was there before the stream looked; since when is not known. */
    slot->unlooked[taken->peer] = 0;
    if (taken->kind == STEPAF_TIMESTAMP_WAS_THERE && slot->op.trace.notified)
        slot->unlooked[taken->peer] = taken->ticks - slot->op.trace.notified;
    if (!is_hosts(stream, taken->peer) && slot->op.trace.started)
        stepaf_meter_answer(ctx, &slot->op, op_peer, op_peer->answered, true);
}

static void end_operation(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                          const struct taken *taken)
{
    struct stepaf_op *op = &slot->op;
    struct stepaf_watch *watch = stream->plan->ctx->polling.watch;

    slot->handled = taken->ticks;
    stamp(stream, taken, STEPAF_EVENT_COMPLETED, stream->plan->index, STEPAF_TRACE_ALL);
    stream->plan->ctx->counters.operations_completed += !stream->proxy;
    /* Sent by another stream, whose send ends only later. */
    if (!op->trace.notified || (int64_t)(op->trace.notified - taken->ticks) > 0)
        op->trace.notified = op->trace.started;
    if (!op->answers.watched || !op->trace.started)
        return;
    uint64_t last = watch->last_done;
    stepaf_op_tell_watch(stream->plan->ctx, op, taken->ticks);
    if ((int64_t)(last - watch->last_done) > 0) /* others were read before, and ended later */
        watch->last_done = last;
}

static void take_at_attention(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                              const struct taken *taken)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    uint32_t index = stream->plan->index;

    switch (taken->kind) {
    case STEPAF_TIMESTAMP_SEND_BEGAN:
        slot->op.trace.started = taken->ticks;
        ctx->counters.operations_started += !stream->proxy;
        stamp(stream, taken, STEPAF_EVENT_START, index, STEPAF_TRACE_ALL);
        break;
    case STEPAF_TIMESTAMP_NAME:
        slot->is_named = true;
        slot->name = (uint32_t)taken->name;
        break;
    case STEPAF_TIMESTAMP_SEND_OVER:
        slot->op.trace.notified = taken->ticks;
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            if (slot->op.op_peers[p].state == STEPAF_OP_PEER_NONE)
                slot->op.op_peers[p].state = STEPAF_OP_PEER_WAITING;
        stamp(stream, taken, STEPAF_EVENT_NOTIFIED, index, STEPAF_TRACE_EACH);
        break;
    case STEPAF_TIMESTAMP_WAIT_BEGAN:
        stamp(stream, taken, STEPAF_EVENT_WAITED, index, STEPAF_TRACE_ALL);
        break;
    case STEPAF_TIMESTAMP_WAIT_OVER:
        end_operation(stream, slot, taken);
        break;
    default:
        take_answer(stream, slot, taken);
    }
}

/* Count the time from @a from to @a to. The clocks may have been compared in between; a short time
 * can then be negative. */
static void measure_span(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer, int time,
                         uint64_t from, uint64_t to)
{
    if (peer->times && (int64_t)(to - from) >= 0)
        stepaf_histogram_add(&peer->times[time],
                             (to - from) * ctx->clock.ns_scale >> STEPAF_NS_SCALE_BITS);
}

/* The peers' tensors are answered: measure how long each peer has waited, and been worked for. */
static void measure_batch(const struct stepaf_stream *stream, const struct stepaf_times_slot *slot,
                          uint64_t now)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    for (uint32_t p = 0; slot->handled && p < ctx->n_peers; p++) {
        if (!slot->arrived[p] || is_hosts(stream, p))
            continue;
        measure_span(ctx, &ctx->peers[p], STEPAF_TIME_QUEUE, slot->arrived[p], slot->handled);
        measure_span(ctx, &ctx->peers[p], STEPAF_TIME_WORK, slot->handled, now);
    }
}

/* Return how long the stream had not looked for the batch: since it was done with the former batch
 * in the slot. */
static uint64_t not_looked(const struct stepaf_stream *stream, const struct taken *taken)
{
    const struct stepaf_times *times = stream->times;
    uint32_t before = taken->seq - stream->plan->depth;
    const struct stepaf_times_slot *slot = &times->slots[before % times->n_slots];

    return slot->op.seq == before && slot->handled ? taken->ticks - slot->handled : STEPAF_UNLOOKED;
}

static void take_at_ffn(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                        const struct taken *taken)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;

    switch (taken->kind) {
    case STEPAF_TIMESTAMP_WAIT_OVER:
        slot->handled = taken->ticks;
        stamp_each(stream, taken, STEPAF_EVENT_HANDLED);
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            ctx->counters.batches_received += !ctx->peers[p].lost && !is_hosts(stream, p);
        break;
    case STEPAF_TIMESTAMP_SEND_BEGAN:
        stamp_each(stream, taken, STEPAF_EVENT_RESPONDED);
        measure_batch(stream, slot, taken->ticks);
        break;
    case STEPAF_TIMESTAMP_SEND_OVER:
        stamp_each(stream, taken, STEPAF_EVENT_RELEASED);
        for (uint32_t p = 0; p < ctx->n_peers; p++)
            ctx->counters.responses_sent += !ctx->peers[p].lost && !is_hosts(stream, p);
        break;
    case STEPAF_TIMESTAMP_ARRIVED:
    case STEPAF_TIMESTAMP_WAS_THERE:
        slot->arrived[taken->peer] = taken->ticks;
        slot->unlooked[taken->peer] =
            taken->kind == STEPAF_TIMESTAMP_ARRIVED ? 0 : not_looked(stream, taken);
        if (stream->times_numbers[taken->peer] != STEPAF_TIMES_NONE)
            stamp(stream, taken, STEPAF_EVENT_ARRIVED, stream->times_numbers[taken->peer],
                  (uint32_t)ctx->peers[taken->peer].who.rank);
        break;
    default:
        break;
    }
}

/* ---- any worker's ---- */

static void stamp_any(const struct stepaf_stream *stream, const struct stepaf_times_slot *slot,
                      uint64_t ticks, uint32_t event)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    const struct taken taken = {.ticks = ticks, .seq = slot->seq};

    stamp(stream, &taken, event, stream->times_numbers[slot->peer],
          (uint32_t)ctx->peers[slot->peer].who.rank);
}

/* It is now known whose batch has arrived. The time is not known: perhaps when nobody looked, from
 * the end of the last wait to the begin of this one. */
static void name_batch(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                       uint64_t batch)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    uint32_t peer = batch >> 8 & 0xffffff, in_slot = batch & 0xff, n = (uint32_t)(batch >> 32);

    if (peer >= ctx->n_peers || in_slot >= stream->plan->depth || slot->is_named)
        return;
    slot->is_named = true;
    slot->peer = peer;
    slot->seq = (n - 1) * stream->plan->depth + in_slot;
    slot->unlooked[peer] = stream->times->looked && slot->began
                               ? slot->began - stream->times->looked
                               : STEPAF_UNLOOKED;
    stream->times->looked = slot->handled;
    stamp_any(stream, slot, slot->handled, STEPAF_EVENT_ARRIVED);
    stamp_any(stream, slot, slot->handled, STEPAF_EVENT_HANDLED);
    ctx->counters.batches_received++;
}

static void take_at_any(const struct stepaf_stream *stream, struct stepaf_times_slot *slot,
                        const struct taken *taken)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;

    if (taken->kind == STEPAF_TIMESTAMP_WAIT_BEGAN) {
        slot->began = taken->ticks;
    } else if (taken->kind == STEPAF_TIMESTAMP_WAIT_OVER) {
        slot->handled = taken->ticks;
    } else if (taken->kind == STEPAF_TIMESTAMP_NAME) {
        name_batch(stream, slot, taken->name);
    } else if (slot->is_named && taken->kind == STEPAF_TIMESTAMP_SEND_BEGAN) {
        stamp_any(stream, slot, taken->ticks, STEPAF_EVENT_RESPONDED);
        measure_span(ctx, &ctx->peers[slot->peer], STEPAF_TIME_WORK, slot->handled, taken->ticks);
    } else if (slot->is_named && taken->kind == STEPAF_TIMESTAMP_SEND_OVER) {
        stamp_any(stream, slot, taken->ticks, STEPAF_EVENT_RELEASED);
        ctx->counters.responses_sent++;
    }
}

/* Return when a timestamp was written, in ticks. The clocks may have been compared anew since the
 * latest one was read; a timestamp that is later by the GPU's clock stays later. */
static uint64_t written_at(const struct stepaf_stream *stream, uint64_t time)
{
    struct stepaf_times *times = stream->times;
    uint64_t ticks = stepaf_gpu_clock_ticks(stream->plan->ctx, time);
    int unused = 64 - STEPAF_TIMESTAMP_TIME_BITS;

    if (times->last.ticks && (int64_t)((time - times->last.time) << unused) < 0)
        return ticks; /* of another stream, and earlier */
    if (times->last.ticks && (int64_t)(ticks - times->last.ticks) < 0)
        ticks = times->last.ticks;
    times->last.time = time;
    times->last.ticks = ticks;
    return ticks;
}

static void take(const struct stepaf_stream *stream, const struct stepaf_timestamp *timestamp)
{
    struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_times *times = stream->times;
    bool attends = stepaf_is_attention(ctx);
    uint32_t low = (uint32_t)(timestamp->what >> STEPAF_TIMESTAMP_OP) % STEPAF_TIMESTAMP_OPS;
    uint64_t upper = timestamp->time >> STEPAF_TIMESTAMP_TIME_BITS;
    struct taken taken = {
        .kind = timestamp->what >> STEPAF_TIMESTAMP_KIND & 0xf,
        .peer = (uint32_t)(timestamp->what >> STEPAF_TIMESTAMP_PEER),
        .seq = (uint32_t)upper * STEPAF_TIMESTAMP_OPS + low,
    };

    if (taken.kind == STEPAF_TIMESTAMP_NAME) {
        taken.seq = widen(times->seq, low);
        taken.name = timestamp->time;
    } else {
        taken.ticks = written_at(stream, timestamp->time);
        times->seq = taken.seq;
    }
    struct stepaf_times_slot *slot = &times->slots[taken.seq % times->n_slots];
    /* A stream that waits may be earlier than one that sends. */
    bool begins = taken.kind == STEPAF_TIMESTAMP_WAIT_BEGAN ||
                  (attends && taken.kind == STEPAF_TIMESTAMP_SEND_BEGAN);
    if (begins && slot->op.seq != taken.seq)
        begin_slot(stream, slot, taken.seq);
    if (taken.peer >= ctx->n_peers || slot->op.seq != taken.seq)
        return; /* its begin was overtaken */
    if (attends)
        take_at_attention(stream, slot, &taken);
    else if (stream->any)
        take_at_any(stream, slot, &taken);
    else
        take_at_ffn(stream, slot, &taken);
}

/* ---- the ring ---- */

/* Read the next timestamp. Returns false if there is none yet: its place holds the timestamp of one
 * round before, or nothing. */
static bool read_next(struct stepaf_times *times, struct stepaf_timestamp *timestamp_p)
{
    for (;;) {
        const struct stepaf_timestamp *at = &times->point.ring[times->next & times->point.mask];
        uint64_t what = __atomic_load_n(&at->what, __ATOMIC_ACQUIRE);
        uint32_t wanted = (uint32_t)(times->next + 1) % STEPAF_TIMESTAMP_NUMBERS;
        uint32_t ahead = ((uint32_t)what - wanted) % STEPAF_TIMESTAMP_NUMBERS;
        timestamp_p->time = __atomic_load_n(&at->time, __ATOMIC_ACQUIRE);
        timestamp_p->what = what;
        if (__atomic_load_n(&at->what, __ATOMIC_RELAXED) != what)
            continue;
        if (!what || ahead == STEPAF_TIMESTAMP_NUMBERS - 1 - times->point.mask)
            return false;
        if (!ahead) {
            times->next++;
            return true;
        }
        times->n_overtaken += ahead;
        times->looked = 0;
        times->next += ahead;
    }
}

static void read_ring(const struct stepaf_stream *stream)
{
    struct stepaf_times *times = stream->times;
    uint64_t overtaken = times->n_overtaken;
    struct stepaf_timestamp timestamp;

    /* At most one ring's worth: the GPU may write as fast as they are read. */
    for (uint32_t n = 0; n <= times->point.mask && read_next(times, &timestamp); n++)
        take(stream, &timestamp);
    if (!overtaken && times->n_overtaken)
        stepaf_log_warn("stream plan %u: timestamps were not read in time, and are lost; "
                        "STEPAF_STREAM_TIMES_KEPT sets how many are kept",
                        stream->plan->index);
}

void stepaf_times_read(struct stepaf_ctx *ctx)
{
    if (!ctx->gpu.clock)
        return;
    stepaf_gpu_clock_keep(ctx, stepaf_ticks());
    for (uint32_t i = 0; stepaf_gpu_clock_is_known(ctx) && i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan && plan->stream && plan->stream->times)
            read_ring(plan->stream);
    }
}

/* ---- queries ---- */

const struct stepaf_op *stepaf_times_find(const struct stepaf_op *op)
{
    const struct stepaf_times *times = op->plan->stream->times;

    for (uint32_t s = 0; times && s < times->n_slots; s++)
        if (times->slots[s].is_named && times->slots[s].name == op->seq &&
            times->slots[s].op.trace.started)
            return &times->slots[s].op;
    return NULL;
}

/* Return the slot of a peer's operation; NULL if it is forgotten. */
static const struct stepaf_times_slot *find_slot(const struct stepaf_stream *stream, uint32_t peer,
                                                 uint32_t seq)
{
    const struct stepaf_times *times = stream->times;
    const struct stepaf_times_slot *slot = &times->slots[seq % times->n_slots];

    if (!stream->any)
        return slot->op.seq == seq ? slot : NULL;
    for (uint32_t s = 0; s < times->n_slots; s++)
        if (times->slots[s].is_named && times->slots[s].peer == peer && times->slots[s].seq == seq)
            return &times->slots[s];
    return NULL;
}

/* Find how long the stream had not looked before a batch, or an answer, arrived. Returns false if
 * no stream knows of it. */
bool stepaf_times_unlooked(const struct stepaf_peer *peer, uint32_t number, uint32_t seq,
                           uint64_t *ticks_p)
{
    const struct stepaf_ctx *ctx = peer->ctx;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        const struct stepaf_times *times = plan && plan->stream ? plan->stream->times : NULL;
        if (!times || plan->stream->times_numbers[peer->index] != number)
            continue;
        const struct stepaf_times_slot *slot = find_slot(plan->stream, peer->index, seq);
        *ticks_p = slot ? slot->unlooked[peer->index] : STEPAF_UNLOOKED;
        return true;
    }
    return false;
}
