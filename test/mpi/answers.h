/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that complete with some of their answers: shared by the files of the test. */
#ifndef STEPAF_TEST_ANSWERS_H
#define STEPAF_TEST_ANSWERS_H

#include "fixture.h"

enum { A_FFN = 4, A_DEPTH = 2, A_BYTES = 320, A_SHORT_US = 30000 };
/* Entries of the shared page: 0 is the time of the last hs_signal. */
enum { A_END = 1, A_HOLD = 8, A_DROP = A_HOLD + A_FFN, A_STAMPS = A_DROP + A_FFN };

/* Attention rank: from now on FFN rank @a ffn keeps what it receives until @a until_ns; 0: it
 * answers immediately; INT64_MAX: it keeps everything until told otherwise. */
void ans_hold(struct hs_job *job, int ffn, int64_t until_ns);
/* FFN rank @a ffn releases its next batch without an answer. */
void ans_drop(struct hs_job *job, int ffn);
/* FFN ranks: serve until the attention rank ends the serving. @a seed: 0, or for random answer
 * times. */
void ans_serve(struct hs_job *job, uint64_t seed);
/* From now on FFN ranks answer immediately; they end when they have answered everything. */
enum { A_CALM = 1, A_OVER = 2 };
void ans_end(struct hs_job *job, int64_t how);

/* Return the answers that have arrived, as a mask; their tensors are compared. */
unsigned ans_mask(const struct fx_plan *plan, stepaf_request_h request, uint32_t sequence);
/* Wait until that mask is @a mask. */
bool ans_becomes(const struct fx_plan *plan, stepaf_request_h request, unsigned mask);
stepaf_counters_t ans_counters(struct hs_job *job);

/* The test cases, at the attention rank. */
void ans_late(struct fx_plan *plan);
void ans_few(struct fx_plan *plan);
void ans_patience(struct fx_plan *plan);
void ans_dropped(struct fx_plan *plan);
void ans_refused(struct fx_plan *plan);
void ans_parts(struct fx_plan *plan);
void ans_stopped(struct fx_plan *plan);
void ans_killed(struct fx_plan *plan);
void ans_random(struct fx_plan *plan, uint64_t seed, long ops);

#endif
