/* SPDX-License-Identifier: Apache-2.0 */
#include "router.h"

#include "math_ops.h"

/* The @a chosen largest of @a probabilities, in order; of equals the first. */
static void choose_row(const float *probabilities, int experts, int chosen, int32_t *ids_p,
                       float *weights_p)
{
    int count = 0;
    for (int expert = 0; expert < experts; expert++) {
        float value = probabilities[expert];
        int at = count;
        while (at > 0 && value > weights_p[at - 1])
            at--;
        if (at == chosen)
            continue;
        int last = count < chosen ? count++ : chosen - 1;
        for (int i = last; i > at; i--) {
            ids_p[i] = ids_p[i - 1];
            weights_p[i] = weights_p[i - 1];
        }
        ids_p[at] = expert;
        weights_p[at] = value;
    }
}

void router_choose(const struct model_config *config, const float *router, const float *normed,
                   int rows, float *work, int32_t *ids_p, float *weights_p)
{
    int experts = config->experts;
    int chosen = config->experts_chosen;
    math_product_transposed((struct matrix){normed, config->hidden},
                            (struct matrix){router, config->hidden}, rows, experts, config->hidden,
                            work, experts);
    for (int row = 0; row < rows; row++) {
        float *probabilities = work + (size_t)row * (size_t)experts;
        int32_t *ids = ids_p + (size_t)row * (size_t)chosen;
        float *weights = weights_p + (size_t)row * (size_t)chosen;
        float sum = 0.0f;
        math_softmax(probabilities, experts, 1.0f);
        choose_row(probabilities, experts, chosen, ids, weights);
        for (int i = 0; i < chosen; i++)
            sum += weights[i];
        for (int i = 0; config->normalize_chosen && i < chosen; i++)
            weights[i] /= sum;
    }
}
