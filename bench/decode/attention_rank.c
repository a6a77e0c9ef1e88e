/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_rank.h"

#include <stdlib.h>

enum { SPANS_MAX = 65536 };

static int create_exchanges(struct attention_rank *rank, const struct layout *layout, int scatter,
                            struct trouble *trouble)
{
    struct attention_side *side = rank->side;
    for (int m = 0; m < side->n_microbatches; m++) {
        struct exchange *exchange = &rank->exchanges[m];
        if (exchange_create(rank->replicas, &side->job->config, layout, m, scatter, exchange,
                            trouble))
            return -1;
        side->microbatches[m].hidden = exchange->hidden;
        side->microbatches[m].ids = exchange->ids;
        side->microbatches[m].weights = exchange->weights;
    }
    return words_create(rank->replicas, &rank->words, trouble);
}

int attention_rank_create(stepaf_context_h ctx, struct attention_side *side,
                          const struct layout *layout, const struct options *options,
                          struct attention_rank *rank_p, struct trouble *trouble)
{
    struct attention_rank rank = {.ctx = ctx, .side = side, .timeout_us = options->timeout_us};
    size_t n = (size_t)side->n_microbatches;
    size_t steps = n * (size_t)side->job->tokens;
    trouble->lost = -1;
    rank.exchanges = calloc(n + 1, sizeof(rank.exchanges[0]));
    rank.flights = calloc(n + 1, sizeof(rank.flights[0]));
    rank.order = calloc(n + 1, sizeof(rank.order[0]));
    rank.requests = calloc(n + 1, sizeof(rank.requests[0]));
    rank.busy_until_ns =
        calloc((size_t)stepaf_size(ctx, STEPAF_GROUP_FFN) + 1, sizeof(rank.busy_until_ns[0]));
    if (!rank.exchanges || !rank.flights || !rank.order || !rank.requests || !rank.busy_until_ns) {
        reason_no_memory(&trouble->reason);
        goto err_destroy;
    }
    if (stats_create(side->job->config.layers, steps, &rank.stats, &trouble->reason) ||
        spans_create(options->trace ? SPANS_MAX : 0, &rank.spans, &trouble->reason) ||
        replicas_create(ctx, options->replicas.n, &rank.replicas, &trouble->reason) ||
        create_exchanges(&rank, layout, options->scatter, trouble))
        goto err_destroy;
    *rank_p = rank;
    return 0;

err_destroy:
    attention_rank_destroy(&rank);
    return -1;
}

void attention_rank_destroy(struct attention_rank *rank)
{
    for (int m = 0; rank->exchanges && m < rank->side->n_microbatches; m++)
        exchange_destroy(&rank->exchanges[m]);
    free(rank->exchanges);
    free(rank->flights);
    free(rank->order);
    free(rank->requests);
    free(rank->busy_until_ns);
    replicas_destroy(rank->replicas);
    stats_destroy(&rank->stats);
    spans_destroy(&rank->spans);
    *rank = (struct attention_rank){0};
}

/* Record that microbatch @a m is in flight. */
static void put_in_flight(struct attention_rank *rank, int m)
{
    rank->order[rank->n_order] = m;
    rank->requests[rank->n_order++] = rank->exchanges[m].request;
}

/* Compute microbatch @a m's attention in its layer and send the rows; or postpone that. */
static int send_layer(struct attention_rank *rank, int m, struct trouble *trouble)
{
    struct microbatch *mb = &rank->side->microbatches[m];
    struct flight *flight = &rank->flights[m];
    replicas_look(rank->replicas);
    flight->parked = rank->replicas->hold;
    if (flight->parked)
        return 0;
    flight->times.attend_begin_ns = stepaf_clock_ns(rank->ctx);
    microbatch_attend(mb, &rank->side->model, flight->layer);
    flight->times.start_begin_ns = stepaf_clock_ns(rank->ctx);
    if (exchange_start(&rank->exchanges[m], flight->layer, mb->rows, rank->timeout_us, trouble))
        return -1;
    flight->times.start_end_ns = stepaf_clock_ns(rank->ctx);
    put_in_flight(rank, m);
    spans_add(&rank->spans,
              (struct span){flight->times.attend_begin_ns, flight->times.start_begin_ns,
                            SPAN_ATTENTION, m, flight->layer, -1});
    return 0;
}

/* Begin microbatch @a m's next step, if it has one. */
static int begin_step(struct attention_rank *rank, int m, struct trouble *trouble)
{
    struct microbatch *mb = &rank->side->microbatches[m];
    struct flight *flight = &rank->flights[m];
    flight->step_begin_ns = stepaf_clock_ns(rank->ctx);
    if (microbatch_begin(mb, &rank->side->model) == 0)
        return 0;
    if (mb->decoding && !flight->past_prompts) {
        flight->past_prompts = 1;
        stats_past_prompts(&rank->stats, flight->step_begin_ns);
    }
    flight->layer = 0;
    return send_layer(rank, m, trouble);
}

static int end_step(struct attention_rank *rank, int m, struct trouble *trouble)
{
    struct microbatch *mb = &rank->side->microbatches[m];
    int tokens = microbatch_end(mb, &rank->side->model);
    stats_step(&rank->stats, mb->decoding, tokens, rank->flights[m].step_begin_ns,
               stepaf_clock_ns(rank->ctx));
    return begin_step(rank, m, trouble);
}

