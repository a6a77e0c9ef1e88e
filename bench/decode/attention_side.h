/* SPDX-License-Identifier: Apache-2.0 */
/* An attention rank's own: its sequences, dealt into microbatches, and the model that they run
 * through. Knows nothing of how FFNs are reached. */
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
    struct microbatch *microbatches; /* those that have sequences */
    int n_microbatches;
};

int attention_side_create(const struct job *job, const struct attention_weights *weights,
                          const struct sampling *sampling, const struct layout *layout, int rank,
                          struct attention_side *side_p, struct reason *reason);
void attention_side_destroy(struct attention_side *side);

/* Compare the sequences that have a reference with it. */
void attention_side_verify(const struct attention_side *side, struct verify_result *result_p);

#endif
