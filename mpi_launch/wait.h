/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for MPI with a deadline, and its errors in our words. */
#ifndef STEPAF_MPI_WAIT_H
#define STEPAF_MPI_WAIT_H

#include <stdint.h>

#include <mpi.h>

#include <stepaf/status.h>

/* The status for the MPI error @a code of the call or action @a what; records the sentence. */
stepaf_status_t stepaf_mpi_error(int code, const char *what);

/* Record a sentence of our own about a failure, and return @a status. */
stepaf_status_t stepaf_mpi_fail(stepaf_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* CLOCK_MONOTONIC, ns, @a timeout_us from now. */
int64_t stepaf_mpi_deadline(int64_t timeout_us);

/* Wait for all of @a requests. STEPAF_ERR_TIMEOUT leaves those that are not complete active. */
stepaf_status_t stepaf_mpi_wait(MPI_Request *requests, int n, int64_t deadline_ns,
                                const char *what);

#endif
