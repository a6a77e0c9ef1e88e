/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

#include "math_ops.h"

enum { ALIGNMENT = 64 };

/* Cut @a bytes off a block; with a NULL block, count only. */
static void *carve(char *block, size_t *used, size_t bytes)
{
    void *part = block ? block + *used : NULL;
    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return part;
}

/* Rows that all FFN ranks get together at most: each row goes to as many as it has experts. */
static size_t most_packed(const struct exchange *exchange)
{
    int chosen = exchange->config->experts_chosen;
    int copies = chosen < exchange->ffn_ranks ? chosen : exchange->ffn_ranks;
    return exchange->scatter ? (size_t)exchange->max_rows * (size_t)copies : 0;
}

/* Lay the tensors out in @a block; returns the bytes that they take. */
static size_t lay_out(struct exchange *exchange, char *block)
{
    size_t used = 0;
    size_t ranks = (size_t)exchange->ffn_ranks;
    size_t rows = (size_t)exchange->max_rows;
    size_t packed = most_packed(exchange);
    size_t hidden = (size_t)exchange->config->hidden * sizeof(float);
    size_t chosen = (size_t)exchange->config->experts_chosen * sizeof(float);
    exchange->headers = carve(block, &used, ranks * sizeof(struct wire_header));
    exchange->hidden = carve(block, &used, rows * hidden);
    exchange->ids = carve(block, &used, rows * chosen);
    exchange->weights = carve(block, &used, rows * chosen);
    exchange->packed_hidden = carve(block, &used, packed * hidden);
    exchange->packed_ids = carve(block, &used, packed * chosen);
    exchange->packed_weights = carve(block, &used, packed * chosen);
    exchange->replies = carve(block, &used, ranks * sizeof(struct wire_reply));
    exchange->sums = carve(block, &used, ranks * rows * hidden);
    return used;
}

static stepaf_status_t create_plan(struct exchange *exchange)
{
    const struct model_config *config = exchange->config;
    int microbatch = exchange->microbatch;
    size_t rows = (size_t)exchange->max_rows;
    size_t hidden = rows * (size_t)config->hidden * sizeof(float);
    size_t chosen = rows * (size_t)config->experts_chosen * sizeof(float);
    const stepaf_tensor_t push[WIRE_PUSHES] = {
        {wire_push_key(microbatch, WIRE_HEADER), exchange->headers, sizeof(struct wire_header)},
        {wire_push_key(microbatch, WIRE_HIDDEN), exchange->hidden, hidden},
        {wire_push_key(microbatch, WIRE_IDS), exchange->ids, chosen},
        {wire_push_key(microbatch, WIRE_WEIGHTS), exchange->weights, chosen},
    };
    stepaf_tensor_t *pull = calloc((size_t)exchange->ffn_ranks, WIRE_PULLS * sizeof(*pull));
    if (!pull)
        return STEPAF_ERR_NO_MEMORY;
    for (int f = 0; f < exchange->ffn_ranks; f++) {
        float *sum = exchange->sums + (size_t)f * rows * (size_t)config->hidden;
        pull[f * WIRE_PULLS + WIRE_REPLY] =
            (stepaf_tensor_t){wire_pull_key(microbatch, WIRE_REPLY), &exchange->replies[f],
                              sizeof(struct wire_reply)};
        pull[f * WIRE_PULLS + WIRE_SUM] =
            (stepaf_tensor_t){wire_pull_key(microbatch, WIRE_SUM), sum, hidden};
    }
    stepaf_status_t status = stepaf_plan_create(
        exchange->ctx, push, wire_pushes(config), pull, exchange->ffn_ranks * WIRE_PULLS,
        exchange->scatter ? STEPAF_PLAN_SCATTER : 0, &exchange->plan);
    free(pull);
    return status;
}

