/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn_rank.h"

#include <stdlib.h>

enum {
    SPANS_MAX = 65536,
    POLL_US = 50000,      /* between checks of which ranks are alive */
    FAREWELL_US = 2000000 /* how long to notify the others of a lost rank */
};

int ffn_rank_create(stepaf_context_h ctx, const struct model_config *config,
                    const struct ffn_weights *weights, const struct layout *layout,
                    const struct options *options, struct ffn_rank *rank_p, struct trouble *trouble)
{
    size_t ranks = (size_t)layout->attention_ranks;
    size_t slots = ranks * (size_t)layout->microbatches;
    size_t rows = (size_t)layout_max_rows(layout);
    struct ffn_rank rank = {.ctx = ctx,
                            .config = config,
                            .weights = weights,
                            .microbatches = layout->microbatches,
                            .max_rows = layout_max_rows(layout),
                            .timeout_us = options->timeout_us,
                            .delay_ns = options->ffn_delay_us * 1000,
                            .kill_after = options->replicas.kill_after,
                            .max_delayed = slots};
    void *sums, *replies;
    trouble->lost = -1;
    rank.delayed = calloc(slots, sizeof(rank.delayed[0]));
    rank.batches = calloc(ranks, sizeof(rank.batches[0]));
    if (!rank.delayed || !rank.batches) {
        reason_no_memory(&trouble->reason);
        goto err_destroy;
    }
    if (ffn_work_create(config, rank.max_rows, &rank.work, &trouble->reason) ||
        roll_create((int)ranks, &rank.roll, &trouble->reason) ||
        spans_create(options->trace ? SPANS_MAX : 0, &rank.spans, &trouble->reason))
        goto err_destroy;
    stepaf_status_t status = stepaf_alloc(
        ctx, slots * rows * (size_t)config->hidden * sizeof(float), STEPAF_MEM_HOST, &sums);
    if (status == STEPAF_OK)
        status = stepaf_alloc(ctx, (slots + ranks) * sizeof(struct wire_reply), STEPAF_MEM_HOST,
                              &replies);
    if (status != STEPAF_OK) {
        trouble_status(ctx, status, "allocating answers", 0, trouble);
        goto err_destroy;
    }
    rank.sums = sums;
    rank.replies = replies;
    rank.words_replies = rank.replies + slots;
    *rank_p = rank;
    return 0;

err_destroy:
    ffn_rank_destroy(&rank);
    return -1;
}

/* The answers' memory belongs to the context. */
void ffn_rank_destroy(struct ffn_rank *rank)
{
    ffn_work_destroy(rank->work);
    roll_destroy(&rank->roll);
    spans_destroy(&rank->spans);
    free(rank->delayed);
    free(rank->batches);
    *rank = (struct ffn_rank){0};
}

/* Record the loss of an attention rank, which the last failed call names. */
static int note_lost(struct ffn_rank *rank, stepaf_status_t status, struct trouble *trouble)
{
    const stepaf_error_t *error = stepaf_last_error();
    int is_known = error->peer_role == STEPAF_ATTENTION && error->peer_rank >= 0 &&
                   error->peer_rank < rank->roll.n;
    if (is_known && rank->roll.entries[error->peer_rank].gone)
        return 0; /* it has said good-bye, and does not wait for the others */
    if (is_known)
        roll_leave(&rank->roll, error->peer_rank);
    if (trouble->lost < 0)
        trouble_status(rank->ctx, status, "waiting for attention ranks", 0, trouble);
    return trouble->lost < 0 ? -1 : 0;
}

static int take_batches(struct ffn_rank *rank, stepaf_from_t from, int64_t timeout_us,
                        struct trouble *trouble)
{
    int n = 0;
    /* One by one, so that a batch counts as queued while another is computed. */
    int capacity = from == STEPAF_FROM_EACH ? rank->roll.n : 1;
    stepaf_status_t status =
        stepaf_recv(rank->ctx, from, 0, timeout_us, rank->batches, capacity, &n);
    if (status == STEPAF_ERR_TIMEOUT)
        return 0;
    if (status == STEPAF_ERR_PEER_LOST)
        return note_lost(rank, status, trouble);
    if (status != STEPAF_OK)
        return trouble_status(rank->ctx, status, "waiting for attention ranks", timeout_us,
                              trouble);
    for (int i = 0; i < n; i++)
        if (ffn_serve(rank, rank->batches[i], trouble))
            return -1;
    return 0;
}

/* Batches of other ranks keep arriving when one is lost: check for losses, and for live ranks
 * that are silent. */
static int look_around(struct ffn_rank *rank, struct trouble *trouble)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};
    int64_t patience_us = 2 * rank->timeout_us; /* attention ranks must notice first */
    if (trouble->lost >= 0)
        return 0;
    if (stepaf_counters_query(rank->ctx, &counters) == STEPAF_OK && counters.peers_lost)
        return take_batches(rank, STEPAF_FROM_EACH, 0, trouble);
    int silent = roll_silent(&rank->roll, stepaf_clock_ns(rank->ctx) - patience_us * 1000);
    if (silent < 0)
        return 0;
    roll_leave(&rank->roll, silent);
    trouble_silent(rank->ctx, stepaf_world_rank(rank->ctx, STEPAF_GROUP_ATTENTION, silent),
                   patience_us, trouble);
    return 0;
}

/* All attention ranks have nothing in flight, and commit. */
static int hold_with_all(struct ffn_rank *rank, struct trouble *trouble)
{
    if (rank->roll.n_held < rank->roll.n || trouble->lost >= 0)
        return 0;
    if (replicas_commit(rank->ctx, trouble))
        return -1;
    roll_resume(&rank->roll, stepaf_clock_ns(rank->ctx));
    return 0;
}

int ffn_rank_run(struct ffn_rank *rank, struct trouble *trouble)
{
    int64_t end_by_ns = 0;
    trouble->lost = -1;
    for (int i = 0; i < rank->roll.n; i++)
        roll_heard(&rank->roll, i, stepaf_clock_ns(rank->ctx));
    while (rank->roll.n_gone < rank->roll.n) {
        int64_t timeout_us = POLL_US;
        if (ffn_serve_due(rank, &timeout_us, trouble) ||
            take_batches(rank, STEPAF_FROM_ANY, timeout_us, trouble) ||
            hold_with_all(rank, trouble) || look_around(rank, trouble))
            return -1;
        /* Notify the others in the answers to their batches, for a limited time. */
        int64_t now_ns = stepaf_clock_ns(rank->ctx);
        if (trouble->lost >= 0 && end_by_ns == 0)
            end_by_ns = now_ns + FAREWELL_US * 1000LL;
        if (end_by_ns && now_ns > end_by_ns)
            break;
    }
    return trouble->lost >= 0 ? -1 : 0;
}
