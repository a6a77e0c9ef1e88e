/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of verdicts: asking for times, reporting them, and notifying the FFN rank. */
#include "verdict/ask.h"

#include "core/clock_keep.h"
#include "core/feature.h"
#include "core/send.h"
#include "core/trace.h"
#include "core/wait.h"
#include "verdict/rails.h"
#include "verdict/starve.h"
#include "verdict/window.h"

enum {
    STARVE_FRESH_US = 1000,
    RAILS_MOST = 256, /* a larger number is no rail */
    SEARCHED =
        16384 /* entries of the trace searched: it may be far larger, and the rank has other work */
};

/* No operation takes that long: a longer time is invalid. */
static const int64_t DAY_NS = 86400000000000;

static void put_time(struct stepaf_msg *msg, int at, int64_t ns)
{
    msg->word[at] = (uint32_t)(uint64_t)ns;
    msg->word[at + 1] = (uint32_t)((uint64_t)ns >> 32);
}

static int64_t get_time(const struct stepaf_msg *msg, int at)
{
    return (int64_t)(msg->word[at] | (uint64_t)msg->word[at + 1] << 32);
}

static uint32_t word_of(int64_t ns)
{
    return ns < 0 || ns >= UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static int64_t ns_of(uint32_t word)
{
    return word == UINT32_MAX ? -1 : (int64_t)word;
}

bool stepaf_case_ask(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one,
                     uint64_t now)
{
    struct stepaf_peer *peer = &state->ctx->peers[one->p];
    struct stepaf_msg ask = {.type = STEPAF_MSG_ASK, .plan = one->plan, .seq = one->seq};

    one->state = STEPAF_CASE_ASKED;
    one->asked = now;
    return peer->link && !peer->lost && !peer->is_out && stepaf_core_send(peer, &ask);
}

/* ---- the FFN rank ---- */

/* Return the gap of this level that ends first among those that end after @a at; NULL: none. */
static const struct stepaf_watch_gap *find_gap(const struct stepaf_watch *watch, int level,
                                               uint64_t at)
{
    const uint64_t n = watch->n_gaps[level];
    const uint64_t kept = n < STEPAF_WATCH_GAPS ? n : STEPAF_WATCH_GAPS;
    const struct stepaf_watch_gap *found = NULL;

    for (uint64_t i = n; i-- > n - kept;) {
        const struct stepaf_watch_gap *gap = &watch->gaps[level][i % STEPAF_WATCH_GAPS];
        if ((int64_t)(at - gap->to) > 0)
            break;
        found = gap;
    }
    return found;
}

uint64_t stepaf_watch_gap_before(const struct stepaf_watch *watch, uint64_t at)
{
    const struct stepaf_watch_gap *found = NULL;

    for (int level = 0; level < STEPAF_WATCH_LEVELS; level++) {
        const struct stepaf_watch_gap *gap = find_gap(watch, level, at);
        /* gaps of several levels may overlap */
        if (gap && (!found || (int64_t)(found->to - gap->to) > 0))
            found = gap;
    }
    if (!found && (int64_t)(at - watch->polled) > 0) /* since the last noted poll */
        return at - watch->polled;
    if (!found || (int64_t)(at - (found->to - found->took)) <= 0)
        return 0;
    return at - (found->to - found->took);
}

/* Times of a batch's events, in ticks; 0: not in the trace. */
struct marks_of_batch {
    uint64_t arrived, handled, over;
};

static struct marks_of_batch find_batch(const struct stepaf_trace *trace, uint32_t plan,
                                        uint32_t seq, uint32_t peer)
{
    struct marks_of_batch marks = {0, 0, 0};
    uint64_t head = stepaf_trace_head(trace), kept = stepaf_trace_kept(trace, SEARCHED);

    for (uint64_t at = head; at-- > head - kept;) {
        const struct stepaf_trace_entry *entry = stepaf_trace_entry(trace, at);
        if (entry->seq != seq || entry->plan != plan || entry->peer != peer)
            continue;
        uint32_t event = entry->event & STEPAF_TRACE_EVENT;
        if (event == STEPAF_EVENT_RESPONDED || (event == STEPAF_EVENT_RELEASED && !marks.over))
            marks.over = entry->ticks;
        else if (event == STEPAF_EVENT_HANDLED)
            marks.handled = entry->ticks;
        else if (event == STEPAF_EVENT_ARRIVED)
            marks.arrived = entry->ticks;
        if (marks.arrived)
            break;
    }
    return marks;
}

static void tell_op_times(struct stepaf_verdict_state *state, struct stepaf_peer *peer,
                          const struct stepaf_msg *ask)
{
    struct stepaf_ctx *ctx = state->ctx;
    uint64_t now = stepaf_ticks(), gap;

    ctx->feature->refresh(ctx);
    struct marks_of_batch marks =
        find_batch(&ctx->trace, ask->plan, ask->seq, (uint32_t)peer->who.rank);
    struct stepaf_msg told = {.type = STEPAF_MSG_TELL, .plan = ask->plan, .seq = ask->seq};

    state->starved_ns = stepaf_starve_read(state, now, STARVE_FRESH_US);
    if (marks.arrived && marks.handled && marks.over) {
        stepaf_clock_refresh(ctx);
        int64_t arrived = stepaf_clock_common_ns(ctx, marks.arrived);
        int64_t handled = stepaf_clock_common_ns(ctx, marks.handled);
        bool on_streams = ctx->feature->unlooked(peer, ask->plan, ask->seq, &gap);
        if (on_streams)
            state->starved_ns = 0; /* no thread has worked for the operation */
        else
            gap = stepaf_watch_gap_before(&state->watch, marks.arrived);
        told.word[STEPAF_MSG_KNOWN] = 1;
        told.word[STEPAF_MSG_QUEUE] = word_of(handled - arrived);
        told.word[STEPAF_MSG_WORK] = word_of(stepaf_clock_common_ns(ctx, marks.over) - handled);
        told.word[STEPAF_MSG_GAP] =
            gap == STEPAF_UNLOOKED
                ? UINT32_MAX
                : word_of(arrived - stepaf_clock_common_ns(ctx, marks.arrived - gap));
        put_time(&told, STEPAF_MSG_ARRIVED, arrived);
        struct stepaf_verdict_late_rail late =
            stepaf_verdict_find_rail(state, peer->index, ask->plan, ask->seq);
        told.word[STEPAF_MSG_RAIL] = (uint32_t)(late.rail + 1);
        told.word[STEPAF_MSG_HELD_UP] = word_of(late.ns);
    }
    (void)stepaf_core_send(peer, &told);
}

/* Return the rail that the peer names; -1: none, or invalid. */
static int32_t rail_of(const struct stepaf_msg *msg)
{
    uint32_t rail = msg->word[STEPAF_MSG_RAIL] - 1;

    return rail < RAILS_MOST ? (int32_t)rail : -1;
}

/* Take an attention rank's verdict. */
static void hear_told(struct stepaf_verdict_state *state, const struct stepaf_peer *peer,
                      const struct stepaf_msg *msg)
{
    stepaf_verdict_t verdict = {
        .time_ns = get_time(msg, STEPAF_MSG_ARRIVED),
        .took_ns = msg->word[STEPAF_MSG_TOOK],
        .usual_ns = msg->word[STEPAF_MSG_USUAL],
        .sequence = msg->seq,
        .plan = msg->plan,
        .phase = (uint16_t)msg->word[STEPAF_MSG_PHASE],
        .peer = peer->who.rank,
        .rail = rail_of(msg),
    };
    bool mine;

    if (msg->word[STEPAF_MSG_PHASE] >= STEPAF_VERDICT_LAST || verdict.time_ns < 0) {
        state->ctx->counters.dropped_malformed++;
        return;
    }
    mine = verdict.phase == STEPAF_VERDICT_FFN_QUEUE || verdict.phase == STEPAF_VERDICT_FFN_WORK;
    if (mine)
        verdict.peer = -1;
    if (mine && state->starved_ns > 0 && state->starved_ns >= msg->word[STEPAF_MSG_OVER] / 4 * 3)
        verdict.phase = STEPAF_VERDICT_STARVED;
    verdict.over_ns[verdict.phase] = msg->word[STEPAF_MSG_OVER];
    stepaf_window_add(state, &verdict, mine ? state->ctx->n_peers : peer->index);
}

/* ---- the attention rank ---- */

static void tell_who(const stepaf_verdict_t *verdict, struct stepaf_peer *peer)
{
    struct stepaf_msg told = {
        .type = STEPAF_MSG_TOLD, .plan = verdict->plan, .seq = verdict->sequence};

    told.word[STEPAF_MSG_PHASE] = verdict->phase;
    told.word[STEPAF_MSG_OVER] = word_of(verdict->over_ns[verdict->phase]);
    told.word[STEPAF_MSG_TOOK] = word_of(verdict->took_ns);
    told.word[STEPAF_MSG_USUAL] = word_of(verdict->usual_ns);
    told.word[STEPAF_MSG_RAIL] = (uint32_t)(verdict->rail + 1);
    put_time(&told, STEPAF_MSG_ARRIVED, verdict->time_ns);
    if (peer->link && !peer->lost && !peer->is_out)
        (void)stepaf_core_send(peer, &told);
}

static int64_t span(const struct stepaf_ctx *ctx, uint64_t from, uint64_t to)
{
    return stepaf_clock_common_ns(ctx, to) - stepaf_clock_common_ns(ctx, from);
}

/* Combine what this rank knows of a case with what the peer has reported. @a told: NULL: the peer
 * has reported nothing. Return false if the report is impossible. */
static bool put_together(const struct stepaf_verdict_state *state,
                         const struct stepaf_verdict_case *one, const struct stepaf_msg *told,
                         struct stepaf_verdict_seen *seen)
{
    const struct stepaf_ctx *ctx = state->ctx;
    int64_t notified = stepaf_clock_common_ns(ctx, one->notified);
    int64_t bound = stepaf_clock_bound_ns(ctx, &ctx->peers[one->p]);

    /* assume the same error for the peer's GPU clock as for this one's */
    if (one->on_streams && bound >= 0)
        bound += 2 * ctx->feature->bound_ns(ctx);

    *seen = (struct stepaf_verdict_seen){
        .idle = one->refused ? 0 : span(ctx, one->started - one->idle, one->started),
        .took = span(ctx, one->started, one->done),
        .post = span(ctx, one->started, one->notified),
        .way = span(ctx, one->notified, one->answered),
        .bound = bound,
        .queue = ns_of(one->queue_ns),
        .work = ns_of(one->work_ns),
        .ffn_gap = -1,
        .own_gap = span(ctx, one->answered - one->gap, one->answered),
        .in_wait = span(ctx, one->answered - one->in_wait, one->answered),
        .starved = one->starved_ns,
        .rail_there = {.rail = -1},
        .rail_back = one->back,
    };
    if (!told || !told->word[STEPAF_MSG_KNOWN])
        return true;
    int64_t arrived = get_time(told, STEPAF_MSG_ARRIVED);
    if (arrived < 0 || arrived - notified > DAY_NS || notified - arrived > DAY_NS)
        return false;
    seen->there = arrived - notified;
    seen->queue = ns_of(told->word[STEPAF_MSG_QUEUE]);
    seen->work = ns_of(told->word[STEPAF_MSG_WORK]);
    seen->ffn_gap = ns_of(told->word[STEPAF_MSG_GAP]);
    seen->rail_there =
        (struct stepaf_verdict_late_rail){rail_of(told), told->word[STEPAF_MSG_HELD_UP]};
    return true;
}

/* Return the index of the peer that the verdict names; n_peers: this rank. */
static uint32_t named(const struct stepaf_ctx *ctx, uint32_t phase, uint32_t p)
{
    bool own = phase == STEPAF_VERDICT_UNKNOWN || phase == STEPAF_VERDICT_START ||
               phase == STEPAF_VERDICT_WAIT || phase == STEPAF_VERDICT_STARVED;

    return own ? ctx->n_peers : p;
}

static void decide(struct stepaf_verdict_state *state, const struct stepaf_verdict_case *one,
                   const struct stepaf_verdict_plan *plan, const struct stepaf_verdict_seen *seen)
{
    struct stepaf_ctx *ctx = state->ctx;
    stepaf_verdict_t verdict = {
        .time_ns = stepaf_clock_common_ns(ctx, one->done),
        .sequence = one->seq,
        .plan = one->plan,
        .peer = -1,
    };

    stepaf_verdict_judge(seen, &plan->usual, &plan->at[one->p], &verdict);
    uint32_t p = named(ctx, verdict.phase, one->p);
    if (p < ctx->n_peers)
        verdict.peer = ctx->peers[p].who.rank;
    stepaf_window_add(state, &verdict, p);
    tell_who(&verdict, &ctx->peers[one->p]);
}

static void close_case(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one,
                       const struct stepaf_msg *told)
{
    struct stepaf_verdict_plan *plan = one->plan < state->n_plans ? state->plans[one->plan] : NULL;
    struct stepaf_verdict_seen seen;

    one->state = STEPAF_CASE_FREE;
    state->n_open--;
    if (!plan || plan->generation != one->generation)
        return;
    stepaf_clock_refresh(state->ctx);
    if (!put_together(state, one, told, &seen)) {
        state->ctx->counters.dropped_malformed++;
        (void)put_together(state, one, NULL, &seen);
    }
    if (one->is_late)
        decide(state, one, plan, &seen);
    if (one->is_learnt) {
        struct stepaf_verdict_spent spent = stepaf_verdict_split(&seen);
        stepaf_verdict_learn(&plan->at[one->p], &spent);
    }
}

void stepaf_case_give_up(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one)
{
    close_case(state, one, NULL);
}

void stepaf_verdict_take(struct stepaf_watch *watch, struct stepaf_peer *peer,
                         const struct stepaf_msg *msg)
{
    struct stepaf_verdict_state *state = (struct stepaf_verdict_state *)watch;
    bool attends = stepaf_is_attention(state->ctx);

    if (!attends && msg->type == STEPAF_MSG_ASK) {
        tell_op_times(state, peer, msg);
    } else if (!attends && msg->type == STEPAF_MSG_TOLD) {
        hear_told(state, peer, msg);
    } else if (attends && msg->type == STEPAF_MSG_TELL) {
        for (int i = 0; i < STEPAF_VERDICT_CASES; i++) {
            struct stepaf_verdict_case *one = &state->cases[i];
            if (one->state == STEPAF_CASE_ASKED && one->p == peer->index && one->seq == msg->seq &&
                one->plan == msg->plan)
                close_case(state, one, msg);
        }
    } else {
        state->ctx->counters.dropped_malformed++;
    }
}
