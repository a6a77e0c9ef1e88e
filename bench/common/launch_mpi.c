/* SPDX-License-Identifier: Apache-2.0 */
/* The job under an MPI launcher. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/mpi.h>

#include "launch.h"

struct mpi_launch {
    struct launch launch;
    MPI_Comm channel; /* the program's own */
};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* Wait without occupying the core of ranks that still work. An abandoned request is left to MPI:
 * its peers are gone, and this process will exit. */
static stepaf_status_t finish(MPI_Request *request, int64_t deadline_us)
{
    const int64_t yield_until_us = now_us() + 1000;
    int done = 0;
    while (!done) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return STEPAF_ERR_BOOT;
        int64_t now = now_us();
        if (!done && now > deadline_us)
            return STEPAF_ERR_TIMEOUT;
        if (now < yield_until_us)
            sched_yield();
        else if (!done)
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return STEPAF_OK;
}

static stepaf_status_t gather_counts(struct mpi_launch *self, size_t bytes, int *counts,
                                     int *starts, size_t *offsets, int64_t deadline_us)
{
    int size = self->launch.channel.size;
    uint64_t mine = bytes;
    uint64_t *all = malloc((size_t)size * sizeof(*all));
    MPI_Request request;
    if (!all)
        return STEPAF_ERR_NO_MEMORY;
    stepaf_status_t status = STEPAF_ERR_BOOT;
    if (MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, self->channel, &request) ==
        MPI_SUCCESS)
        status = finish(&request, deadline_us);
    offsets[0] = 0;
    for (int i = 0; i < size && status == STEPAF_OK; i++) {
        offsets[i + 1] = offsets[i] + all[i];
        if (all[i] > INT_MAX || offsets[i + 1] > INT_MAX)
            status = STEPAF_ERR_LIMIT;
        counts[i] = (int)all[i];
        starts[i] = (int)offsets[i];
    }
    if (status != STEPAF_ERR_TIMEOUT) /* else MPI may still write to it */
        free(all);
    return status;
}

static stepaf_status_t gather(struct mpi_launch *self, const void *data, size_t bytes, int *counts,
                              const size_t *offsets, void **all_p, int64_t deadline_us)
{
    int size = self->launch.channel.size;
    MPI_Request request;
    char *all = malloc(offsets[size] ? offsets[size] : 1);
    if (!all)
        return STEPAF_ERR_NO_MEMORY;
    stepaf_status_t status = STEPAF_ERR_BOOT;
    if (MPI_Iallgatherv(data, (int)bytes, MPI_BYTE, all, counts, counts + size, MPI_BYTE,
                        self->channel, &request) == MPI_SUCCESS)
        status = finish(&request, deadline_us);
    if (status == STEPAF_OK)
        *all_p = all;
    else if (status != STEPAF_ERR_TIMEOUT)
        free(all);
    return status;
}

static stepaf_status_t mpi_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    struct mpi_launch *launch = self;
    size_t size = (size_t)launch->launch.channel.size;
    int64_t deadline_us = now_us() + timeout_us;
    int *counts = calloc(2 * size, sizeof(*counts));
    size_t *offsets = calloc(size + 1, sizeof(*offsets));
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    if (counts && offsets)
        status = gather_counts(launch, bytes, counts, counts + size, offsets, deadline_us);
    if (status == STEPAF_OK)
        status = gather(launch, data, bytes, counts, offsets, all_p, deadline_us);
    if (status == STEPAF_OK)
        memcpy(offsets_p, offsets, (size + 1) * sizeof(*offsets));
    free(offsets);
    if (status != STEPAF_ERR_TIMEOUT)
        free(counts);
    return status;
}

static stepaf_status_t mpi_join(struct launch *launch, const stepaf_params_t *params,
                                stepaf_context_h *ctx_p)
{
    (void)launch;
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
    snprintf(text, capacity, "%.*s", (int)capacity - 1, version);
}

static void open_channel(struct mpi_launch *self)
{
    int rank, size, has_number;
    int *number; /* MPMD application number */
    MPI_Comm_dup(MPI_COMM_WORLD, &self->channel);
    MPI_Comm_set_errhandler(self->channel, MPI_ERRORS_RETURN);
    MPI_Comm_rank(self->channel, &rank);
    MPI_Comm_size(self->channel, &size);
    if (MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &has_number) != MPI_SUCCESS)
        has_number = 0;
    self->launch.channel = (stepaf_boot_t){.name = "mpi",
                                           .self = self,
                                           .rank = rank,
                                           .size = size,
                                           .app_number = has_number ? *number : -1,
                                           .allgather = mpi_allgather};
}

int launch_mpi(const struct launch_params *params, int *argc, char ***argv, launch_body_t body,
               void *arg)
{
    struct mpi_launch self = {.launch = {.mpi_init_ns = -1, .missing = -1, .join = mpi_join}};
    int64_t start_us = now_us();
    int provided;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        fprintf(stderr, "%s: MPI_Init failed\n", params->program);
        return params->failed_code;
    }
    self.launch.mpi_init_ns = (now_us() - start_us) * 1000;
    get_version(self.launch.mpi_version, sizeof(self.launch.mpi_version));
    open_channel(&self);
    int code = body(&self.launch, arg);
    if (self.launch.broken) {
        fflush(NULL);
        _exit(code);
    }
    MPI_Comm_free(&self.channel);
    MPI_Finalize();
    return code;
}
