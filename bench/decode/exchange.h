/* SPDX-License-Identifier: Apache-2.0 */
/* A microbatch's way from an attention rank to the FFN ranks and back. */
#ifndef DECODE_EXCHANGE_H
#define DECODE_EXCHANGE_H

#include "replicas.h"
#include "wire.h"

struct exchange {
    const struct model_config *config;
    stepaf_context_h ctx;
    struct replicas *replicas;
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
    struct wire_header *headers; /* one, or one for each FFN rank where each gets its own slice */

    /* What comes back, by FFN rank. */
    float *sums; /* [ffn_ranks, max_rows, hidden] */
    struct wire_reply *replies;

    /* Scatter: the rows of each part of the experts, next to each other. */
    float *packed_hidden;
    int32_t *packed_ids;
    float *packed_weights;
    int *picked;   /* [parts, max_rows]: which rows they are */
    size_t *first; /* [parts]: where they begin */

    /* By part. */
    int *counts; /* rows */
    int *asked;  /* the FFN rank that was */
    int *here;   /* whether its answer is */

    stepaf_tensor_t *push; /* of the operation under way */
};

/* Whether each FFN rank gets what is for it alone. */
static inline int exchange_is_sliced(const struct exchange *exchange)
{
    return exchange->scatter || exchange->replicas->n > 1;
}

/* Make the exchange and its plan; before commit, after wire_declare. */
int exchange_create(struct replicas *replicas, const struct model_config *config,
                    const struct layout *layout, int microbatch, int scatter,
                    struct exchange *exchange_p, struct trouble *trouble);
void exchange_destroy(struct exchange *exchange);

/* Send @a rows rows of layer @a layer, which are in hidden, ids and weights. */
int exchange_start(struct exchange *exchange, int layer, int rows, int64_t timeout_us,
                   struct trouble *trouble);

/* After the request has ended: check the answers and add them to @a x, in the order of parts. If an
 * FFN rank was lost, another one that has its part is asked instead: then it is 1, and there is a
 * new request. */
int exchange_collect(struct exchange *exchange, int layer, float *x, int64_t timeout_us,
                     struct trouble *trouble);

#endif
