/* SPDX-License-Identifier: Apache-2.0 */
/* Rare situations for callers: shared by the files of the test. */
#ifndef STEPAF_TEST_SELDOM_H
#define STEPAF_TEST_SELDOM_H

#include "harness.h"

/* Keys, and the bytes of their tensors. */
enum { SE_PUSH = 1, SE_PULL, SE_LARGE, SE_BYTES = 64, SE_LARGE_BYTES = 32 << 20 };
/* Entries of the shared page; 0 is the time of the last hs_signal. */
enum { SE_GO = 1, SE_OVER };

struct se_rank {
    struct hs_job *job;
    char *memory; /* of the library: SE_LARGE_BYTES, and some tensors more */
    stepaf_plan_h plan;
};

/* Open the context, declare SE_PUSH and SE_PULL, and at attention ranks make a plan of them.
 * Returns false, with a failure, if that does not work; nothing is committed. */
bool se_open(struct se_rank *rank, stepaf_params_t params, int depth, uint32_t flags);
/* Open it, commit, and have all know that a rank may die: whether that is so. The rank's number in
 * the world is filled in. */
bool se_open_doomed(struct se_rank *rank, stepaf_params_t params, stepaf_group_t group, int index,
                    int *victim_p);
/* FFN ranks: answer batches until SE_OVER. A rank that @a holds answers the first only after
 * SE_GO. */
void se_serve(struct se_rank *rank, bool holds);
stepaf_status_t se_answer(struct se_rank *rank, stepaf_batch_h batch, uint32_t flags);

void se_tell(struct hs_job *job, int place);
bool se_is_told(const struct hs_job *job, int place);
/* Until somebody has told, or the test has failed. */
void se_await(struct hs_job *job, int place);

/* Cases with callbacks. */
void se_deadline(struct se_rank *rank);
void se_commit(struct se_rank *rank);
void se_stop(struct se_rank *rank);
void se_members(struct se_rank *rank);
void se_barrier(struct se_rank *rank);
void se_agreement(struct se_rank *rank);

#endif