int exchange_create(stepaf_context_h ctx, const struct model_config *config,
                    const struct layout *layout, int microbatch, int scatter,
                    struct exchange *exchange_p, struct trouble *trouble)
{
    struct exchange exchange = {.config = config,
                                .ctx = ctx,
                                .microbatch = microbatch,
                                .ffn_ranks = stepaf_size(ctx, STEPAF_GROUP_FFN),
                                .max_rows = layout_max_rows(layout),
                                .scatter = scatter};
    size_t ranks = (size_t)exchange.ffn_ranks;
    exchange.picked = calloc(ranks * (size_t)exchange.max_rows, sizeof(int));
    exchange.counts = calloc(ranks, sizeof(int));
    exchange.push = calloc(ranks * WIRE_PUSHES, sizeof(exchange.push[0]));
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    if (exchange.picked && exchange.counts && exchange.push)
        status = stepaf_alloc(ctx, lay_out(&exchange, NULL), STEPAF_MEM_HOST, &exchange.memory);
    if (status == STEPAF_OK) {
        lay_out(&exchange, exchange.memory);
        status = create_plan(&exchange);
    }
    if (status != STEPAF_OK) {
        exchange_destroy(&exchange);
        return trouble_status(ctx, status, "making a plan", 0, trouble);
    }
    *exchange_p = exchange;
    return 0;
}

/* The plan and the tensors are the context's, which ends them. */
void exchange_destroy(struct exchange *exchange)
{
    free(exchange->picked);
    free(exchange->counts);
    free(exchange->push);
    *exchange = (struct exchange){0};
}

/* The rows of each FFN rank: those with an expert e, e mod ffn_ranks being the rank. */
static void pick_rows(struct exchange *exchange, int rows)
{
    int chosen = exchange->config->experts_chosen;
    memset(exchange->counts, 0, (size_t)exchange->ffn_ranks * sizeof(int));
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < chosen; i++) {
            int rank = exchange->ids[row * chosen + i] % exchange->ffn_ranks;
            int *picked = exchange->picked + (size_t)rank * (size_t)exchange->max_rows;
            int count = exchange->counts[rank];
            if (count && picked[count - 1] == row)
                continue;
            picked[count] = row;
            exchange->counts[rank]++;
        }
    }
}

/* Copy one FFN rank's rows next to each other, from packed row @a at on. */
static void pack_rows(struct exchange *exchange, int rank, size_t at)
{
    const int *picked = exchange->picked + (size_t)rank * (size_t)exchange->max_rows;
    size_t hidden = (size_t)exchange->config->hidden;
    size_t chosen = (size_t)exchange->config->experts_chosen;
    for (int i = 0; i < exchange->counts[rank]; i++, at++) {
        size_t row = (size_t)picked[i];
        memcpy(exchange->packed_hidden + at * hidden, exchange->hidden + row * hidden,
               hidden * sizeof(float));
        memcpy(exchange->packed_ids + at * chosen, exchange->ids + row * chosen,
               chosen * sizeof(int32_t));
        memcpy(exchange->packed_weights + at * chosen, exchange->weights + row * chosen,
               chosen * sizeof(float));
    }
}

/* The push tensors of @a rows rows; none, not even a header, where there are no rows. */
static void fill_push(const struct exchange *exchange, stepaf_tensor_t *push, int layer, int rows,
                      struct wire_header *header, float *hidden, int32_t *ids, float *weights)
{
    const struct model_config *config = exchange->config;
    int microbatch = exchange->microbatch;
    size_t count = (size_t)rows;
    size_t chosen = config->sparse[layer] ? (size_t)config->experts_chosen : 0;
    *header = (struct wire_header){WIRE_MAGIC, WIRE_ROWS, microbatch, layer, rows, -1};
    push[WIRE_HEADER] = (stepaf_tensor_t){wire_push_key(microbatch, WIRE_HEADER), header,
                                          rows ? sizeof(*header) : 0};
    push[WIRE_HIDDEN] = (stepaf_tensor_t){wire_push_key(microbatch, WIRE_HIDDEN), hidden,
                                          count * (size_t)config->hidden * sizeof(float)};
    if (!config->experts)
        return;
    push[WIRE_IDS] = (stepaf_tensor_t){wire_push_key(microbatch, WIRE_IDS), ids,
                                       count * chosen * sizeof(int32_t)};
    push[WIRE_WEIGHTS] = (stepaf_tensor_t){wire_push_key(microbatch, WIRE_WEIGHTS), weights,
                                           count * chosen * sizeof(float)};
}

