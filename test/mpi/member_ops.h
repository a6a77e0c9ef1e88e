/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do while others die and return: an attention rank pushes a tensor to all FFN ranks,
 * each of them answers with one of its own, and every byte is compared. */
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
    bool may_lose;                  /* whoever has asked may die before it is answered */
};

/* Declare the keys, allocate memory and make the plan, for the next commit. */
bool member_ops_prepare(struct member_ops *ops);
/* Fill the source with the push of the next operation, whose number is returned. */
uint64_t member_ops_fill(struct member_ops *ops);
/* Whether the answer of peer @a p to operation @a op is right. */
bool member_ops_verify(const struct member_ops *ops, int p, uint64_t op);
/* How many peers' answers to operation @a op, which is complete, are there; -1: one of them is
 * wrong. */
int member_ops_count(const struct member_ops *ops, stepaf_request_h request, uint64_t op);
/* Answer what comes within @a timeout_us. False: nothing, or the test has failed. */
bool member_ops_serve(struct member_ops *ops, int64_t timeout_us);

/* Whether it is an FFN rank that this attention rank has as a peer. */
bool member_ops_is_peer(const struct hs_job *job, int world);
/* Wait until that place of the shared page has come to @a value, while this rank's context makes
 * progress. */
bool member_ops_await(const struct hs_job *job, int stamp, int64_t value);
/* Keep the longest time in a place of the shared page. */
void member_ops_note_most(struct hs_job *job, int stamp, int64_t ns);

#endif
