/* SPDX-License-Identifier: Apache-2.0 */
/* The window: sums over the verdicts of the last seconds, for callers, tools and the log. */
#include "verdict/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "core/clock_keep.h"
#include "core/metrics_layout.h"

static const int64_t LOG_EVERY_NS = 1000000000;
static const int64_t SHOW_PER_PEER_NS = 1000000; /* spends a thousandth of the time */

_Static_assert((int)STEPAF_METRICS_PHASES == (int)STEPAF_VERDICT_PHASES, "tools see all phases");

bool stepaf_window_open(struct stepaf_verdict_state *state)
{
    struct stepaf_verdict_sums *window = &state->window;
    size_t n = STEPAF_VERDICT_BUCKETS * ((size_t)state->ctx->n_peers + 1);

    window->bucket_ns =
        (int64_t)state->ctx->env.verdict_window_s * 1000000000 / STEPAF_VERDICT_BUCKETS;
    window->opened_ns = window->began_ns = stepaf_monotonic_ns();
    window->cells = calloc(n, sizeof(*window->cells));
    window->ever = calloc((size_t)state->ctx->n_peers + 1, sizeof(*window->ever));
    if (window->cells && window->ever)
        return true;
    stepaf_window_close(window);
    return false;
}

void stepaf_window_close(struct stepaf_verdict_sums *window)
{
    free(window->cells);
    free(window->ever);
}

static struct stepaf_verdict_cell *cell_at(const struct stepaf_verdict_state *state,
                                           uint32_t bucket, uint32_t p)
{
    return &state->window.cells[(size_t)bucket * (state->ctx->n_peers + 1) + p];
}

static void begin_bucket(struct stepaf_verdict_state *state)
{
    struct stepaf_verdict_sums *window = &state->window;

    window->at = (window->at + 1) % STEPAF_VERDICT_BUCKETS;
    window->completed[window->at] = state->ctx->counters.operations_completed;
    window->unjudged[window->at] = 0;
    memset(cell_at(state, window->at, 0), 0,
           (state->ctx->n_peers + 1) * sizeof(struct stepaf_verdict_cell));
}

void stepaf_window_turn(struct stepaf_verdict_state *state, int64_t now_ns)
{
    struct stepaf_verdict_sums *window = &state->window;
    int64_t passed = (now_ns - window->began_ns) / window->bucket_ns;

    if (passed <= 0)
        return;
    window->began_ns += passed * window->bucket_ns;
    for (int64_t i = 0; i < passed && i < STEPAF_VERDICT_BUCKETS; i++)
        begin_bucket(state);
}

/* Return the index of a phase among the ways whose rails tools see; -1: none. */
static int way_of(int phase)
{
    return phase == STEPAF_VERDICT_THERE     ? 0
           : phase == STEPAF_VERDICT_BACK    ? 1
           : phase == STEPAF_VERDICT_NETWORK ? 2
                                             : -1;
}

void stepaf_window_add(struct stepaf_verdict_state *state, const stepaf_verdict_t *verdict,
                       uint32_t p)
{
    struct stepaf_verdict_sums *window = &state->window;
    struct stepaf_verdict_cell *cell = cell_at(state, window->at, p);
    int way = way_of(verdict->phase);

    window->kept[window->n_kept++ % STEPAF_VERDICT_KEPT] = *verdict;
    window->usual_ns = verdict->usual_ns;
    cell->late[verdict->phase]++;
    for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
        cell->over_ns[i] += verdict->over_ns[i];
    window->ever[p].by_phase[verdict->phase]++;
    if (way >= 0 && verdict->rail >= 0 && verdict->rail < STEPAF_METRICS_RAILS)
        window->ever[p].by_rail[way][verdict->rail]++;
}

void stepaf_window_miss(struct stepaf_verdict_state *state)
{
    state->window.unjudged[state->window.at]++;
}

struct stepaf_verdict_cell stepaf_window_cell(const struct stepaf_verdict_state *state, uint32_t p)
{
    struct stepaf_verdict_cell sum = {{0}, {0}};

    for (uint32_t b = 0; b < STEPAF_VERDICT_BUCKETS; b++)
        for (int i = 0; i < STEPAF_VERDICT_LAST; i++) {
            sum.late[i] += cell_at(state, b, p)->late[i];
            sum.over_ns[i] += cell_at(state, b, p)->over_ns[i];
        }
    return sum;
}

/* Sum up all cells. Set the phase with the most verdicts, and the peer with the most of that phase:
 * counted by verdicts, not by single long waits. */
static void sum_cells(const struct stepaf_verdict_state *state, stepaf_verdict_window_t *sum)
{
    uint32_t n = state->ctx->n_peers, most_late = 0;

    for (uint32_t p = 0; p <= n; p++) {
        struct stepaf_verdict_cell cell = stepaf_window_cell(state, p);
        for (int i = 0; i < STEPAF_VERDICT_LAST; i++) {
            sum->by_phase[i] += cell.late[i];
            sum->late += cell.late[i];
            sum->over_ns[i] += cell.over_ns[i];
        }
    }
    for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
        if (sum->by_phase[i] > sum->by_phase[sum->phase] ||
            (sum->by_phase[i] == sum->by_phase[sum->phase] &&
             sum->over_ns[i] > sum->over_ns[sum->phase]))
            sum->phase = i;
    for (uint32_t p = 0; p < n; p++) {
        struct stepaf_verdict_cell cell = stepaf_window_cell(state, p);
        if (cell.late[sum->phase] > most_late) {
            most_late = cell.late[sum->phase];
            sum->peer = state->ctx->peers[p].who.rank;
        }
    }
}

