/* SPDX-License-Identifier: Apache-2.0 */
/* A microbatch's way from an attention rank to the FFN ranks and back. */
#ifndef DECODE_EXCHANGE_H
#define DECODE_EXCHANGE_H

#include "lost.h"
#include "wire.h"

struct exchange {
    const struct model_config *config;
    stepaf_context_h ctx;
    int microbatch;
    int ffn_ranks;
    int max_rows;
    int scatter;
    stepaf_plan_h plan;
    stepaf_request_h request; /* in flight */
    void *memory;             /* holds all tensors */

    /* What goes there, as attention leaves it. */
    float *hidden;
    int32_t *ids;
    float *weights;
    struct wire_header *headers; /* broadcast: one; scatter: one for each FFN rank */

    /* What comes back, by FFN rank. */
    float *sums; /* [ffn_ranks, max_rows, hidden] */
    struct wire_reply *replies;

    /* Scatter: the rows of each FFN rank, next to each other. */
    float *packed_hidden;
    int32_t *packed_ids;
    float *packed_weights;
    int *picked; /* [ffn_ranks, max_rows]: which rows they are */
    int *counts; /* [ffn_ranks] */

    stepaf_tensor_t *push; /* of the operation under way */
};

/* Make the exchange and its plan; before commit, after wire_declare. */
int exchange_create(stepaf_context_h ctx, const struct model_config *config,
                    const struct layout *layout, int microbatch, int scatter,
                    struct exchange *exchange_p, struct trouble *trouble);
void exchange_destroy(struct exchange *exchange);

/* Send @a rows rows of layer @a layer, which are in hidden, ids and weights. */
int exchange_start(struct exchange *exchange, int layer, int rows, int64_t timeout_us,
                   struct trouble *trouble);

/* After the request is complete: check the answers and add them to @a x, in rank order. */
int exchange_collect(struct exchange *exchange, int layer, int rows, float *x,
                     struct trouble *trouble);

#endif
