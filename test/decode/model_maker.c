/* SPDX-License-Identifier: Apache-2.0 */
#include "model_maker.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "process.h"

static void die(const char *what)
{
    perror(what);
    exit(99);
}

static void read_exactly(FILE *file, void *bytes, size_t count, const char *path)
{
    if (fread(bytes, 1, count, file) != count)
        die(path);
}

void tensor_file_read(const char *path, struct tensor_file *file_p)
{
    FILE *file = fopen(path, "rb");
    uint64_t length;
    struct stat status;
    if (!file || fstat(fileno(file), &status))
        die(path);
    read_exactly(file, &length, sizeof(length), path);
    char *text = malloc(length);
    size_t bytes = (size_t)status.st_size - sizeof(length) - length;
    uint8_t *data = malloc(bytes);
    if (!text || !data)
        die("malloc");
    read_exactly(file, text, length, path);
    read_exactly(file, data, bytes, path);
    fclose(file);
    json_t *header = json_loadb(text, length, 0, NULL);
    free(text);
    if (!header)
        die(path);
    *file_p = (struct tensor_file){header, data, bytes};
}

void tensor_file_write(const struct tensor_file *file, const char *path, uint64_t length)
{
    char *text = json_dumps(file->header, JSON_COMPACT);
    FILE *stream = fopen(path, "wb");
    if (!text || !stream)
        die(path);
    uint64_t shown = length ? length : strlen(text);
    if (fwrite(&shown, 1, sizeof(shown), stream) != sizeof(shown) ||
        fwrite(text, 1, strlen(text), stream) != strlen(text) ||
        (file->bytes && fwrite(file->data, 1, file->bytes, stream) != file->bytes) ||
        fclose(stream))
        die(path);
    free(text);
}

void tensor_file_free(struct tensor_file *file)
{
    json_decref(file->header);
    free(file->data);
    *file = (struct tensor_file){0};
}

void tensor_file_add(struct tensor_file *file, const char *name, const char *dtype,
                     const int64_t *shape, int ndim, const void *bytes, size_t count)
{
    json_t *sizes = json_array();
    for (int i = 0; i < ndim; i++)
        json_array_append_new(sizes, json_integer(shape[i]));
    if (!file->header)
        file->header = json_object();
    json_int_t begin = (json_int_t)file->bytes;
    json_int_t end = begin + (json_int_t)count;
    json_object_set_new(file->header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", sizes,
                                  "data_offsets", begin, end));
    file->data = realloc(file->data, file->bytes + count);
    if (!file->data)
        die("realloc");
    memcpy(file->data + file->bytes, bytes, count);
    file->bytes += count;
}

const char *model_path(const char *dir, const char *file)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return path;
}

static void copy_file(const char *from_dir, const char *to_dir, const char *name)
{
    char buffer[65536];
    size_t bytes;
    FILE *from = fopen(model_path(from_dir, name), "rb");
    FILE *to = fopen(model_path(to_dir, name), "wb");
    if (!from || !to)
        die(name);
    while ((bytes = fread(buffer, 1, sizeof(buffer), from)) > 0)
        if (fwrite(buffer, 1, bytes, to) != bytes)
            die(name);
    fclose(from);
    if (fclose(to))
        die(name);
}

static const char *make_dir(const char *name)
{
    static char dir[256];
    snprintf(dir, sizeof(dir), "%s/%s", process_scratch(), name);
    if (mkdir(dir, 0700))
        die(dir);
    return dir;
}

const char *model_copy(const char *model, const char *name, int weights)
{
    const char *dir = make_dir(name);
    const char *from = process_model(model);
    copy_file(from, dir, "config.json");
    copy_file(from, dir, "tokenizer.json");
    if (weights)
        copy_file(from, dir, "model.safetensors");
    return dir;
}

void model_set(const char *dir, const char *field, json_t *value)
{
    const char *path = model_path(dir, "config.json");
    json_t *config = json_load_file(path, 0, NULL);
    if (!config)
        die(path);
    if (value)
        json_object_set_new(config, field, value);
    else
        json_object_del(config, field);
    if (json_dump_file(config, path, JSON_INDENT(1)))
        die(path);
    json_decref(config);
}

/* What model_random is making. */
struct maker {
    struct tensor_file file;
    const json_t *config;
    uint64_t random;
};

static int number(const struct maker *maker, const char *name)
{
    return (int)json_integer_value(json_object_get(maker->config, name));
}

/* Uniform in -1..1: enough for weights. */
static float draw(struct maker *maker)
{
    maker->random = maker->random * 6364136223846793005u + 1442695040888963407u;
    return (float)(maker->random >> 40) / (float)(1 << 23) - 1.0f;
}

