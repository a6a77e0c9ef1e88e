/* SPDX-License-Identifier: Apache-2.0 */
/* Picks operations: the late ones, and now and then one from which the usual times are learnt. */
#include <stdlib.h>

#include "base/log.h"
#include "core/clock_keep.h"
#include "core/feature.h"
#include "core/metrics_layout.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/trace.h"
#include "core/wait.h"
#include "verdict/ask.h"
#include "verdict/rails.h"
#include "verdict/starve.h"
#include "verdict/verdict.h"
#include "verdict/window.h"

enum {
    GAPS_FROM_US = 10,
    NOTE_EACH_US = 1, /* a gap may seem longer by two of these */
    LOOK_EVERY_US = 20000,
    STARVE_EVERY_US = 1000, /* minimum interval of readings */
    ANSWER_WITHIN_US = 1000000,
    LEARN_EVERY_US = 1000000, /* from a plan, once it is known well */
    LATELY_EVERY_US = 5000,   /* the same for the length alone, which needs no messages */
    LEARN_OF_PEERS = 4,       /* peers at a time */
    WAITED_WITHIN = 512       /* entries of the trace that are searched */
};

/* ---- plans ---- */

/* Make space for what is learnt of a plan. Its number may have belonged to another plan before. */
static bool meet_plan(struct stepaf_watch *watch, struct stepaf_plan_obj *obj, uint32_t first)
{
    struct stepaf_verdict_state *state = (struct stepaf_verdict_state *)watch;
    struct stepaf_verdict_plan *plan;

    if (obj->index >= state->n_plans) {
        uint32_t n = obj->index + 16;
        struct stepaf_verdict_plan **plans = realloc(state->plans, n * sizeof(*plans));
        if (!plans)
            return false;
        for (uint32_t i = state->n_plans; i < n; i++)
            plans[i] = NULL;
        state->plans = plans;
        state->n_plans = n;
    }
    plan = calloc(1, sizeof(*plan) + state->ctx->n_peers * sizeof(plan->at[0]));
    if (!plan)
        return false;
    plan->generation = obj->handle.generation;
    plan->stride = 1;
    obj->watched = stepaf_watch_plan_begin(first);
    free(state->plans[obj->index]);
    state->plans[obj->index] = plan;
    return true;
}

/* INT64_MAX stays unchanged: never. */
static uint64_t ticks_of_ns(const struct stepaf_ctx *ctx, int64_t ns)
{
    return ns == INT64_MAX ? INT64_MAX : (uint64_t)((double)ns / ctx->clock.own.ns_per_tick);
}

static int64_t ns_of_ticks(const struct stepaf_ctx *ctx, uint64_t ticks)
{
    return (int64_t)((double)ticks * ctx->clock.own.ns_per_tick);
}

/* ---- one operation ---- */

/* Call look after this poll. */
static void look_soon(struct stepaf_verdict_state *state)
{
    state->watch.look_due = 0;
    state->ctx->polling.look_at = 0;
}

/* Return when the caller began to wait for the operation; 0: not waiting, or no longer in the
 * trace. */
static uint64_t find_wait(const struct stepaf_trace *trace, const struct stepaf_op *op)
{
    uint64_t head = stepaf_trace_head(trace), kept = stepaf_trace_kept(trace, WAITED_WITHIN);

    for (uint64_t at = head; at-- > head - kept;) {
        const struct stepaf_trace_entry *entry = stepaf_trace_entry(trace, at);
        if (entry->seq == op->seq && entry->plan == (op->plan->index & 0xffff) &&
            (entry->event & STEPAF_TRACE_EVENT) == STEPAF_EVENT_WAITED)
            return entry->ticks;
    }
    return 0;
}

/* Return the part of the gap before the answer during which the caller was waiting. */
static uint64_t part_in_wait(uint64_t answered, uint64_t gap, uint64_t waited)
{
    uint64_t began = answered - gap;

    if (!waited || (int64_t)(answered - waited) <= 0)
        return 0;
    return answered - ((int64_t)(waited - began) > 0 ? waited : began);
}

