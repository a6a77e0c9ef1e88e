/* SPDX-License-Identifier: Apache-2.0 */
/* What an attention rank says without rows: that it has stopped, and why. */
#ifndef DECODE_WORDS_H
#define DECODE_WORDS_H

#include "replicas.h"
#include "wire.h"

struct words {
    stepaf_context_h ctx;
    struct replicas *replicas;
    int ffn_ranks;
    stepaf_request_h request; /* the last one */
    stepaf_plan_h plan;
    struct wire_header *header;
    struct wire_reply *replies; /* [ffn_ranks] */
};

/* Make the plan; before commit, after wire_declare. Its memory is the context's. */
int words_create(struct replicas *replicas, struct words *words_p, struct trouble *trouble);

/* Say that this rank has no more rows, until every FFN rank knows that no attention rank has. */
int words_stop(struct words *words, int64_t timeout_us, struct trouble *trouble);

/* With nothing in flight: commit with all others, which leaves lost FFN ranks and takes in those
 * that return. */
int words_hold(struct words *words, int64_t timeout_us, struct trouble *trouble);

/* Tell the FFN ranks that are left that rank @a lost is lost. Does what it can. */
void words_abort(struct words *words, int lost);

#endif
