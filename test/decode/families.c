/* SPDX-License-Identifier: Apache-2.0 */
/* Models of every family and shape that can be read, with random weights: however the work is
 * divided, the tokens are those that one process makes. And the model that comes with
 * stepaf_decode stored in other ways: it still equals the reference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/decode/convert.h"
#include "model_maker.h"
#include "process.h"

enum { RUN_SECONDS = 120 };

static const char moe[] = "qwen3-moe-tiny";
static int failures;

/* Run with @a args and return what it has made, from its JSON file; NULL if it failed. */
static json_t *decode(const char *model, const char *const *more)
{
    static const char json[] = "result.json";
    const char *args[PROCESS_MAX_ARGS] = {"--prompt-ids", "1,2,3,4,5,6,7,8,9",
                                          "--prompt-ids", "11",
                                          "--prompt-ids", "90,3,41",
                                          "--batch",      "7",
                                          "--tokens",     "24",
                                          "--ignore-eos", "--quiet",
                                          "--model",      model,
                                          "--chunk",      "4",
                                          "--json"};
    char path[4096];
    struct process process;
    int n = 17;
    snprintf(path, sizeof(path), "%s/%s", process_scratch(), json);
    unlink(path);
    args[n++] = path;
    for (; *more; more++)
        args[n++] = *more;
    int code = process_run(args, RUN_SECONDS, &process);
    json_t *root = code == 0 ? json_load_file(path, 0, NULL) : NULL;
    if (!root)
        process_complain(&process, "FAILED: %s: exit code %d", model, code);
    return root;
}

/* Compare every way of dividing the work with one process. */
static void compare(const char *name, const char *model)
{
    static const char *const single[] = {"--single", NULL};
    static const char *const ways[][12] = {
        {"--procs", "2", "--split", "attn=1,ffn=1", "--microbatches", "2"},
        {"--procs", "4", "--split", "attn=2,ffn=2", "--microbatches", "3", "--scatter"},
        {"--procs", "5", "--split", "ffn=3,attn=2,interleave", "--microbatches", "1"},
        {"--procs", "4", "--split", "attn=1,ffn=3", "--microbatches", "7", "--scatter"},
    };
    json_t *expected = decode(model, single);
    for (size_t i = 0; expected && i < sizeof(ways) / sizeof(ways[0]); i++) {
        json_t *result = decode(model, ways[i]);
        if (!result ||
            !json_equal(json_object_get(result, "output"), json_object_get(expected, "output"))) {
            printf("FAILED: %s: way %zu makes other tokens than one process\n", name, i);
            failures++;
        }
        json_decref(result);
    }
    failures += !expected;
    json_decref(expected);
    printf("%s: done\n", name);
}

static void families(void)
{
    compare("qwen3_moe", model_random("qwen3-moe", json_object(), 1));
    compare("one expert a token, weights not normalized",
            model_random("top-1",
                         json_pack("{s:i, s:b}", "num_experts_per_tok", 1, "norm_topk_prob", 0),
                         2));
    compare("dense layers among sparse ones",
            model_random("mixed", json_pack("{s:[i]}", "mlp_only_layers", 1), 3));
    compare("qwen3, tied", model_random("qwen3",
                                        json_pack("{s:s, s:i, s:b}", "model_type", "qwen3",
                                                  "num_experts", 0, "tie_word_embeddings", 1),
                                        4));
    compare(
        "qwen2",
        model_random("qwen2", json_pack("{s:s, s:i}", "model_type", "qwen2", "num_experts", 0), 5));
    compare("llama", model_random("llama",
                                  json_pack("{s:s, s:i, s:i}", "model_type", "llama", "num_experts",
                                            0, "num_key_value_heads", 6),
                                  6));
}

static void verify(const char *what, const char *dir)
{
    char reference[4096];
    snprintf(reference, sizeof(reference), "%s/reference.json", process_model(moe));
    const char *args[] = {"--procs", "3", "--split",  "attn=1,ffn=2", "--quiet",
                          "--model", dir, "--verify", reference,      NULL};
    struct process process;
    int code = process_run(args, RUN_SECONDS, &process);
    if (code) {
        process_complain(&process, "FAILED: %s: exit code %d", what, code);
        failures++;
    }
    printf("%s: done\n", what);
}

/* The MoE model in two files with an index; what is in the first one as float32. */
static void shards(void)
{
    struct tensor_file whole, parts[2] = {{0}, {0}};
    static const char *const names[] = {"a.safetensors", "b.safetensors"};
    const char *dir = model_copy(moe, "shards", 0);
    json_t *map = json_object();
    json_t *entry;
    const char *name;
    char from[4096];
    int i = 0;
    snprintf(from, sizeof(from), "%s/model.safetensors", process_model(moe));
    tensor_file_read(from, &whole);
    json_object_foreach(whole.header, name, entry)
    {
        int64_t shape[2];
        json_t *sizes = json_object_get(entry, "shape");
        json_t *offsets = json_object_get(entry, "data_offsets");
        if (!sizes)
            continue;
        for (size_t d = 0; d < json_array_size(sizes); d++)
            shape[d] = json_integer_value(json_array_get(sizes, d));
        size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
        size_t bytes = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
        float *values = malloc(2 * bytes);
        convert_to_float(SAFETENSORS_BF16, whole.data + begin, bytes / 2, values);
        int part = i++ % 2;
        tensor_file_add(&parts[part], name, part ? "BF16" : "F32", shape,
                        (int)json_array_size(sizes), part ? (void *)(whole.data + begin) : values,
                        part ? bytes : 2 * bytes);
        json_object_set_new(map, name, json_string(names[part]));
        free(values);
    }
    for (int part = 0; part < 2; part++) {
        tensor_file_write(&parts[part], model_path(dir, names[part]), 0);
        tensor_file_free(&parts[part]);
    }
    json_t *index = json_pack("{s:o}", "weight_map", map);
    json_dump_file(index, model_path(dir, "model.safetensors.index.json"), 0);
    json_decref(index);
    tensor_file_free(&whole);
    verify("two files, float32 and bfloat16", dir);
}

int main(void)
{
    families();
    shards();
    return failures ? 1 : 0;
}
