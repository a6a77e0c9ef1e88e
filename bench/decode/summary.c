/* SPDX-License-Identifier: Apache-2.0 */
#include "summary.h"

#include <stdlib.h>

#include <stepaf/types.h>

int summary_create(int ranks, int layers, int sequences, struct summary *summary_p,
                   struct reason *reason)
{
    struct summary summary = {.max_ranks = ranks, .n_layers = layers, .n_sequences = sequences};
    summary.ranks = calloc((size_t)ranks, sizeof(summary.ranks[0]));
    summary.layers = calloc((size_t)layers, sizeof(summary.layers[0]));
    summary.sequences = calloc((size_t)sequences, sizeof(summary.sequences[0]));
    if (!summary.ranks || !summary.layers || !summary.sequences) {
        summary_destroy(&summary);
        return reason_no_memory(reason);
    }
    *summary_p = summary;
    return 0;
}

void summary_destroy(struct summary *summary)
{
    for (int i = 0; summary->sequences && i < summary->n_sequences; i++)
        free(summary->sequences[i].ids);
    free(summary->ranks);
    free(summary->layers);
    free(summary->steps_us);
    free(summary->sequences);
    *summary = (struct summary){0};
}

void summary_put_attention(struct blob *blob, const struct place *place,
                           const struct attention_side *side, const struct stats *stats)
{
    struct rank_record record = {.place = *place,
                                 .n_layers = stats->n_layers,
                                 .n_steps = stats->n_steps,
                                 .n_sequences = (uint64_t)side->n_sequences,
                                 .tokens = stats->tokens,
                                 .tokens_before = stats->tokens_before,
                                 .begin_ns = stats->begin_ns,
                                 .steady_ns = stats->steady_ns,
                                 .end_ns = stats->end_ns};
    attention_side_verify(side, &record.verify);
    blob_put(blob, &record, sizeof(record));
    blob_put(blob, stats->layers, (size_t)stats->n_layers * sizeof(stats->layers[0]));
    blob_put(blob, stats->steps_us, stats->n_steps * sizeof(stats->steps_us[0]));
    for (int i = 0; i < side->n_sequences; i++) {
        const struct sequence *sequence = &side->sequences[i];
        const int32_t head[] = {sequence->index, sequence->prompt->count, sequence->count};
        blob_put(blob, head, sizeof(head));
        blob_put(blob, sequence->ids, (size_t)sequence->count * sizeof(int));
    }
}

void summary_put_ffn(struct blob *blob, const struct place *place, const struct ffn_stats *stats)
{
    struct rank_record record = {.place = *place, .ffn = *stats};
    blob_put(blob, &record, sizeof(record));
}

static int take_layers(struct summary *summary, const struct rank_record *record,
                       struct blob_reader *reader)
{
    for (int i = 0; i < record->n_layers; i++) {
        struct layer_stats layer;
        if (i >= summary->n_layers || blob_take(reader, &layer, sizeof(layer)))
            return -1;
        layer_stats_add(&summary->layers[i], &layer);
    }
    return 0;
}

static int take_steps(struct summary *summary, const struct rank_record *record,
                      struct blob_reader *reader)
{
    size_t n = (size_t)record->n_steps;
    if (n > reader->left / sizeof(float))
        return -1;
    float *steps = realloc(summary->steps_us, (summary->n_steps + n + 1) * sizeof(float));
    if (!steps)
        return -1;
    summary->steps_us = steps;
    if (blob_take(reader, steps + summary->n_steps, n * sizeof(float)))
        return -1;
    summary->n_steps += n;
    return 0;
}

static int take_sequences(struct summary *summary, const struct rank_record *record,
                          struct blob_reader *reader)
{
    for (uint64_t i = 0; i < record->n_sequences; i++) {
        int32_t head[3];
        void *ids;
        if (blob_take(reader, head, sizeof(head)) || head[0] < 0 ||
            head[0] >= summary->n_sequences || summary->sequences[head[0]].ids || head[1] < 0 ||
            head[2] < head[1] || blob_take_array(reader, (size_t)head[2], sizeof(int), &ids))
            return -1;
        summary->sequences[head[0]] = (struct summary_sequence){head[0], head[1], head[2], ids};
    }
    return 0;
}

int summary_take(struct summary *summary, const void *bytes, size_t length, struct reason *reason)
{
    struct blob_reader reader = {bytes, length};
    struct rank_record record;
    if (summary->n_ranks == summary->max_ranks || blob_take(&reader, &record, sizeof(record)) ||
        take_layers(summary, &record, &reader) || take_steps(summary, &record, &reader) ||
        take_sequences(summary, &record, &reader) || reader.left)
        return reason_failed(reason, "rank %d's results are malformed", summary->n_ranks);
    summary->ranks[summary->n_ranks++] = record;
    if (record.place.role != STEPAF_ATTENTION)
        return 0;
    double seconds = (double)(record.end_ns - record.begin_ns) * 1e-9;
    double steady_ns = record.steady_ns ? (double)(record.end_ns - record.steady_ns) : 0;
    if (seconds > summary->seconds)
        summary->seconds = seconds;
    if (steady_ns > 0)
        summary->tokens_per_second +=
            (double)(record.tokens - record.tokens_before) / (steady_ns * 1e-9);
    summary->steady_ns += steady_ns;
    summary->tokens += record.tokens;
    verify_merge(&summary->verify, &record.verify);
    return 0;
}

void summary_finish(struct summary *summary)
{
    stats_sort(summary->steps_us, summary->n_steps);
}
