/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of each layer: the rows for each rank, and the processing of the answers. */
#include <string.h>

#include "exchange.h"
#include "math_ops.h"

/* List the rows of each part: those with an expert e for which e mod parts is the part. */
static void pick_rows_of_parts(struct exchange *exchange, int rows)
{
    int chosen = exchange->config->experts_chosen;
    int parts = exchange->replicas->parts;
    memset(exchange->counts, 0, (size_t)parts * sizeof(int));
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < chosen; i++) {
            int part = exchange->ids[row * chosen + i] % parts;
            int *picked = exchange->picked + (size_t)part * (size_t)exchange->max_rows;
            int count = exchange->counts[part];
            if (count && picked[count - 1] == row)
                continue;
            picked[count] = row;
            exchange->counts[part]++;
        }
    }
}

/* Copy one part's rows into contiguous memory. */
static void pack_rows(struct exchange *exchange, int part)
{
    const int *picked = exchange->picked + (size_t)part * (size_t)exchange->max_rows;
    size_t hidden = (size_t)exchange->config->hidden;
    size_t chosen = (size_t)exchange->config->experts_chosen;
    size_t at = exchange->first[part];
    for (int i = 0; i < exchange->counts[part]; i++, at++) {
        size_t row = (size_t)picked[i];
        memcpy(exchange->packed_hidden + at * hidden, exchange->hidden + row * hidden,
               hidden * sizeof(float));
        memcpy(exchange->packed_ids + at * chosen, exchange->ids + row * chosen,
               chosen * sizeof(int32_t));
        memcpy(exchange->packed_weights + at * chosen, exchange->weights + row * chosen,
               chosen * sizeof(float));
    }
}

/* A dense layer is cut by columns: every part needs every row. */
static int is_picked(const struct exchange *exchange, int layer)
{
    return exchange->scatter && exchange->config->sparse[layer];
}

/* Make the push tensors of @a rows rows, from row @a at on; without rows none, not even a
 * header. */
static void fill_push(const struct exchange *exchange, int slice, int layer, int rows, size_t at)
{
    const struct model_config *config = exchange->config;
    int microbatch = exchange->microbatch;
    int packed = is_picked(exchange, layer);
    size_t count = (size_t)rows;
    size_t hidden = (size_t)config->hidden;
    size_t all = (size_t)config->experts_chosen;
    size_t chosen = config->sparse[layer] ? all : 0;
    struct wire_header *header = &exchange->headers[slice];
    stepaf_tensor_t *push = exchange->push + slice * wire_pushes(config);
    *header = (struct wire_header){WIRE_MAGIC, WIRE_ROWS, microbatch, layer, rows, -1};
    push[WIRE_HEADER] = (stepaf_tensor_t){wire_push_key(microbatch, WIRE_HEADER), header,
                                          rows ? sizeof(*header) : 0};
    push[WIRE_HIDDEN] =
        (stepaf_tensor_t){wire_push_key(microbatch, WIRE_HIDDEN),
                          packed ? exchange->packed_hidden + at * hidden : exchange->hidden,
                          count * hidden * sizeof(float)};
    if (!config->experts)
        return;
    push[WIRE_IDS] = (stepaf_tensor_t){wire_push_key(microbatch, WIRE_IDS),
                                       packed ? exchange->packed_ids + at * all : exchange->ids,
                                       count * chosen * sizeof(int32_t)};
    push[WIRE_WEIGHTS] =
        (stepaf_tensor_t){wire_push_key(microbatch, WIRE_WEIGHTS),
                          packed ? exchange->packed_weights + at * all : exchange->weights,
                          count * chosen * sizeof(float)};
}

/* Choose the FFN ranks for the parts whose answers are missing. */
static int fill_parts(struct exchange *exchange, int layer, struct trouble *trouble)
{
    int sliced = exchange_is_sliced(exchange);
    for (int f = 0; sliced && f < exchange->ffn_ranks; f++)
        fill_push(exchange, f, layer, 0, 0);
    for (int part = 0; part < exchange->replicas->parts; part++) {
        if (exchange->here[part])
            continue;
        int f = replicas_choose(exchange->replicas, part);
        if (f < 0)
            return trouble_lost(
                exchange->ctx,
                stepaf_world_rank(exchange->ctx, STEPAF_GROUP_FFN, exchange->asked[part]), trouble);
        exchange->asked[part] = f;
        if (sliced || part == 0)
            fill_push(exchange, sliced ? f : 0, layer, exchange->counts[part],
                      exchange->first[part]);
    }
    return 0;
}

