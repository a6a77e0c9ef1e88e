/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_side.h"

#include <stdlib.h>

static int create_microbatches(const struct layout *layout, struct attention_side *side,
                               struct reason *reason)
{
    const struct model_config *config = &side->job->config;
    int n = side->n_sequences < layout->microbatches ? side->n_sequences : layout->microbatches;
    side->microbatches = calloc((size_t)n + 1, sizeof(side->microbatches[0]));
    if (!side->microbatches)
        return reason_no_memory(reason);
    for (int i = 0; i < n; i++) {
        if (microbatch_create(config, layout_max_sequences(layout), layout_max_rows(layout),
                              &side->microbatches[i], reason))
            return -1;
        side->n_microbatches++;
    }
    return 0;
}

static int create_sequences(const struct layout *layout, int rank, struct attention_side *side,
                            struct reason *reason)
{
    int n = layout_rank_sequences(layout, rank);
    side->sequences = calloc((size_t)n + 1, sizeof(side->sequences[0]));
    if (!side->sequences)
        return reason_no_memory(reason);
    for (int i = 0; i < n; i++) {
        int index = rank + i * layout->attention_ranks;
        if (sequence_create(&side->job->config, job_prompt(side->job, index), index,
                            side->job->tokens, &side->sequences[i], reason))
            return -1;
        side->n_sequences++;
    }
    return 0;
}

int attention_side_create(const struct job *job, const struct attention_weights *weights,
                          const struct sampling *sampling, const struct layout *layout, int rank,
                          struct attention_side *side_p, struct reason *reason)
{
    struct attention_side side = {.job = job};
    if (model_create(&job->config, weights, sampling, layout_max_rows(layout),
                     layout_max_sequences(layout), job_max_positions(job), &side.model, reason) ||
        create_sequences(layout, rank, &side, reason) ||
        create_microbatches(layout, &side, reason)) {
        attention_side_destroy(&side);
        return -1;
    }
    for (int i = 0; i < side.n_sequences; i++) {
        int microbatch = layout_microbatch(layout, side.sequences[i].index);
        microbatch_add(&side.microbatches[microbatch], &side.sequences[i]);
    }
    *side_p = side;
    return 0;
}

void attention_side_destroy(struct attention_side *side)
{
    for (int i = 0; i < side->n_microbatches; i++)
        microbatch_destroy(&side->microbatches[i]);
    for (int i = 0; i < side->n_sequences; i++)
        sequence_destroy(&side->sequences[i]);
    free(side->microbatches);
    free(side->sequences);
    model_destroy(&side->model);
    *side = (struct attention_side){0};
}

void attention_side_verify(const struct attention_side *side, struct verify_result *result_p)
{
    *result_p = (struct verify_result){0};
    for (int i = 0; i < side->n_sequences; i++) {
        const struct sequence *sequence = &side->sequences[i];
        int reference = sequence->prompt->reference;
        if (reference >= 0)
            verify_sequence(&side->job->config, &side->job->references.references[reference],
                            sequence, result_p);
    }
}
