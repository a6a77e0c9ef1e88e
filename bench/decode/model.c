/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>

int model_create(const struct model_config *config, const struct attention_weights *weights,
                 const struct sampling *sampling, int max_rows, int max_sequences,
                 int max_positions, struct model *model_p, struct reason *reason)
{
    struct model model = {.config = config, .weights = weights, .sampling = *sampling};
    if (attention_work_create(config, max_rows, max_positions, &model.work, reason))
        return -1;
    size_t sequences = (size_t)max_sequences;
    model.router_work = malloc(((size_t)max_rows * (size_t)config->experts + 1) * sizeof(float));
    model.last_hidden = malloc(sequences * (size_t)config->hidden * sizeof(float));
    model.logits = malloc(sequences * (size_t)config->vocab * sizeof(float));
    if (!model.router_work || !model.last_hidden || !model.logits) {
        model_destroy(&model);
        return reason_no_memory(reason);
    }
    *model_p = model;
    return 0;
}

void model_destroy(struct model *model)
{
    attention_work_destroy(model->work);
    free(model->router_work);
    free(model->last_hidden);
    free(model->logits);
    *model = (struct model){0};
}
