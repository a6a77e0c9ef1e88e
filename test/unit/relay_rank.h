/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a job whose stream plans are proxied, with a GPU made of memory (cpu_device/cpu_device.h), or
 * with plans in host memory. Every operation has other bytes, and all of them are looked at. */
#ifndef STEPAF_TEST_RELAY_RANK_H
#define STEPAF_TEST_RELAY_RANK_H

#include <stdbool.h>

#include <stepaf/stepaf.h>
#include <stepaf/stream.h>

#include "ranks.h"

enum { RELAY_TENSORS = 3, RELAY_PEERS = 24, RELAY_SYNC_MS = 20000 };

/* What a job does. */
struct relay_job {
    int n_attention, n_ffn;
    bool host[2];           /* by role: ranks have ordinary plans, or receive batches */
    bool in_host[2];        /* by role: a stream plan's tensors are in host memory */
    const char *transports; /* STEPAF_TRANSPORTS */
    const char *proxy;      /* STEPAF_CUDA_PROXY, of ranks with stream plans */
    const char *engine;     /* STEPAF_CUDA_ENGINE */
    const char *progress;   /* STEPAF_PROGRESS, of ranks with stream plans; NULL: thread */
    const char *timeout_us; /* STEPAF_STREAM_TIMEOUT_US; NULL: as it is */
    unsigned depth;
    int n_push, n_pull;
    uint32_t push[RELAY_TENSORS], pull[RELAY_TENSORS];
    bool fixed; /* operations have the largest sizes */
    unsigned ops;
    unsigned replays; /* 0: enqueued one by one; else so often, depth operations each time */
};

struct relay_rank {
    const struct relay_job *job;
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    stepaf_role_t role;
    bool host; /* this rank's */
    int rank;  /* within its role */
    int n_peers;
    stepaf_plan_h plan;
    uint8_t
        *source[RELAY_PEERS * RELAY_TENSORS]; /* attention: by tensor; FFN: by peer, of slot 0 */
    uint8_t *target[RELAY_PEERS * RELAY_TENSORS]; /* attention: by peer, of slot 0 */
    unsigned n_wrong;                             /* tensors that were not what they should be */
    unsigned n_full;                              /* times that a stream had no room for more */
    unsigned n_looked;                            /* operations that were looked at */
    int stream;                                   /* its address names one */
};

/* Small tensors of one rank of each role, over shared memory. */
extern const struct relay_job relay_small;

/* Join the job, declare keys, bring memory, make the plan; no commit. 0, or 1 and what was wrong is
 * said. */
int relay_rank_open(struct relay_rank *rank, const struct relay_job *job,
                    const stepaf_boot_t *boot);
void relay_rank_close(struct relay_rank *rank);
/* End the plan and withdraw the keys; and the last part of open again. */
int relay_rank_withdraw(struct relay_rank *rank);
int relay_rank_declare(struct relay_rank *rank);
/* The last part of that: another plan of the same keys, in memory of its own, is the rank's from now on. */
int relay_rank_plan(struct relay_rank *rank);

/* All operations from @a from to @a to, from this rank's side; returns how much was wrong. */
int relay_rank_run(struct relay_rank *rank, unsigned from, unsigned to);
/* The same as a graph that is replayed. */
int relay_rank_replay(struct relay_rank *rank);

/* One operation on streams, from this rank's side, up to where it waits for a peer; and the rest. */
stepaf_status_t relay_rank_begin(struct relay_rank *rank, unsigned n);
stepaf_status_t relay_rank_end(struct relay_rank *rank, unsigned n);

#endif