/* Return the case of the operation at peer @a p if there is one, else a free one; NULL: none. */
static struct stepaf_verdict_case *find_case(struct stepaf_verdict_state *state,
                                             const struct stepaf_op *op, uint32_t p)
{
    struct stepaf_verdict_case *found = NULL;

    for (int i = 0; i < STEPAF_VERDICT_CASES; i++) {
        struct stepaf_verdict_case *one = &state->cases[i];
        if (one->state == STEPAF_CASE_FREE)
            found = one;
        else if (one->state == STEPAF_CASE_NEW && one->seq == op->seq && one->p == p &&
                 one->plan == (uint16_t)op->plan->index)
            return one;
    }
    return found;
}

static bool has_answered(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_ANSWERED || op_peer->state == STEPAF_OP_PEER_CANCELED;
}

/* Open a case on what peer @a p did with the operation. Return NULL if too many cases are open. */
static struct stepaf_verdict_case *open_case(struct stepaf_verdict_state *state,
                                             const struct stepaf_op *op, uint32_t p, uint64_t now,
                                             uint64_t idle)
{
    struct stepaf_verdict_case *one = find_case(state, op, p);
    const struct stepaf_op_peer *op_peer = &op->op_peers[p];
    uint64_t answered = op_peer->answered == state->replaced ? state->renewed : op_peer->answered;
    bool on_streams = op->plan->on_streams;
    uint64_t gap, waited = 0;

    if (!on_streams ||
        !state->ctx->feature->unlooked(op_peer->peer, op->plan->index, op->seq, &gap))
        gap = stepaf_watch_gap_before(&state->watch, answered);
    else if (gap == STEPAF_UNLOOKED)
        gap = 0;
    if (!one || one->state == STEPAF_CASE_NEW)
        return one;
    if (!on_streams) /* a stream polls during its whole wait */
        waited = find_wait(&state->ctx->trace, op);
    *one = (struct stepaf_verdict_case){
        .state = STEPAF_CASE_NEW,
        .plan = (uint16_t)op->plan->index,
        .generation = op->plan->handle.generation,
        .seq = op->seq,
        .p = p,
        .queue_ns = op_peer->queue_ns,
        .work_ns = op_peer->work_ns,
        .started = op->trace.started,
        .notified = op->trace.notified,
        .answered = answered,
        .done = now,
        .idle = idle,
        .gap = gap,
        .on_streams = on_streams,
        .in_wait = part_in_wait(answered, gap, waited),
        .back = stepaf_verdict_find_rail(state, p, op->plan->index, op->seq),
    };
    state->n_open++;
    look_soon(state);
    return one;
}

/* Return the peer whose answer was the last. */
static uint32_t find_last(const struct stepaf_ctx *ctx, const struct stepaf_op *op)
{
    uint32_t last = ctx->n_peers;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (has_answered(&op->op_peers[p]) &&
            (last == ctx->n_peers ||
             (int64_t)(op->op_peers[p].answered - op->op_peers[last].answered) > 0))
            last = p;
    return last;
}

static void pick_late(struct stepaf_verdict_state *state, const struct stepaf_op *op, uint64_t now,
                      uint64_t idle, bool refused)
{
    uint32_t p = find_last(state->ctx, op);
    struct stepaf_verdict_case *one =
        p < state->ctx->n_peers ? open_case(state, op, p, now, idle) : NULL;

    if (!one) {
        stepaf_window_miss(state);
        return;
    }
    one->is_late = true;
    one->refused = refused;
    if (!one->on_streams)
        one->starved_ns = stepaf_starve_read(state, now, STARVE_EVERY_US);
}

/* Return the distance between picks: short until a median is complete, then growing with the time
 * that the plan is known. */
static uint64_t spacing(const struct stepaf_ctx *ctx, const struct stepaf_verdict_plan *plan,
                        uint64_t now, int64_t most_us)
{
    uint64_t most = stepaf_ticks_of_us(ctx, most_us);
    uint64_t wanted = (now - plan->first) / STEPAF_MEDIAN_SAMPLES;

    return wanted < most ? wanted : most;
}

static uint32_t pick_next(const struct stepaf_ctx *ctx, struct stepaf_verdict_plan *plan,
                          uint64_t now)
{
    uint64_t wanted = spacing(ctx, plan, now, LATELY_EVERY_US);

    if (plan->usual.lately.n > STEPAF_MEDIAN_SAMPLES) {
        if (now - plan->last < wanted && plan->stride < INT32_MAX / 2)
            plan->stride *= 2;
        else if (now - plan->last > 2 * wanted && plan->stride > 1)
            plan->stride /= 2;
    }
    plan->last = now;
    return plan->stride;
}

