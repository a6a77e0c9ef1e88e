/* SPDX-License-Identifier: Apache-2.0 */
/* A microbatch: sequences that go through the layers together, one step after another. A step
 * processes the pending ids of the sequences, prompts in chunks, and makes a token for each
 * sequence that has nothing pending afterwards. */
#ifndef DECODE_MICROBATCH_H
#define DECODE_MICROBATCH_H

#include "ffn.h"
#include "model.h"

struct microbatch {
    struct sequence **sequences;
    int n_sequences;
    int max_rows;

    /* Of the current step: */
    int rows;
    int n_segments;
    struct segment *segments;
    struct sequence **owners; /* of the segments */
    int decoding;             /* every row makes a token */
    float *x;                 /* [rows, hidden]: the activations */

    /* Sent to the FFN side; [max_rows, ...], memory of the caller's choice. */
    float *hidden;  /* [rows, hidden] */
    int32_t *ids;   /* [rows, experts_chosen] */
    float *weights; /* [rows, experts_chosen] */
};

/* Make a microbatch without sequences. The caller sets hidden, ids and weights. */
int microbatch_create(const struct model_config *config, int max_sequences, int max_rows,
                      struct microbatch *mb_p, struct reason *reason);
void microbatch_destroy(struct microbatch *mb);

void microbatch_add(struct microbatch *mb, struct sequence *sequence);

/* Begin a step: choose the rows and embed them. Return their number; 0 if all sequences are
 * finished. */
int microbatch_begin(struct microbatch *mb, const struct model *model);

/* Run the attention side of layer @a layer: from x to x, hidden, ids and weights. */
void microbatch_attend(struct microbatch *mb, const struct model *model, int layer);

/* End a step: compute logits and next tokens. Return the number of tokens made. */
int microbatch_end(struct microbatch *mb, const struct model *model);

#endif
