/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of the output with the reference. */
#ifndef DECODE_VERIFY_H
#define DECODE_VERIFY_H

#include "reference.h"
#include "sequence.h"

#define VERIFY_LOGITS_LIMIT 1e-3 /* relative L2 error of the logits after the prompt */
#define VERIFY_MARGIN_LIMIT 1e-3 /* below this margin the reference itself is a toss-up */
#define VERIFY_GAP_LIMIT 1e-5    /* the same for the choice of experts */

/* Counts over sequences; ranks send the structure to each other unchanged. */
struct verify_result {
    int64_t sequences;
    int64_t sequences_equal;
    int64_t tokens; /* compared: up to a toss-up with another outcome */
    int64_t tokens_equal;
    int64_t tossups;
    int64_t experts;
    int64_t experts_equal;
    int64_t expert_tossups;
    double logits_error;  /* largest */
    double weight_error;  /* largest difference of an expert's weight */
    char difference[192]; /* text of the first difference; "" if there is none */
};

/* Compare a finished sequence with its reference, and add the outcome to *result. */
void verify_sequence(const struct model_config *config, const struct reference *reference,
                     const struct sequence *sequence, struct verify_result *result);

/* Add @a other to *result. */
void verify_merge(struct verify_result *result, const struct verify_result *other);

/* Whether all that could be compared is equal, and the logits are close enough. */
int verify_passed(const struct verify_result *result);

#endif
