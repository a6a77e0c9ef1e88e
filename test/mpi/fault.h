/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: shared by the files of the test. */
#ifndef STEPAF_TEST_FAULT_H
#define STEPAF_TEST_FAULT_H

#include "fixture.h"

/* A peer's death must be noticed within this time. */
enum { NOTICE_MS = 100, BYTES_MAX = 1 << 20 };
/* Places in the shared page: 0 is the time of the last hs_signal. */
enum { STAMP_END = 1 };

/* Plans: ALL needs every FFN rank, SLICED can skip one, LENIENT is started with SKIP_LOST. */
enum { F_ALL = 0, F_SLICED = 1, F_LENIENT = 2, F_PLANS = 3 };

struct fault {
    struct hs_job *job;
    struct fx_plan plans[F_PLANS];
    size_t bytes;
    int64_t delay_us; /* until the kill */
};

/* World rank of a member of a group. */
int fault_world(const struct fault *fault, stepaf_role_t role, int rank);

/* Declare, make and commit the three plans. */
bool fault_open(struct fault *fault);

/* After @a delay_us, from a thread: kill @a victim. fault_killed waits for that thread. */
void fault_kill_later(struct fault *fault, int victim, int64_t delay_us);
void fault_killed(void);

/* The last error names this peer, and the kill was not long ago. */
bool fault_named(struct fault *fault, stepaf_role_t role, int rank);
bool fault_in_time(struct fault *fault, const char *what);

/* FFN ranks: serve whoever comes until STAMP_END is set. */
void fault_serve(struct fault *fault);

void fault_ffn_held(struct fault *fault); /* fault_ffn.c */
void fault_ffn_load(struct fault *fault);
void fault_attention(struct fault *fault); /* fault_attention.c */
void fault_finalize(struct fault *fault);
void fault_leftover(struct fault *fault);
void fault_commit(struct fault *fault); /* fault_setup.c */
void fault_barrier(struct fault *fault);
void fault_stopped(struct fault *fault);
void fault_crowded(struct fault *fault);

#endif
