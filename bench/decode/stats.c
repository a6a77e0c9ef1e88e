/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

int stats_create(int layers, size_t max_steps, struct stats *stats_p, struct reason *reason)
{
    struct stats stats = {.n_layers = layers, .max_steps = max_steps};
    stats.layers = calloc((size_t)layers, sizeof(stats.layers[0]));
    stats.steps_us = malloc((max_steps + 1) * sizeof(stats.steps_us[0]));
    if (!stats.layers || !stats.steps_us) {
        stats_destroy(&stats);
        return reason_no_memory(reason);
    }
    *stats_p = stats;
    return 0;
}

void stats_destroy(struct stats *stats)
{
    free(stats->layers);
    free(stats->steps_us);
    *stats = (struct stats){0};
}

void stats_begin(struct stats *stats, int microbatches, int64_t now_ns)
{
    stats->begin_ns = now_ns;
    stats->prefilling = microbatches;
}

void stats_past_prompts(struct stats *stats, int64_t now_ns)
{
    if (--stats->prefilling > 0)
        return;
    stats->steady_ns = now_ns;
    stats->tokens_before = stats->tokens;
}

void stats_step(struct stats *stats, int decoding, int tokens, int64_t begin_ns, int64_t now_ns)
{
    stats->tokens += tokens;
    if (decoding && stats_steady(stats, begin_ns) && stats->n_steps < stats->max_steps)
        stats->steps_us[stats->n_steps++] = (float)(now_ns - begin_ns) / 1000.0f;
}

void layer_stats_add(struct layer_stats *sum, const struct layer_stats *other)
{
    sum->exchanges += other->exchanges;
    sum->attention_ns += other->attention_ns;
    sum->a2f_ns += other->a2f_ns;
    sum->queue_ns += other->queue_ns;
    sum->ffn_ns += other->ffn_ns;
    sum->f2a_ns += other->f2a_ns;
    sum->wait_ns += other->wait_ns;
    sum->round_trip_ns += other->round_trip_ns;
    sum->library_ns += other->library_ns;
    sum->exposed_ns += other->exposed_ns;
}

struct layer_stats stats_total(const struct layer_stats *layers, int n)
{
    struct layer_stats total = {0};
    for (int i = 0; i < n; i++)
        layer_stats_add(&total, &layers[i]);
    return total;
}

static int compare(const void *left, const void *right)
{
    float a = *(const float *)left;
    float b = *(const float *)right;
    return a < b ? -1 : a > b;
}

void stats_sort(float *values, size_t n)
{
    if (n)
        qsort(values, n, sizeof(values[0]), compare);
}

double stats_quantile(const float *sorted, size_t n, double q)
{
    if (n == 0)
        return 0;
    /* The small term keeps shares such as 0.99 of 100, which are not exact in binary, at rank
     * 99. */
    double rank = ceil(q * (double)n - 1e-9 * (double)n);
    if (rank < 1)
        return sorted[0];
    return sorted[rank < (double)n ? (size_t)rank - 1 : n - 1];
}
