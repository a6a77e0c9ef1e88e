/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of an attention rank without rows: that it has stopped, and why. */
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

/* Make the plan. Call before commit, after wire_declare. Its memory belongs to the context. */
int words_create(struct replicas *replicas, struct words *words_p, struct trouble *trouble);

/* Tell the FFN ranks that this rank has no more rows, until each of them knows that no attention
 * rank has any. */
int words_stop(struct words *words, int64_t timeout_us, struct trouble *trouble);

/* Commit with all other ranks, which leaves out lost FFN ranks and admits returning ones. Call
 * with nothing in flight. */
int words_hold(struct words *words, int64_t timeout_us, struct trouble *trouble);

/* Tell the remaining FFN ranks that rank @a lost is lost. Best effort. */
void words_abort(struct words *words, int lost);

#endif