/* Learn for the half minute, and from some peers. */
static void learn_of(struct stepaf_verdict_state *state, struct stepaf_verdict_plan *plan,
                     const struct stepaf_op *op, uint64_t now, uint64_t idle, bool refused)
{
    const struct stepaf_ctx *ctx = state->ctx;
    struct stepaf_verdict_usual *usual = &plan->usual;
    uint32_t n = ctx->n_peers < LEARN_OF_PEERS ? ctx->n_peers : LEARN_OF_PEERS;

    if (!usual->took.n)
        plan->first = now;
    plan->learnt = now;
    stepaf_median_add(&usual->took, ns_of_ticks(ctx, now - op->trace.started));
    stepaf_median_add(&usual->post, ns_of_ticks(ctx, op->trace.notified - op->trace.started));
    if (!refused)
        stepaf_median_add(&usual->idle, ns_of_ticks(ctx, idle));
    for (; n > 0; n--) {
        plan->turn = plan->turn + 1 < ctx->n_peers ? plan->turn + 1 : 0;
        struct stepaf_verdict_case *one = has_answered(&op->op_peers[plan->turn])
                                              ? open_case(state, op, plan->turn, now, idle)
                                              : NULL;
        if (one)
            one->is_learnt = true;
    }
}

static void pick_usual(struct stepaf_verdict_state *state, struct stepaf_verdict_plan *plan,
                       const struct stepaf_op *op, uint64_t now, uint64_t idle, bool refused)
{
    const struct stepaf_ctx *ctx = state->ctx;
    struct stepaf_verdict_usual *usual = &plan->usual;
    struct stepaf_watch_plan *watched = &op->plan->watched;

    stepaf_median_add(&usual->lately, ns_of_ticks(ctx, now - op->trace.started));
    /* A due pick learns from the next operation: the first operation after a long pause is due each
     * time, and is not usual. */
    if (plan->is_due || usual->took.n < STEPAF_MEDIAN_SAMPLES)
        learn_of(state, plan, op, now, idle, refused);
    plan->is_due = now - plan->learnt >= spacing(ctx, plan, now, LEARN_EVERY_US);
    uint64_t late_took = ticks_of_ns(ctx, stepaf_verdict_late_took(usual));
    watched->least_took = ticks_of_ns(ctx, stepaf_verdict_least_took(usual));
    if (watched->least_took > late_took) /* all have been late for a while */
        watched->least_took = late_took;
    watched->more_took = late_took - watched->least_took;
    watched->late_idle = ticks_of_ns(ctx, stepaf_verdict_late_idle(usual));
    watched->next = op->seq + pick_next(ctx, plan, now);
}

/* Return a fresh stamp if @a stamp is too old. A waiting thread stamps arrivals with the time
 * before the poll that finds them. If the thread has lost its core in between, the operation seems
 * shorter than any other; then the clock is read again. */
static uint64_t renew(struct stepaf_verdict_state *state, uint64_t stamp)
{
    uint64_t now = stepaf_ticks();

    if (now - stamp < state->watch.gaps_from)
        return stamp;
    state->replaced = stamp;
    state->renewed = now;
    if (state->ctx->up.polled == stamp) /* others found by the same poll would use it too */
        state->ctx->up.polled = now;
    return now;
}

static void pick(struct stepaf_watch *watch, struct stepaf_op *op, uint64_t now, uint64_t idle)
{
    struct stepaf_verdict_state *state = (struct stepaf_verdict_state *)watch;
    struct stepaf_verdict_plan *plan = state->plans[op->plan->index];
    const struct stepaf_watch_plan *watched = &op->plan->watched;

    /* The stamp of another thread's poll may be older than the start. */
    if (!op->plan->on_streams && (int64_t)(now - op->trace.started) < (int64_t)watched->least_took)
        now = watch->last_done = op->trace.done = renew(state, now);
    bool is_due = stepaf_watch_is_due(watched, op->seq);
    bool is_late =
        (int64_t)(now - op->trace.started - watched->least_took) >= (int64_t)watched->more_took;
    if (!is_late && idle < watched->late_idle && !is_due)
        return;
    uint64_t would_block = state->ctx->counters.would_block;
    bool refused = would_block != state->would_block;
    state->would_block = would_block;
    if (is_late || (idle >= watched->late_idle && !refused))
        pick_late(state, op, now, idle, refused);
    if (is_due)
        pick_usual(state, plan, op, now, idle, refused);
}

