/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that an MPI launcher has started. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stepaf/mpi.h>

#include "join.h"

/* Wait asleep: other ranks measure on these cores. MPI has no deadline; the launcher ends a job
 * that has lost a rank. */
static int finish(MPI_Request *request)
{
    int done = 0;

    for (;;) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 0;
        if (done)
            return 1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

static int gather(const void *data, int bytes, int *counts, int *starts, int n, size_t *offsets_p,
                  char **all_p)
{
    MPI_Request request;

    if (MPI_Iallgather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD, &request) !=
            MPI_SUCCESS ||
        !finish(&request))
        return 0;
    offsets_p[0] = 0;
    for (int i = 0; i < n; i++) {
        offsets_p[i + 1] = offsets_p[i] + (size_t)counts[i];
        if (counts[i] < 0 || offsets_p[i + 1] > INT_MAX)
            return 0;
        starts[i] = (int)offsets_p[i];
    }
    *all_p = malloc(offsets_p[n] + 1);
    return *all_p &&
           MPI_Iallgatherv(data, bytes, MPI_BYTE, *all_p, counts, starts, MPI_BYTE, MPI_COMM_WORLD,
                           &request) == MPI_SUCCESS &&
           finish(&request);
}

static stepaf_status_t mpi_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    int n = *(int *)self;
    int *counts = calloc(2 * (size_t)n, sizeof *counts);
    char *all = NULL;

    (void)timeout_us;
    if (!counts || bytes > INT_MAX ||
        !gather(data, (int)bytes, counts, counts + n, n, offsets_p, &all)) {
        free(counts);
        free(all);
        return stepaf_boot_set_error(STEPAF_ERR_BOOT, "MPI has not gathered the ranks' data");
    }
    free(counts);
    *all_p = all;
    return STEPAF_OK;
}

static void mpi_close(void *self)
{
    (void)self;
    MPI_Finalize();
}

int doctor_open_mpi(stepaf_boot_t *boot_p, char *library, size_t capacity)
{
    static int size;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, rank;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return 0; /* the reason is printed already */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (MPI_Get_library_version(text, &length) == MPI_SUCCESS) {
        text[strcspn(text, ",\n")] = '\0';
        snprintf(library, capacity, "%s", text);
    }
    *boot_p = (stepaf_boot_t){.name = "mpi",
                              .self = &size,
                              .rank = rank,
                              .size = size,
                              .app_number = -1,
                              .allgather = mpi_allgather,
                              .close = mpi_close};
    return 1;
}
