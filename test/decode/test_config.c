/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: families, defaults, contradictions; and how work is dealt out. */
#include "bench/decode/layout.h"
#include "bench/decode/model_config.h"
#include "unit/unit.h"

static struct model_config config;
static struct reason reason;

/* A usual MoE model with some fields changed; takes @a changes. A null removes a field. */
static int parse(json_t *changes)
{
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "qwen3_moe",
                  "hidden_size", 64, "num_hidden_layers", 4, "num_attention_heads", 8,
                  "num_key_value_heads", 2, "vocab_size", 1000, "max_position_embeddings", 512,
                  "num_experts", 8, "num_experts_per_tok", 2, "moe_intermediate_size", 32);
    json_object_update(root, changes);
    json_decref(changes);
    reason.text[0] = '\0';
    int result = model_config_parse(root, "config.json", &config, &reason);
    json_decref(root);
    return result;
}

static void refused(json_t *changes, const char *pattern)
{
    CU_ASSERT_EQUAL(parse(changes), -1);
    CU_ASSERT_EQUAL(reason.code, CODE_BAD_INPUT);
    UNIT_CONTAINS(reason.text, pattern);
}

static void usual(void)
{
    CU_ASSERT_EQUAL_FATAL(parse(json_object()), 0);
    CU_ASSERT_EQUAL(config.head_dim, 8);
    CU_ASSERT_EQUAL(config.experts, 8);
    CU_ASSERT_EQUAL(config.intermediate, 0);
    CU_ASSERT_EQUAL(model_config_sparse_layers(&config), 4);
    CU_ASSERT_EQUAL(config.rope_theta, 10000.0f);
    CU_ASSERT(config.qk_norm && !config.qkv_bias && !config.tied);
    CU_ASSERT_EQUAL(config.n_eos, 0);
    CU_ASSERT_EQUAL(model_config_check_parts(&config, 8, &reason), 0);
    CU_ASSERT_EQUAL(model_config_check_parts(&config, 9, &reason), -1);
    UNIT_CONTAINS(reason.text, "8 experts are fewer than 9 FFN ranks");
}

static void families(void)
{
    CU_ASSERT_EQUAL(parse(json_pack("{s:s, s:i}", "model_type", "qwen2", "intermediate_size", 5)),
                    0);
    CU_ASSERT(config.qkv_bias && !config.o_bias && !config.qk_norm && config.experts == 0);
    CU_ASSERT_EQUAL(model_config_check_parts(&config, 6, &reason), -1);
    CU_ASSERT_EQUAL(
        parse(json_pack("{s:s, s:i, s:b, s:n}", "model_type", "llama", "intermediate_size", 100,
                        "attention_bias", 1, "num_key_value_heads")),
        0);
    CU_ASSERT(config.qkv_bias && config.o_bias && !config.qk_norm);
    CU_ASSERT_EQUAL(config.kv_heads, 8);
    refused(json_pack("{s:s}", "model_type", "qwen3"), "no \"intermediate_size\"");
    refused(json_pack("{s:n}", "model_type"), "no \"model_type\"");
    refused(json_pack("{s:i}", "model_type", 3), "not text");
}

static void sparse_layers(void)
{
    CU_ASSERT_EQUAL(parse(json_pack("{s:[i], s:i, s:i}", "mlp_only_layers", 3,
                                    "decoder_sparse_step", 2, "intermediate_size", 64)),
                    0);
    CU_ASSERT(!config.sparse[0] && config.sparse[1] && !config.sparse[2] && !config.sparse[3]);
    refused(json_pack("{s:[i]}", "mlp_only_layers", 4), "not in 0..3");
    refused(json_pack("{s:[i]}", "mlp_only_layers", 1), "no \"intermediate_size\"");
}

static void contradictions(void)
{
    refused(json_pack("{s:i}", "num_local_experts", 4), "num_local_experts 4");
    refused(json_pack("{s:i}", "num_experts_per_tok", 9), "9 experts of only 8");
    refused(json_pack("{s:i}", "num_key_value_heads", 3), "evenly");
    refused(json_pack("{s:i}", "num_key_value_heads", 16), "not in 1..8");
    refused(json_pack("{s:i}", "head_dim", 7), "not even");
    refused(json_pack("{s:f, s:{s:f}}", "rope_theta", 1e4, "rope_parameters", "rope_theta", 1e6),
            "two values of rope_theta");
    refused(json_pack("{s:{s:s}}", "rope_scaling", "rope_type", "yarn"), "\"yarn\"");
    refused(json_pack("{s:{s:s}}", "rope_scaling", "type", "linear"), "\"linear\"");
    refused(json_pack("{s:b}", "use_sliding_window", 1), "full attention");
    refused(json_pack("{s:[s]}", "layer_types", "sliding_attention"), "full attention");
    refused(json_pack("{s:s}", "hidden_act", "gelu"), "\"gelu\"");
    refused(json_pack("{s:b}", "mlp_bias", 1), "mlp_bias");
    refused(json_pack("{s:I}", "hidden_size", (json_int_t)1 << 40), "not in 1..");
    refused(json_pack("{s:f}", "hidden_size", 64.0), "not a whole number");
    refused(json_pack("{s:s}", "tie_word_embeddings", "yes"), "not true or false");
    refused(json_pack("{s:i}", "rms_norm_eps", -1), "not in 0..1");
}

static void ends_of_sequence(void)
{
    CU_ASSERT_EQUAL(parse(json_pack("{s:i}", "eos_token_id", 7)), 0);
    CU_ASSERT(model_config_is_eos(&config, 7) && !model_config_is_eos(&config, 8));
    CU_ASSERT_EQUAL(parse(json_pack("{s:[ii]}", "eos_token_id", 7, 8)), 0);
    CU_ASSERT(model_config_is_eos(&config, 7) && model_config_is_eos(&config, 8));
    refused(json_pack("{s:i}", "eos_token_id", 1000), "not in 0..999");
    refused(json_pack("{s:[i]}", "eos_token_id", -1), "not in 0..999");
}

/* Every sequence belongs somewhere, and no place has more than there is room for. */
static void layouts(void)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int microbatches = 1; microbatches <= 3; microbatches++) {
            for (int sequences = 1; sequences <= 20; sequences++) {
                struct layout layout = {ranks, microbatches, sequences, 2};
                int dealt[4][3] = {{0}};
                int most = 0;
                for (int s = 0; s < sequences; s++)
                    dealt[layout_rank(&layout, s)][layout_microbatch(&layout, s)]++;
                for (int r = 0; r < ranks; r++) {
                    int own = 0;
                    for (int m = 0; m < microbatches; m++) {
                        own += dealt[r][m];
                        most = dealt[r][m] > most ? dealt[r][m] : most;
                    }
                    CU_ASSERT_EQUAL(own, layout_rank_sequences(&layout, r));
                }
                CU_ASSERT_EQUAL(most, layout_max_sequences(&layout));
                CU_ASSERT(layout_max_rows(&layout) >= 2 && layout_max_rows(&layout) >= most);
            }
        }
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"a usual model", usual},
                           {"families", families},
                           {"sparse and dense layers", sparse_layers},
                           {"contradictions", contradictions},
                           {"ends of sequence", ends_of_sequence},
                           {"layouts", layouts},
                           CU_TEST_INFO_NULL};
    return unit_run(tests);
}
