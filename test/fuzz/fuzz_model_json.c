/* SPDX-License-Identifier: Apache-2.0 */
/* A model's config.json and tokenizer.json. What is accepted keeps the promises that the rest of
 * the program relies on. */
#include <string.h>

#include "bench/decode/model_config.h"
#include "bench/decode/tokenizer.h"
#include "fuzz.h"

enum { VOCAB = 300 };

static void check_config(const struct model_config *config)
{
    struct reason reason;
    FUZZ_CHECK(config->layers >= 1 && config->layers <= MODEL_MAX_LAYERS);
    FUZZ_CHECK(config->hidden >= 1 && config->vocab >= 1 && config->context >= 1);
    FUZZ_CHECK(config->kv_heads >= 1 && config->heads % config->kv_heads == 0);
    FUZZ_CHECK(config->head_dim >= 2 && config->head_dim % 2 == 0);
    FUZZ_CHECK(config->experts <= MODEL_MAX_EXPERTS && config->experts_chosen <= config->experts);
    int sparse = model_config_sparse_layers(config);
    FUZZ_CHECK(sparse == 0 ||
               (config->experts >= 1 && config->experts_chosen >= 1 && config->expert_width >= 1));
    FUZZ_CHECK(sparse == config->layers || config->intermediate >= 1);
    FUZZ_CHECK(config->n_eos >= 0 && config->n_eos <= MODEL_MAX_EOS);
    FUZZ_CHECK(model_config_check_parts(config, 1, &reason) == 0);
}

static void check_tokenizer(const struct tokenizer *tokenizer, const uint8_t *data, size_t bytes)
{
    struct reason reason;
    int *ids;
    size_t count;
    size_t back = 0;
    FUZZ_CHECK(tokenizer_encode(tokenizer, (const char *)data, bytes, &ids, &count, &reason) == 0);
    for (size_t i = 0; i < count; i++) {
        const char *text = NULL;
        FUZZ_CHECK(ids[i] >= 0 && ids[i] < VOCAB);
        size_t length = tokenizer_decode(tokenizer, ids[i], &text);
        FUZZ_CHECK(length > 0 && length <= bytes - back);
        FUZZ_CHECK(memcmp(text, data + back, length) == 0);
        back += length;
    }
    FUZZ_CHECK(back == bytes);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct model_config config;
    struct tokenizer *tokenizer = NULL;
    struct reason reason = {0};
    char *why_not = NULL;
    json_t *root = NULL;
    if (json_object_parse((const char *)data, bytes, "file", &root, &reason))
        return 0;
    if (model_config_parse(root, "file", &config, &reason) == 0)
        check_config(&config);
    else
        FUZZ_CHECK(reason.code != CODE_OK && reason.text[0] && !strpbrk(reason.text, "\n\r"));
    if (tokenizer_parse(root, "file", VOCAB, &tokenizer, &why_not, &reason) == 0)
        FUZZ_CHECK((tokenizer == NULL) == (why_not != NULL));
    if (tokenizer)
        check_tokenizer(tokenizer, data, bytes);
    tokenizer_free(tokenizer);
    free(why_not);
    json_decref(root);
    return 0;
}
