/* SPDX-License-Identifier: Apache-2.0 */
/* MPI as a contender: persistent point-to-point messages, one for each tensor and pair of ranks,
 * on the library's buffers. Where a stage sends no tensor in one direction, a message of zero
 * bytes replaces the library's notification. */
#ifndef PERF_BASELINE_MPI_H
#define PERF_BASELINE_MPI_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "place.h"

struct perf_mpi;

/* Make the messages of a row. Collective; -1 with a sentence, perhaps not on every rank. */
int perf_mpi_open(const struct perf_options *options, const struct perf_case *c,
                  const struct perf_place *place, const struct perf_buffers *buffers,
                  struct perf_mpi **mpi_p);

/* Collective. NULL is ignored. */
void perf_mpi_close(struct perf_mpi *mpi);

/* perf_contender's run. */
int perf_mpi_run(void *self, struct perf_block *block);

#endif
