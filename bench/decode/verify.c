/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static void note_difference(struct verify_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note_difference(struct verify_result *result, const char *format, ...)
{
    va_list args;
    if (result->difference[0])
        return;
    va_start(args, format);
    vsnprintf(result->difference, sizeof(result->difference), format, args);
    va_end(args);
}

/* Return the larger one; NaN counts as larger than any number. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* Return whether all tokens are equal, toss-ups aside. */
static int compare_tokens(const struct reference *reference, const struct sequence *sequence,
                          struct verify_result *result)
{
    int made = sequence->count - sequence->prompt->count;
    int n = made < reference->n_continuation ? made : reference->n_continuation;
    const int *ids = sequence->ids + sequence->prompt->count;
    for (int i = 0; i < n; i++) {
        if (ids[i] != reference->continuation[i] && reference->margins[i] < VERIFY_MARGIN_LIMIT) {
            result->tossups++;
            return 1;
        }
        if (ids[i] != reference->continuation[i]) {
            result->tokens += n - i;
            note_difference(result, "\"%s\": token %d is %d, in the reference %d", reference->name,
                            i, ids[i], reference->continuation[i]);
            return 0;
        }
        result->tokens++;
        result->tokens_equal++;
    }
    return 1;
}

static int compare_logits(const struct model_config *config, const struct reference *reference,
                          const struct sequence *sequence, struct verify_result *result)
{
    double difference = 0;
    double size = 0;
    for (int i = 0; i < config->vocab; i++) {
        double delta = (double)sequence->logits[i] - reference->logits[i];
        difference += delta * delta;
        size += (double)reference->logits[i] * reference->logits[i];
    }
    double error = size > 0 ? sqrt(difference / size) : sqrt(difference);
    result->logits_error = larger(result->logits_error, error);
    if (error <= VERIFY_LOGITS_LIMIT)
        return 1;
    note_difference(result, "\"%s\": the logits' relative error is %.3g", reference->name, error);
    return 0;
}

static int compare_experts(const struct model_config *config, const struct reference *reference,
                           const struct sequence *sequence, struct verify_result *result)
{
    int equal = 1;
    if (!reference->experts)
        return 1;
    for (int layer = 0; layer < config->layers; layer++) {
        for (int i = 0; config->sparse[layer] && i < config->experts_chosen; i++) {
            int at = layer * config->experts_chosen + i;
            double delta = fabs((double)sequence->expert_weights[at] - reference->weights[at]);
            int same = sequence->experts[at] == reference->experts[at];
            if (!same && reference->gaps[layer] < VERIFY_GAP_LIMIT) {
                result->expert_tossups++;
                continue;
            }
            result->experts++;
            result->experts_equal += same;
            if (same)
                result->weight_error = larger(result->weight_error, delta);
            if (!same)
                note_difference(result, "\"%s\": expert %d of layer %d is %d, in the reference %d",
                                reference->name, i, layer, (int)sequence->experts[at],
                                (int)reference->experts[at]);
            equal &= same;
        }
    }
    return equal;
}

void verify_sequence(const struct model_config *config, const struct reference *reference,
                     const struct sequence *sequence, struct verify_result *result)
{
    int logits = compare_logits(config, reference, sequence, result);
    int experts = compare_experts(config, reference, sequence, result);
    int tokens = compare_tokens(reference, sequence, result);
    result->sequences++;
    result->sequences_equal += logits && experts && tokens;
}

void verify_merge(struct verify_result *result, const struct verify_result *other)
{
    result->sequences += other->sequences;
    result->sequences_equal += other->sequences_equal;
    result->tokens += other->tokens;
    result->tokens_equal += other->tokens_equal;
    result->tossups += other->tossups;
    result->experts += other->experts;
    result->experts_equal += other->experts_equal;
    result->expert_tossups += other->expert_tossups;
    result->logits_error = larger(result->logits_error, other->logits_error);
    result->weight_error = larger(result->weight_error, other->weight_error);
    if (other->difference[0])
        note_difference(result, "%s", other->difference);
}

int verify_passed(const struct verify_result *result)
{
    return result->sequences > 0 && result->sequences_equal == result->sequences;
}
