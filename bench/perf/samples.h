/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --samples: every measured time. */
#ifndef PERF_SAMPLES_H
#define PERF_SAMPLES_H

#include <stdio.h>

#include "row.h"

/* Begin the file, at rank 0; -1 with a sentence. Close *file_p with perf_samples_close. */
int perf_samples_open(const char *name, FILE **file_p);

/* Write the samples of one contender in row @a row, in the order of measuring; the byte offsets
 * of each rank's are in @a offsets. -1 with a sentence. */
int perf_samples_write(int row, const struct perf_case *c, enum perf_who who, int n_ranks,
                       const double *samples, const size_t *offsets);

/* Close the file, if one is open. -1 with a sentence. */
int perf_samples_close(void);

#endif
