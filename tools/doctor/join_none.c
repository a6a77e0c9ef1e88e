/* SPDX-License-Identifier: Apache-2.0 */
/* Without MPI in the build, ranks only meet by themselves. */
#include <stdio.h>

#include "join.h"

int doctor_open_mpi(stepaf_boot_t *boot_p, char *library, size_t capacity)
{
    (void)boot_p;
    (void)library;
    (void)capacity;
    fputs("stepaf_doctor: this build has no MPI: ranks of this launcher can meet only through "
          "STEPAF_MEET\n",
          stderr);
    return 0;
}
