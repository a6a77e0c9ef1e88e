/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* Cut @a bytes off a block; with a NULL block, count only. */
static void *carve(char *block, size_t *used, size_t bytes)
{
    void *part = block ? block + *used : NULL;
    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return part;
}

/* Return the maximum of rows of all parts together: each row is in as many parts as it has
 * experts. */
static size_t most_packed(const struct exchange *exchange)
{
    int chosen = exchange->config->experts_chosen;
    int parts = exchange->replicas->parts;
    int copies = chosen < parts ? chosen : parts;
    return exchange->scatter ? (size_t)exchange->max_rows * (size_t)copies : 0;
}

/* Lay the tensors out in @a block; return their size in bytes. */
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
        exchange_is_sliced(exchange) ? STEPAF_PLAN_SCATTER : 0, &exchange->plan);
    free(pull);
    return status;
}

int exchange_create(struct replicas *replicas, const struct model_config *config,
                    const struct layout *layout, int microbatch, int scatter,
                    struct exchange *exchange_p, struct trouble *trouble)
{
    stepaf_context_h ctx = replicas->ctx;
    struct exchange exchange = {.config = config,
                                .ctx = ctx,
                                .replicas = replicas,
                                .microbatch = microbatch,
                                .ffn_ranks = replicas->ffn_ranks,
                                .max_rows = layout_max_rows(layout),
                                .scatter = scatter};
    size_t ranks = (size_t)exchange.ffn_ranks;
    size_t parts = (size_t)replicas->parts;
    exchange.picked = calloc(parts * (size_t)exchange.max_rows, sizeof(int));
    exchange.first = calloc(parts, sizeof(exchange.first[0]));
    exchange.counts = calloc(parts, sizeof(int));
    exchange.asked = calloc(parts, sizeof(int));
    exchange.here = calloc(parts, sizeof(int));
    exchange.push = calloc(ranks * WIRE_PUSHES, sizeof(exchange.push[0]));
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    if (exchange.picked && exchange.first && exchange.counts && exchange.asked && exchange.here &&
        exchange.push)
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

/* The plan and the tensors belong to the context, which frees them. */
void exchange_destroy(struct exchange *exchange)
{
    free(exchange->picked);
    free(exchange->first);
    free(exchange->counts);
    free(exchange->asked);
    free(exchange->here);
    free(exchange->push);
    *exchange = (struct exchange){0};
}
