/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a job that an MPI launcher has started. */
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/mpi.h>

#include "info_map.h"

int info_map_is_launched(void)
{
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                        "MPI_LOCALRANKID"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (getenv(signs[i]))
            return 1;
    return 0;
}

int info_map_launched(void)
{
    stepaf_params_t params;
    stepaf_context_h ctx;
    int rank, size;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return 0; /* the reason is printed already */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    info_map_params(rank, size - size / 2, &params);
    int done = stepaf_init_mpi(MPI_COMM_WORLD, &params, &ctx) == STEPAF_OK;
    if (!done && rank == 0) /* all would say the same */
        info_failed("map");
    /* Other ranks may wait for a rank that has failed on its own, and MPI_Finalize would wait
     * with them. */
    if (done && !info_map_rank(ctx))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return done;
}
