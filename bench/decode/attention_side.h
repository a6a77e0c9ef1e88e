/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an attention rank that does not depend on how FFNs are reached: its sequences,
 * dealt into microbatches, and the model that they run through. */
#ifndef DECODE_ATTENTION_SIDE_H
#define DECODE_ATTENTION_SIDE_H

#include "job.h"
#include "layout.h"
#include "microbatch.h"
#include "verify.h"

struct attention_side {
    const struct job *job;
    struct model model;
    struct sequence *sequences;
    int n_sequences;
    struct microbatch *microbatches; /* the microbatches that have sequences */
    int n_microbatches;
};

int attention_side_create(const struct job *job, const struct attention_weights *weights,
                          const struct sampling *sampling, const struct layout *layout, int rank,
                          struct attention_side *side_p, struct reason *reason);
void attention_side_destroy(struct attention_side *side);

/* Compare the sequences that have a reference with that reference. */
void attention_side_verify(const struct attention_side *side, struct verify_result *result_p);

#endif
