/* SPDX-License-Identifier: Apache-2.0 */
/* The work of an FFN rank: answer batches in order of arrival, from any attention rank, until
 * all have said good-bye or one is lost. */
#ifndef DECODE_FFN_RANK_H
#define DECODE_FFN_RANK_H

#include "ffn.h"
#include "lost.h"
#include "options.h"
#include "replicas.h"
#include "roll.h"
#include "spans.h"
#include "summary.h"
#include "wire.h"

/* An answer that is ready, and when it may be sent: immediately, unless --ffn-delay-us is given. */
struct answer {
    stepaf_batch_h batch;
    int attention_rank;
    int64_t due_ns;
    stepaf_tensor_t tensors[WIRE_PULLS];
    int n_tensors;
};

struct ffn_rank {
    stepaf_context_h ctx;
    const struct model_config *config;
    const struct ffn_weights *weights;
    struct ffn_work *work;
    int microbatches; /* of each attention rank */
    int max_rows;
    int64_t timeout_us;
    int64_t delay_ns;
    int64_t kill_after;               /* batches; 0: never */
    float *sums;                      /* [attention ranks, microbatches, max_rows, hidden] */
    struct wire_reply *replies;       /* [attention ranks, microbatches] */
    struct wire_reply *words_replies; /* [attention ranks] */
    struct roll roll;
    stepaf_batch_h *batches; /* [attention ranks]: received in one call */
    struct answer *delayed;  /* ring of answers that are not due yet, in order */
    size_t max_delayed;
    size_t first_delayed;
    size_t n_delayed;
    struct ffn_stats stats;
    struct spans spans;
};

/* Make buffers. Call before commit. */
int ffn_rank_create(stepaf_context_h ctx, const struct model_config *config,
                    const struct ffn_weights *weights, const struct layout *layout,
                    const struct options *options, struct ffn_rank *rank_p,
                    struct trouble *trouble);
void ffn_rank_destroy(struct ffn_rank *rank);

/* Serve until the job is done. Call after commit. */
int ffn_rank_run(struct ffn_rank *rank, struct trouble *trouble);

/* Serve one batch: compute and answer it, or keep the answer until it is due. Once a rank is
 * known to be lost, answers say so instead. */
int ffn_serve(struct ffn_rank *rank, stepaf_batch_h batch, struct trouble *trouble);

/* Send the delayed answers that are due. Shortens *timeout_us_p, how long to wait for batches,
 * to the time until the next one is due. */
int ffn_serve_due(struct ffn_rank *rank, int64_t *timeout_us_p, struct trouble *trouble);

#endif
