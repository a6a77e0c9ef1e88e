/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of a microbatch between an attention rank and the FFN ranks, there and back. */
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

    /* Sent: the output of attention. */
    float *hidden;
    int32_t *ids;
    float *weights;
    struct wire_header *headers; /* one; or one for each FFN rank where each gets its own slice */

    /* Received, by FFN rank. */
    float *sums; /* [ffn_ranks, max_rows, hidden] */
    struct wire_reply *replies;

    /* Scatter: the rows of each part of the experts, contiguous. */
    float *packed_hidden;
    int32_t *packed_ids;
    float *packed_weights;
    int *picked;   /* [parts, max_rows]: indices of these rows */
    size_t *first; /* [parts]: index of the first one */

    /* By part. */
    int *counts; /* rows */
    int *asked;  /* the FFN rank asked */
    int *here;   /* whether its answer has arrived */

    stepaf_tensor_t *push; /* of the operation in flight */
};

/* Whether each FFN rank gets a slice of its own. */
static inline int exchange_is_sliced(const struct exchange *exchange)
{
    return exchange->scatter || exchange->replicas->n > 1;
}

/* Make the exchange and its plan. Call before commit, after wire_declare. */
int exchange_create(struct replicas *replicas, const struct model_config *config,
                    const struct layout *layout, int microbatch, int scatter,
                    struct exchange *exchange_p, struct trouble *trouble);
void exchange_destroy(struct exchange *exchange);

/* Send @a rows rows of layer @a layer, from hidden, ids and weights. */
int exchange_start(struct exchange *exchange, int layer, int rows, int64_t timeout_us,
                   struct trouble *trouble);

/* Call after the request has completed: check the answers and add them to @a x, in the order of
 * parts. Returns 1 if an FFN rank was lost and another one with the same part is asked instead:
 * there is a new request then. */
int exchange_collect(struct exchange *exchange, int layer, float *x, int64_t timeout_us,
                     struct trouble *trouble);

#endif
