/* SPDX-License-Identifier: Apache-2.0 */
/* What the headers promise, case by case: shared by the files of the semantics test. */
#ifndef STEPAF_TEST_SEMANTICS_H
#define STEPAF_TEST_SEMANTICS_H

#include "fixture.h"

enum { BYTES = 512 };
enum { SHORT_US = 20000 };

/* Plans by what they are; all of attention rank 0 and 1, and both FFN ranks. */
enum { P_ONE = 0, P_OTHER = 1, P_DEEP = 2, P_PUSHED = 3, P_SLICED = 4, P_PULLED = 5, P_COUNT = 6 };
enum { DEEP_SLOTS = 3 };

/* The plans of this attention rank. */
extern struct fx_plan sem_plans[P_COUNT];

/* Attention rank 0, which acts in most cases. */
static inline bool sem_actor(const struct hs_job *job)
{
    return job->role == STEPAF_ATTENTION && job->index == 0;
}

static inline bool sem_ffn(const struct hs_job *job)
{
    return job->role == STEPAF_FFN;
}

/* FFN ranks: receive one batch, check it, keep it; NULL and a failure if none arrives. */
stepaf_batch_h sem_take(struct hs_job *job);
/* FFN ranks: check that nothing has arrived. */
bool sem_nothing(struct hs_job *job);
/* Poll until the call returns the expected result, for at most some seconds. */
bool sem_becomes(struct hs_job *job, stepaf_status_t (*call)(stepaf_request_h, int),
                 stepaf_request_h request, int argument, stepaf_status_t want);
/* Start and expect success. */
stepaf_request_h sem_start(int plan);

/* semantics_wait.c */
void sem_timeout(struct hs_job *job);
void sem_wait_any(struct hs_job *job);
void sem_cancel_early(struct hs_job *job);
void sem_cancel_late(struct hs_job *job);
/* semantics_slot.c */
void sem_depth(struct hs_job *job);
void sem_start_wait(struct hs_job *job);
void sem_shared_key(struct hs_job *job);
void sem_unanswered(struct hs_job *job);
/* semantics_look.c */
void sem_timeline(struct hs_job *job);
void sem_counters(struct hs_job *job);
void sem_trace(struct hs_job *job);
void sem_clock(struct hs_job *job);
/* semantics_recv.c */
void sem_each(struct hs_job *job);
void sem_handler(struct hs_job *job);
void sem_pushed(struct hs_job *job);
void sem_skipped(struct hs_job *job);
void sem_short_answer(struct hs_job *job);

/* semantics_wide.c */
bool sem_wide_declare(struct hs_job *job); /* before the commit */
void sem_wide(struct hs_job *job);

#endif
