/* SPDX-License-Identifier: Apache-2.0 */
/* The checked contents of a model's config.json. */
#ifndef DECODE_MODEL_CONFIG_H
#define DECODE_MODEL_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

enum {
    MODEL_MAX_LAYERS = 512,
    MODEL_MAX_EXPERTS = 4096,
    MODEL_MAX_CHOSEN = 64, /* maximum experts per token */
    MODEL_MAX_EOS = 8
};

struct model_config {
    char model_type[24]; /* "qwen3_moe", "qwen3", "qwen2", "llama" */
    int layers;
    int hidden;
    int heads;
    int kv_heads;
    int head_dim;
    int vocab;
    int context;        /* positions */
    int intermediate;   /* width of a dense layer's FFN; 0 if no layer is dense */
    int experts;        /* of a sparse layer; 0 if no layer is sparse */
    int experts_chosen; /* for each token */
    int expert_width;
    int normalize_chosen; /* divide the chosen experts' weights by their sum */
    int qkv_bias;
    int o_bias;
    int qk_norm; /* RMSNorm over each head of queries and keys */
    int tied;    /* the output projection is the embedding */
    float rms_epsilon;
    float rope_theta;
    int n_eos;
    int eos[MODEL_MAX_EOS];
    uint8_t sparse[MODEL_MAX_LAYERS]; /* layer i has experts */
};

/* Read @a dir/config.json. A missing directory is reported as an error of its own. */
int model_config_load(const char *dir, struct model_config *config_p, struct reason *reason);

/* The same from parsed JSON; @a what names it in messages. Pure. */
int model_config_parse(const json_t *root, const char *what, struct model_config *config_p,
                       struct reason *reason);

/* Number of sparse layers. */
int model_config_sparse_layers(const struct model_config *config);

/* Whether the FFN part can be cut into @a parts: each part needs an expert, or a column. */
int model_config_check_parts(const struct model_config *config, int parts, struct reason *reason);

int model_config_is_eos(const struct model_config *config, int id);

#endif
