/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a bench program, however they were started, and the program's own channel
 * between them. The channel transfers verdicts and results, never tensors. */
#ifndef BENCH_COMMON_LAUNCH_H
#define BENCH_COMMON_LAUNCH_H

#include <stepaf/boot.h>
#include <stepaf/context.h>

enum { LAUNCH_ADDRESS_BYTES = 1024 };

struct launch {
    stepaf_boot_t channel; /* rank, size, allgather; "mpi" or "local" */
    int64_t mpi_init_ns;   /* the thread level that MPI_Init provided; -1 without MPI */
    char mpi_version[96];  /* "" without MPI */
    /* Set by the body when ranks may be missing: the process then exits without the farewells
     * that would wait for them. */
    int broken;
    int missing;   /* if broken: world rank known to be missing; else -1 */
    int returns;   /* this process replaces a lost rank: there is no channel */
    char *address; /* LAUNCH_ADDRESS_BYTES: the address for a restarted process; or NULL */
    /* Make a context for this rank. */
    stepaf_status_t (*join)(struct launch *launch, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p);
};

/* What each process runs; returns the exit code. */
typedef int (*launch_body_t)(struct launch *launch, void *arg);

/* How processes are started, and what happens to the others when a signal ends one of them. */
struct launch_params {
    const char *program; /* program name in messages */
    int failed_code;     /* exit code of a job that could not run or lost a process */
    int64_t grace_us;    /* forked processes: how long the others have to exit by themselves */
    int restarts;        /* forked processes: how many that a signal ended are restarted */
};

/* Whether a launcher has started this process as one of several. */
int launch_detected(void);

/* Return this process's rank from the launcher's environment, 0 if unknown. Before MPI is up,
 * this keeps the other ranks from repeating the messages of the first one. */
int launch_detected_rank(void);

/* Run @a body in every process of the job that a launcher has started, with MPI. Return the exit
 * code. */
int launch_mpi(const struct launch_params *params, int *argc, char ***argv, launch_body_t body,
               void *arg);

/* Run @a body in this process, which replaces a lost rank: STEPAF_JOIN is set. Return the exit
 * code. */
int launch_return(const struct launch_params *params, launch_body_t body, void *arg);

/* Fork @a n processes and run @a body in each. Return the exit code: the first that was not 0.
 * If a signal ends a process and no other process reports that by failing, the caller's process
 * reports the signal.
 *
 * With restarts, a process that a signal ends is started again with STEPAF_JOIN, once
 * launch->address has a text. The exit code then depends on the other processes only. */
int launch_fork(const struct launch_params *params, int n, launch_body_t body, void *arg);

#endif
