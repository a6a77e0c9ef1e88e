/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

uint64_t wire_push_key(int microbatch, int tensor)
{
    return (uint64_t)(microbatch + 1) << 8 | (uint64_t)tensor;
}

uint64_t wire_pull_key(int microbatch, int tensor)
{
    return (uint64_t)(microbatch + 1) << 8 | 0x80 | (uint64_t)tensor;
}

/* A key of @a rows rows of @a cols elements. */
static stepaf_status_t declare(stepaf_context_h ctx, uint64_t key, stepaf_direction_t direction,
                               stepaf_dtype_t dtype, int64_t rows, int64_t cols)
{
    stepaf_key_params_t params = {
        .field_mask = STEPAF_KEY_DTYPE | STEPAF_KEY_SHAPE | STEPAF_KEY_DEPTH,
        .dtype = dtype,
        .ndim = 2,
        .shape = {rows, cols},
        .depth = 1 /* a microbatch has one exchange in flight; others overlap with it */};
    return stepaf_key_declare(ctx, key, direction, 0, &params);
}

static stepaf_status_t declare_words(stepaf_context_h ctx, int microbatch)
{
    const int64_t header = sizeof(struct wire_header) / sizeof(int32_t);
    const int64_t reply = sizeof(struct wire_reply) / sizeof(int32_t);
    stepaf_status_t status =
        declare(ctx, wire_push_key(microbatch, WIRE_HEADER), STEPAF_PUSH, STEPAF_I32, 1, header);
    if (status != STEPAF_OK)
        return status;
    return declare(ctx, wire_pull_key(microbatch, WIRE_REPLY), STEPAF_PULL, STEPAF_I32, 1, reply);
}

static stepaf_status_t declare_rows(stepaf_context_h ctx, const struct model_config *config,
                                    int64_t rows, int microbatch)
{
    const struct {
        stepaf_dtype_t dtype;
        int64_t cols;
    } pushes[WIRE_PUSHES] = {[WIRE_HIDDEN] = {STEPAF_F32, config->hidden},
                             [WIRE_IDS] = {STEPAF_I32, config->experts_chosen},
                             [WIRE_WEIGHTS] = {STEPAF_F32, config->experts_chosen}};
    for (int i = WIRE_HIDDEN; i < wire_pushes(config); i++) {
        stepaf_status_t status = declare(ctx, wire_push_key(microbatch, i), STEPAF_PUSH,
                                         pushes[i].dtype, rows, pushes[i].cols);
        if (status != STEPAF_OK)
            return status;
    }
    return declare(ctx, wire_pull_key(microbatch, WIRE_SUM), STEPAF_PULL, STEPAF_F32, rows,
                   config->hidden);
}

stepaf_status_t wire_declare(stepaf_context_h ctx, const struct model_config *config,
                             const struct layout *layout)
{
    stepaf_status_t status = declare_words(ctx, WIRE_WORDS);
    for (int i = 0; i < layout->microbatches && status == STEPAF_OK; i++) {
        status = declare_words(ctx, i);
        if (status == STEPAF_OK)
            status = declare_rows(ctx, config, layout_max_rows(layout), i);
    }
    return status;
}
