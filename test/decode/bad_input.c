/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of input that cannot be used: all ranks stop with exit code 2, and one of them says
 * why in one line. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_maker.h"
#include "process.h"

enum { RUN_SECONDS = 60 };

static const char moe[] = "qwen3-moe-tiny";
static const char norm[] = "model.norm.weight";
static int failures;

/* Run with @a args and check how it ends; @a model NULL: none is named. */
static void refuse(const char *what, const char *pattern, const char *model,
                   const char *const *more)
{
    const char *args[PROCESS_MAX_ARGS] = {"--procs", "3", "--split", "attn=1,ffn=2"};
    int n = 4;
    struct process process;
    if (model) {
        args[n++] = "--model";
        args[n++] = model;
    }
    for (; more && *more; more++)
        args[n++] = *more;
    int code = process_run(args, RUN_SECONDS, &process);
    char *err = process_text(process.err);
    if (code != 2 || process_lines(err) != 1 || !strstr(err, pattern)) {
        process_complain(&process, "FAILED: %s: exit code %d; wanted 2 and one line with: %s", what,
                         code, pattern);
        failures++;
    } else {
        printf("%s: %s", what, err);
    }
    free(err);
}

/* Where the weights of a copy are. */
static const char *weights_of(const char *dir)
{
    return model_path(dir, "model.safetensors");
}

static void truncated(void)
{
    const char *dir = model_copy(moe, "truncated", 1);
    if (truncate(weights_of(dir), 3000000))
        perror("truncate");
    refuse("truncated file", "out of range", dir, NULL);
    if (truncate(weights_of(dir), 5000))
        perror("truncate");
    refuse("truncated header", "reaches beyond the file's 5000 bytes", dir, NULL);
    if (truncate(weights_of(dir), 5))
        perror("truncate");
    refuse("no header", "only 5 bytes", dir, NULL);
    if (truncate(weights_of(dir), 0))
        perror("truncate");
    refuse("empty file", "empty", dir, NULL);
    unlink(weights_of(dir));
    refuse("no file", "neither model.safetensors nor", dir, NULL);
}

/* Write a copy of the MoE model whose header @a change has changed. */
static const char *changed(const char *name, void (*change)(struct tensor_file *file),
                           uint64_t length)
{
    struct tensor_file file;
    const char *dir = model_copy(moe, name, 0);
    char from[4096];
    snprintf(from, sizeof(from), "%s/model.safetensors", process_model(moe));
    tensor_file_read(from, &file);
    change(&file);
    tensor_file_write(&file, weights_of(dir), length);
    tensor_file_free(&file);
    return dir;
}

static json_t *entry(struct tensor_file *file, const char *name)
{
    return json_object_get(file->header, name);
}

static void shift(struct tensor_file *file, const char *name, json_int_t by)
{
    json_t *offsets = json_object_get(entry(file, name), "data_offsets");
    for (size_t i = 0; i < 2; i++)
        json_array_set_new(offsets, i,
                           json_integer(json_integer_value(json_array_get(offsets, i)) + by));
}

static void change_nothing(struct tensor_file *file)
{
    (void)file;
}

static void change_overlap(struct tensor_file *file)
{
    shift(file, norm, -2);
}

static void change_range(struct tensor_file *file)
{
    shift(file, norm, 1 << 30);
}

static void change_negative(struct tensor_file *file)
{
    shift(file, norm, -(1 << 30));
}

static void change_dtype(struct tensor_file *file)
{
    json_object_set_new(entry(file, norm), "dtype", json_string("I16"));
}

static void change_unknown_dtype(struct tensor_file *file)
{
    json_object_set_new(entry(file, norm), "dtype", json_string("BF17"));
}

static void change_size(struct tensor_file *file)
{
    json_object_set_new(entry(file, norm), "shape", json_pack("[i]", 129));
}

static void change_shape(struct tensor_file *file)
{
    json_object_set_new(entry(file, norm), "shape", json_pack("[i, i]", 64, 2));
}

static void change_huge_shape(struct tensor_file *file)
{
    json_object_set_new(entry(file, norm), "shape",
                        json_pack("[I, I]", (json_int_t)1 << 40, (json_int_t)1 << 40));
}

/* The bytes stay somebody's, so that nothing but the name is missing. */
static void rename_tensor(struct tensor_file *file, const char *name)
{
    json_object_set(file->header, "nobody.knows.this", entry(file, name));
    json_object_del(file->header, name);
}

static void change_name(struct tensor_file *file)
{
    rename_tensor(file, norm);
}

/* Missed by one FFN rank only. */
static void change_expert_name(struct tensor_file *file)
{
    rename_tensor(file, "model.layers.2.mlp.experts.3.up_proj.weight");
}

