/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the job, from joining to leaving. */
#ifndef DECODE_RANK_H
#define DECODE_RANK_H

#include "attention_rank.h"
#include "ffn_rank.h"
#include "launch.h"
#include "text.h"

struct rank {
    struct launch *launch;
    const struct options *options;
    struct reason *reason;
    struct job job;
    stepaf_context_h ctx;
    struct layout layout;
    struct place place;
    struct text_stream text;

    /* By role: */
    struct attention_weights *attention_weights;
    struct attention_side side;
    struct attention_rank attention;
    struct ffn_weights *ffn_weights;
    struct ffn_rank ffn;
};

static inline int rank_is_attention(const struct rank *rank)
{
    return rank->place.role == STEPAF_ATTENTION;
}

/* Become a member: *rank gets a context and its place among all ranks. Collective; on failure
 * every rank has the same reason. */
int rank_join(struct rank *rank);

/* Read weights, make buffers and plans, and commit. Collective, as above. */
int rank_prepare(struct rank *rank);

/* Decode. Returns nonzero with *trouble_p if decoding could not be completed. */
int rank_run(struct rank *rank, struct trouble *trouble_p);

/* Merge the results of all ranks, and show them: tables, files. Collective, as above. */
int rank_report(struct rank *rank);

void rank_leave(struct rank *rank);

#endif