/* A matrix scaled for its input size, a vector around @a center. */
static void add_random(struct maker *maker, const char *name, int64_t rows, int64_t cols,
                       float center)
{
    const int64_t shape[2] = {rows, cols};
    size_t count = (size_t)rows * (size_t)(cols ? cols : 1);
    float scale = cols ? 1.7f : 0.3f;
    for (int64_t square = 1; cols && square * square < cols; square++)
        scale = 1.7f / (float)(square + 1);
    float *values = malloc(count * sizeof(float));
    if (!values)
        die("malloc");
    for (size_t i = 0; i < count; i++)
        values[i] = center + scale * draw(maker);
    tensor_file_add(&maker->file, name, "F32", shape, cols ? 2 : 1, values, count * sizeof(float));
    free(values);
}

static void add_unit(struct maker *maker, const char *prefix, int width)
{
    char name[128];
    int hidden = number(maker, "hidden_size");
    snprintf(name, sizeof(name), "%s.gate_proj.weight", prefix);
    add_random(maker, name, width, hidden, 0);
    snprintf(name, sizeof(name), "%s.up_proj.weight", prefix);
    add_random(maker, name, width, hidden, 0);
    snprintf(name, sizeof(name), "%s.down_proj.weight", prefix);
    add_random(maker, name, hidden, width, 0);
}

static void add_attention(struct maker *maker, int layer, int qk_norm, int bias)
{
    static const char *const parts[] = {"q", "k", "v"};
    char name[128];
    int hidden = number(maker, "hidden_size");
    int size = number(maker, "head_dim");
    int queries = number(maker, "num_attention_heads") * size;
    int keys = number(maker, "num_key_value_heads") * size;
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s_proj.weight", layer, parts[i]);
        add_random(maker, name, i ? keys : queries, hidden, 0);
        snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s_proj.bias", layer, parts[i]);
        if (bias)
            add_random(maker, name, i ? keys : queries, 0, 0);
        snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s_norm.weight", layer, parts[i]);
        if (qk_norm && i < 2)
            add_random(maker, name, size, 0, 1);
    }
    snprintf(name, sizeof(name), "model.layers.%d.self_attn.o_proj.weight", layer);
    add_random(maker, name, hidden, queries, 0);
    snprintf(name, sizeof(name), "model.layers.%d.input_layernorm.weight", layer);
    add_random(maker, name, hidden, 0, 1);
    snprintf(name, sizeof(name), "model.layers.%d.post_attention_layernorm.weight", layer);
    add_random(maker, name, hidden, 0, 1);
}

static void add_ffn(struct maker *maker, int layer)
{
    char name[128];
    int sparse = number(maker, "num_experts") > 0;
    const json_t *dense = json_object_get(maker->config, "mlp_only_layers");
    for (size_t i = 0; i < json_array_size(dense); i++)
        sparse &= json_integer_value(json_array_get(dense, i)) != layer;
    snprintf(name, sizeof(name), "model.layers.%d.mlp", layer);
    if (!sparse) {
        add_unit(maker, name, number(maker, "intermediate_size"));
        return;
    }
    for (int expert = 0; expert < number(maker, "num_experts"); expert++) {
        snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d", layer, expert);
        add_unit(maker, name, number(maker, "moe_intermediate_size"));
    }
    snprintf(name, sizeof(name), "model.layers.%d.mlp.gate.weight", layer);
    add_random(maker, name, number(maker, "num_experts"), number(maker, "hidden_size"), 0);
}

const char *model_random(const char *name, json_t *config, unsigned seed)
{
    json_t *usual =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type",
                  "qwen3_moe", "hidden_size", 48, "num_hidden_layers", 3, "num_attention_heads", 6,
                  "num_key_value_heads", 2, "head_dim", 8, "vocab_size", 97,
                  "max_position_embeddings", 64, "intermediate_size", 40, "num_experts", 5,
                  "num_experts_per_tok", 3, "moe_intermediate_size", 24, "norm_topk_prob", 1);
    json_object_update(usual, config);
    json_decref(config);
    struct maker maker = {.config = usual, .random = seed};
    const char *type = json_string_value(json_object_get(usual, "model_type"));
    int qwen3 = strncmp(type, "qwen3", 5) == 0;
    for (int layer = 0; layer < number(&maker, "num_hidden_layers"); layer++) {
        add_attention(&maker, layer, qwen3, strcmp(type, "qwen2") == 0);
        add_ffn(&maker, layer);
    }
    add_random(&maker, "model.embed_tokens.weight", number(&maker, "vocab_size"),
               number(&maker, "hidden_size"), 0);
    add_random(&maker, "model.norm.weight", number(&maker, "hidden_size"), 0, 1);
    if (!json_is_true(json_object_get(usual, "tie_word_embeddings")))
        add_random(&maker, "lm_head.weight", number(&maker, "vocab_size"),
                   number(&maker, "hidden_size"), 0);
    const char *dir = make_dir(name);
    tensor_file_write(&maker.file, model_path(dir, "model.safetensors"), 0);
    if (json_dump_file(usual, model_path(dir, "config.json"), JSON_INDENT(1)))
        die("config.json");
    tensor_file_free(&maker.file);
    json_decref(usual);
    return dir;
}