static int send_parts(struct exchange *exchange, int layer, int64_t timeout_us,
                      struct trouble *trouble)
{
    int slices = exchange_is_sliced(exchange) ? exchange->ffn_ranks : 1;
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS |
                                                  STEPAF_START_PARAM_TIMEOUT |
                                                  STEPAF_START_PARAM_PUSH,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = timeout_us,
                                    .push = exchange->push,
                                    .n_push = slices * wire_pushes(exchange->config)};
    stepaf_status_t status = STEPAF_ERR_PEER_LOST;
    /* Each attempt may find one more lost rank. */
    for (int i = 0; status == STEPAF_ERR_PEER_LOST && i <= exchange->ffn_ranks; i++) {
        if (fill_parts(exchange, layer, trouble))
            return -1;
        status = stepaf_start_with(exchange->plan, &params, &exchange->request);
        if (status == STEPAF_ERR_PEER_LOST && exchange->replicas->n == 1)
            break;
        if (status == STEPAF_ERR_PEER_LOST)
            replicas_look(exchange->replicas);
    }
    if (status != STEPAF_OK)
        return trouble_status(exchange->ctx, status, "sending rows", timeout_us, trouble);
    return 0;
}

int exchange_start(struct exchange *exchange, int layer, int rows, int64_t timeout_us,
                   struct trouble *trouble)
{
    int parts = exchange->replicas->parts;
    size_t at = 0;
    exchange->replicas->turn++;
    if (is_picked(exchange, layer))
        pick_rows_of_parts(exchange, rows);
    for (int part = 0; part < parts; part++) {
        if (is_picked(exchange, layer)) {
            exchange->first[part] = at;
            pack_rows(exchange, part);
            at += (size_t)exchange->counts[part];
        } else {
            exchange->counts[part] = rows;
        }
        exchange->here[part] = exchange->counts[part] == 0;
    }
    return send_parts(exchange, layer, timeout_us, trouble);
}

/* Whether FFN rank @a rank has answered its request. */
static int check_answer(const struct exchange *exchange, int rank, int rows, int layer,
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
    if (reply->layer != layer ||
        sum.bytes != (size_t)rows * (size_t)exchange->config->hidden * sizeof(float))
        return trouble_malformed(exchange->ctx, world, "answer", trouble);
    if (reply->state == WIRE_HOLDING)
        exchange->replicas->hold = 1;
    exchange->replicas->ranks[rank].answers++;
    exchange->replicas->ranks[rank].answers_since++;
    return 0;
}

/* Process the arrived answers; return how many will not arrive, or -1. */
static int take_answers(struct exchange *exchange, int layer, int64_t timeout_us,
                        struct trouble *trouble)
{
    int lost = 0;
    for (int part = 0; part < exchange->replicas->parts; part++) {
        if (exchange->here[part])
            continue;
        /* A request completes with the first lost peer; others may still answer. */
        stepaf_status_t status =
            exchange->replicas->n == 1
                ? STEPAF_OK
                : stepaf_wait_peer(exchange->request, exchange->asked[part], timeout_us);
        if (status == STEPAF_ERR_PEER_LOST) {
            lost++;
            continue;
        }
        if (status != STEPAF_OK)
            return trouble_status(exchange->ctx, status, "waiting for FFN ranks", timeout_us,
                                  trouble);
        if (check_answer(exchange, exchange->asked[part], exchange->counts[part], layer, trouble))
            return -1;
        exchange->here[part] = 1;
    }
    return lost;
}

int exchange_collect(struct exchange *exchange, int layer, float *x, int64_t timeout_us,
                     struct trouble *trouble)
{
    size_t hidden = (size_t)exchange->config->hidden;
    int lost = take_answers(exchange, layer, timeout_us, trouble);
    if (lost < 0)
        return -1;
    if (lost) {
        exchange->replicas->asked_again += lost;
        replicas_look(exchange->replicas);
        return send_parts(exchange, layer, timeout_us, trouble) ? -1 : 1;
    }
    for (int part = 0; part < exchange->replicas->parts; part++) {
        size_t count = (size_t)exchange->counts[part];
        size_t rank = (size_t)exchange->asked[part];
        const float *sum = exchange->sums + rank * (size_t)exchange->max_rows * hidden;
        const int *to = exchange->picked + (size_t)part * (size_t)exchange->max_rows;
        if (!is_picked(exchange, layer)) {
            math_add(x, sum, count * hidden);
            continue;
        }
        for (size_t i = 0; i < count; i++)
            math_add(x + (size_t)to[i] * hidden, sum + i * hidden, hidden);
    }
    return 0;
}
