/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "ffn_rank.h"

static int attention_world(const struct ffn_rank *rank, int attention_rank)
{
    return stepaf_world_rank(rank->ctx, STEPAF_GROUP_ATTENTION, attention_rank);
}

/* Answer a batch and release it. Loss of its attention rank, or the end of its wait, is detected
 * and reported elsewhere. */
static int send_answer(struct ffn_rank *rank, const struct answer *answer, struct trouble *trouble)
{
    int64_t begin_ns = stepaf_clock_ns(rank->ctx);
    stepaf_status_t status = stepaf_respond(answer->batch, answer->tensors, answer->n_tensors,
                                            STEPAF_RESPOND_RELEASE, NULL);
    rank->stats.end_ns = stepaf_clock_ns(rank->ctx);
    rank->stats.library_ns += rank->stats.end_ns - begin_ns;
    if (status == STEPAF_ERR_PEER_LOST || status == STEPAF_ERR_CANCELED) {
        (void)stepaf_release(answer->batch);
        return 0;
    }
    if (status != STEPAF_OK)
        return trouble_status(rank->ctx, status, "answering", 0, trouble);
    return 0;
}

/* Answer now, or after the delay. */
static int answer_batch(struct ffn_rank *rank, const struct answer *answer, struct trouble *trouble)
{
    if (rank->delay_ns == 0 || rank->n_delayed == rank->max_delayed)
        return send_answer(rank, answer, trouble);
    rank->delayed[(rank->first_delayed + rank->n_delayed++) % rank->max_delayed] = *answer;
    return 0;
}

int ffn_serve_due(struct ffn_rank *rank, int64_t *timeout_us_p, struct trouble *trouble)
{
    while (rank->n_delayed) {
        const struct answer *answer = &rank->delayed[rank->first_delayed];
        int64_t left_ns = answer->due_ns - stepaf_clock_ns(rank->ctx);
        if (left_ns > 0) {
            int64_t left_us = left_ns / 1000;
            *timeout_us_p = left_us < *timeout_us_p ? left_us : *timeout_us_p;
            return 0;
        }
        if (send_answer(rank, answer, trouble))
            return -1;
        rank->first_delayed = (rank->first_delayed + 1) % rank->max_delayed;
        rank->n_delayed--;
    }
    return 0;
}

/* Return a batch's pushed tensor @a index if it has @a bytes bytes; else NULL. */
static const void *tensor_of(stepaf_batch_h batch, int index, size_t bytes)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    if (stepaf_batch_tensor(batch, index, &info) != STEPAF_OK || info.bytes != bytes)
        return NULL;
    return info.data;
}

/* Check that a batch matches its header, and fill *input_p with its rows. */
static int read_rows(const struct ffn_rank *rank, stepaf_batch_h batch,
                     const stepaf_batch_info_t *info, const struct wire_header *header,
                     struct ffn_input *input_p)
{
    const struct model_config *config = rank->config;
    if (header->kind != WIRE_ROWS || info->n_tensors != wire_pushes(config) ||
        info->n_answers != WIRE_PULLS || header->microbatch < 0 ||
        header->microbatch >= rank->microbatches || header->layer < 0 ||
        header->layer >= config->layers || header->rows < 1 || header->rows > rank->max_rows)
        return -1;
    size_t rows = (size_t)header->rows;
    size_t chosen = (size_t)config->experts_chosen;
    struct ffn_input input = {.rows = header->rows, .chosen = config->experts_chosen};
    input.hidden = tensor_of(batch, WIRE_HIDDEN, rows * (size_t)config->hidden * sizeof(float));
    if (!input.hidden)
        return -1;
    if (config->sparse[header->layer]) {
        input.ids = tensor_of(batch, WIRE_IDS, rows * chosen * sizeof(int32_t));
        input.weights = tensor_of(batch, WIRE_WEIGHTS, rows * chosen * sizeof(float));
        if (!input.ids || !input.weights)
            return -1;
    }
    *input_p = input;
    return 0;
}

/* Return the state for answers as long as nothing ends. */
static int going_on(const struct ffn_rank *rank)
{
    return rank->roll.n_held ? WIRE_HOLDING : WIRE_GOING_ON;
}

