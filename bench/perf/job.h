/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a run, however they were started, and the tool's own channel between them.
 * The channel transfers results and verdicts, never measured data. */
#ifndef PERF_JOB_H
#define PERF_JOB_H

#include <stepaf/boot.h>
#include <stepaf/context.h>

struct perf_job {
    stepaf_boot_t channel; /* rank, size, allgather, barrier */
    double wait_s;         /* time limit of a wait of the library */
    int64_t mpi_init_ns;   /* duration of MPI_Init here; -1 without MPI */
    char launcher[96];     /* how the ranks have met, in words */
    stepaf_status_t (*join)(struct perf_job *job, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p);
    int (*settle)(struct perf_job *job, stepaf_context_h ctx);
};

/* The body of each process of the job; returns the exit code, which is the same on every rank. */
typedef int (*perf_job_body_t)(struct perf_job *job, void *arg);

/* Whether a launcher has started this process as one of several. */
int perf_launched(void);

/* Return this process's rank from the launcher's environment, 0 if unknown. Before MPI is up,
 * this keeps the other ranks from repeating the messages of the first one. */
int perf_launched_rank(void);

/* Run @a body in every process of the job that a launcher has started. Return the exit code. */
int perf_job_run_mpi(int *argc, char ***argv, perf_job_body_t body, void *arg);

/* Run @a body in a process that meets the others as STEPAF_MEET and related variables say.
 * Return the exit code. */
int perf_job_run_meet(perf_job_body_t body, void *arg);

/* Fork @a n_procs processes and run @a body in each. Return the exit code. */
int perf_job_run_fork(int n_procs, perf_job_body_t body, void *arg);

/* Gather every rank's @a bytes bytes in rank order; the caller frees *all_p and *offsets_p. -1
 * with a sentence. */
int perf_job_gather(struct perf_job *job, const void *data, size_t bytes, void **all_p,
                    size_t **offsets_p);

/* Get the largest of all ranks' numbers. -1 with a sentence. */
int perf_job_max(struct perf_job *job, double mine, double *max_p);

/* Wait for all while @a ctx (which may be NULL) advances: a rank that has finished its part of a
 * block may still have queued releases that another rank waits for. -1 with a sentence. */
static inline int perf_job_settle(struct perf_job *job, stepaf_context_h ctx)
{
    return job->settle(job, ctx);
}

/* Yield the core for a moment. */
void perf_job_give_way(void);

/* For settle: advance @a ctx (which may be NULL), yield, and check whether a rank is lost, for
 * which all would wait in vain. -1 with a sentence if so. */
int perf_job_idle(stepaf_context_h ctx);

/* End a block: settle, and agree on @a rc. */
int perf_job_end_block(struct perf_job *job, stepaf_context_h ctx, int rc);

/* Wait for all, and learn whether all have succeeded so far: @a rc is 0, or -1 with a sentence
 * in fail.h. Returns 0, or -1 on every rank with the sentence of the first rank that failed. A
 * rank that has lost a peer, for which all would wait in vain, reports that and exits here. A
 * rank that has failed otherwise reports its failure after a second, and exits here once the
 * other ranks' waits are over and they have not arrived. */
int perf_job_agree(struct perf_job *job, int rc);

#endif
