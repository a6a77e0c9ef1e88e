/* SPDX-License-Identifier: Apache-2.0 */
/* A microbatch: some sequences that go through the layers together, one step after another. A
 * step takes in whatever the sequences have pending, prompts in chunks, and makes a token for
 * each sequence that has nothing pending any more. */
#ifndef DECODE_MICROBATCH_H
#define DECODE_MICROBATCH_H

#include "ffn.h"
#include "model.h"

struct microbatch {
    struct sequence **sequences;
    int n_sequences;
    int max_rows;

    /* Of the step that is under way: */
    int rows;
    int n_segments;
    struct segment *segments;
    struct sequence **owners; /* of the segments */
    int decoding;             /* every row makes a token */
    float *x;                 /* [rows, hidden]: what runs through the layers */

    /* What goes to the FFN side; [max_rows, ...], memory of the caller's choice. */
    float *hidden;  /* [rows, hidden] */
    int32_t *ids;   /* [rows, experts_chosen] */
    float *weights; /* [rows, experts_chosen] */
};

/* Make a microbatch without sequences. hidden, ids and weights are the caller's to set. */
int microbatch_create(const struct model_config *config, int max_sequences, int max_rows,
                      struct microbatch *mb_p, struct reason *reason);
void microbatch_destroy(struct microbatch *mb);

void microbatch_add(struct microbatch *mb, struct sequence *sequence);

/* Begin a step: choose the rows and embed them. Returns their number; 0 if all is finished. */
int microbatch_begin(struct microbatch *mb, const struct model *model);

/* The attention side of layer @a layer: from x to x, hidden, ids and weights. */
void microbatch_attend(struct microbatch *mb, const struct model *model, int layer);

/* End a step: logits and next tokens. Returns how many tokens were made. */
int microbatch_end(struct microbatch *mb, const struct model *model);

#endif
