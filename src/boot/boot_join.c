/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* getsid */

#include "boot/boot_join.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/time.h"

/* stepaf_boot_t's self: the place in the job and, from the first exchange on, what the ranks
 * share. */
struct joined {
    struct stepaf_join join;
    stepaf_boot_local_t *local;
    stepaf_boot_t boot; /* of local */
    int has_failed;
};

static stepaf_status_t join_job(struct joined *joined, int64_t deadline_ns)
{
    if (joined->has_failed)
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "local bootstrap: no exchange is possible after one has failed");
    stepaf_status_t status = joined->join.rank == 0
                                 ? stepaf_join_as_host(&joined->join, deadline_ns, &joined->local)
                                 : stepaf_join_as_guest(&joined->join, deadline_ns, &joined->local);
    if (status == STEPAF_OK) {
        status = stepaf_boot_local_attach(joined->local, joined->join.rank, -1, &joined->boot);
        if (status != STEPAF_OK) {
            stepaf_boot_local_destroy(joined->local);
            joined->local = NULL;
        }
    }
    joined->has_failed = status != STEPAF_OK;
    return status;
}

static stepaf_status_t join_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                      size_t *offsets_p, int64_t timeout_us)
{
    struct joined *joined = self;
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);

    if (!joined->local) {
        stepaf_status_t status = join_job(joined, stepaf_boot_local_meeting(deadline_ns));
        if (status != STEPAF_OK)
            return status;
    }
    int64_t left_us = (deadline_ns - stepaf_monotonic_ns()) / 1000;
    return joined->boot.allgather(joined->boot.self, data, bytes, all_p, offsets_p, left_us);
}

static stepaf_status_t join_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                    int64_t timeout_us)
{
    struct joined *joined = self;

    if (!joined->local)
        return stepaf_error_set(
            STEPAF_ERR_BOOT, STEPAF_PHASE_BARRIER,
            "local bootstrap: no barrier is possible before the first exchange");
    return joined->boot.barrier(joined->boot.self, group, ranks, n, timeout_us);
}

static void join_close(void *self)
{
    struct joined *joined = self;

    if (joined->local) {
        joined->boot.close(joined->boot.self);
        stepaf_boot_local_destroy(joined->local);
    }
    free(joined);
}

/* Read the place in the job from the settings. */
static stepaf_status_t read_place(const struct stepaf_env *env, struct stepaf_join *join_p)
{
    if (env->local_size == 0 || !env->from_environment[STEPAF_ENV_LOCAL_RANK])
        return stepaf_error_set(
            STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
            "%s is not set: a job without a launcher requires STEPAF_LOCAL_SIZE, its number of "
            "processes, and STEPAF_LOCAL_RANK, the number of this process from 0",
            env->local_size == 0 ? "STEPAF_LOCAL_SIZE" : "STEPAF_LOCAL_RANK");
    if (env->local_rank >= env->local_size)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_LOCAL_RANK=%d: ranks are 0 to %d with STEPAF_LOCAL_SIZE=%d",
                                (int)env->local_rank, (int)env->local_size - 1,
                                (int)env->local_size);
    *join_p = (struct stepaf_join){.rank = (int)env->local_rank, .size = (int)env->local_size};
    join_p->is_named = *env->local_job;
    if (join_p->is_named)
        snprintf(join_p->job, sizeof join_p->job, "%s", env->local_job);
    else /* a given name cannot contain a space */
        snprintf(join_p->job, sizeof join_p->job, "of session %ld in %" PRIu64, (long)getsid(0),
                 stepaf_boot_local_pid_space());
    return STEPAF_OK;
}

stepaf_status_t stepaf_boot_join(const struct stepaf_env *env, stepaf_boot_t *boot_p)
{
    struct stepaf_join join;
    stepaf_status_t status = read_place(env, &join);

    if (status != STEPAF_OK)
        return status;
    struct joined *joined = calloc(1, sizeof *joined);
    if (!joined)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                                "local bootstrap: no memory to join");
    joined->join = join;
    *boot_p = (stepaf_boot_t){
        .name = "local",
        .self = joined,
        .rank = join.rank,
        .size = join.size,
        .app_number = -1,
        .allgather = join_allgather,
        .barrier = join_barrier,
        .close = join_close,
    };
    return STEPAF_OK;
}