/* ---- between polls ---- */

static void look_between(struct stepaf_watch *watch, uint64_t now)
{
    struct stepaf_verdict_state *state = (struct stepaf_verdict_state *)watch;
    const struct stepaf_ctx *ctx = state->ctx;
    uint64_t patience = stepaf_ticks_of_us(ctx, ANSWER_WITHIN_US);
    int64_t now_ns = stepaf_monotonic_ns();

    watch->look_due = now + stepaf_ticks_of_us(ctx, LOOK_EVERY_US);
    for (int i = 0; i < STEPAF_VERDICT_CASES && state->n_open; i++) {
        struct stepaf_verdict_case *one = &state->cases[i];
        if ((one->state == STEPAF_CASE_NEW && !stepaf_case_ask(state, one, now)) ||
            (one->state == STEPAF_CASE_ASKED && (int64_t)(now - one->asked - patience) >= 0))
            stepaf_case_give_up(state, one);
    }
    (void)stepaf_starve_read(state, now, LOOK_EVERY_US / 2);
    stepaf_window_turn(state, now_ns);
    stepaf_window_log(state, now_ns);
}

static void show(struct stepaf_watch *watch, struct stepaf_metrics_verdict *shown)
{
    stepaf_window_show((struct stepaf_verdict_state *)watch, shown);
}

static const struct stepaf_metrics_late *late_ever(const struct stepaf_watch *watch)
{
    return ((const struct stepaf_verdict_state *)watch)->window.ever;
}

static void count(const struct stepaf_watch *watch, stepaf_memory_use_t *use)
{
    const struct stepaf_verdict_state *state = (const struct stepaf_verdict_state *)watch;
    size_t cells = STEPAF_VERDICT_BUCKETS * sizeof(struct stepaf_verdict_cell) +
                   sizeof(struct stepaf_metrics_late);

    use->fixed += sizeof(*state) + cells + state->n_plans * sizeof(state->plans[0]);
    use->per_peer += cells;
    for (uint32_t i = 0; i < state->n_plans; i++)
        if (state->plans[i])
            use->declared +=
                sizeof(*state->plans[i]) + state->ctx->n_peers * sizeof(state->plans[i]->at[0]);
}

static void close_watch(struct stepaf_watch *watch)
{
    struct stepaf_verdict_state *state = (struct stepaf_verdict_state *)watch;

    for (uint32_t i = 0; i < state->n_plans; i++)
        free(state->plans[i]);
    free(state->plans);
    stepaf_window_close(&state->window);
    state->ctx->polling.watch = NULL;
    state->ctx->up.held_up = NULL;
    free(state);
}

static const struct stepaf_watch_ops watch_ops = {.meet = meet_plan,
                                                  .pick = pick,
                                                  .look = look_between,
                                                  .take = stepaf_verdict_take,
                                                  .show = show,
                                                  .late = late_ever,
                                                  .count = count,
                                                  .close = close_watch};

void stepaf_verdict_open(struct stepaf_ctx *ctx)
{
    struct stepaf_verdict_state *state;

    if (ctx->env.verdict != STEPAF_ENV_VERDICT_on)
        return;
    if (!ctx->trace.next) {
        stepaf_log_warn("STEPAF_VERDICT=on does nothing, since STEPAF_TRACE is off");
        return;
    }
    state = calloc(1, sizeof(*state));
    if (state)
        state->ctx = ctx;
    if (!state || !stepaf_window_open(state)) {
        free(state);
        stepaf_log_warn("STEPAF_VERDICT=on does nothing: out of memory");
        return;
    }
    state->watch.ops = &watch_ops;
    state->watch.noted = state->watch.polled = stepaf_ticks();
    state->watch.gaps_from = stepaf_ticks_of_us(ctx, GAPS_FROM_US);
    state->watch.live_due = state->watch.polled;
    state->watch.note_each = stepaf_ticks_of_us(ctx, NOTE_EACH_US);
    state->watch.last_done = state->watch.polled;
    ctx->polling.look_at = 0;
    ctx->polling.watch = &state->watch;
    ctx->up.deliver_imm = stepaf_op_deliver_imm_observed(ctx);
    ctx->up.held_up = stepaf_verdict_held_up;
}

struct stepaf_verdict_state *stepaf_verdict_of(const struct stepaf_ctx *ctx)
{
    return (struct stepaf_verdict_state *)ctx->polling.watch;
}
