/* SPDX-License-Identifier: Apache-2.0 */
/* Who has not come to an exchange. */
#ifndef STEPAF_ROLL_CALL_H
#define STEPAF_ROLL_CALL_H

#include "boot_common.h"
#include "boot_mpi.h"

/* This rank waits in an exchange: tell those that ask. */
void stepaf_mpi_answer_calls(const struct stepaf_mpi *mpi);
/* The exchange's deadline has passed: write the ranks that do not answer that they wait in it, with words
 * before; nothing, if all do, or none can be asked. */
void stepaf_mpi_list_missing(const struct stepaf_mpi *mpi, char *list, size_t room);

#endif