/* Return the rail that more than half of the kept verdicts on sum->phase at sum->peer name; -1:
 * none. */
static int32_t find_worst_rail(const struct stepaf_verdict_state *state,
                               const stepaf_verdict_window_t *sum)
{
    const struct stepaf_verdict_sums *window = &state->window;
    uint64_t kept = window->n_kept < STEPAF_VERDICT_KEPT ? window->n_kept : STEPAF_VERDICT_KEPT;
    int64_t since_ns = stepaf_clock_common_ns(state->ctx, stepaf_ticks()) - sum->window_ns;
    uint32_t n = 0, named[STEPAF_METRICS_RAILS] = {0};

    for (uint64_t i = window->n_kept - kept; i < window->n_kept; i++) {
        const stepaf_verdict_t *one = &window->kept[i % STEPAF_VERDICT_KEPT];
        if (one->phase != sum->phase || one->peer != sum->peer || one->time_ns < since_ns)
            continue;
        n++;
        if (one->rail >= 0 && one->rail < STEPAF_METRICS_RAILS)
            named[one->rail]++;
    }
    for (int i = 0; i < STEPAF_METRICS_RAILS; i++)
        if (2 * named[i] > n)
            return i;
    return -1;
}

stepaf_verdict_window_t stepaf_window_sum(const struct stepaf_verdict_state *state)
{
    const struct stepaf_verdict_sums *window = &state->window;
    uint32_t oldest = (window->at + 1) % STEPAF_VERDICT_BUCKETS;
    int64_t now_ns = stepaf_monotonic_ns();
    int64_t whole_ns = (STEPAF_VERDICT_BUCKETS - 1) * window->bucket_ns + now_ns - window->began_ns;
    int64_t age_ns = now_ns - window->opened_ns;
    stepaf_verdict_window_t sum = {
        .window_ns = age_ns < whole_ns ? age_ns : whole_ns,
        .operations = state->ctx->counters.operations_completed - window->completed[oldest],
        .usual_ns = window->usual_ns,
        .phase = STEPAF_VERDICT_UNKNOWN,
        .peer = -1,
    };

    for (int b = 0; b < STEPAF_VERDICT_BUCKETS; b++)
        sum.unjudged += window->unjudged[b];
    for (int i = 0; i < STEPAF_VERDICT_CASES; i++)
        sum.unjudged += state->cases[i].state != STEPAF_CASE_FREE && state->cases[i].is_late;
    sum_cells(state, &sum);
    sum.rail = find_worst_rail(state, &sum);
    return sum;
}

static const struct stepaf_peer *peer_of_rank(const struct stepaf_ctx *ctx, int rank)
{
    for (uint32_t p = 0; p < ctx->n_peers && rank >= 0; p++)
        if (ctx->peers[p].who.rank == rank)
            return &ctx->peers[p];
    return NULL;
}

void stepaf_window_show(struct stepaf_verdict_state *state, struct stepaf_metrics_verdict *shown)
{
    const struct stepaf_ctx *ctx = state->ctx;
    int64_t now_ns = stepaf_monotonic_ns();

    if (now_ns - state->shown_ns < SHOW_PER_PEER_NS * ctx->n_peers)
        return;
    stepaf_verdict_window_t sum = stepaf_window_sum(state);
    const struct stepaf_peer *peer = peer_of_rank(ctx, sum.peer);
    state->shown_ns = now_ns;
    *shown = (struct stepaf_metrics_verdict){
        .window_ns = sum.window_ns > 0 ? sum.window_ns : 1,
        .operations = sum.operations,
        .late = sum.late,
        .unjudged = sum.unjudged,
        .usual_ns = sum.usual_ns,
        .phase = sum.phase,
        .peer = peer ? peer->who.world_rank : -1,
        .rail = sum.rail,
    };
    memcpy(shown->by_phase, sum.by_phase, sizeof(shown->by_phase));
    memcpy(shown->over_ns, sum.over_ns, sizeof(shown->over_ns));
}

void stepaf_window_log(struct stepaf_verdict_state *state, int64_t now_ns)
{
    const struct stepaf_ctx *ctx = state->ctx;
    char where[96] = "this rank", rail[32] = "";

    if (state->n_logged == state->window.n_kept || now_ns - state->logged_ns < LOG_EVERY_NS ||
        __atomic_load_n(&stepaf_log_level_now, __ATOMIC_RELAXED) < STEPAF_LOG_INFO)
        return;
    stepaf_verdict_window_t sum = stepaf_window_sum(state);
    state->logged_ns = now_ns;
    state->n_logged = state->window.n_kept;
    const struct stepaf_peer *peer = peer_of_rank(ctx, sum.peer);
    if (peer)
        snprintf(where, sizeof(where), STEPAF_WHO_FORMAT, STEPAF_WHO_ARGS(peer->who));
    if (sum.rail >= 0)
        snprintf(rail, sizeof(rail), ", by rail %d alone", sum.rail);
    stepaf_log_info("%llu operations were late in the last %.1f s, of %llu in all: most in phase "
                    "%s, %llu of them, at %s%s; this phase took %lld us longer than usual in "
                    "total; the usual time is %lld us",
                    (unsigned long long)sum.late, (double)sum.window_ns / 1e9,
                    (unsigned long long)sum.operations,
                    stepaf_verdict_phase_name((stepaf_verdict_phase_t)sum.phase),
                    (unsigned long long)sum.by_phase[sum.phase], where, rail,
                    (long long)sum.over_ns[sum.phase] / 1000, (long long)sum.usual_ns / 1000);
}
