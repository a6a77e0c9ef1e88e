/* SPDX-License-Identifier: Apache-2.0 */
/* The work of an attention rank: keep its microbatches in flight. While some wait for FFN ranks,
 * others compute attention. */
#ifndef DECODE_ATTENTION_RANK_H
#define DECODE_ATTENTION_RANK_H

#include "attention_side.h"
#include "exchange.h"
#include "measure.h"
#include "spans.h"
#include "words.h"

/* State of a microbatch. */
struct flight {
    int layer; /* the layer in flight */
    int past_prompts;
    int parked; /* it continues after the next commit */
    int64_t step_begin_ns;
    struct exchange_times times;
};

struct attention_rank {
    stepaf_context_h ctx;
    struct attention_side *side;
    int64_t timeout_us;
    struct exchange *exchanges; /* by microbatch */
    struct flight *flights;
    struct words words;
    struct replicas *replicas;
    int *order; /* microbatches in flight, the one sent first in front */
    int n_order;
    int64_t *busy_until_ns;     /* by FFN rank, for measure_slowest */
    stepaf_request_h *requests; /* these microbatches, in the same order */
    struct stats stats;
    struct spans spans;
};

/* Make exchanges and plans. Call before commit, after wire_declare. */
int attention_rank_create(stepaf_context_h ctx, struct attention_side *side,
                          const struct layout *layout, const struct options *options,
                          struct attention_rank *rank_p, struct trouble *trouble);
void attention_rank_destroy(struct attention_rank *rank);

/* Decode all sequences. Call after commit. */
int attention_rank_run(struct attention_rank *rank, struct trouble *trouble);

#endif
