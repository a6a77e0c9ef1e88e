/* SPDX-License-Identifier: Apache-2.0 */
/* The job under an MPI launcher. With baseline_mpi.c the only includer of mpi.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/mpi.h>

#include "clock.h"
#include "fail.h"
#include "job.h"

struct mpi_job {
    struct perf_job job;
    MPI_Comm channel; /* the tool's own, apart from the library's and the baseline's */
    int rank, size;
};

/* Wait without occupying the core of ranks that are still measuring. -1 with a sentence. */
static int finish(MPI_Request *request, stepaf_context_h ctx)
{
    int done = 0;

    for (;;) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return perf_fail("MPI_Test failed");
        if (done)
            return 0;
        if (perf_job_idle(ctx) != 0)
            return -1;
    }
}

static int mpi_settle(struct perf_job *job, stepaf_context_h ctx)
{
    struct mpi_job *self = job->channel.self;
    MPI_Request request;

    if (MPI_Ibarrier(self->channel, &request) != MPI_SUCCESS)
        return perf_fail("MPI_Ibarrier failed");
    return finish(&request, ctx);
}

static stepaf_status_t gather_counts(struct mpi_job *job, size_t bytes, int *counts, int *starts,
                                     size_t *offsets)
{
    uint64_t mine = bytes;
    uint64_t *all = malloc((size_t)job->size * sizeof(*all));
    stepaf_status_t status = STEPAF_OK;
    MPI_Request request;

    if (all == NULL)
        return STEPAF_ERR_NO_MEMORY;
    if (MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, job->channel, &request) !=
            MPI_SUCCESS ||
        finish(&request, NULL) != 0) {
        free(all);
        return STEPAF_ERR_BOOT;
    }
    offsets[0] = 0;
    for (int i = 0; i < job->size && status == STEPAF_OK; i++) {
        offsets[i + 1] = offsets[i] + all[i];
        if (all[i] > INT_MAX || offsets[i + 1] > INT_MAX)
            status = STEPAF_ERR_LIMIT;
        counts[i] = (int)all[i];
        starts[i] = (int)offsets[i];
    }
    free(all);
    return status;
}

static stepaf_status_t mpi_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    struct mpi_job *job = self;
    int *counts = calloc(2 * (size_t)job->size, sizeof(*counts));
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    MPI_Request request;
    char *all = NULL;

    (void)timeout_us; /* MPI has no deadlines; the launcher ends a job that has lost a rank */
    if (counts == NULL)
        return status;
    status = gather_counts(job, bytes, counts, counts + job->size, offsets_p);
    if (status != STEPAF_OK)
        goto out_free_counts;
    all = malloc(offsets_p[job->size] > 0 ? offsets_p[job->size] : 1);
    if (all == NULL) {
        status = STEPAF_ERR_NO_MEMORY;
        goto out_free_counts;
    }
    if (MPI_Iallgatherv(data, (int)bytes, MPI_BYTE, all, counts, counts + job->size, MPI_BYTE,
                        job->channel, &request) != MPI_SUCCESS ||
        finish(&request, NULL) != 0) {
        free(all);
        status = STEPAF_ERR_BOOT;
        goto out_free_counts;
    }
    *all_p = all;
out_free_counts:
    free(counts);
    return status;
}

static stepaf_status_t mpi_join(struct perf_job *job, const stepaf_params_t *params,
                                stepaf_context_h *ctx_p)
{
    (void)job;
    return stepaf_init_mpi(MPI_COMM_WORLD, params, ctx_p);
}

/* Open MPI's text has several clauses, MPICH's several lines: the first is enough. */
static void get_version(char *text, size_t capacity)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        return;
    version[strcspn(version, ",\n")] = '\0';
    snprintf(text, capacity, "started by %.*s", (int)capacity - 12, version);
}

int perf_job_run_mpi(int *argc, char ***argv, perf_job_body_t body, void *arg)
{
    struct mpi_job job = {.job = {.mpi_init_ns = -1, .join = mpi_join, .settle = mpi_settle}};
    int64_t start_ns = perf_now_ns();
    int rc;

    /* Not MPI_Init_thread: a higher level makes Open MPI take locks, which would add a third to the
     * baseline's small messages. */
    if (MPI_Init(argc, argv) != MPI_SUCCESS) {
        fprintf(stderr, "stepaf_perf: MPI_Init failed\n");
        return PERF_EXIT_FAILED;
    }
    job.job.mpi_init_ns = perf_now_ns() - start_ns;
    MPI_Comm_dup(MPI_COMM_WORLD, &job.channel);
    MPI_Comm_set_errhandler(job.channel, MPI_ERRORS_RETURN);
    MPI_Comm_rank(job.channel, &job.rank);
    MPI_Comm_size(job.channel, &job.size);
    get_version(job.job.launcher, sizeof(job.job.launcher));
    job.job.channel = (stepaf_boot_t){.name = "mpi",
                                      .self = &job,
                                      .rank = job.rank,
                                      .size = job.size,
                                      .app_number = -1,
                                      .allgather = mpi_allgather};
    rc = body(&job.job, arg);
    MPI_Comm_free(&job.channel);
    MPI_Finalize();
    return rc;
}
