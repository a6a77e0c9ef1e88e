/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a run, however they were started, and the tool's own channel between them:
 * it carries results and verdicts, never what is measured. */
#ifndef PERF_JOB_H
#define PERF_JOB_H

#include <stepaf/boot.h>
#include <stepaf/context.h>

struct perf_job {
    stepaf_boot_t channel; /* rank, size, allgather, barrier */
    double wait_s;         /* what a wait of the library may take */
    int64_t mpi_init_ns;   /* what MPI_Init took here; -1 without MPI */
    char launcher[96];     /* how the ranks have come together, in words */
    stepaf_status_t (*join)(struct perf_job *job, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p);
    int (*settle)(struct perf_job *job, stepaf_context_h ctx);
};

/* What each process of the job runs; returns the exit code, which is the same on every rank. */
typedef int (*perf_job_body_t)(struct perf_job *job, void *arg);

/* Whether a launcher has started this process as one of several. */
int perf_launched(void);

/* This process's rank as the launcher's environment tells it, 0 if unknown: to keep the others
 * from saying what the first one says, before MPI is there. */
int perf_launched_rank(void);

/* Run @a body in every process of the job that a launcher has started. Returns the exit code. */
int perf_job_run_mpi(int *argc, char ***argv, perf_job_body_t body, void *arg);

/* Run @a body in a process that meets the others where STEPAF_MEET and the like say. Returns the
 * exit code. */
int perf_job_run_meet(perf_job_body_t body, void *arg);

/* Fork @a n_procs processes and run @a body in each. Returns the exit code. */
int perf_job_run_fork(int n_procs, perf_job_body_t body, void *arg);

/* Gather every rank's @a bytes bytes in rank order; *all_p is freed by the caller, *offsets_p too.
 * -1 with a sentence. */
int perf_job_gather(struct perf_job *job, const void *data, size_t bytes, void **all_p,
                    size_t **offsets_p);

/* The largest of all ranks' numbers. -1 with a sentence. */
int perf_job_max(struct perf_job *job, double mine, double *max_p);

/* Wait for all while @a ctx (which may be NULL) advances: a rank that has taken its part in a block
 * may still have releases queued that another waits for. -1 with a sentence. */
static inline int perf_job_settle(struct perf_job *job, stepaf_context_h ctx)
{
    return job->settle(job, ctx);
}

/* Let others have this core for a moment. */
void perf_job_give_way(void);

/* For settle: advance @a ctx (which may be NULL), give way, and see whether a rank is lost, for
 * which all would wait in vain. -1 with a sentence if so. */
int perf_job_idle(stepaf_context_h ctx);

/* The end of a block: settle, and agree on @a rc. */
int perf_job_end_block(struct perf_job *job, stepaf_context_h ctx, int rc);

/* Wait for all, and learn whether all have come this far well: @a rc is 0, or -1 with a sentence
 * in fail.h. Returns 0, or -1 on every rank with the sentence of the first rank that failed. A rank
 * that has lost a peer, for which all would wait in vain, says so and ends the process here. One that
 * has failed otherwise says so after a second, and ends the process here once the others' waits are
 * over and they have not come. */
int perf_job_agree(struct perf_job *job, int rc);

#endif
