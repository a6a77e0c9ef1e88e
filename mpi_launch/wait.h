/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for MPI with a deadline, and translates MPI's errors. */
#ifndef STEPAF_MPI_WAIT_H
#define STEPAF_MPI_WAIT_H

#include <stdint.h>

#include <mpi.h>

#include "boot_common.h"

/* Return the status for the MPI error @a code of the call or action @a what; records the
 * sentence. */
stepaf_status_t stepaf_mpi_error(int code, const char *what);

struct stepaf_mpi;

/* Wait for all of @a requests. STEPAF_ERR_TIMEOUT leaves incomplete ones active. @a mpi: the
 * requests belong to an exchange, whose missing ranks are then determined; else NULL. */
stepaf_status_t stepaf_mpi_wait(const struct stepaf_mpi *mpi, MPI_Request *requests, int n,
                                int64_t deadline_ns, const char *what);

#endif
