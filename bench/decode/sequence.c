/* SPDX-License-Identifier: Apache-2.0 */
#include "sequence.h"

#include <stdlib.h>
#include <string.h>

int sequence_create(const struct model_config *config, const struct prompt *prompt, int index,
                    int tokens, struct sequence *sequence_p, struct reason *reason)
{
    struct sequence sequence = {
        .index = index, .prompt = prompt, .count = prompt->count, .limit = prompt->count + tokens};
    size_t records = (size_t)config->layers * (size_t)config->experts_chosen;
    sequence.ids = malloc((size_t)sequence.limit * sizeof(int));
    if (!sequence.ids)
        goto err_memory;
    memcpy(sequence.ids, prompt->ids, (size_t)prompt->count * sizeof(int));
    if (prompt->reference >= 0) {
        sequence.logits = calloc((size_t)config->vocab, sizeof(float));
        sequence.experts = calloc(records + 1, sizeof(int32_t));
        sequence.expert_weights = calloc(records + 1, sizeof(float));
        if (!sequence.logits || !sequence.experts || !sequence.expert_weights)
            goto err_memory;
    }
    if (kv_cache_create(config, sequence.limit, &sequence.cache, reason)) {
        sequence_destroy(&sequence);
        return -1;
    }
    *sequence_p = sequence;
    return 0;

err_memory:
    sequence_destroy(&sequence);
    return reason_no_memory(reason);
}

void sequence_destroy(struct sequence *sequence)
{
    kv_cache_destroy(&sequence->cache);
    free(sequence->ids);
    free(sequence->logits);
    free(sequence->experts);
    free(sequence->expert_weights);
    *sequence = (struct sequence){0};
}
