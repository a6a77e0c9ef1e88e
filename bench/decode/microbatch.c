/* SPDX-License-Identifier: Apache-2.0 */
#include "microbatch.h"

#include <stdlib.h>
#include <string.h>

#include "math_ops.h"
#include "router.h"
#include "sample.h"

int microbatch_create(const struct model_config *config, int max_sequences, int max_rows,
                      struct microbatch *mb_p, struct reason *reason)
{
    size_t n = max_sequences > 0 ? (size_t)max_sequences : 1;
    struct microbatch mb = {.max_rows = max_rows};
    mb.sequences = calloc(n, sizeof(struct sequence *));
    mb.owners = calloc(n, sizeof(struct sequence *));
    mb.segments = calloc(n, sizeof(mb.segments[0]));
    mb.x = malloc((size_t)max_rows * (size_t)config->hidden * sizeof(float));
    if (!mb.sequences || !mb.owners || !mb.segments || !mb.x) {
        microbatch_destroy(&mb);
        return reason_no_memory(reason);
    }
    *mb_p = mb;
    return 0;
}

void microbatch_destroy(struct microbatch *mb)
{
    free(mb->sequences);
    free(mb->owners);
    free(mb->segments);
    free(mb->x);
    *mb = (struct microbatch){0};
}

void microbatch_add(struct microbatch *mb, struct sequence *sequence)
{
    mb->sequences[mb->n_sequences++] = sequence;
}

/* Every sequence gets a row; the remaining rows go to the first sequences. */
static void choose_rows(struct microbatch *mb)
{
    int active = 0;
    for (int i = 0; i < mb->n_sequences; i++)
        active += sequence_pending(mb->sequences[i]) > 0;
    int room = mb->max_rows - active;
    mb->rows = 0;
    mb->n_segments = 0;
    mb->decoding = 1;
    for (int i = 0; i < mb->n_sequences; i++) {
        struct sequence *sequence = mb->sequences[i];
        int pending = sequence_pending(sequence);
        if (pending == 0)
            continue;
        int more = pending - 1 < room ? pending - 1 : room;
        room -= more;
        mb->segments[mb->n_segments] =
            (struct segment){&sequence->cache, sequence->cached, 1 + more};
        mb->owners[mb->n_segments++] = sequence;
        mb->rows += 1 + more;
        mb->decoding &= sequence_decoding(sequence);
    }
}

int microbatch_begin(struct microbatch *mb, const struct model *model)
{
    size_t size = (size_t)model->config->hidden;
    float *row = mb->x;
    choose_rows(mb);
    for (int s = 0; s < mb->n_segments; s++) {
        const struct segment *segment = &mb->segments[s];
        for (int r = 0; r < segment->rows; r++, row += size) {
            size_t id = (size_t)mb->owners[s]->ids[segment->position + r];
            memcpy(row, model->weights->embedding + id * size, size * sizeof(float));
        }
    }
    return mb->rows;
}

/* Record the experts that a prompt's last token chose, if that will be verified. */
static void record_experts(const struct microbatch *mb, int layer, int chosen)
{
    int row = 0;
    for (int s = 0; s < mb->n_segments; s++) {
        const struct segment *segment = &mb->segments[s];
        struct sequence *sequence = mb->owners[s];
        int last = sequence->prompt->count - 1 - segment->position;
        if (sequence->experts && last >= 0 && last < segment->rows) {
            size_t from = (size_t)(row + last) * (size_t)chosen;
            size_t to = (size_t)layer * (size_t)chosen;
            memcpy(sequence->experts + to, mb->ids + from, (size_t)chosen * sizeof(int32_t));
            memcpy(sequence->expert_weights + to, mb->weights + from,
                   (size_t)chosen * sizeof(float));
        }
        row += segment->rows;
    }
}

void microbatch_attend(struct microbatch *mb, const struct model *model, int layer)
{
    const struct model_config *config = model->config;
    const struct attention_layer *weights = &model->weights->layers[layer];
    size_t size = (size_t)config->hidden;
    attention_run(config, weights, layer, mb->segments, mb->n_segments, mb->x, model->work);
    for (size_t row = 0; row < (size_t)mb->rows; row++)
        math_rms_norm(mb->x + row * size, weights->ffn_norm, config->hidden, config->rms_epsilon,
                      mb->hidden + row * size);
    if (!config->sparse[layer])
        return;
    router_choose(config, weights->router, mb->hidden, mb->rows, model->router_work, mb->ids,
                  mb->weights);
    record_experts(mb, layer, config->experts_chosen);
}

static void take_token(struct sequence *sequence, const struct model *model, const float *logits)
{
    const struct sampling *sampling = &model->sampling;
    int vocab = model->config->vocab;
    if (sequence->logits && sequence->count == sequence->prompt->count)
        memcpy(sequence->logits, logits, (size_t)vocab * sizeof(float));
    int id = sampling->temperature > 0
                 ? sample_draw(logits, vocab, sampling->temperature, sampling->seed,
                               sequence->index, sequence->count)
                 : sample_greedy(logits, vocab);
    sequence->ids[sequence->count++] = id;
    sequence->finished = sequence->count == sequence->limit ||
                         (!sampling->ignore_eos && model_config_is_eos(model->config, id));
    if (sampling->on_token)
        sampling->on_token(sequence, id, sampling->arg);
}

int microbatch_end(struct microbatch *mb, const struct model *model)
{
    const struct model_config *config = model->config;
    size_t size = (size_t)config->hidden;
    const float *row = mb->x;
    int tokens = 0;
    for (int s = 0; s < mb->n_segments; s++) {
        struct sequence *sequence = mb->owners[s];
        row += (size_t)mb->segments[s].rows * size;
        sequence->cached += mb->segments[s].rows;
        if (sequence_pending(sequence) == 0)
            math_rms_norm(row - size, model->weights->final_norm, config->hidden,
                          config->rms_epsilon, model->last_hidden + (size_t)tokens++ * size);
    }
    if (tokens == 0)
        return 0;
    math_product_transposed((struct matrix){model->last_hidden, config->hidden},
                            (struct matrix){model->weights->projection, config->hidden}, tokens,
                            config->vocab, config->hidden, model->logits, config->vocab);
    const float *logits = model->logits;
    for (int s = 0; s < mb->n_segments; s++) {
        if (sequence_pending(mb->owners[s]) != 0)
            continue;
        take_token(mb->owners[s], model, logits);
        logits += config->vocab;
    }
    return tokens;
}
