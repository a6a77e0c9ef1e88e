/* SPDX-License-Identifier: Apache-2.0 */
#include "model_config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CONFIG_MAX_BYTES = 1 << 20,
    WIDTH_MAX = 1 << 20, /* of a hidden state or an FFN */
    VOCAB_MAX = 1 << 24,
    CONTEXT_MAX = 1 << 24,
    HEADS_MAX = 4096
};

/* How the families differ. */
static const struct family {
    const char *model_type;
    int qkv_bias; /* -1: as "attention_bias" says, and the output's likewise */
    int qk_norm;
    int experts;
} families[] = {
    {"qwen3_moe", -1, 1, 1},
    {"qwen3", -1, 1, 0},
    {"qwen2", 1, 0, 0},
    {"llama", -1, 0, 0},
};

struct source {
    const json_t *root;
    const char *what;
    struct reason *reason;
};

static struct json_field field(const struct source *source, const char *name, int optional)
{
    return (struct json_field){source->root, source->what, name, optional};
}

static int get_count(const struct source *source, const char *name, int max, int *value_p)
{
    int64_t value;
    if (json_get_int(field(source, name, 0), 1, max, 0, &value, source->reason))
        return -1;
    *value_p = (int)value;
    return 0;
}

static const struct family *find_family(const struct source *source)
{
    const char *model_type;
    if (json_get_text(field(source, "model_type", 0), NULL, &model_type, source->reason))
        return NULL;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    reason_bad_input(source->reason,
                     "%s: model_type \"%s\" is none of qwen3_moe, qwen3, qwen2, llama",
                     source->what, model_type);
    return NULL;
}

static int get_attention(const struct source *source, const struct family *family,
                         struct model_config *config)
{
    int64_t value;
    if (get_count(source, "hidden_size", WIDTH_MAX, &config->hidden) ||
        get_count(source, "num_attention_heads", HEADS_MAX, &config->heads))
        return -1;
    if (json_get_int(field(source, "num_key_value_heads", 1), 1, config->heads, config->heads,
                     &value, source->reason))
        return -1;
    config->kv_heads = (int)value;
    if (json_get_int(field(source, "head_dim", 1), 2, 4096, config->hidden / config->heads, &value,
                     source->reason))
        return -1;
    config->head_dim = (int)value;
    if (config->heads % config->kv_heads)
        return reason_bad_input(source->reason,
                                "%s: %d attention heads cannot share %d key-value heads evenly",
                                source->what, config->heads, config->kv_heads);
    if (config->head_dim < 2 || config->head_dim % 2)
        return reason_bad_input(source->reason, "%s: head size %d is not even", source->what,
                                config->head_dim);
    int bias;
    if (json_get_bool(field(source, "attention_bias", 1), 0, &bias, source->reason))
        return -1;
    config->qkv_bias = family->qkv_bias >= 0 ? family->qkv_bias : bias;
    config->o_bias = family->qkv_bias >= 0 ? 0 : bias;
    config->qk_norm = family->qk_norm;
    return 0;
}

/* The base of the rotations, under its old name or its new one, and no other kind of rotation. */
static int get_rope(const struct source *source, struct model_config *config)
{
    static const char *const blocks[] = {"rope_parameters", "rope_scaling"};
    const json_t *plain = json_object_get(source->root, "rope_theta");
    double theta;
    if (json_get_number(field(source, "rope_theta", 1), 1, 1e12, 10000, &theta, source->reason))
        return -1;
    for (int i = 0; i < 2; i++) {
        const json_t *block = json_object_get(source->root, blocks[i]);
        if (!block || json_is_null(block))
            continue;
        if (!json_is_object(block))
            return reason_bad_input(source->reason, "%s: \"%s\" is not an object", source->what,
                                    blocks[i]);
        struct source inner = {block, source->what, source->reason};
        const char *older, *kind;
        double other;
        if (json_get_text(field(&inner, "type", 1), "default", &older, source->reason) ||
            json_get_text(field(&inner, "rope_type", 1), older, &kind, source->reason) ||
            json_get_number(field(&inner, "rope_theta", 1), 1, 1e12, theta, &other, source->reason))
            return -1;
        if (strcmp(kind, "default") != 0)
            return reason_bad_input(source->reason, "%s: RoPE of type \"%s\" is not supported",
                                    source->what, kind);
        if (json_is_number(plain) && other != theta)
            return reason_bad_input(source->reason, "%s: two values of rope_theta: %g and %g",
                                    source->what, theta, other);
        theta = other;
    }
    config->rope_theta = (float)theta;
    return 0;
}

/* Which layers have experts. */
static int get_sparse_layers(const struct source *source, struct model_config *config)
{
    int64_t step;
    int *dense;
    size_t n_dense;
    if (json_get_int(field(source, "decoder_sparse_step", 1), 1, MODEL_MAX_LAYERS, 1, &step,
                     source->reason) ||
        json_get_ints(field(source, "mlp_only_layers", 1), 0, config->layers - 1, MODEL_MAX_LAYERS,
                      &dense, &n_dense, source->reason))
        return -1;
    for (int i = 0; i < config->layers; i++)
        config->sparse[i] = (i + 1) % step == 0;
    for (size_t i = 0; i < n_dense; i++)
        config->sparse[dense[i]] = 0;
    free(dense);
    return 0;
}

