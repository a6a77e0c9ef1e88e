/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers' environment variables. */
#include "launch.h"

#include <stdlib.h>

int launch_detected(void)
{
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                        "MPI_LOCALRANKID"};
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (getenv(signs[i]))
            return 1;
    return 0;
}

int launch_detected_rank(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        const char *rank = getenv(ranks[i]);
        if (rank)
            return (int)strtol(rank, NULL, 10);
    }
    return 0;
}
