/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's attention over some rows of some sequences, with their key-value caches. */
#ifndef DECODE_ATTENTION_H
#define DECODE_ATTENTION_H

#include "attention_weights.h"

/* Keys and values of one sequence: [layers][kv_heads][capacity][head_dim] each. */
struct kv_cache {
    float *keys;
    float *values;
    int capacity; /* positions */
};

int kv_cache_create(const struct model_config *config, int capacity, struct kv_cache *cache_p,
                    struct reason *reason);
void kv_cache_destroy(struct kv_cache *cache);

/* Consecutive positions of one sequence that are consecutive rows of a batch. */
struct segment {
    struct kv_cache *cache;
    int position; /* of the first row */
    int rows;
};

/* Memory for intermediate values, and the rotations of all positions. */
struct attention_work;

int attention_work_create(const struct model_config *config, int max_rows, int max_positions,
                          struct attention_work **work_p, struct reason *reason);
void attention_work_destroy(struct attention_work *work);

/* Do x += attention(norm(x)) in layer @a layer for the rows of the segments, one segment after
 * the other, and store their keys and values in the caches. */
void attention_run(const struct model_config *config, const struct attention_layer *weights,
                   int layer, const struct segment *segments, int n_segments, float *x,
                   struct attention_work *work);

#endif
