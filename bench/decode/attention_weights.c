/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_weights.h"

#include <stdlib.h>

static int load_biases(const struct loader *loader, int layer, struct attention_layer *weights)
{
    const struct model_config *config = loader->config;
    int64_t queries = (int64_t)config->heads * config->head_dim;
    int64_t keys = (int64_t)config->kv_heads * config->head_dim;
    const struct tensor_part qkv[] = {
        tensor_whole(queries, 0, "model.layers.%d.self_attn.q_proj.bias", layer),
        tensor_whole(keys, 0, "model.layers.%d.self_attn.k_proj.bias", layer),
        tensor_whole(keys, 0, "model.layers.%d.self_attn.v_proj.bias", layer),
    };
    const struct tensor_part output =
        tensor_whole(config->hidden, 0, "model.layers.%d.self_attn.o_proj.bias", layer);
    if (config->qkv_bias && tensor_load(loader, qkv, 3, &weights->qkv_bias))
        return -1;
    if (config->o_bias && tensor_load(loader, &output, 1, &weights->output_bias))
        return -1;
    return 0;
}

static int load_norms(const struct loader *loader, int layer, struct attention_layer *weights)
{
    const struct model_config *config = loader->config;
    const struct tensor_part input =
        tensor_whole(config->hidden, 0, "model.layers.%d.input_layernorm.weight", layer);
    const struct tensor_part ffn =
        tensor_whole(config->hidden, 0, "model.layers.%d.post_attention_layernorm.weight", layer);
    const struct tensor_part query =
        tensor_whole(config->head_dim, 0, "model.layers.%d.self_attn.q_norm.weight", layer);
    const struct tensor_part key =
        tensor_whole(config->head_dim, 0, "model.layers.%d.self_attn.k_norm.weight", layer);
    if (tensor_load(loader, &input, 1, &weights->input_norm) ||
        tensor_load(loader, &ffn, 1, &weights->ffn_norm))
        return -1;
    if (config->qk_norm && (tensor_load(loader, &query, 1, &weights->q_norm) ||
                            tensor_load(loader, &key, 1, &weights->k_norm)))
        return -1;
    return 0;
}

static int load_attention_layer(const struct loader *loader, int layer,
                                struct attention_layer *weights)
{
    const struct model_config *config = loader->config;
    int64_t queries = (int64_t)config->heads * config->head_dim;
    int64_t keys = (int64_t)config->kv_heads * config->head_dim;
    const struct tensor_part qkv[] = {
        tensor_whole(queries, config->hidden, "model.layers.%d.self_attn.q_proj.weight", layer),
        tensor_whole(keys, config->hidden, "model.layers.%d.self_attn.k_proj.weight", layer),
        tensor_whole(keys, config->hidden, "model.layers.%d.self_attn.v_proj.weight", layer),
    };
    const struct tensor_part output =
        tensor_whole(config->hidden, queries, "model.layers.%d.self_attn.o_proj.weight", layer);
    const struct tensor_part router =
        tensor_whole(config->experts, config->hidden, "model.layers.%d.mlp.gate.weight", layer);
    if (load_norms(loader, layer, weights) || tensor_load(loader, qkv, 3, &weights->qkv) ||
        tensor_load(loader, &output, 1, &weights->output) || load_biases(loader, layer, weights))
        return -1;
    if (config->sparse[layer] && tensor_load(loader, &router, 1, &weights->router))
        return -1;
    return 0;
}

static int load_attention(const struct loader *loader, load_progress_t progress, void *arg,
                          struct attention_weights *weights)
{
    const struct model_config *config = loader->config;
    const struct tensor_part embedding =
        tensor_whole(config->vocab, config->hidden, "model.embed_tokens.weight");
    const struct tensor_part projection =
        tensor_whole(config->vocab, config->hidden, "lm_head.weight");
    const struct tensor_part norm = tensor_whole(config->hidden, 0, "model.norm.weight");
    if (tensor_load(loader, &embedding, 1, &weights->embedding) ||
        tensor_load(loader, &norm, 1, &weights->final_norm))
        return -1;
    if (config->tied)
        weights->projection = weights->embedding;
    else if (tensor_load(loader, &projection, 1, &weights->projection))
        return -1;
    for (int i = 0; i < config->layers; i++) {
        if (load_attention_layer(loader, i, &weights->layers[i]))
            return -1;
        if (progress)
            progress(i + 1, config->layers, arg);
    }
    return checkpoint_check_layers(loader->checkpoint, config->layers, loader->reason);
}

int attention_weights_load(const char *dir, const struct model_config *config,
                           load_progress_t progress, void *arg,
                           struct attention_weights **weights_p, struct reason *reason)
{
    struct loader loader = {NULL, config, reason};
    if (checkpoint_open(dir, &loader.checkpoint, reason))
        return -1;
    struct attention_weights *weights = calloc(1, sizeof(*weights));
    if (!weights ||
        !(weights->layers = calloc((size_t)config->layers, sizeof(weights->layers[0])))) {
        reason_no_memory(reason);
        goto err_free;
    }
    weights->n_layers = config->layers;
    weights->tied = config->tied;
    if (load_attention(&loader, progress, arg, weights))
        goto err_free;
    weights->bytes_read = checkpoint_bytes_read(loader.checkpoint);
    checkpoint_close(loader.checkpoint);
    *weights_p = weights;
    return 0;

err_free:
    attention_weights_free(weights);
    checkpoint_close(loader.checkpoint);
    return -1;
}

void attention_weights_free(struct attention_weights *weights)
{
    if (!weights)
        return;
    for (int i = 0; i < weights->n_layers; i++) {
        struct attention_layer *layer = &weights->layers[i];
        free(layer->input_norm);
        free(layer->qkv);
        free(layer->qkv_bias);
        free(layer->q_norm);
        free(layer->k_norm);
        free(layer->output);
        free(layer->output_bias);
        free(layer->ffn_norm);
        free(layer->router);
    }
    if (!weights->tied)
        free(weights->projection);
    free(weights->embedding);
    free(weights->final_norm);
    free(weights->layers);
    free(weights);
}
