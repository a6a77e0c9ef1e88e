/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: shared by the files of the test. */
#ifndef STEPAF_TEST_GPU_FAULT_H
#define STEPAF_TEST_GPU_FAULT_H

#include "gpu/exchange.h"

/* Two plans on streams of their own: what happens to one may not matter to the other. */
enum { FAULT_PLANS = 2 };

struct fault {
    struct hs_job *job;
    struct gx_plan plans[FAULT_PLANS];
    stepaf_role_t role; /* of the last rank of which something bad happens */
    bool lanes;         /* each attention rank has one FFN rank: the others' lanes go on */
    bool host;          /* the host waits too, for requests */
    int64_t timeout_ms; /* STEPAF_STREAM_TIMEOUT_US */
    int64_t notice_ms;  /* within which a loss must be noticed */
    int64_t delay_us;   /* until the kill */
};

/* The rank that it happens to: in its group, and in the world. */
int fault_victim(const struct fault *fault);
int fault_victim_world(const struct fault *fault);
bool fault_is_victim(const struct fault *fault);
/* Whether this rank talks to the victim; whether one that it talks to does. */
bool fault_meets(const struct fault *fault);

/* Kill the victim, after delay_us, from a thread of attention or FFN rank 0; fault_killed waits for
 * that thread. The time goes to stamp[0]. */
void fault_kill_later(struct fault *fault);
void fault_killed(struct fault *fault);

/* Wait for the stream by CUDA's own call, which has to return within @a limit_ms of @a since_ns. */
bool fault_released(cudaStream_t stream, int64_t since_ns, int64_t limit_ms);
int64_t fault_kill_time(const struct fault *fault);
/* The plan's status becomes @a want within the time, naming the victim; starts say the same. */
void fault_told(struct fault *fault, struct gx_plan *plan, stepaf_status_t want, int64_t since_ns);

/* n operations of each plan, looked at. */
bool fault_exchange(struct fault *fault, int plan, int n);

void fault_waiting(struct fault *fault); /* fault_kill.c */
void fault_load(struct fault *fault);
void fault_full(struct fault *fault);
void fault_graph(struct fault *fault);
void fault_silent(struct fault *fault); /* fault_quiet.c */
void fault_finalize(struct fault *fault);

#endif