/* Everything to everyone. */
static void fill_broadcast(struct exchange *exchange, int layer, int rows)
{
    int copies = exchange->scatter ? exchange->ffn_ranks : 1;
    int pushes = wire_pushes(exchange->config);
    for (int f = 0; f < exchange->ffn_ranks; f++)
        exchange->counts[f] = rows;
    for (int i = 0; i < copies; i++)
        fill_push(exchange, exchange->push + i * pushes, layer, rows, &exchange->headers[i],
                  exchange->hidden, exchange->ids, exchange->weights);
}

/* To each its rows. */
static void fill_scatter(struct exchange *exchange, int layer, int rows)
{
    size_t at = 0;
    size_t hidden = (size_t)exchange->config->hidden;
    size_t chosen = (size_t)exchange->config->experts_chosen;
    int pushes = wire_pushes(exchange->config);
    pick_rows(exchange, rows);
    for (int f = 0; f < exchange->ffn_ranks; f++) {
        pack_rows(exchange, f, at);
        fill_push(exchange, exchange->push + f * pushes, layer, exchange->counts[f],
                  &exchange->headers[f], exchange->packed_hidden + at * hidden,
                  exchange->packed_ids + at * chosen, exchange->packed_weights + at * chosen);
        at += (size_t)exchange->counts[f];
    }
}

int exchange_start(struct exchange *exchange, int layer, int rows, int64_t timeout_us,
                   struct trouble *trouble)
{
    /* A dense layer is cut by columns: every FFN rank needs every row. */
    if (exchange->scatter && exchange->config->sparse[layer])
        fill_scatter(exchange, layer, rows);
    else
        fill_broadcast(exchange, layer, rows);
    int copies = exchange->scatter ? exchange->ffn_ranks : 1;
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_ALL,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = timeout_us,
                                    .push = exchange->push,
                                    .n_push = copies * wire_pushes(exchange->config)};
    stepaf_status_t status = stepaf_start_with(exchange->plan, &params, &exchange->request);
    if (status != STEPAF_OK)
        return trouble_status(exchange->ctx, status, "sending rows", timeout_us, trouble);
    return 0;
}

/* Whether FFN rank @a rank has answered what it was asked. */
static int check_answer(const struct exchange *exchange, int rank, int layer,
                        struct trouble *trouble)
{
    const struct wire_reply *reply = &exchange->replies[rank];
    int world = stepaf_world_rank(exchange->ctx, STEPAF_GROUP_FFN, rank);
    stepaf_tensor_info_t info = {.size = sizeof(info)}, sum = {.size = sizeof(sum)};
    if (stepaf_request_tensor(exchange->request, rank * WIRE_PULLS + WIRE_REPLY, &info) !=
            STEPAF_OK ||
        stepaf_request_tensor(exchange->request, rank * WIRE_PULLS + WIRE_SUM, &sum) != STEPAF_OK ||
        info.bytes != sizeof(*reply) || reply->magic != WIRE_MAGIC)
        return trouble_malformed(exchange->ctx, world, "answer", trouble);
    if (reply->state == WIRE_RANK_LOST)
        return trouble_lost(exchange->ctx, reply->lost, trouble);
    if (reply->layer != layer || sum.bytes != (size_t)exchange->counts[rank] *
                                                  (size_t)exchange->config->hidden * sizeof(float))
        return trouble_malformed(exchange->ctx, world, "answer", trouble);
    return 0;
}

int exchange_collect(struct exchange *exchange, int layer, int rows, float *x,
                     struct trouble *trouble)
{
    size_t hidden = (size_t)exchange->config->hidden;
    int picked = exchange->scatter && exchange->config->sparse[layer];
    for (int f = 0; f < exchange->ffn_ranks; f++) {
        const float *sum = exchange->sums + (size_t)f * (size_t)exchange->max_rows * hidden;
        const int *to = exchange->picked + (size_t)f * (size_t)exchange->max_rows;
        if (exchange->counts[f] == 0)
            continue;
        if (check_answer(exchange, f, layer, trouble))
            return -1;
        if (!picked) {
            math_add(x, sum, (size_t)rows * hidden);
            continue;
        }
        for (size_t i = 0; i < (size_t)exchange->counts[f]; i++)
            math_add(x + (size_t)to[i] * hidden, sum + i * hidden, hidden);
    }
    return 0;
}
