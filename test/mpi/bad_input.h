/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: shared by the files of the test. */
#ifndef STEPAF_TEST_BAD_INPUT_H
#define STEPAF_TEST_BAD_INPUT_H

#include "fixture.h"

/* Plans: WHOLE pushes and pulls, PUSHED only pushes, DEEP has two slots. Keys without plans are
 * declared for attempts that must fail. */
enum { WHOLE = 0, PUSHED = 1, DEEP = 2, SPARE = 3, BAD_PLANS = 4 };
enum { BYTES = 128, PUSH = FX_PUSH_KEY, PULL = FX_PULL_KEY, NO_KEY = 7777, SHORT_US = 10000 };

extern struct fx_plan bad_plans[BAD_PLANS];

static inline bool is_ffn(const struct hs_job *job)
{
    return job->role == STEPAF_FFN;
}

/* A function with a handle of some kind as argument; the list ends with a name of NULL. */
enum { CONTEXT, PLAN, REQUEST, BATCH, KINDS };
struct bad_call {
    int kind;
    const char *name;
    stepaf_status_t (*call)(void *handle);
};
extern const struct bad_call bad_calls[]; /* bad_calls.c */

/* The state that no rejected call may change. */
struct bad_state {
    stepaf_counters_t counters;
    uint32_t epoch;
};
void bad_remember(struct hs_job *job, struct bad_state *state);
void bad_unchanged(struct hs_job *job, const struct bad_state *state, const char *what);

/* Make a good exchange of every plan, to check that all still works. */
bool bad_good(struct hs_job *job);

void bad_handles(struct hs_job *job); /* bad_handle.c */
void bad_roles(struct hs_job *job);   /* bad_object.c */
void bad_keys(struct hs_job *job);
void bad_memory(struct hs_job *job);
void bad_reports(struct hs_job *job);
void bad_plan(struct hs_job *job); /* bad_plan.c */
void bad_start(struct hs_job *job);
void bad_request(struct hs_job *job);
void bad_receive(struct hs_job *job); /* bad_batch.c */
void bad_respond(struct hs_job *job);
void bad_respond_many(struct hs_job *job);
void bad_uncommitted(struct hs_job *job); /* bad_commit.c */
void bad_commit(struct hs_job *job);
void bad_mismatch(struct hs_job *job);

#endif
