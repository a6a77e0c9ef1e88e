/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for MPI with a deadline, and its errors in our words. */
#ifndef STEPAF_MPI_WAIT_H
#define STEPAF_MPI_WAIT_H

#include <stdint.h>

#include <mpi.h>

#include "boot_common.h"

/* The status for the MPI error @a code of the call or action @a what; records the sentence. */
stepaf_status_t stepaf_mpi_error(int code, const char *what);

struct stepaf_mpi;

/* Wait for all of @a requests. STEPAF_ERR_TIMEOUT leaves those that are not complete active. @a
 * mpi: they are an exchange's, and who has not come to it is asked for; else NULL. */
stepaf_status_t stepaf_mpi_wait(const struct stepaf_mpi *mpi, MPI_Request *requests, int n,
                                int64_t deadline_ns, const char *what);

#endif
