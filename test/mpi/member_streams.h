/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of plans on streams that ranks do while others die, return and join (machine.h): an
 * attention rank pushes two tensors to all FFN ranks, each of them answers with one of its own, and
 * every byte is compared. A process is one rank. */
#ifndef STEPAF_TEST_MEMBER_STREAMS_H
#define STEPAF_TEST_MEMBER_STREAMS_H

#include "harness.h"

enum { MEMBER_STREAMS_DEPTH = 2 };

struct member_streams {
    struct hs_job *job;
    stepaf_plan_h plan;
    unsigned char
        *source; /* attention: what is pushed; FFN: answers, peer by peer: DEPTH of them */
    unsigned char *target;     /* attention: answers in the same way */
    bool is_out[HS_MAX_RANKS]; /* by peer: the epoch goes on without it */
};

/* Before there is a context; and its end: nothing of the GPU is left then. */
void member_streams_begin(const struct member_streams *streams);
void member_streams_end(struct hs_job *job);
/* Declare keys, allocate memory and make the plan, for the next commit. */
bool member_streams_prepare(struct member_streams *streams);
/* After the first commit, if some are out from the beginning: what is not to be touched, or not
 * yet. What peers push that are in may be there already. */
bool member_streams_mark(const struct member_streams *streams);

/* The operation that is number @a n of this epoch, with the bytes of number @a op, which all ranks
 * give to it. */
bool member_streams_operate(struct member_streams *streams, uint64_t n, uint64_t op);

/* Its parts: what this rank sends; enqueuing it without a look between; waiting for what is
 * enqueued; looking at what has come. */
void member_streams_fill(const struct member_streams *streams, uint64_t n, uint64_t op);
bool member_streams_enqueue(struct member_streams *streams);
bool member_streams_pass(void);
bool member_streams_look(const struct member_streams *streams, uint64_t n, uint64_t op);

#endif
