/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of ranks while others die and return: an attention rank pushes a tensor to all
 * FFN ranks, each of them answers with one of its own, and every byte is compared. */
#ifndef STEPAF_TEST_MEMBER_OPS_H
#define STEPAF_TEST_MEMBER_OPS_H

#include "harness.h"

enum { MEMBER_PUSH = 1, MEMBER_PULL = 2 }; /* keys */

struct member_ops {
    struct hs_job *job;
    size_t bytes;                   /* of a tensor */
    unsigned char *source, *target; /* target: a tensor for each peer */
    stepaf_plan_h plan;             /* of attention ranks */
    uint64_t n_ops;                 /* begun by this attention rank */
    bool may_lose;                  /* a rank that has asked may die before it is answered */
};

/* Declare the keys, allocate memory and make the plan, for the next commit. */
bool member_ops_prepare(struct member_ops *ops);
/* Fill the source for the next operation; return the operation's number. */
uint64_t member_ops_fill(struct member_ops *ops);
/* Return whether the answer of peer @a p to operation @a op is right. */
bool member_ops_verify(const struct member_ops *ops, int p, uint64_t op);
/* Return how many peers' answers to operation @a op, which is complete, have arrived; -1 if one
 * of them is wrong. */
int member_ops_count(const struct member_ops *ops, stepaf_request_h request, uint64_t op);
/* Answer the batches that arrive within @a timeout_us. Returns false if none arrived, or the
 * test has failed. */
bool member_ops_serve(struct member_ops *ops, int64_t timeout_us);

/* Return whether the rank is an FFN rank and a peer of this attention rank. */
bool member_ops_is_peer(const struct hs_job *job, int world);
/* Wait until that entry of the shared page has reached @a value, while this rank's context makes
 * progress. */
bool member_ops_await(const struct hs_job *job, int stamp, int64_t value);
/* Keep the longest time in an entry of the shared page. */
void member_ops_note_most(struct hs_job *job, int stamp, int64_t ns);

#endif
