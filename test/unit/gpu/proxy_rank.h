/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a job whose stream plans are proxied, with a GPU made of memory
 * (cpu_device/cpu_device.h), or with plans in host memory. Every operation has other bytes, and all
 * of them are looked at. */
#ifndef STEPAF_TEST_PROXY_RANK_H
#define STEPAF_TEST_PROXY_RANK_H

#include <stdbool.h>

#include <stepaf/stepaf.h>
#include <stepaf/stream.h>

#include "ranks.h"

enum { PROXY_TENSORS = 3, PROXY_PEERS = 24, PROXY_SYNC_MS = 20000 };

/* What a job does. */
struct proxy_job {
    int n_attention, n_ffn;
    bool host[2];           /* by role: ranks have ordinary plans, or receive batches */
    bool in_host[2];        /* by role: a stream plan's tensors are in host memory */
    int host_source[2];     /* by role: 1 + the tensor whose source alone is there; 0: none */
    const char *transports; /* STEPAF_TRANSPORTS */
    const char *proxy;      /* STEPAF_CUDA_PROXY, of ranks with stream plans */
    const char *engine;     /* STEPAF_CUDA_ENGINE */
    bool cut[2];            /* by role: they map no memory of other processes' GPUs */
    const char *mailbox[2]; /* by role: STEPAF_CUDA_MAILBOX; NULL: as it is */
    const char *progress;   /* STEPAF_PROGRESS, of ranks with stream plans; NULL: thread */
    const char *timeout_us; /* STEPAF_STREAM_TIMEOUT_US; NULL: as it is */
    bool rdma;              /* network cards read and write the GPU's memory themselves, */
    bool flushes;           /* and the GPU is to be flushed then */
    uint32_t flags;         /* of plans on streams, more than that */
    bool one_source;        /* all answers come from the same place, which is no slot's */
    unsigned depth;
    int n_push, n_pull;
    uint32_t push[PROXY_TENSORS], pull[PROXY_TENSORS];
    bool fixed; /* operations have the largest sizes */
    unsigned ops;
    unsigned replays; /* 0: enqueued one by one; else so often, depth operations each time */
};

struct proxy_rank {
    const struct proxy_job *job;
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    stepaf_role_t role;
    bool host; /* this rank's */
    int rank;  /* within its role */
    int n_peers;
    stepaf_plan_h plan;
    uint8_t
        *source[PROXY_PEERS * PROXY_TENSORS]; /* attention: by tensor; FFN: by peer, of slot 0 */
    uint8_t *target[PROXY_PEERS * PROXY_TENSORS]; /* attention: by peer, of slot 0 */
    unsigned n_wrong;                             /* tensors that were not what they should be */
    unsigned n_full;                              /* times that a stream had no room for more */
    unsigned n_looked;                            /* operations that were looked at */
    int stream;                                   /* its address names one */
};

/* One rank of each role, over shared memory: small tensors, and some that go part by part. */
extern const struct proxy_job proxy_small;
extern const struct proxy_job proxy_large;

/* Join the job, declare keys, bring memory, make the plan; no commit. 0, or 1 and what was wrong is
 * said. */
int proxy_rank_open(struct proxy_rank *rank, const struct proxy_job *job,
                    const stepaf_boot_t *boot);
void proxy_rank_close(struct proxy_rank *rank);
/* End the plan and withdraw the keys; and the last part of open again. */
int proxy_rank_withdraw(struct proxy_rank *rank);
int proxy_rank_declare(struct proxy_rank *rank);
/* The last part of that: another plan of the same keys, in memory of its own, is the rank's from
 * now on. */
int proxy_rank_plan(struct proxy_rank *rank);

/* All operations from @a from to @a to, from this rank's side; returns how much was wrong. */
int proxy_rank_run(struct proxy_rank *rank, unsigned from, unsigned to);
/* The same as a graph that is replayed. */
int proxy_rank_replay(struct proxy_rank *rank);

/* One operation on streams, from this rank's side, up to where it waits for a peer; and the
 * rest. */
stepaf_status_t proxy_rank_begin(struct proxy_rank *rank, unsigned n);
stepaf_status_t proxy_rank_end(struct proxy_rank *rank, unsigned n);

#endif
