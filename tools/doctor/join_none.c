/* SPDX-License-Identifier: Apache-2.0 */
/* In builds without MPI ranks meet by themselves only. */
#include <stdio.h>

#include "join.h"

int doctor_open_mpi(stepaf_boot_t *boot_p, char *library, size_t capacity)
{
    (void)boot_p;
    (void)library;
    (void)capacity;
    fputs("stepaf_doctor: this build is without MPI: the ranks of this launcher can meet by "
          "STEPAF_MEET only\n",
          stderr);
    return 0;
}
