/* SPDX-License-Identifier: Apache-2.0 */
/* Who has not come to an exchange. */
#ifndef STEPAF_ROLL_CALL_H
#define STEPAF_ROLL_CALL_H

#include "boot_common.h"
#include "boot_mpi.h"

/* This rank waits in an exchange: tell those that ask. */
void stepaf_mpi_answer_calls(const struct stepaf_mpi *mpi);
/* The exchange's deadline has passed: the first rank that does not wait in it, as far as can be found in a
 * moment; -1: none, or it cannot be found. */
int stepaf_mpi_find_missing(const struct stepaf_mpi *mpi);

#endif