static void change_gap(struct tensor_file *file)
{
    json_object_del(file->header, "lm_head.weight");
}

/* Each number of the final norm's is @a number, a BF16. */
static void fill_norm(struct tensor_file *file, unsigned number)
{
    const json_t *offsets = json_object_get(entry(file, norm), "data_offsets");
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    for (size_t at = (size_t)json_integer_value(json_array_get(offsets, 0)); at < end; at += 2) {
        file->data[at] = (uint8_t)number;
        file->data[at + 1] = (uint8_t)(number >> 8);
    }
}

static void change_to_infinite(struct tensor_file *file)
{
    fill_norm(file, 0xff80);
}

static void change_to_no_number(struct tensor_file *file)
{
    fill_norm(file, 0x7fc0);
}

static void change_to_largest(struct tensor_file *file)
{
    fill_norm(file, 0x7f7f);
}

static void spoiled_headers(void)
{
    static const struct {
        const char *name;
        void (*change)(struct tensor_file *file);
        uint64_t length;
        const char *pattern;
    } cases[] = {
        {"header-beyond-file", change_nothing, 1u << 30, "reaches beyond the file"},
        {"header-beyond-memory", change_nothing, UINT64_MAX, "reaches beyond the file"},
        {"header-too-short", change_nothing, 17, "not JSON"},
        {"overlap", change_overlap, 0, "overlap"},
        {"out-of-range", change_range, 0, "out of range"},
        {"negative-offset", change_negative, 0, "out of range"},
        {"wrong-dtype", change_dtype, 0, "dtype I16"},
        {"unknown-dtype", change_unknown_dtype, 0, "unknown dtype"},
        {"wrong-size", change_size, 0, "its dtype and shape take 258"},
        {"wrong-shape", change_shape, 0, "has shape [64, 2], but config.json makes it [128]"},
        {"huge-shape", change_huge_shape, 0, "impossible shape"},
        {"missing-tensor", change_name, 0, "no tensor \"model.norm.weight\""},
        {"missing-expert", change_expert_name, 0, "no tensor \"model.layers.2.mlp.experts.3.up"},
        {"gap", change_gap, 0, "belong to no tensor"},
        {"infinite", change_to_infinite, 0, "\"model.norm.weight\" has a value that is not finite"},
        {"no-number", change_to_no_number, 0,
         "\"model.norm.weight\" has a value that is not finite"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuse(cases[i].name, cases[i].pattern,
               changed(cases[i].name, cases[i].change, cases[i].length), NULL);
}

static void contradicting_configs(void)
{
    static const struct {
        const char *name;
        const char *field;
        int value; /* -1: none */
        const char *pattern;
    } cases[] = {
        {"hidden", "hidden_size", 64, "config.json makes it"},
        {"layers-more", "num_hidden_layers", 5, "no tensor \"model.layers.4."},
        {"layers-fewer", "num_hidden_layers", 3, "with 3 layers"},
        {"experts-contradict", "num_experts", 6, "num_local_experts 8"},
        {"vocab", "vocab_size", 300, "shape [257, 128]"},
        {"heads", "num_attention_heads", 8, "shape [128, 128]"},
        {"kv-heads", "num_key_value_heads", 3, "evenly"},
        {"expert-width", "moe_intermediate_size", 256, "config.json makes it [256, 128]"},
        {"chosen", "num_experts_per_tok", 9, "of only 8"},
        {"no-layers", "num_hidden_layers", -1, "no \"num_hidden_layers\""},
        {"zero", "hidden_size", 0, "not in 1.."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *dir = model_copy(moe, cases[i].name, 1);
        model_set(dir, cases[i].field, cases[i].value < 0 ? NULL : json_integer(cases[i].value));
        refuse(cases[i].name, cases[i].pattern, dir, NULL);
    }
    const char *dir = model_copy(moe, "experts-fewer", 1);
    model_set(dir, "num_experts", json_integer(6));
    model_set(dir, "num_local_experts", NULL);
    refuse("experts", "mlp.gate.weight\" has shape [8, 128]", dir, NULL);
    dir = model_copy(moe, "model-type", 1);
    model_set(dir, "model_type", json_string("mamba"));
    refuse("model type", "\"mamba\" is none of", dir, NULL);
}

static void shards(void)
{
    const char *dir = model_copy(moe, "shards", 0);
    FILE *file = fopen(model_path(dir, "model.safetensors.index.json"), "w");
    fputs("{\"weight_map\": {\"model.embed_tokens.weight\": \"../x.safetensors\"}}", file);
    fclose(file);
    refuse("file of another directory", "in no file of the directory", dir, NULL);
    file = fopen(model_path(dir, "model.safetensors.index.json"), "w");
    fputs("{\"weight_map\": {\"model.embed_tokens.weight\": \"x.safetensors\"}}", file);
    fclose(file);
    refuse("missing shard", "x.safetensors: No such file", dir, NULL);
}

static void options(void)
{
    static const char *const too_many_ffn[] = {"--procs", "11", "--split", "attn=2,ffn=9", NULL};
    static const char *const too_long[] = {"--tokens", "1020", NULL};
    static const char *const id_too_large[] = {"--prompt-ids", "1,257", NULL};
    static const char *const no_ids[] = {"--prompt-ids", ",", NULL};
    static const char *const bad_number[] = {"--tokens", "many", NULL};
    static const char *const unknown[] = {"--speed", "9", NULL};
    static const char *const split[] = {"--split", "attn=2,ffn=2", NULL};
    static const char *const no_reference[] = {"--verify", "/nonexistent/reference.json", NULL};
    static const char *const few[] = {"--prompt", "a", "--prompt", "b", "--batch", "1", NULL};
    const char *model = process_model(moe);
    refuse("missing directory", "no such model directory", "/nonexistent", NULL);
    refuse("directory without a model", "config.json: No such file", process_scratch(), NULL);
    refuse("too few experts", "8 experts are fewer than 9 FFN ranks", model, too_many_ffn);
    refuse("too long", "longer than the model's context of 1024", model, too_long);
    refuse("id too large", "\"257\"", model, id_too_large);
    refuse("no ids", "no ids", model, no_ids);
    refuse("no number", "--tokens many: not a whole number", model, bad_number);
    refuse("unknown option", "--speed: unknown", model, unknown);
    refuse("wrong split", "attn=2,ffn=2", model, split);
    refuse("no reference", "reference.json: No such file", model, no_reference);
    refuse("batch", "--batch 1 is fewer than 2 prompts", model, few);
}

/* A tokenizer of another kind is no error as long as prompts come as ids. */
static void tokenizers(void)
{
    static const char *const text[] = {"--prompt", "In", NULL};
    static const char *const ids[] = {"--prompt-ids", "73,110",  "--tokens", "4",
                                      "--single",     "--model", NULL,       NULL};
    const char *args[8];
    struct process process;
    const char *dir = model_copy(moe, "tokenizer", 1);
    FILE *file = fopen(model_path(dir, "tokenizer.json"), "w");
    fputs("{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", file);
    fclose(file);
    refuse("tokenizer of another kind", "give prompts as --prompt-ids", dir, text);
    memcpy(args, ids, sizeof(ids));
    args[6] = dir;
    int code = process_run(args, RUN_SECONDS, &process);
    if (code != 0) {
        process_complain(&process, "FAILED: --prompt-ids: exit code %d", code);
        failures++;
    }
}

/* Weights that are finite, and yet too large: what is not finite then is no word of JSON, and
 * neither is half a character, where the sentence about the reference ends. */
static void overflow(void)
{
    char reference[PATH_MAX], json[PATH_MAX];
    struct process process;
    json_t *file;
    snprintf(reference, sizeof(reference), "%s/reference.json", process_model(moe));
    file = json_load_file(reference, 0, NULL);
    json_t *first = json_array_get(json_object_get(file, "references"), 0);
    char name[] = "x\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4";
    char *names = calloc(1, 20 * sizeof(name));
    for (int i = 0; i < 20; i++)
        strcat(names, name + (i > 0));
    json_object_set_new(first, "name", json_string(names));
    free(names);
    const char *dir = changed("largest", change_to_largest, 0);
    snprintf(reference, sizeof(reference), "%s/reference.json", dir);
    snprintf(json, sizeof(json), "%s/out.json", dir);
    json_dump_file(file, reference, 0);
    json_decref(file);
    const char *const args[] = {"--single", "--model", dir,       "--verify", reference,
                                "--json",   json,      "--quiet", NULL};
    int code = process_run(args, RUN_SECONDS, &process);
    file = json_load_file(json, 0, NULL);
    const json_t *verify = json_object_get(file, "verify");
    if (code != 1 || !json_is_null(json_object_get(verify, "logits_error")) ||
        !json_is_string(json_object_get(verify, "difference"))) {
        process_complain(&process, "FAILED: overflow: exit code %d, or no such verdict in JSON",
                         code);
        failures++;
    }
    json_decref(file);
}

int main(void)
{
    options();
    truncated();
    spoiled_headers();
    contradicting_configs();
    shards();
    tokenizers();
    overflow();
    return failures ? 1 : 0;
}
