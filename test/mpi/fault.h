/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: shared by the files of the test. */
#ifndef STEPAF_TEST_FAULT_H
#define STEPAF_TEST_FAULT_H

#include "fixture.h"

/* A peer's death must be noticed within this time. */
enum { NOTICE_MS = 100, BYTES_MAX = 1 << 20 };
/* Entries of the shared page: 0 is the time of the last hs_signal. */
enum { STAMP_END = 1 };

/* Plans: ALL needs every FFN rank, SLICED can skip one, LENIENT is started with SKIP_LOST. */
enum { F_ALL = 0, F_SLICED = 1, F_LENIENT = 2, F_PLANS = 3 };

struct fault {
    struct hs_job *job;
    struct fx_plan plans[F_PLANS];
    size_t bytes;
    int64_t delay_us;  /* until the kill */
    int64_t stop_us;   /* how long a stopped rank stays stopped */
    int64_t notice_ms; /* within which a loss must be noticed */
    const char *cut;   /* commands that disable and restore the network */
    const char *mend;
};

/* Operations that show that all continues: fewer of large tensors, which take longer. */
int fault_rounds(const struct fault *fault);

/* World rank of a member of a group. */
int fault_world(const struct fault *fault, stepaf_role_t role, int rank);

/* Declare, make and commit the three plans. */
bool fault_open(struct fault *fault);

/* After @a delay_us, kill @a victim from a thread. fault_killed waits for that thread. */
void fault_kill_later(struct fault *fault, int victim, int64_t delay_us);
/* The same with a shell command instead of the kill; its time goes to stamp[0] too. */
void fault_cut_later(struct fault *fault, const char *command, int64_t delay_us);
void fault_killed(void);

/* Check that the last error names this peer, and that the kill was recent. */
bool fault_named(struct fault *fault, stepaf_role_t role, int rank);
bool fault_in_time(struct fault *fault, const char *what);

/* Return whether all FFN ranks but the last one have answered. */
bool fault_others_answered(const struct fault *fault, stepaf_request_h request);

/* FFN ranks: serve all attention ranks until STAMP_END is set. */
void fault_serve(struct fault *fault);

/* Check what the ranks can and cannot do without the last FFN rank; and an orderly end. */
void fault_finish(struct fault *fault);

void fault_ffn_held(struct fault *fault); /* fault_ffn.c */
void fault_ffn_load(struct fault *fault);
void fault_attention(struct fault *fault); /* fault_attention.c */
void fault_finalize(struct fault *fault);
void fault_leftover(struct fault *fault);
void fault_commit(struct fault *fault); /* fault_setup.c */
void fault_barrier(struct fault *fault);
void fault_stopped(struct fault *fault);
void fault_crowded(struct fault *fault);
void fault_cut(struct fault *fault); /* fault_net.c */
void fault_halfway_ffn(struct fault *fault);
void fault_halfway_attention(struct fault *fault);

#endif