/* Compute a batch of rows and answer it. */
static int serve_rows(struct ffn_rank *rank, stepaf_batch_h batch, const stepaf_batch_info_t *info,
                      const struct wire_header *header, struct trouble *trouble)
{
    struct ffn_input input;
    if (read_rows(rank, batch, info, header, &input))
        return trouble_malformed(rank->ctx, attention_world(rank, info->attention_rank), "batch",
                                 trouble);
    int lost = trouble->lost;
    size_t hidden = (size_t)rank->config->hidden;
    size_t slot =
        (size_t)info->attention_rank * (size_t)rank->microbatches + (size_t)header->microbatch;
    float *sum = rank->sums + slot * (size_t)rank->max_rows * hidden;
    int64_t begin_ns = stepaf_clock_ns(rank->ctx);
    if (lost < 0)
        ffn_run(rank->weights, header->layer, &input, rank->config->hidden, sum, rank->work);
    int64_t end_ns = stepaf_clock_ns(rank->ctx);
    rank->replies[slot] = (struct wire_reply){
        WIRE_MAGIC, lost < 0 ? going_on(rank) : WIRE_RANK_LOST, header->layer, lost};
    struct answer answer = {batch,
                            info->attention_rank,
                            begin_ns + rank->delay_ns,
                            {{wire_pull_key(header->microbatch, WIRE_REPLY), &rank->replies[slot],
                              sizeof(struct wire_reply)},
                             {wire_pull_key(header->microbatch, WIRE_SUM), sum,
                              lost < 0 ? (size_t)input.rows * hidden * sizeof(float) : 0}},
                            WIRE_PULLS};
    if (rank->kill_after && rank->stats.batches == rank->kill_after)
        raise(SIGKILL);
    if (rank->stats.batches++ == 0)
        rank->stats.begin_ns = begin_ns;
    rank->stats.rows += input.rows;
    rank->stats.compute_ns += end_ns - begin_ns;
    spans_add(&rank->spans, (struct span){begin_ns, end_ns, SPAN_FFN, header->microbatch,
                                          header->layer, info->attention_rank});
    return answer_batch(rank, &answer, trouble);
}

/* Receive control words, and answer them. */
static int serve_words(struct ffn_rank *rank, stepaf_batch_h batch, const stepaf_batch_info_t *info,
                       const struct wire_header *header, struct trouble *trouble)
{
    int from = info->attention_rank;
    if (info->n_answers != 1 || header->kind < WIRE_STOP || header->kind > WIRE_HOLD)
        return trouble_malformed(rank->ctx, attention_world(rank, from), "batch", trouble);
    if (header->kind == WIRE_STOP)
        roll_stop(&rank->roll, from);
    else if (header->kind == WIRE_HOLD)
        roll_hold(&rank->roll, from);
    else
        roll_leave(&rank->roll, from);
    if (header->kind == WIRE_ABORT && trouble->lost < 0)
        trouble_lost(rank->ctx, header->lost >= 0 ? header->lost : attention_world(rank, from),
                     trouble);
    int state = trouble->lost >= 0                     ? WIRE_RANK_LOST
                : rank->roll.n_stopped == rank->roll.n ? WIRE_ALL_STOPPED
                                                       : going_on(rank);
    rank->words_replies[from] = (struct wire_reply){WIRE_MAGIC, state, -1, trouble->lost};
    struct answer answer = {.batch = batch,
                            .attention_rank = from,
                            .tensors = {{wire_pull_key(WIRE_WORDS, WIRE_REPLY),
                                         &rank->words_replies[from], sizeof(struct wire_reply)}},
                            .n_tensors = 1};
    return send_answer(rank, &answer, trouble);
}

int ffn_serve(struct ffn_rank *rank, stepaf_batch_h batch, struct trouble *trouble)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_status_t status = stepaf_batch_query(batch, &info);
    if (status != STEPAF_OK)
        return trouble_status(rank->ctx, status, "taking a batch", 0, trouble);
    const struct wire_header *header = tensor_of(batch, WIRE_HEADER, sizeof(*header));
    if (info.attention_rank < 0 || info.attention_rank >= rank->roll.n || !header ||
        header->magic != WIRE_MAGIC)
        return trouble_malformed(rank->ctx, attention_world(rank, info.attention_rank), "batch",
                                 trouble);
    roll_heard(&rank->roll, info.attention_rank, stepaf_clock_ns(rank->ctx));
    if (info.n_tensors == 1)
        return serve_words(rank, batch, &info, header, trouble);
    return serve_rows(rank, batch, &info, header, trouble);
}
