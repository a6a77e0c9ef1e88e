/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a bench program, however they were started, and its own channel between them,
 * which carries verdicts and results, never tensors. */
#ifndef BENCH_COMMON_LAUNCH_H
#define BENCH_COMMON_LAUNCH_H

#include <stepaf/boot.h>
#include <stepaf/context.h>

enum { LAUNCH_ADDRESS_BYTES = 1024 };

struct launch {
    stepaf_boot_t channel; /* rank, size, allgather; "mpi" or "local" */
    int64_t mpi_init_ns;   /* what MPI_Init took here; -1 without MPI */
    char mpi_version[96];  /* "" without MPI */
    /* Set by the body when ranks may be missing: the process then leaves without the farewells
     * that would wait for them. */
    int broken;
    int missing;   /* then: world rank known to be missing; else -1 */
    int returns;   /* this process takes a lost rank's place: there is no channel */
    char *address; /* LAUNCH_ADDRESS_BYTES that whoever starts it again is told by; or NULL */
    /* Make a context for this rank. */
    stepaf_status_t (*join)(struct launch *launch, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p);
};

/* What each process runs; returns the exit code. */
typedef int (*launch_body_t)(struct launch *launch, void *arg);

/* Who starts processes, and what becomes of the others when one is ended by a signal. */
struct launch_params {
    const char *program; /* name in messages */
    int failed_code;     /* exit code of a job that could not run, or lost a process */
    int64_t grace_us;    /* forked processes: how long the others have to end by themselves */
    int restarts;        /* forked processes: so many that a signal ends are started again */
};

/* Whether a launcher has started this process as one of several. */
int launch_detected(void);

/* This process's rank as the launcher's environment tells it, 0 if unknown: to keep the others
 * from saying what the first one says, before MPI is there. */
int launch_detected_rank(void);

/* Run @a body in every process of the job that a launcher has started, with MPI. Returns the
 * exit code. */
int launch_mpi(const struct launch_params *params, int *argc, char ***argv, launch_body_t body,
               void *arg);

/* Run @a body in this process, which takes a lost rank's place: STEPAF_JOIN is set. Returns the
 * exit code. */
int launch_return(const struct launch_params *params, launch_body_t body, void *arg);

/* Fork @a n processes and run @a body in each. Returns the exit code: the first that was not 0.
 * If a process is ended by a signal and none of the others says so by failing, the caller's
 * process does.
 *
 * With restarts, one that a signal ends is started again, with STEPAF_JOIN, once launch->address
 * has a text. It is the others' codes that count then. */
int launch_fork(const struct launch_params *params, int n, launch_body_t body, void *arg);

#endif
