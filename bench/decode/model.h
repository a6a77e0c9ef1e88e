/* SPDX-License-Identifier: Apache-2.0 */
/* The attention side's computation: embedding, attention, router, next token. */
#ifndef DECODE_MODEL_H
#define DECODE_MODEL_H

#include "attention.h"
#include "sequence.h"

/* How to choose a token from logits, and whom to notify of the token. */
struct sampling {
    double temperature; /* 0: the most likely token */
    uint64_t seed;
    int ignore_eos;
    void (*on_token)(const struct sequence *sequence, int id, void *arg); /* or NULL */
    void *arg;
};

struct model {
    const struct model_config *config;
    const struct attention_weights *weights;
    struct sampling sampling;
    struct attention_work *work;
    float *router_work; /* [rows, experts] */
    float *last_hidden; /* [sequences, hidden] */
    float *logits;      /* [sequences, vocab] */
};

/* @a max_rows, @a max_sequences: of a microbatch; @a max_positions: of a sequence. */
int model_create(const struct model_config *config, const struct attention_weights *weights,
                 const struct sampling *sampling, int max_rows, int max_sequences,
                 int max_positions, struct model *model_p, struct reason *reason);
void model_destroy(struct model *model);

#endif