/* Record the time breakdown of microbatch @a m's exchange. */
static void measure(struct attention_rank *rank, int m)
{
    const struct flight *flight = &rank->flights[m];
    stepaf_timeline_t slowest = {.size = sizeof(slowest)};
    if (measure_slowest(rank->exchanges[m].request, rank->exchanges[m].ffn_ranks,
                        rank->busy_until_ns, &slowest))
        return;
    if (stats_steady(&rank->stats, flight->times.attend_begin_ns))
        measure_add(&flight->times, &slowest, &rank->stats.layers[flight->layer]);
    spans_add(&rank->spans, (struct span){slowest.start_ns, slowest.start_ns + slowest.answered_ns,
                                          SPAN_EXCHANGE, m, flight->layer, -1});
    spans_add(&rank->spans, (struct span){flight->times.wait_begin_ns, flight->times.wait_end_ns,
                                          SPAN_WAIT, m, flight->layer, -1});
}

/* Return the first FFN rank that the oldest microbatch in flight still waits for; -1 if there is
 * none. */
static int find_silent(const struct attention_rank *rank)
{
    for (int f = 0; f < stepaf_size(rank->ctx, STEPAF_GROUP_FFN); f++)
        if (stepaf_request_peer(rank->requests[0], f) == STEPAF_INPROGRESS)
            return stepaf_world_rank(rank->ctx, STEPAF_GROUP_FFN, f);
    return -1;
}

/* Wait for the first microbatch in flight to complete, and remove it from the order. */
static int wait_one(struct attention_rank *rank, int *m_p, struct trouble *trouble)
{
    int at = -1;
    int64_t begin_ns = stepaf_clock_ns(rank->ctx);
    stepaf_status_t status = stepaf_wait_any(rank->requests, rank->n_order, rank->timeout_us, &at);
    int silent = status == STEPAF_ERR_TIMEOUT ? find_silent(rank) : -1;
    if (silent >= 0)
        return trouble_silent(rank->ctx, silent, rank->timeout_us, trouble);
    int is_replaced = status == STEPAF_ERR_PEER_LOST && rank->replicas->n > 1 && at >= 0;
    if (status != STEPAF_OK && !is_replaced)
        return trouble_status(rank->ctx, status, "waiting for FFN ranks", rank->timeout_us,
                              trouble);
    int m = rank->order[at];
    rank->flights[m].times.wait_begin_ns = begin_ns;
    rank->flights[m].times.wait_end_ns = stepaf_clock_ns(rank->ctx);
    rank->n_order--;
    for (int i = at; i < rank->n_order; i++) {
        rank->order[i] = rank->order[i + 1];
        rank->requests[i] = rank->requests[i + 1];
    }
    *m_p = m;
    return 0;
}

/* A microbatch has returned: continue with its next layer, or its next step. */
static int advance(struct attention_rank *rank, int m, struct trouble *trouble)
{
    struct microbatch *mb = &rank->side->microbatches[m];
    struct flight *flight = &rank->flights[m];
    int result =
        exchange_collect(&rank->exchanges[m], flight->layer, mb->x, rank->timeout_us, trouble);
    if (result < 0)
        return -1;
    if (result) {
        put_in_flight(rank, m);
        return 0;
    }
    measure(rank, m);
    if (++flight->layer == rank->side->job->config.layers)
        return end_step(rank, m, trouble);
    return send_layer(rank, m, trouble);
}

/* Commit: nothing is in flight, and some FFN rank is lost or has asked to return. */
static int commit_and_go_on(struct attention_rank *rank, struct trouble *trouble)
{
    if (words_hold(&rank->words, rank->timeout_us, trouble))
        return -1;
    for (int m = 0; m < rank->side->n_microbatches; m++)
        if (rank->flights[m].parked && send_layer(rank, m, trouble))
            return -1;
    return 0;
}

static int any_parked(const struct attention_rank *rank)
{
    int n = 0;
    for (int m = 0; m < rank->side->n_microbatches; m++)
        n += rank->flights[m].parked;
    return n;
}

static int decode(struct attention_rank *rank, struct trouble *trouble)
{
    stats_begin(&rank->stats, rank->side->n_microbatches, stepaf_clock_ns(rank->ctx));
    for (int m = 0; m < rank->side->n_microbatches; m++)
        if (begin_step(rank, m, trouble))
            return -1;
    while (rank->n_order > 0 || any_parked(rank)) {
        int m = 0;
        if (rank->n_order == 0) {
            if (commit_and_go_on(rank, trouble))
                return -1;
            continue;
        }
        if (wait_one(rank, &m, trouble) || advance(rank, m, trouble))
            return -1;
    }
    rank->stats.end_ns = stepaf_clock_ns(rank->ctx);
    return 0;
}

int attention_rank_run(struct attention_rank *rank, struct trouble *trouble)
{
    if (decode(rank, trouble) == 0 && words_stop(&rank->words, rank->timeout_us, trouble) == 0)
        return 0;
    words_abort(&rank->words, trouble->lost);
    return -1;
}
