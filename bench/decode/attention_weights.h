/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that an attention rank needs, in float32: all but the FFNs. Matrices are [output,
 * input], row by row. */
#ifndef DECODE_ATTENTION_WEIGHTS_H
#define DECODE_ATTENTION_WEIGHTS_H

#include "tensor_load.h"

struct attention_layer {
    float *input_norm; /* [hidden] */
    float *qkv;        /* [(heads + 2 * kv_heads) * head_dim, hidden]: queries, keys, values */
    float *qkv_bias;   /* or NULL */
    float *q_norm;     /* [head_dim], or NULL */
    float *k_norm;
    float *output;      /* [hidden, heads * head_dim] */
    float *output_bias; /* or NULL */
    float *ffn_norm;    /* [hidden] */
    float *router;      /* [experts, hidden], or NULL in a dense layer */
};

struct attention_weights {
    float *embedding;  /* [vocab, hidden] */
    float *projection; /* [vocab, hidden]; the embedding itself if they are tied */
    float *final_norm; /* [hidden] */
    struct attention_layer *layers;
    int n_layers;
    int tied;
    uint64_t bytes_read; /* of the files */
};

int attention_weights_load(const char *dir, const struct model_config *config,
                           load_progress_t progress, void *arg,
                           struct attention_weights **weights_p, struct reason *reason);
void attention_weights_free(struct attention_weights *weights);

#endif
