/* SPDX-License-Identifier: Apache-2.0 */
/* What a user's program needs of an installation: installcheck.sh compiles and runs it. */
#include <stdio.h>
#include <string.h>

#ifdef CONSUMER_OF_MPI
#include <stepaf/mpi.h>
#endif
#ifdef CONSUMER_OF_PMIX
#include <stepaf/pmix.h>
#endif
#include <stepaf/stepaf.h>

int main(void)
{
#ifdef CONSUMER_OF_MPI
    /* Refused for want of MPI_Init, which is all that this has to show. */
    stepaf_context_h ctx;
    if (stepaf_init_mpi(MPI_COMM_NULL, NULL, &ctx) != STEPAF_ERR_INVALID)
        return 1;
#endif
#ifdef CONSUMER_OF_PMIX
    /* Refused for want of a launcher. */
    stepaf_context_h ctx;
    if (stepaf_init_pmix(NULL, &ctx) != STEPAF_ERR_BOOT)
        return 1;
#endif
    printf("header %s, library %s\n", STEPAF_VERSION_STRING, stepaf_version());
    return strcmp(STEPAF_VERSION_STRING, stepaf_version()) != 0;
}
