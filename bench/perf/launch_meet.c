/* SPDX-License-Identifier: Apache-2.0 */
/* The job as processes without an MPI launcher: they meet where the environment says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "job.h"

#define SETTLE_TIMEOUT_US ((int64_t)600 * 1000000)

/* Every context of the run goes through the one bootstrap, which none may close. */
static stepaf_status_t meet_join(struct perf_job *job, const stepaf_params_t *params,
                                 stepaf_context_h *ctx_p)
{
    stepaf_boot_t boot = job->channel;

    boot.close = NULL;
    return stepaf_init(&boot, params, ctx_p);
}

/* The library's barrier lets the context progress while it waits; the bootstrap's has no
 * context. */
static int meet_settle(struct perf_job *job, stepaf_context_h ctx)
{
    const stepaf_boot_t *channel = &job->channel;
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    int *ranks;

    if (ctx != NULL) {
        status = stepaf_barrier(ctx, STEPAF_GROUP_WORLD, SETTLE_TIMEOUT_US);
        return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_barrier");
    }
    ranks = calloc((size_t)channel->size, sizeof(*ranks));
    if (ranks == NULL)
        return perf_fail("out of memory");
    for (int i = 0; i < channel->size; i++)
        ranks[i] = i;
    status = channel->barrier(channel->self, STEPAF_GROUP_WORLD, ranks, channel->size,
                              SETTLE_TIMEOUT_US);
    free(ranks);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "a barrier");
}

static int meet_exit_code(stepaf_status_t status)
{
    return status == STEPAF_ERR_SETTING || status == STEPAF_ERR_SPLIT ? PERF_EXIT_USAGE
                                                                      : PERF_EXIT_FAILED;
}

/* Return an exit code. Ranks that cannot meet each have a reason of their own, and no rank to report
 * it to. */
static int meet(const stepaf_boot_t *channel)
{
    size_t *offsets = calloc((size_t)channel->size + 1, sizeof(*offsets));
    void *all = NULL;
    stepaf_status_t status = offsets == NULL ? STEPAF_ERR_NO_MEMORY
                                             : channel->allgather(channel->self, "", 0, &all,
                                                                  offsets, SETTLE_TIMEOUT_US);

    free(all);
    free(offsets);
    if (status == STEPAF_OK)
        return PERF_EXIT_OK;
    fprintf(stderr, "stepaf_perf: rank %d: %s\n", channel->rank, stepaf_last_error()->text);
    return meet_exit_code(status);
}

int perf_job_run_meet(perf_job_body_t body, void *arg)
{
    struct perf_job job = {.mpi_init_ns = -1, .join = meet_join, .settle = meet_settle};
    stepaf_status_t status = stepaf_boot_open(&job.channel);
    int rc;

    if (status != STEPAF_OK) {
        perf_fail_status(status, "stepaf_boot_open");
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
        return meet_exit_code(status);
    }
    snprintf(job.launcher, sizeof(job.launcher), "met over %s", job.channel.name);
    rc = meet(&job.channel);
    if (rc == PERF_EXIT_OK)
        rc = body(&job, arg);
    job.channel.close(job.channel.self);
    return rc;
}
