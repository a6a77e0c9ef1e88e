/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of an attention rank. Sums are over the steady time: from when every microbatch
 * has read its prompts until the end. Times are nanoseconds. */
#ifndef DECODE_STATS_H
#define DECODE_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "reason.h"

/* Sums over the exchanges of one layer. */
struct layer_stats {
    int64_t exchanges;
    int64_t attention_ns;  /* computing, this side */
    int64_t a2f_ns;        /* from the call of start until the last FFN rank was notified */
    int64_t queue_ns;      /* the batch waited until the FFN rank received it */
    int64_t ffn_ns;        /* the FFN rank had it */
    int64_t f2a_ns;        /* the rest, until the answer was noticed here */
    int64_t wait_ns;       /* idle until the answer arrived */
    int64_t round_trip_ns; /* from the call of start until the answer was received */
    int64_t library_ns;    /* in the library, except waiting for FFN ranks' work */
    int64_t exposed_ns;    /* of a2f and f2a: the part not hidden by this rank's work */
};

struct stats {
    int n_layers;
    struct layer_stats *layers;
    int prefilling;        /* microbatches that are still reading prompts */
    int64_t tokens;        /* total generated */
    int64_t tokens_before; /* of these, generated before the steady time */
    int64_t begin_ns;
    int64_t steady_ns; /* when the steady time began; 0: not yet */
    int64_t end_ns;
    float *steps_us; /* time per token of each steady step */
    size_t n_steps;
    size_t max_steps;
};

int stats_create(int layers, size_t max_steps, struct stats *stats_p, struct reason *reason);
void stats_destroy(struct stats *stats);

/* @a microbatches begin to read their prompts. */
void stats_begin(struct stats *stats, int microbatches, int64_t now_ns);

/* One of them has read its prompts. */
void stats_past_prompts(struct stats *stats, int64_t now_ns);

/* A step that began at @a begin_ns has generated @a tokens tokens. */
void stats_step(struct stats *stats, int decoding, int tokens, int64_t begin_ns, int64_t now_ns);

/* Whether an exchange that began at @a begin_ns counts. */
static inline int stats_steady(const struct stats *stats, int64_t begin_ns)
{
    return stats->steady_ns && begin_ns >= stats->steady_ns;
}

/* Sums over all layers. */
struct layer_stats stats_total(const struct layer_stats *layers, int n);

/* Add @a other to *sum. */
void layer_stats_add(struct layer_stats *sum, const struct layer_stats *other);

/* Return the smallest of the @a n sorted values that at least a share @a q of them does not
 * exceed ("nearest rank"); 0 if there are none. */
double stats_quantile(const float *sorted, size_t n, double q);

void stats_sort(float *values, size_t n);

#endif