static int get_experts(const struct source *source, struct model_config *config)
{
    int64_t again;
    if (get_sparse_layers(source, config) ||
        get_count(source, "num_experts", MODEL_MAX_EXPERTS, &config->experts) ||
        get_count(source, "num_experts_per_tok", MODEL_MAX_CHOSEN, &config->experts_chosen) ||
        get_count(source, "moe_intermediate_size", WIDTH_MAX, &config->expert_width) ||
        json_get_bool(field(source, "norm_topk_prob", 1), 0, &config->normalize_chosen,
                      source->reason) ||
        json_get_int(field(source, "num_local_experts", 1), 1, MODEL_MAX_EXPERTS, config->experts,
                     &again, source->reason))
        return -1;
    if (again != config->experts)
        return reason_bad_input(source->reason, "%s: num_experts is %d but num_local_experts %d",
                                source->what, config->experts, (int)again);
    if (config->experts_chosen > config->experts)
        return reason_bad_input(source->reason, "%s: a token chooses %d experts of only %d",
                                source->what, config->experts_chosen, config->experts);
    if (model_config_sparse_layers(config) == 0)
        config->experts = config->experts_chosen = config->expert_width = 0;
    return 0;
}

static int get_ffn(const struct source *source, const struct family *family,
                   struct model_config *config)
{
    const char *activation;
    int bias;
    if (json_get_text(field(source, "hidden_act", 1), "silu", &activation, source->reason) ||
        json_get_bool(field(source, "mlp_bias", 1), 0, &bias, source->reason))
        return -1;
    if (strcmp(activation, "silu") != 0)
        return reason_bad_input(source->reason, "%s: activation \"%s\" is not supported, only silu",
                                source->what, activation);
    if (bias)
        return reason_bad_input(source->reason, "%s: mlp_bias is not supported", source->what);
    if (family->experts && get_experts(source, config))
        return -1;
    if (model_config_sparse_layers(config) == config->layers)
        return 0;
    return get_count(source, "intermediate_size", WIDTH_MAX, &config->intermediate);
}

/* Attention over everything before a token is the only kind that is built. */
static int check_full_attention(const struct source *source)
{
    int sliding;
    if (json_get_bool(field(source, "use_sliding_window", 1), 0, &sliding, source->reason))
        return -1;
    const json_t *types = json_object_get(source->root, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        sliding |= !type || strcmp(type, "full_attention") != 0;
    }
    if (sliding)
        return reason_bad_input(source->reason, "%s: only full attention is supported",
                                source->what);
    return 0;
}

static int get_eos(const struct source *source, struct model_config *config)
{
    const json_t *value = json_object_get(source->root, "eos_token_id");
    if (json_is_integer(value)) {
        int64_t id;
        if (json_get_int(field(source, "eos_token_id", 0), 0, config->vocab - 1, 0, &id,
                         source->reason))
            return -1;
        config->eos[0] = (int)id;
        config->n_eos = 1;
        return 0;
    }
    int *ids;
    size_t n;
    if (json_get_ints(field(source, "eos_token_id", 1), 0, config->vocab - 1, MODEL_MAX_EOS, &ids,
                      &n, source->reason))
        return -1;
    for (size_t i = 0; i < n; i++)
        config->eos[i] = ids[i];
    config->n_eos = (int)n;
    free(ids);
    return 0;
}

int model_config_parse(const json_t *root, const char *what, struct model_config *config_p,
                       struct reason *reason)
{
    struct source source = {root, what, reason};
    struct model_config config;
    double epsilon;
    memset(&config, 0, sizeof(config)); /* padding too: ranks compare digests */
    const struct family *family = find_family(&source);
    if (!family)
        return -1;
    snprintf(config.model_type, sizeof(config.model_type), "%s", family->model_type);
    if (get_count(&source, "num_hidden_layers", MODEL_MAX_LAYERS, &config.layers) ||
        get_count(&source, "vocab_size", VOCAB_MAX, &config.vocab) ||
        get_count(&source, "max_position_embeddings", CONTEXT_MAX, &config.context) ||
        json_get_bool(field(&source, "tie_word_embeddings", 1), 0, &config.tied, reason) ||
        json_get_number(field(&source, "rms_norm_eps", 1), 0, 1, 1e-6, &epsilon, reason) ||
        get_attention(&source, family, &config) || get_rope(&source, &config) ||
        get_ffn(&source, family, &config) || check_full_attention(&source) ||
        get_eos(&source, &config))
        return -1;
    config.rms_epsilon = (float)epsilon;
    *config_p = config;
    return 0;
}

int model_config_load(const char *dir, struct model_config *config_p, struct reason *reason)
{
    char path[PATH_MAX];
    struct stat status;
    json_t *root;
    if (stat(dir, &status) || !S_ISDIR(status.st_mode))
        return reason_bad_input(reason, "%s: no such model directory", dir);
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= (int)sizeof(path))
        return reason_bad_input(reason, "%s: path too long", dir);
    if (json_object_load(path, CONFIG_MAX_BYTES, &root, reason))
        return -1;
    int result = model_config_parse(root, path, config_p, reason);
    json_decref(root);
    return result;
}

int model_config_sparse_layers(const struct model_config *config)
{
    int n = 0;
    for (int i = 0; i < config->layers; i++)
        n += config->sparse[i];
    return n;
}

int model_config_check_parts(const struct model_config *config, int parts, struct reason *reason)
{
    if (config->experts && config->experts < parts)
        return reason_bad_input(reason, "%d experts are fewer than %d FFN ranks", config->experts,
                                parts);
    if (config->intermediate && config->intermediate < parts)
        return reason_bad_input(reason, "an FFN of width %d cannot be cut for %d FFN ranks",
                                config->intermediate, parts);
    return 0;
}

int model_config_is_eos(const struct model_config *config, int id)
{
    for (int i = 0; i < config->n_eos; i++)
        if (config->eos[i] == id)
            return 1;
    return 0;
}
